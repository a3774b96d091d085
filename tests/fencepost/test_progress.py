from __future__ import annotations

import io

import pytest
from rich.console import Console

from checker.history import Event
from fencepost import progress as module
from fencepost.progress import Progress, shown
from tests.fencepost.synthetic import MS, Script, chaos


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def feed(progress: Progress, clock: Clock, events: list[Event]) -> None:
    start = clock.now
    for event in events:
        clock.now = start + event.time / 1e9
        progress.event(event)


def test_it_shows_counts_rates_leader_and_active_faults() -> None:
    script = Script()
    script.nemesis(0, "phase", name="main")
    script.nemesis(1, "leader", node="n2", term=3)
    for number in range(40):
        script.call(100 * number, 10, number, "acquire", {}, "ok", {"token": number}, key="a")
    script.call(3900, 20, 50, "acquire", {}, "info", key="a", error="timeout")
    script.nemesis(3000, "partition", fault="f1", action="inject", targets=["n1", "n2"])
    script.nemesis(3100, "partition", fault="f1", action="injected", targets=["n1", "n2"], evidence="e")
    script.nemesis(3200, "kill", fault="f2", action="skipped", reason="no leader")
    clock = Clock()
    progress = Progress("demo", 20.0, clock)
    feed(progress, clock, script.events())
    assert progress.counts == {"ok": 40, "fail": 0, "info": 1}
    assert progress.rate("ok") == pytest.approx(10, rel=0.1)
    line = progress.line()
    for part in ("3.9 of 20 s", "main", "ok 40", "info 1", "leader n2, term 3", "faults: partition of n1, n2"):
        assert part in line
    progress.event(Event(99, 4000 * MS, "nemesis", "info", "partition", value={"fault": "f1", "action": "healed"}))
    assert progress.line().endswith("faults: none")


def test_time_starts_anew_with_the_main_phase() -> None:
    clock = Clock()
    progress = Progress("demo", 20.0, clock)
    clock.now += 7
    assert progress.line().startswith("7.0 s · starting")
    progress.enter("main")
    clock.now += 2
    assert progress.line().startswith("2.0 of 20 s · main")


@pytest.mark.parametrize("width", [30, 120])
def test_it_can_be_drawn_at_every_moment_of_a_run(width: int) -> None:
    clock = Clock()
    progress = Progress("[bold]not markup[/]", 40.0, clock)
    console = Console(file=io.StringIO(), width=width, force_terminal=True)
    for number, event in enumerate(chaos(operations=200)):
        progress.event(event)
        if number % 20 == 0:
            console.print(progress)
    output = console.file.getvalue()  # type: ignore[attr-defined]
    assert "not" in output
    assert "leader" in output
    if width > 100:
        assert "[bold]not markup[/]" in output


def test_a_log_gets_a_plain_line_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LINE_EVERY_S", 0.01)
    output = io.StringIO()
    console = Console(file=output, width=80)
    progress = Progress("demo", 20.0)
    with shown(progress, console):
        for _ in range(500):
            if output.getvalue().count("\n") > 2:
                break
            module.time.sleep(0.01)
    lines = output.getvalue().splitlines()
    assert len(lines) > 2
    assert all("starting" in line and "\x1b" not in line for line in lines)
