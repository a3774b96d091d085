"""Cutting links by packet filter, where the packets arrive: scripts for nft and iptables, for IPv4 and IPv6.

Rules.

1. A cut from A to B is made at B, against packets that come from A. To A it looks as if the network lost them; a rule
   at A would make A's own kernel complain to the process that sends.
2. All rules live in a table (nft) or chains (iptables) of their own. What is blocked is replaced as a whole, in one
   transaction of the kernel; nothing else of the host's rules is read or changed.
3. Both directions cut: every packet is dropped. One direction, from A to B: TCP connections that B has to A go on
   towards A, so what must come back for that passes (acknowledgements without data, and answers to B's own SYN), while
   A's data, its new connections, its FIN and RST are dropped. Dropping all of A's packets would stop both directions
   of TCP, and "A hears B, but B doesn't hear A", in which protocols break, could not be had.
4. Probes measure one direction, so answers to them always pass: they come from a port range that nothing else uses.
5. With nft each address is blocked for a number of seconds and must be blocked anew before they are over: a cut ends
   by itself when nobody renews it. iptables has no such thing; whoever runs the scripts has to keep the time.

Dropping A's RST shows under a one-way cut: B's new connection to a dead A hangs instead of being refused. With
iptables, data of 1 to 3 bytes in a packet of its own passes a one-way cut: u32 reads four bytes at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

#: Where probes come from: above the ports that Linux gives to outgoing connections (32768-60999).
PROBE_PORTS = range(61_000, 62_000)


@dataclass(frozen=True, slots=True)
class Blocked:
    """Whose packets (addresses) don't arrive: `lost`, none at all; `mute`, none that begin or say something. To those
    of `away` none go out either: for clients, at whose side nothing can be filtered."""

    lost: frozenset[str] = field(default_factory=frozenset)
    mute: frozenset[str] = field(default_factory=frozenset)
    away: frozenset[str] = field(default_factory=frozenset)

    def __bool__(self) -> bool:
        return bool(self.lost or self.mute or self.away)


class Step(NamedTuple):
    """A command and what it reads from stdin. One that is `optional` may fail."""

    argv: Sequence[str]
    text: str = ""
    optional: bool = False


class Filter(Protocol):
    name: str
    #: Blocks end by themselves, whatever becomes of whoever made them.
    keeps_time: bool

    def install(self) -> Sequence[Step]:
        """Make the rules, blocking nobody; again, if need be."""

    def replace(self, blocked: Blocked, seconds: float) -> Sequence[Step]:
        """Block exactly these."""

    def remove(self) -> Sequence[Step]:
        """Leave nothing behind. Also works where nothing was installed."""


class Nft:
    """Needs Linux 5.16 and nft 1.0.2 to see whether a TCP packet carries data."""

    name = "nft"
    keeps_time = True

    def install(self) -> Sequence[Step]:
        return [Step(("nft", "-f", "-"), _NFT_EMPTY + _NFT_TABLE)]

    def replace(self, blocked: Blocked, seconds: float) -> Sequence[Step]:
        lines = []
        for kind, addresses in (("lost", blocked.lost), ("mute", blocked.mute), ("away", blocked.away)):
            for family, members in zip(("4", "6"), _by_family(addresses), strict=True):
                name = f"inet fencepost {kind}{family}"
                lines.append(f"flush set {name}")
                if members:
                    elements = ", ".join(f"{address} timeout {round(seconds * 1000)}ms" for address in members)
                    lines.append(f"add element {name} {{ {elements} }}")
        return [Step(("nft", "-f", "-"), "\n".join(lines) + "\n")]

    def remove(self) -> Sequence[Step]:
        return [Step(("nft", "-f", "-"), _NFT_EMPTY)]


#: Deleting a table that isn't there is an error, adding one that is there isn't.
_NFT_EMPTY = "table inet fencepost\ndelete table inet fencepost\n"

# @ih is what follows the TCP header; where nothing does, the comparison can't be made, and the rule doesn't match.
_NFT_TABLE = f"""\
table inet fencepost {{
  set lost4 {{ type ipv4_addr; flags timeout; }}
  set lost6 {{ type ipv6_addr; flags timeout; }}
  set mute4 {{ type ipv4_addr; flags timeout; }}
  set mute6 {{ type ipv6_addr; flags timeout; }}
  set away4 {{ type ipv4_addr; flags timeout; }}
  set away6 {{ type ipv6_addr; flags timeout; }}
  chain mute {{
    meta l4proto != tcp drop
    tcp flags & (syn | ack) == syn drop
    tcp flags & (fin | rst) != 0 drop
    @ih,0,8 >= 0 drop
  }}
  chain input {{
    type filter hook input priority -300; policy accept;
    tcp dport {PROBE_PORTS[0]}-{PROBE_PORTS[-1]} accept
    ip saddr @lost4 drop
    ip6 saddr @lost6 drop
    ip saddr @mute4 jump mute
    ip6 saddr @mute6 jump mute
  }}
  chain output {{
    type filter hook output priority -300; policy accept;
    ip daddr @away4 drop
    ip6 daddr @away6 drop
  }}
}}
"""


class Iptables:
    """For hosts without a working nft. `legacy` asks for the variant that needs nothing of nftables in the kernel."""

    keeps_time = False

    def __init__(self, *, legacy: bool = False) -> None:
        self.name = "iptables-legacy" if legacy else "iptables"
        self._suffix = "-legacy" if legacy else ""

    def install(self) -> Sequence[Step]:
        steps = list(self.replace(Blocked(), 0))
        for tool, optional in self._tools():
            # Twice the same jump would do no harm to packets, but removing it once would not be enough.
            for hook, chain in _IPTABLES_HOOKS:
                steps.append(Step((tool, "-w", "-D", hook, "-j", chain), optional=True))
                steps.append(Step((tool, "-w", "-I", hook, "1", "-j", chain), optional=optional))
        return steps

    def replace(self, blocked: Blocked, seconds: float) -> Sequence[Step]:
        lost, mute, away = map(_by_family, (blocked.lost, blocked.mute, blocked.away))
        return [
            Step(
                (f"{tool}-restore", "-w", "--noflush"),
                _chains(payload, lost[family], mute[family], away[family]),
                optional,
            )
            for family, ((tool, optional), payload) in enumerate(zip(self._tools(), _U32_PAYLOAD, strict=True))
        ]

    def remove(self) -> Sequence[Step]:
        return [
            Step((tool, "-w", *arguments), optional=True)
            for tool, _ in self._tools()
            for arguments in (
                *(("-D", hook, "-j", chain) for hook, chain in _IPTABLES_HOOKS),
                *((action, chain) for action in ("-F", "-X") for chain in _IPTABLES_CHAINS),
            )
        ]

    def _tools(self) -> tuple[tuple[str, bool], tuple[str, bool]]:
        """For IPv4, and for IPv6, which a host need not have."""
        return (f"iptables{self._suffix}", False), (f"ip6tables{self._suffix}", True)


_IPTABLES_HOOKS = (("INPUT", "FENCEPOST"), ("OUTPUT", "FENCEPOST-AWAY"))
_IPTABLES_CHAINS = ("FENCEPOST", "FENCEPOST-AWAY", "FENCEPOST-MUTE")

#: There are four bytes behind the TCP header, whose length and whose IP header's length are read first.
_U32_PAYLOAD = ("0>>22&0x3C@12>>26&0x3C@0>>24=0:255", "52>>26&0x3C@40>>24=0:255")


def _chains(payload: str, lost: Sequence[str], mute: Sequence[str], away: Sequence[str]) -> str:
    """Naming a chain empties it; iptables-restore applies all or nothing."""
    lines = [
        "*filter",
        *(f":{chain} - [0:0]" for chain in _IPTABLES_CHAINS),
        "-A FENCEPOST-MUTE ! -p tcp -j DROP",
        "-A FENCEPOST-MUTE -p tcp --tcp-flags SYN,ACK SYN -j DROP",
        "-A FENCEPOST-MUTE -p tcp --tcp-flags FIN FIN -j DROP",
        "-A FENCEPOST-MUTE -p tcp --tcp-flags RST RST -j DROP",
        f'-A FENCEPOST-MUTE -p tcp -m u32 --u32 "{payload}" -j DROP',
        f"-A FENCEPOST -p tcp --dport {PROBE_PORTS[0]}:{PROBE_PORTS[-1]} -j RETURN",
        *(f"-A FENCEPOST -s {address} -j DROP" for address in lost),
        *(f"-A FENCEPOST -s {address} -j FENCEPOST-MUTE" for address in mute),
        *(f"-A FENCEPOST-AWAY -d {address} -j DROP" for address in away),
        "COMMIT",
    ]
    return "\n".join(lines) + "\n"


def _by_family(addresses: Iterable[str]) -> tuple[list[str], list[str]]:
    listed = sorted(addresses)
    return [one for one in listed if ":" not in one], [one for one in listed if ":" in one]


#: In the order in which they are tried.
FILTERS: tuple[Filter, ...] = (Nft(), Iptables(), Iptables(legacy=True))
