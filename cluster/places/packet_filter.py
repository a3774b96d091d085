"""Cutting links by packet filter, where the packets arrive: scripts for nft and iptables, for IPv4 and IPv6.

Rules.

1. A cut from A to B is made at B, against packets that come from A. To A it looks as if the network lost them; a rule
   at A would make A's own kernel complain to the process that sends.
2. All rules live in a table (nft) or chains (iptables) of the run's own, which bear its name where a machine may have
   those of several. What is blocked is replaced as a whole, in one
   transaction of the kernel; nothing else of the host's rules is read or changed.
3. Both directions cut: every packet is dropped. One direction, from A to B: TCP connections that B has to A go on
   towards A, so what must come back for that passes (acknowledgements without data, and answers to B's own SYN), while
   A's data, its new connections, its FIN and RST are dropped. Dropping all of A's packets would stop both directions
   of TCP, and "A hears B, but B doesn't hear A", in which protocols break, could not be had.
   A cut may be about one port: about connections to it, whoever of the two opened these.
4. Probes measure one direction, so answers to them always pass: they come from a port range that nothing else uses.
5. With nft each address is blocked for a number of seconds and must be blocked anew before they are over: a cut ends
   by itself when nobody renews it. iptables has no such thing; whoever runs the scripts has to keep the time.

Dropping A's RST shows under a one-way cut: B's new connection to a dead A hangs instead of being refused. With
iptables, data of 1 to 3 bytes in a packet of its own passes a one-way cut: u32 reads four bytes at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, NamedTuple, Protocol

#: Where probes come from: above the ports that Linux gives to outgoing connections (32768-60999).
PROBE_PORTS = range(61_000, 62_000)

#: Where nodes listen.
NODE_PORT = 7420

#: What the table or the chains are called.
TABLE = "fencepost"


@dataclass(frozen=True, slots=True)
class Blocked:
    """Whose packets (addresses) don't arrive: `lost`, none at all; `mute`, none that begin or say something; `lost_at`
    and `mute_at` (address, port), none from or to that port. `away` are clients, at whose side nothing can be filtered:
    between them and the node's port nothing passes either way."""

    lost: frozenset[str] = field(default_factory=frozenset)
    mute: frozenset[str] = field(default_factory=frozenset)
    away: frozenset[str] = field(default_factory=frozenset)
    lost_at: frozenset[tuple[str, int]] = field(default_factory=frozenset)
    mute_at: frozenset[tuple[str, int]] = field(default_factory=frozenset)

    def __bool__(self) -> bool:
        return bool(self.lost or self.mute or self.away or self.lost_at or self.mute_at)

    def plain(self) -> dict[str, list[Any]]:
        """As JSON has it; `of` is the inverse."""
        return {kind: sorted(map(_listed, who)) for kind, who in asdict(self).items()}

    @staticmethod
    def of(plain: Mapping[str, Sequence[Any]]) -> Blocked:
        parts = {kind: frozenset(map(_unlisted, who)) for kind, who in plain.items()}
        return Blocked(**{name.name: parts.get(name.name, frozenset()) for name in fields(Blocked)})


def _listed(who: str | tuple[str, int]) -> str | list[str | int]:
    return who if isinstance(who, str) else list(who)


def _unlisted(who: str | Sequence[Any]) -> Any:
    return who if isinstance(who, str) else tuple(who)


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
    """Needs Linux 5.16 and nft 1.0.2 to see whether a TCP packet carries data. `run` names the table, `node_port` is
    where the node listens."""

    name = "nft"
    keeps_time = True

    def __init__(self, run: str = "", node_port: int = NODE_PORT) -> None:
        self._table = f"{TABLE}_{run}" if run else TABLE
        self._node_port = node_port

    def install(self) -> Sequence[Step]:
        return [Step(("nft", "-f", "-"), self._empty() + _nft_table(self._table, self._node_port))]

    def replace(self, blocked: Blocked, seconds: float) -> Sequence[Step]:
        lines = []
        for kind, who in asdict(blocked).items():
            by_family = _by_family(one if isinstance(one, str) else f"{one[0]} . {one[1]}" for one in who)
            for family, members in zip(("4", "6"), by_family, strict=True):
                name = f"inet {self._table} {kind}{family}"
                lines.append(f"flush set {name}")
                if members:
                    elements = ", ".join(f"{member} timeout {round(seconds * 1000)}ms" for member in members)
                    lines.append(f"add element {name} {{ {elements} }}")
        return [Step(("nft", "-f", "-"), "\n".join(lines) + "\n")]

    def remove(self) -> Sequence[Step]:
        return [Step(("nft", "-f", "-"), self._empty())]

    def _empty(self) -> str:
        """Deleting a table that isn't there is an error, adding one that is there isn't."""
        return f"table inet {self._table}\ndelete table inet {self._table}\n"


def _nft_table(name: str, node_port: int) -> str:
    # @ih is what follows the TCP header; where nothing does, the comparison can't be made, and the rule doesn't match.
    return f"""\
table inet {name} {{
  set lost4 {{ type ipv4_addr; flags timeout; }}
  set lost6 {{ type ipv6_addr; flags timeout; }}
  set mute4 {{ type ipv4_addr; flags timeout; }}
  set mute6 {{ type ipv6_addr; flags timeout; }}
  set away4 {{ type ipv4_addr; flags timeout; }}
  set away6 {{ type ipv6_addr; flags timeout; }}
  set lost_at4 {{ type ipv4_addr . inet_service; flags timeout; }}
  set lost_at6 {{ type ipv6_addr . inet_service; flags timeout; }}
  set mute_at4 {{ type ipv4_addr . inet_service; flags timeout; }}
  set mute_at6 {{ type ipv6_addr . inet_service; flags timeout; }}
  chain mute {{
    meta l4proto != tcp drop
    tcp flags & (syn | ack) == syn drop
    tcp flags & (fin | rst) != 0 drop
    @ih,0,8 >= 0 drop
  }}
  chain ports {{
    ip saddr . th dport @lost_at4 drop
    ip saddr . th sport @lost_at4 drop
    ip6 saddr . th dport @lost_at6 drop
    ip6 saddr . th sport @lost_at6 drop
    ip saddr . th dport @mute_at4 jump mute
    ip saddr . th sport @mute_at4 jump mute
    ip6 saddr . th dport @mute_at6 jump mute
    ip6 saddr . th sport @mute_at6 jump mute
  }}
  chain input {{
    type filter hook input priority -300; policy accept;
    tcp dport {PROBE_PORTS[0]}-{PROBE_PORTS[-1]} accept
    ip saddr @lost4 drop
    ip6 saddr @lost6 drop
    ip saddr @mute4 jump mute
    ip6 saddr @mute6 jump mute
    ip saddr @away4 tcp dport {node_port} drop
    ip6 saddr @away6 tcp dport {node_port} drop
    meta l4proto {{ tcp, udp }} jump ports
  }}
  chain output {{
    type filter hook output priority -300; policy accept;
    ip daddr @away4 tcp sport {node_port} drop
    ip6 daddr @away6 tcp sport {node_port} drop
  }}
}}
"""


class Iptables:
    """For hosts without a working nft. `legacy` asks for the variant that needs nothing of nftables in the kernel.
    `run` names the chains, `node_port` is where the node listens."""

    keeps_time = False

    def __init__(self, run: str = "", node_port: int = NODE_PORT, *, legacy: bool = False) -> None:
        self.name = "iptables-legacy" if legacy else "iptables"
        self._suffix = "-legacy" if legacy else ""
        self._chains = _Chains(f"{TABLE}-{run}".upper() if run else TABLE.upper(), node_port)

    def install(self) -> Sequence[Step]:
        steps = list(self.replace(Blocked(), 0))
        for tool, optional in self._tools():
            # Twice the same jump would do no harm to packets, but removing it once would not be enough.
            for hook, chain in self._chains.hooks:
                steps.append(Step((tool, "-w", "-D", hook, "-j", chain), optional=True))
                steps.append(Step((tool, "-w", "-I", hook, "1", "-j", chain), optional=optional))
        return steps

    def replace(self, blocked: Blocked, seconds: float) -> Sequence[Step]:
        return [
            Step((f"{tool}-restore", "-w", "--noflush"), self._chains.filled(payload, blocked, family), optional)
            for family, ((tool, optional), payload) in enumerate(zip(self._tools(), _U32_PAYLOAD, strict=True))
        ]

    def remove(self) -> Sequence[Step]:
        return [
            Step((tool, "-w", *arguments), optional=True)
            for tool, _ in self._tools()
            for arguments in (
                *(("-D", hook, "-j", chain) for hook, chain in self._chains.hooks),
                *((action, chain) for action in ("-F", "-X") for chain in self._chains.names),
            )
        ]

    def _tools(self) -> tuple[tuple[str, bool], tuple[str, bool]]:
        """For IPv4, and for IPv6, which a host need not have."""
        return (f"iptables{self._suffix}", False), (f"ip6tables{self._suffix}", True)


#: There are four bytes behind the TCP header, whose length and whose IP header's length are read first.
_U32_PAYLOAD = ("0>>22&0x3C@12>>26&0x3C@0>>24=0:255", "52>>26&0x3C@40>>24=0:255")


class _Chains:
    def __init__(self, name: str, node_port: int) -> None:
        self._node_port = node_port
        self.names = self._input, self._away, self._mute = name, f"{name}-AWAY", f"{name}-MUTE"
        self.hooks = (("INPUT", self._input), ("OUTPUT", self._away))

    def filled(self, payload: str, blocked: Blocked, family: int) -> str:
        """Naming a chain empties it; iptables-restore applies all or nothing. `family` 0: IPv4, 1: IPv6."""
        lost, mute, away = (_by_family(who)[family] for who in (blocked.lost, blocked.mute, blocked.away))
        lines = [
            "*filter",
            *(f":{chain} - [0:0]" for chain in self.names),
            f"-A {self._mute} ! -p tcp -j DROP",
            f"-A {self._mute} -p tcp --tcp-flags SYN,ACK SYN -j DROP",
            f"-A {self._mute} -p tcp --tcp-flags FIN FIN -j DROP",
            f"-A {self._mute} -p tcp --tcp-flags RST RST -j DROP",
            f'-A {self._mute} -p tcp -m u32 --u32 "{payload}" -j DROP',
            f"-A {self._input} -p tcp --dport {PROBE_PORTS[0]}:{PROBE_PORTS[-1]} -j RETURN",
            *(f"-A {self._input} -s {address} -j DROP" for address in lost),
            *(f"-A {self._input} -s {address} -j {self._mute}" for address in mute),
            *(f"-A {self._input} -s {address} -p tcp --dport {self._node_port} -j DROP" for address in away),
            *(f"-A {self._away} -d {address} -p tcp --sport {self._node_port} -j DROP" for address in away),
            *(f"-A {self._input} {packets} -j DROP" for packets in _of_ports(blocked.lost_at, family)),
            *(f"-A {self._input} {packets} -j {self._mute}" for packets in _of_ports(blocked.mute_at, family)),
            "COMMIT",
        ]
        return "\n".join(lines) + "\n"


def _of_ports(ports: Iterable[tuple[str, int]], family: int) -> Iterator[str]:
    """What iptables calls the packets from or to these."""
    for address, port in sorted(ports):
        if (":" in address) == bool(family):
            yield from (f"-s {address} -p {p} --{end} {port}" for p in ("tcp", "udp") for end in ("dport", "sport"))


def _by_family(addresses: Iterable[str]) -> tuple[list[str], list[str]]:
    listed = sorted(addresses)
    return [one for one in listed if ":" not in one], [one for one in listed if ":" in one]


def filters(run: str = "", node_port: int = NODE_PORT) -> tuple[Filter, ...]:
    """In the order in which they are tried."""
    return Nft(run, node_port), Iptables(run, node_port), Iptables(run, node_port, legacy=True)


FILTERS = filters()
