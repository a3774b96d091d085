"""What nodes have on disk is changed behind their backs: bits flip, files are cut short, or old data comes back.

A node is killed, its data is changed, and it is started again. Evidence is what its data was and became, by size and
digest; and of damage, how the node took it. A node that refuses to start with damaged data is right. At the end of the
fault it gets back, byte for byte, what it had: to the others it was dead meanwhile. One that starts with damaged data
all the same keeps what it has: by then it may have told others what rests on it.

Old data is a copy that was taken so long before, of a node that stood still for a moment, as a snapshot of a volume is
taken. Of a node whose data is damaged at that moment it is what the node gets back: damage that a fault undoes must not
come back by another. Nothing undoes its return: at the end of the fault the nodes are started with it.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

from cluster.concurrency import all_of
from cluster.places.base import HoldsData, Place, PlaceError, ProcessState
from cluster.systems.base import NodeUnreachable
from cluster.words import counted
from nemesis.family import Fault, Skipped
from nemesis.kinds import DISK_FLIP, DISK_RESTORE, DISK_TRUNCATE
from nemesis.processes import Holds, ProcessFaults
from nemesis.schedule import Planned
from nemesis.spec import FaultSpec

#: From the start of a process until it answers, or has refused to. On a busy machine it is seen only when it is healed.
TAKE_BUDGET_S = 6.0
TAKE_POLL_S = 0.05
STATUS_TIMEOUT_S = 0.3
DIGEST_DIGITS = 8

Files = Mapping[str, bytes]


class Damages(ProcessFaults):
    """What flips and cuts have in common."""

    _changes = frozenset({ProcessState.RUNNING})

    def __init__(self, place: Place, nodes: Sequence[str], holds: Holds, kept: dict[str, Files]) -> None:
        super().__init__(place, nodes, holds)
        #: What nodes had that have not started since; one for all that is in this module.
        self._kept = kept
        #: Of nodes that had neither ended nor answered in time, how they took it after all.
        self._later: dict[str, str] = {}

    @abstractmethod
    def _damage(self, data: bytes, spec: FaultSpec, draws: random.Random) -> tuple[bytes, str]:
        """The file as it becomes, and what was done to it in words."""

    async def apply(self, fault: Fault) -> str:
        await self._bring(fault, self._place.kill_node, ProcessState.DEAD)
        done = await all_of(self._change(fault, node) for node in fault.targets)
        await all_of(map(self._place.start_node, fault.targets))
        taken = await all_of(map(self._took, fault.targets))
        return "; ".join(f"{what}; {how}" for what, how in zip(done, taken, strict=True))

    async def _change(self, fault: Fault, node: str) -> str:
        place, spec = _abilities(self._place), fault.explicit
        files = await place.read_data(node)
        pattern = str(spec.given()["file"])
        used = {name: len(data.rstrip(b"\0")) for name, data in sorted(files.items()) if fnmatchcase(name, pattern)}
        if not any(used.values()):
            raise Skipped(f"{node} has no file {pattern} with anything in it")
        draws = random.Random(f"{fault.id}/{node}/{spec}")
        (name,) = draws.choices(list(used), weights=list(used.values()))
        damaged, words = self._damage(files[name], spec, draws)
        self._kept[node] = files
        await place.replace_data(node, {**files, name: damaged})
        return f"{node}: {words} of {name} (sha256 {_digest(files[name])} became {_digest(damaged)})"

    async def _took(self, node: str) -> str:
        """How the node takes it."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + TAKE_BUDGET_S
        while clock() < deadline:
            if (how := await self._taken(node)) is not None:
                return how
            await asyncio.sleep(TAKE_POLL_S)
        self._later[node] = f"{node} neither ended nor answered"
        return f"{node} neither ended nor answered within {TAKE_BUDGET_S:g} s"

    async def _taken(self, node: str) -> str | None:
        """How, if that shows by now. What a node runs with, it keeps."""
        if await self._place.state(node) is ProcessState.DEAD:
            how, _, log = (await self._place.account(node)).partition(";")
            return f"{how}: {log.strip().splitlines()[-1].strip()}"
        try:
            await self._place.system.status(self._place.address(node), STATUS_TIMEOUT_S)
        except NodeUnreachable:
            return None
        self._kept.pop(node, None)
        return f"{node} started with it all the same"

    async def _heal_node(self, node: str) -> None:
        how = await self._taken(node)
        if node in self._later and how is not None:
            self._later[node] = how
        kept = self._kept.get(node)
        if kept is not None:
            await self._place.kill_node(node)
            await _abilities(self._place).replace_data(node, kept)
            del self._kept[node]
        await self._place.start_node(node)

    async def confirm(self, fault: Fault) -> str:
        later = [self._later.pop(node) for node in fault.targets if node in self._later]
        return "; ".join([*later, await super().confirm(fault)])


class Flips(Damages):
    kind = DISK_FLIP

    def _damage(self, data: bytes, spec: FaultSpec, draws: random.Random) -> tuple[bytes, str]:
        damaged = bytearray(data)
        reach = max(1, int(len(data.rstrip(b"\0")) * spec.number("share")))
        places = sorted(draws.sample(range(8 * reach), min(int(spec.number("bits")), 8 * reach)))
        for place in places:
            damaged[place // 8] ^= 1 << place % 8
        where = f"in byte {places[0] // 8}" + (f" and {len(places) - 1} more" if len(places) > 1 else "")
        return bytes(damaged), f"{counted(len(places), 'bit')} flipped, {where}"


class Cuts(Damages):
    kind = DISK_TRUNCATE

    def _damage(self, data: bytes, spec: FaultSpec, draws: random.Random) -> tuple[bytes, str]:
        used = len(data.rstrip(b"\0"))
        left = used - max(1, int(used * spec.number("share")))
        return data[:left], f"the last {used - left} of {used} bytes cut off"


class Restores(ProcessFaults):
    kind = DISK_RESTORE
    _changes = frozenset({ProcessState.RUNNING, ProcessState.PAUSED})

    def __init__(self, place: Place, nodes: Sequence[str], holds: Holds, kept: Mapping[str, Files]) -> None:
        super().__init__(place, nodes, holds)
        self._kept = kept
        self._copies: dict[str, dict[str, Files]] = {}
        self._complaints: dict[str, str] = {}

    def notice_ns(self, planned: Planned) -> int:
        return _age_ms(planned) * 1_000_000

    async def foresee(self, planned: Planned) -> None:
        """Copy every node's data: who is hit is decided later."""
        try:
            self._copies[planned.id] = {node: await self._copy(node) for node in self._nodes}
        except PlaceError as problem:
            self._complaints[planned.id] = str(problem)

    async def _copy(self, node: str) -> Files:
        place = _abilities(self._place)
        if node in self._kept:
            return self._kept[node]
        if await self._place.state(node) is not ProcessState.RUNNING:
            return await place.read_data(node)
        await self._place.pause_node(node)
        try:
            return await place.read_data(node)
        finally:
            await self._place.resume_node(node)

    async def prepare(self, planned: Planned) -> Fault:
        if planned.id not in self._copies:
            raise Skipped(f"there is no copy of the nodes' data: {self._complaints.get(planned.id, 'none was made')}")
        fault = await super().prepare(planned)
        age_ms = _age_ms(planned)
        explicit = replace(fault.explicit, options=(("age", (age_ms, age_ms)),))
        return replace(fault, detail={**fault.detail, "age_ms": age_ms}, explicit=explicit)

    async def apply(self, fault: Fault) -> str:
        await self._bring(fault, self._place.kill_node, ProcessState.DEAD)
        copies = self._copies.pop(fault.id)
        words = await all_of(self._put_back(node, copies[node]) for node in fault.targets)
        if not any(words):
            raise Skipped(f"the data of {', '.join(fault.targets)} was the same so long before")
        return f"{'; '.join(filter(None, words))}; {fault.detail['age_ms']} ms old"

    async def _put_back(self, node: str, copy: Files) -> str:
        place = _abilities(self._place)
        now = await place.read_data(node)
        if now == copy:
            return ""
        await place.replace_data(node, copy)
        return f"{node} has {_sum(copy)} in place of {_sum(now)}"

    async def _heal_node(self, node: str) -> None:
        await self._place.start_node(node)


def _age_ms(planned: Planned) -> int:
    return random.Random(f"{planned.stream}/age").randint(*planned.spec.span_ms("age"))


def _sum(files: Files) -> str:
    used = sum(len(data.rstrip(b"\0")) for data in files.values())
    whole = hashlib.sha256(b"".join(name.encode() + b"\0" + data for name, data in sorted(files.items())))
    return f"{used} bytes (sha256 {whole.hexdigest()[:DIGEST_DIGITS]})"


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:DIGEST_DIGITS]


def _abilities(place: Place) -> HoldsData:
    assert isinstance(place, HoldsData), "a scenario that asks for this is refused at such a place"
    return place
