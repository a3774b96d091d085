"""Bits that change between nodes of lockd, which seal what they send."""

from __future__ import annotations

from pathlib import Path

from cluster.places.base import Capability, ProcessState, lacking
from cluster.systems.base import Feature
from nemesis.spec import validate
from tests.cluster.standin import Standin
from tests.nemesis.arena import LIMIT_NS, fault
from tests.nemesis.test_faults_on_lockd import NODES, one_after_the_other, under_load


async def test_garbage_is_refused_and_nodes_go_on(tmp_path: Path) -> None:
    async with under_load(tmp_path, Capability.CORRUPT_LINKS) as arena:
        corrupt = fault("corrupt", "all", share=0.2, lasts=1_500)
        await one_after_the_other(arena, [(corrupt, r"[1-9]\d* changed pieces went through n")])
        logs = "".join((tmp_path / "nodes" / node / "node.log").read_text() for node in NODES)
        assert "a frame that was not sealed with this cluster's secret" in logs
        for node in NODES:
            assert await arena.place.state(node) is ProcessState.RUNNING
            assert "Traceback" not in logs


def test_a_system_has_to_notice_it() -> None:
    needed = lacking({Capability.CORRUPT_LINKS}, Standin())
    assert needed == {Capability.CORRUPT_LINKS: Feature.SEALED}
    able = set(Capability) - {Capability.CORRUPT_LINKS}
    (problem,) = validate(fault("corrupt", "all"), NODES, LIMIT_NS, able, lacking=needed)
    assert "the feature sealed" in problem.found
