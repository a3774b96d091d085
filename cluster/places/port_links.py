"""Links between nodes that listen at more than one port: the proxies of each port, cut apart or all together."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Mapping

from cluster.places.base import Link, LinkCounts, PortCut, Shaping
from cluster.places.links import Links
from cluster.systems.base import MAIN_PORT, Address


class PortLinks:
    """`targets`: for each port where the nodes listen, by name; MAIN_PORT is among them. `framed`: nodes send each
    other frames; `doors`: clients have a proxied way in, to the main port."""

    def __init__(
        self, targets: Mapping[str, Mapping[str, Address]], *, framed: bool = False, doors: bool = False
    ) -> None:
        self._ports = {
            port: Links(addresses, framed=framed, doors=doors and port == MAIN_PORT)
            for port, addresses in targets.items()
        }
        self._cuts: frozenset[Link] = frozenset()
        self._port_cuts: frozenset[PortCut] = frozenset()

    @property
    def main(self) -> Links:
        return self._ports[MAIN_PORT]

    async def open(self, sources: Collection[str] | None = None) -> None:
        """Start to listen; for these sources alone, where each has proxies of its own. Raises OSError."""
        for links in self._ports.values():
            await links.open(sources)

    def peers(self, node: str, port: str = MAIN_PORT) -> dict[str, Address]:
        """Under which addresses `node` reaches that port of the others."""
        return self._ports[port].peers(node)

    def set_cuts(self, links: Iterable[Link]) -> None:
        """Cut exactly these, whatever the port. Raises KeyError for a link that there isn't."""
        self._cut(frozenset(links), self._port_cuts)

    def cut_ports(self, cuts: Iterable[PortCut]) -> None:
        """Cut exactly these beside the whole ones. Raises KeyError for a link or a port that there isn't."""
        self._cut(self._cuts, frozenset(cuts))

    def _cut(self, cuts: frozenset[Link], port_cuts: frozenset[PortCut]) -> None:
        if strangers := {cut.port for cut in port_cuts} - self._ports.keys():
            raise KeyError(min(strangers))
        for port, links in self._ports.items():
            links.set_cuts(cuts | {cut.link for cut in port_cuts if cut.port == port})
        self._cuts, self._port_cuts = cuts, port_cuts

    def shape(self, shapings: Mapping[Link, Shaping]) -> None:
        """Shape exactly these, whatever the port. Raises KeyError for a link that there isn't."""
        for links in self._ports.values():
            links.shape(shapings)

    def reset(self, links: Collection[Link]) -> int:
        """Reset every connection that the links' sources opened; says how many."""
        return sum(one.reset(links) for one in self._ports.values())

    def counts(self, link: Link) -> LinkCounts:
        """Of all ports together."""
        counts = [links.counts(link) for links in self._ports.values()]
        return LinkCounts(*map(sum, zip(*counts, strict=True)))

    def probe_address(
        self, link: Link, via: Address | None = None, port: str = MAIN_PORT
    ) -> contextlib.AbstractAsyncContextManager[Address]:
        """As `Links.probe_address`. Raises KeyError for a port that there isn't."""
        return self._ports[port].probe_address(link, via)

    def door(self, node: str) -> Address | None:
        """Where clients of the node come in, if they have a way of their own."""
        return self.main.door(node)

    def shut_doors(self, nodes: Collection[str]) -> None:
        """Cut clients off from exactly these nodes, in both directions. Raises KeyError for one without a door."""
        self.main.shut_doors(nodes)

    def close(self) -> None:
        for links in self._ports.values():
            links.close()
