from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from typing import Any

import pytest

import checker
from checker.history import Event
from fencepost import analysis
from fencepost.report import About, render
from fencepost.report.calls import pair
from fencepost.report.clocks import SAMPLES_MAX, offsets
from fencepost.report.lanes import GRANTS_MAX, LANES_MAX, lanes
from fencepost.report.series import POINTS_MAX, faults, points, rates
from tests.fencepost.synthetic import FAULTS, MS, Script, chaos

HOSTILE = "</script><b>'\"&<!--"
CLAIMS = ("linearizable", "mutual-exclusion", "fencing")


class Page(HTMLParser):
    """What a browser's parser sees: the tags, the embedded data, whatever would be fetched, and the text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.fetched: list[str] = []
        self.text = ""
        self._data: list[str] = []
        self._in_data = False
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.fetched += [value or "" for name, value in attrs if name in ("src", "href", "srcset", "action")]
        self._in_data = ("id", "data") in attrs

    def handle_endtag(self, tag: str) -> None:
        self._in_data = False

    def handle_data(self, data: str) -> None:
        self.text += data
        if self._in_data:
            self._data.append(data)

    @property
    def data(self) -> Any:
        return json.loads("".join(self._data))


def page_of(events: list[Event], about: About | None = None, **options: Any) -> str:
    results = checker.check(events, CLAIMS, checker.Options(**options))
    return render(events, results.to_dict(), about or About())


def test_a_page_shows_the_verdict_the_claims_and_what_the_plots_need() -> None:
    events = chaos()
    page = Page(page_of(events, About(title="night", command="fencepost repro x.yaml"), coverage={"operations": 10}))
    assert "valid" in page.text
    assert "fencepost repro x.yaml" in page.text
    for claim in CLAIMS:
        assert claim in page.text
    assert {lane["key"] for lane in page.data["lanes"]} == {"a", "b", "c"}
    assert [fault["kind"] for fault in page.data["faults"]] == [fault[0] for fault in FAULTS]
    assert [leader["term"] for leader in page.data["leaders"]] == [1, 2, 3, 5]
    assert page.data["calls"] == len(pair(events))


def test_a_page_asks_nothing_of_a_network() -> None:
    page = page_of(chaos(operations=50))
    assert Page(page).fetched == []
    assert not re.search(r"url\(|@import|fetch\(|XMLHttpRequest|import\s*\(", page)
    assert re.findall(r"https?://[^\s\"']+", page) == []


@pytest.mark.parametrize("field", ["key", "node", "error", "evidence", "title", "fact", "leader", "kind"])
def test_nothing_that_a_user_wrote_becomes_markup(field: str) -> None:
    given = {
        name: HOSTILE if name == field else "plain" for name in ("key", "node", "error", "evidence", "leader", "kind")
    }
    script = Script()
    script.nemesis(1, "leader", node=given["leader"], term=1)
    script.nemesis(2, given["kind"], fault="f1", action="inject", targets=[given["node"]])
    script.nemesis(3, given["kind"], fault="f1", action="injected", evidence=given["evidence"])
    script.nemesis(4, "clocks", lease_ms={given["node"]: 1.5})
    for token, at in ((2, 10.0), (1, 20.0)):
        script.at(at, token, "invoke", "acquire", {"lease_ms": 9000}, key=given["key"], node=given["node"])
        script.at(at + 1, token, "ok", "acquire", {"token": token}, key=given["key"], node=given["node"])
    script.at(30, 7, "invoke", "acquire", {"lease_ms": 10}, key=given["key"])
    script.at(31, 7, "fail", "acquire", key=given["key"], error=given["error"])
    about = About(title=HOSTILE if field == "title" else "run", facts={"x": HOSTILE if field == "fact" else "y"})
    page = Page(page_of(script.events(), about))
    assert page.tags.count("b") == Page(page_of(script.events(), About())).tags.count("b")
    harmless = Page(page_of(chaos(operations=20)))
    assert page.tags.count("script") == harmless.tags.count("script") == 2
    assert HOSTILE in page.text or HOSTILE in json.dumps(page.data, ensure_ascii=False).replace('\\"', '"')


def test_violating_grants_are_red_and_no_others() -> None:
    events = chaos(violate=True, operations=2_000)
    page = Page(page_of(events))
    red = sum(sum(lane["red"]) for lane in page.data["lanes"])
    count = sum(len(lane["red"]) for lane in page.data["lanes"])
    assert 0 < red < count / 10
    assert "mutual-exclusion" in page.text
    assert sum(sum(lane["red"]) for lane in Page(page_of(chaos(operations=2_000))).data["lanes"]) == 0


def test_a_token_that_was_granted_twice_is_drawn_twice_in_red() -> None:
    script = Script()
    for process, at in ((0, 10.0), (1, 500.0)):
        script.call(at, 5, process, "acquire", {"lease_ms": 100}, "ok", {"token": 1}, key="a")
        script.call(at + 20, 5, process, "release", {"token": 1}, "ok", key="a")
    lane = lanes(pair(script.events()), 1000 * MS).lanes[0]
    assert [(grant.process, grant.red, grant.end) for grant in lane.grants] == [(0, True, 35 * MS), (1, True, 525 * MS)]


def test_a_bar_ends_with_the_lease_and_shows_what_was_believed_beyond() -> None:
    script = Script()
    script.call(10, 5, 0, "acquire", {"lease_ms": 100}, "ok", {"token": 1}, key="a")
    script.call(300, 5, 0, "release", {"token": 1}, "fail", key="a", error="not-held")
    script.call(400, 5, 1, "acquire", {"lease_ms": 100}, "ok", {"token": 2}, key="a")
    first, second = lanes(pair(script.events()), 1000 * MS).lanes[0].grants
    assert (first.start, first.end, first.believed) == (15 * MS, 115 * MS, 300 * MS)
    assert first.released == "fail: not-held"
    assert (second.end, second.released) == (505 * MS, "")


def test_a_release_that_surely_failed_leaves_a_grant_in_force() -> None:
    def reds(type: Any, error: str | None) -> list[bool]:
        script = Script()
        script.call(10, 5, 0, "acquire", {"lease_ms": 1000}, "ok", {"token": 1}, key="a")
        script.call(50, 5, 0, "release", {"token": 1}, type, key="a", error=error)
        script.call(100, 5, 1, "acquire", {"lease_ms": 1000}, "ok", {"token": 2}, key="a")
        return [grant.red for grant in lanes(pair(script.events()), 2000 * MS).lanes[0].grants]

    assert reds("fail", "no-leader") == [True, True]
    assert reds("info", "timeout") == [False, False]
    assert reds("ok", None) == [False, False]


def test_an_empty_history_makes_a_page() -> None:
    page = Page(render([], {"verdict": "unknown", "claims": {}}, About()))
    assert "No operations were recorded" in page.text
    assert page.data["lanes"] == []


def test_a_damaged_history_makes_a_page() -> None:
    events = [
        Event(0, 1, 3, "ok", "acquire", "a", {"token": 1}),
        Event(1, 2, 4, "invoke", "acquire", "a", {"lease_ms": "long"}),
        Event(2, 3, 4, "invoke", "release", None, {"token": True}),
        Event(3, 4, "nemesis", "info", "partition", value={"fault": ["odd"], "targets": 3}),
        Event(4, 5, "nemesis", "info", "leader"),
    ]
    page = Page(render(events, {"verdict": "unknown", "claims": {}}, About()))
    assert page.data["calls"] == 2


def test_a_huge_history_is_thinned_out_and_says_so() -> None:
    events = chaos(operations=110_000, seconds=600, keys=tuple(f"k{number}" for number in range(60)))
    calls = pair(events)
    assert len(calls) > POINTS_MAX
    results = {"verdict": "valid", "claims": {}, "operations": {"ok": 1}, "coverage": {}}
    text = render(events, results, About())
    page = Page(text)
    assert len(text.encode()) < 5_000_000
    assert f"{LANES_MAX} of 60 keys are drawn" in page.text
    assert re.search(r"50,000 of [\d,]+ operations are drawn", page.text)
    assert len(page.data["points"]["columns"]["time"]) == POINTS_MAX
    assert sum(len(lane["start"]) for lane in page.data["lanes"]) <= GRANTS_MAX
    infos = sum(call.completion is not None and call.completion.type == "info" for call in calls)
    assert page.data["points"]["columns"]["ending"].count(2) == infos
    rate = page.data["rates"]
    assert sum(rate["ok"]) + sum(rate["fail"]) + sum(rate["info"]) == sum(call.completion is not None for call in calls)


def test_points_can_be_put_together_again() -> None:
    calls = pair(chaos(operations=200))
    columns = points(calls).columns
    time = index = 0
    for call, step, stride, latency in zip(calls, columns["time"], columns["index"], columns["latency"], strict=True):
        time, index = time + step, index + stride
        assert call.completion is not None
        assert (time, index) == (call.invoke.time // 1000, call.invoke.index)
        assert latency == (call.completion.time - call.invoke.time) // 1000


def test_rates_count_every_completion_once() -> None:
    calls = pair(chaos(operations=500))
    end = max(call.completion.time for call in calls if call.completion)
    result = rates(calls, end)
    assert sum(sum(result[name]) for name in ("ok", "fail", "info")) == len(calls)


def test_a_fault_that_was_skipped_or_never_healed_is_told_apart() -> None:
    script = Script()
    script.nemesis(1, "kill", fault="f1", action="skipped", reason="no leader is known")
    script.nemesis(2, "pause", fault="f2", action="inject", targets=["n1"])
    script.nemesis(3, "pause", fault="f2", action="injected", targets=["n1"], evidence="state T")
    assert analysis.skipped(script.events()) == ("the fault f1 (kill) did not take place: no leader is known",)
    skipped, lasting = faults(script.events())
    assert (skipped.state, skipped.evidence) == ("skipped", "no leader is known")
    assert (lasting.state, lasting.evidence, lasting.healed) == ("took effect", "state T", None)


def test_clocks_are_drawn_as_they_were_sampled() -> None:
    script = Script()
    script.nemesis(1_000, "clocks", lease_ms={"n1": 0.0, "n2": 0.5}, wall_ms={"n1": 0.0})
    script.nemesis(2_000, "clocks", lease_ms={"n1": 500.0}, wall_ms={"n1": -3_600_000.0})
    script.nemesis(3_000, "clocks", wall_ms={"n1": 1})
    page = page_of(script.events())
    assert Page(page).data["clocks"] == [
        {"node": "n1", "clock": "lease", "times": [1000.0, 2000.0], "offsets": [0.0, 500.0]},
        {"node": "n1", "clock": "wall", "times": [1000.0, 2000.0, 3000.0], "offsets": [0.0, -3_600_000.0, 1.0]},
        {"node": "n2", "clock": "lease", "times": [1000.0], "offsets": [0.5]},
    ]
    assert '<canvas id="clocks"' in page
    assert "wall clock of n1 from -3600000.0 to +1.0 ms" in page


def test_without_samples_there_is_no_plot_of_clocks() -> None:
    page = page_of(chaos(operations=50))
    assert Page(page).data["clocks"] == []
    assert '<canvas id="clocks"' not in page
    assert 'id="clock-legend"' not in page


@pytest.mark.parametrize(
    "value", [None, {}, {"lease_ms": 3}, {"lease_ms": {"n1": "late"}}, {"wall_ms": {"n1": True, "n2": 1e300}}]
)
def test_what_is_no_sample_of_a_clock_is_left_out(value: Any) -> None:
    assert offsets([Event(0, 1, "nemesis", "info", "clocks", value=value)]) == []


def test_thinned_samples_of_clocks_keep_every_excursion() -> None:
    script = Script()
    for second in range(SAMPLES_MAX * 3):
        script.nemesis(second * 1_000, "clocks", lease_ms={"n1": {777: 900.0, 5_000: -40.0}.get(second, 0.0)})
    (found,) = offsets(script.events())
    assert (found.drawn <= SAMPLES_MAX, found.total) == (True, SAMPLES_MAX * 3)
    assert found.times_ms == sorted(found.times_ms)
    assert found.offsets_ms[found.times_ms.index(777_000.0)] == max(found.offsets_ms) == 900.0
    assert found.offsets_ms[found.times_ms.index(5_000_000.0)] == min(found.offsets_ms) == -40.0
    assert "samples are drawn" in page_of(script.events())
