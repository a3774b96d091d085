"""The claims `agreement`, `ghosts` and `leases`, on histories made by hand."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from checker import Applied, Event, Evidence, Options, Proposal, Verdict, check
from checker.verdict import ClaimResult

MS = 1_000_000


class Script:
    """A history in the making; times in ms."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._process = 0

    def call(
        self, f: str, start: int, end: int, type: str, *, key: str = "a", token: int | None = None,
        error: str | None = None, lease: int = 1_000, wait: int = 0,
    ) -> None:  # fmt: skip
        """One operation that nothing overlaps."""
        asked: dict[str, object] = {"token": token}
        told: dict[str, object] | None = None
        if f == "acquire":
            asked = {"lease_ms": lease, "wait_ms": wait}
        if type == "ok" and f != "release":
            told = {"token": token}
        self._add(start, self._process, "invoke", f, key, None if f == "inspect" else asked)
        self._add(end, self._process, type, f, key, told, error)
        self._process += 1

    def phase(self, time: int, name: str) -> None:
        self._add(time, "nemesis", "info", "phase", None, {"name": name})

    def _add(
        self, time: int, process: object, type: str, f: str, key: str | None, value: object, error: object = None
    ) -> None:
        index = len(self.events)
        self.events.append(Event(index, time * MS, process, type, f, key, value, error))  # type: ignore[arg-type]

    def check(self, claim: str, options: Options | None = None) -> ClaimResult:
        return check(self.events, [claim], options).claims[claim]


# ---- leases


def test_a_lock_that_is_seen_free_inside_its_lease_was_lost_early() -> None:
    script = Script()
    script.call("acquire", 0, 10, "ok", token=1)
    script.call("inspect", 500, 510, "ok", token=None)
    result = script.check("leases")
    assert result.verdict is Verdict.INVALID
    assert "token 1 was lost before its lease could be over" in result.findings[0].message
    assert result.numbers["early"] == 1


@pytest.mark.parametrize(
    ("f", "start", "type", "token", "error"),
    [
        ("inspect", 995, "ok", None, None),
        ("inspect", 500, "ok", 1, None),
        ("release", 500, "ok", 1, None),
        ("acquire", 500, "fail", None, "held"),
        ("acquire", 1_200, "ok", 2, None),
    ],
)
def test_what_fits_the_lease_is_no_early_loss(
    f: str, start: int, type: str, token: int | None, error: str | None
) -> None:
    script = Script()
    script.call("acquire", 0, 10, "ok", token=1)
    script.call(f, start, start + 10, type, token=token, error=error)
    assert script.check("leases").verdict is Verdict.VALID


def test_a_release_that_is_refused_inside_the_lease_shows_an_early_loss() -> None:
    script = Script()
    script.call("acquire", 0, 10, "ok", token=1)
    script.call("release", 300, 310, "fail", token=1, error="not-held")
    assert script.check("leases").verdict is Verdict.INVALID


def test_after_a_release_nothing_is_lost() -> None:
    script = Script()
    script.call("acquire", 0, 10, "ok", token=1)
    script.call("release", 300, 310, "ok", token=1)
    script.call("acquire", 320, 330, "ok", token=2)
    assert script.check("leases").verdict is Verdict.VALID


def test_a_lease_does_not_run_while_its_client_waits() -> None:
    """The grant can't have come before the earlier token's release was invoked, at 900 ms; at 1,500 ms it must hold."""
    script = Script()
    script.call("acquire", 0, 10, "ok", token=1, lease=5_000)
    waiting = len(script.events)
    script.events.append(Event(waiting, 20 * MS, 90, "invoke", "acquire", "a", {"lease_ms": 1_000, "wait_ms": 2_000}))
    script.call("release", 900, 905, "ok", token=1)
    script.events.append(Event(len(script.events), 910 * MS, 90, "ok", "acquire", "a", {"token": 2}))
    script.call("acquire", 1_480, 1_500, "ok", token=3)
    assert script.check("leases").verdict is Verdict.INVALID


def test_how_late_a_lease_ends_is_told_and_bounded() -> None:
    script = Script()
    script.call("acquire", 0, 10, "ok", token=1)
    script.call("inspect", 3_510, 3_520, "ok", token=1)
    assert script.check("leases").verdict is Verdict.VALID
    assert script.check("leases").numbers["latest_s"] == 2.5
    assert script.check("leases", Options(late_s_max=3.0)).verdict is Verdict.VALID
    result = script.check("leases", Options(late_s_max=2.0))
    assert result.verdict is Verdict.INVALID
    assert "2.500 s past its lease" in result.findings[0].message


# ---- ghosts


@pytest.mark.parametrize(
    ("type", "error", "verdict"),
    [
        ("ok", None, Verdict.VALID),
        ("fail", "timeout", Verdict.INVALID),
        ("fail", "held", Verdict.INVALID),
        ("fail", "no-leader", Verdict.UNKNOWN),
        ("info", "timeout", Verdict.UNKNOWN),
    ],
)
def test_a_key_that_nobody_can_have_in_the_end_is_a_ghost(type: str, error: str | None, verdict: Verdict) -> None:
    script = Script()
    script.call("acquire", 0, 10, "fail", error="timeout")
    script.phase(1_000, "final")
    script.call("acquire", 1_010, 7_000, type, token=1 if type == "ok" else None, error=error, wait=6_000)
    assert script.check("ghosts").verdict is verdict


@pytest.mark.parametrize(("abandon_ms", "verdict"), [(5, Verdict.VALID), (0, Verdict.INVALID)])
def test_a_lease_that_may_still_run_is_no_ghost_unless_its_client_never_heard_of_it(
    abandon_ms: int, verdict: Verdict
) -> None:
    script = Script()
    script.call("acquire", 0, 10, "info", error="connection-lost", lease=20_000)
    asked = script.events[0]
    script.events[0] = Event(
        0, 0, asked.process, "invoke", "acquire", "a", {**(asked.value or {}), "abandon_ms": abandon_ms}
    )
    script.phase(1_000, "final")
    script.call("acquire", 1_010, 7_000, "fail", error="timeout", wait=6_000)
    assert script.check("ghosts").verdict is verdict


def test_without_a_final_phase_nobody_knows_of_ghosts() -> None:
    script = Script()
    script.call("acquire", 0, 10, "fail", error="timeout")
    assert script.check("ghosts").verdict is Verdict.UNKNOWN


# ---- agreement

NOOP = ("Noop", "NothingDone")


def applied(*entries: tuple[int, int, str, str], token_of: dict[int, int] | None = None) -> list[Applied]:
    tokens = token_of or {}
    return [
        Applied(life, index, command, result, "a" if index in tokens else None, tokens.get(index))
        for life, index, command, result in entries
    ]


def judged(
    nodes: dict[str, Sequence[Applied]], failures: Sequence[str] = (), *, token: int = 1, whole: bool = True
) -> ClaimResult:
    script = Script()
    script.call("acquire", 0, 10, "ok", token=token)
    return script.check("agreement", Options(evidence=Evidence(nodes, failures, whole=whole)))


def test_nodes_that_applied_the_same_agree() -> None:
    grant = applied((1, 1, *NOOP), (1, 2, "Grant a", "Granted 1"), token_of={2: 1})
    restarted = [*grant, *applied((2, 1, *NOOP), (2, 2, "Grant a", "Granted 1"), token_of={2: 1})]
    result = judged({"n1": grant, "n2": restarted, "n3": grant[:1]})
    assert (result.verdict, result.numbers["entries"]) == (Verdict.VALID, 2)


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (
            applied((1, 1, *NOOP), (1, 2, "Grant a", "Granted 2"), token_of={2: 2}),
            "entry 2: n1 applied Grant a -> Granted 1",
        ),
        (applied((1, 2, "Release a", "Released")), "and n2 applied Release a -> Released"),
        (applied((1, 1, *NOOP), (1, 1, *NOOP)), "n2 applied entry 1 (Noop) after entry 1, in the same life"),
        (
            applied((1, 3, "Grant b", "Granted 1"), token_of={3: 1}),
            "entry 3 was granted token 1, after entry 2 was granted 1",
        ),
    ],
)
def test_what_differs_or_comes_twice_is_told(other: list[Applied], words: str) -> None:
    first = applied((1, 1, *NOOP), (1, 2, "Grant a", "Granted 1"), token_of={2: 1})
    result = judged({"n1": first, "n2": other})
    assert result.verdict is Verdict.INVALID
    assert words in "\n".join(finding.message for finding in result.findings)


def test_a_grant_that_a_client_was_told_of_must_be_there() -> None:
    log = applied((1, 1, *NOOP), (1, 2, "Grant a", "Granted 1"), token_of={2: 1})
    result = judged({"n1": log}, token=7)
    assert result.verdict is Verdict.INVALID
    assert "token 7 was granted, and no node has applied that grant" in result.findings[0].message
    with_hole = applied((1, 1, *NOOP), (1, 3, "Grant a", "Granted 3"), token_of={3: 3})
    assert judged({"n1": with_hole}, token=2).verdict is Verdict.VALID  # it may be entry 2
    assert judged({"n1": with_hole}, token=7).verdict is Verdict.INVALID  # entry 2 it can't be
    assert judged({"n1": with_hole}, token=7, whole=False).verdict is Verdict.VALID


@pytest.mark.parametrize(
    ("type", "entry", "told", "words"),
    [
        ("fail", Applied(1, 1, "Grant a", "Granted 1", "a", 1, term=2), None, "was told that it had no effect"),
        ("fail", Applied(1, 1, "Grant a", "GrantRejected", "a", term=2), None, None),
        ("info", Applied(1, 1, "Grant a", "Granted 1", "a", 1, term=2), None, None),
        ("ok", Applied(1, 1, "Grant a", "Granted 1", "a", 1, term=2), 1, None),
        ("ok", Applied(1, 1, "Grant a", "Granted 1", "a", 1, term=1), 1, None),
    ],
)
def test_a_client_is_told_what_its_own_entry_did(
    type: str, entry: Applied, told: int | None, words: str | None
) -> None:
    script = Script()
    script.call("acquire", 0, 10, type, token=told, error="timeout" if type == "fail" else None)
    evidence = Evidence({"n1": [entry]}, proposals=[Proposal(1, 2, 0)])
    result = script.check("agreement", Options(evidence=evidence))
    assert result.verdict is (Verdict.INVALID if words else Verdict.VALID)
    assert words is None or words in result.findings[0].message


def test_a_grant_told_to_another_than_its_own_client_is_a_violation() -> None:
    script = Script()
    script.call("acquire", 0, 10, "ok", token=2)
    log = [Applied(1, 1, "Grant a", "Granted 1", "a", 1, term=1), Applied(1, 2, "Grant a", "Granted 2", "a", 2, term=1)]
    evidence = Evidence({"n1": log}, proposals=[Proposal(1, 1, 0)])
    result = script.check("agreement", Options(evidence=evidence))
    assert result.verdict is Verdict.INVALID
    assert result.findings[0].data["kind"] == "other-token"


def test_a_release_that_a_client_was_told_of_must_be_there() -> None:
    script = Script()
    script.call("acquire", 0, 10, "ok", token=1)
    script.call("release", 20, 30, "ok", token=1)
    log = [Applied(1, 1, "Grant a", "Granted 1", "a", 1, term=1), Applied(1, 2, "Release a", "Released", "a", term=1)]
    proposals = [Proposal(1, 1, 0), Proposal(2, 1, 2)]
    assert script.check("agreement", Options(evidence=Evidence({"n1": log}, (), proposals))).verdict is Verdict.VALID
    result = script.check("agreement", Options(evidence=Evidence({"n1": log[:1]}, (), proposals)))
    assert result.verdict is Verdict.INVALID
    assert "token 1 was released, and no node has applied that release" in result.findings[0].message


def test_a_node_that_ended_by_itself_is_a_violation() -> None:
    result = judged({"n1": []}, ["n2 failed: AssertionError"])
    assert result.verdict is Verdict.INVALID
    assert "seen from inside: n2 failed: AssertionError" in result.findings[0].message


def test_without_evidence_nobody_knows() -> None:
    script = Script()
    script.call("acquire", 0, 10, "ok", token=1)
    assert script.check("agreement").verdict is Verdict.UNKNOWN
