"""The claims other than linearizability, each by histories that say just one thing."""

from __future__ import annotations

import json
from typing import Any

import pytest

import checker
from checker import Options, OptionsError, Verdict
from checker.verdict import ASSUMPTION_BROKEN
from tests.checker import script


def judge(text: str, claim: str, **options: Any) -> checker.ClaimResult:
    return checker.check(script.events(text), [claim], Options(**options)).claims[claim]


def fault(action: str, **more: Any) -> str:
    return json.dumps({"fault": "f1", "action": action, "targets": ["n2"], **more})


class TestMutualExclusion:
    TWO_GRANTS = """
        1 acquire a lease_ms=2000
        1 ok 1
        @ {}
        2 acquire a
        2 ok 2
        """

    def judge(self, text: str, **options: Any) -> checker.ClaimResult:
        return judge(text, "mutual-exclusion", **options)

    def test_a_grant_within_the_lease_of_another_is_a_violation(self) -> None:
        result = self.judge(self.TWO_GRANTS.format(1.5))
        assert result.verdict is Verdict.INVALID
        assert result.numbers["violations"] == 1
        (finding,) = result.findings
        assert finding.key == "a"
        assert finding.data["tokens"] == [1, 2]
        assert finding.data["early_s"] == pytest.approx(0.499)
        assert [operation.process for operation in finding.operations] == [1, 2]
        assert finding.message.splitlines() == [
            "key 'a': token 2 was held 0.499 s before token 1 could end",
            "- process 1 (n1) acquire, 0.000-0.001 s [0-1] ok, token 1: in force until 2.000 s at least"
            " (lease 2 s, not released)",
            "- process 2 (n2) acquire, 1.500-1.501 s [2-3] ok, token 2: shows token 2 0.499 s too early",
        ]

    def test_the_lease_counts_from_the_invoke(self) -> None:
        assert self.judge(self.TWO_GRANTS.format(1.998)).verdict is Verdict.INVALID
        assert self.judge(self.TWO_GRANTS.format(2.0)).verdict is Verdict.VALID

    def test_the_clock_error_shortens_the_lease(self) -> None:
        assert self.judge(self.TWO_GRANTS.format(1.85), clock_error=0.05).verdict is Verdict.INVALID
        assert self.judge(self.TWO_GRANTS.format(1.95), clock_error=0.05).verdict is Verdict.VALID

    @pytest.mark.parametrize(
        ("ending", "verdict"),
        [
            ("1 ok", Verdict.VALID),
            ("1 info", Verdict.VALID),
            ("", Verdict.VALID),
            ("1 fail not-held", Verdict.INVALID),
            ("1 fail no-leader", Verdict.INVALID),
        ],
    )
    def test_a_release_ends_it_unless_it_surely_failed(self, ending: str, verdict: Verdict) -> None:
        text = f"1 acquire a\n1 ok 1\n1 release a 1\n2 acquire a\n2 ok 2\n{ending}"
        assert self.judge(text).verdict is verdict

    def test_a_release_that_comes_later_does_not_count(self) -> None:
        assert self.judge("1 acquire a\n1 ok 1\n2 acquire a\n2 ok 2\n1 release a 1").verdict is Verdict.INVALID

    @pytest.mark.parametrize("proof", ["inspect a\n2 ok 5", "renew a 5\n2 ok", "release a 5\n2 ok"])
    def test_any_proof_of_a_later_holder_counts(self, proof: str) -> None:
        assert self.judge(f"1 acquire a\n1 ok 1\n2 {proof}").verdict is Verdict.INVALID

    @pytest.mark.parametrize(
        "proof", ["inspect a\n2 ok 1", "inspect a\n2 ok null", "renew a 5\n2 fail not-held", "release a 5\n2 info"]
    )
    def test_what_proves_no_later_holder_does_not(self, proof: str) -> None:
        assert self.judge(f"1 acquire a\n1 ok 1\n2 {proof}").verdict is Verdict.VALID

    def test_a_grant_is_not_in_force_before_its_completion(self) -> None:
        assert self.judge("1 acquire a\n2 acquire a\n2 ok 2\n1 ok 1").verdict is Verdict.VALID

    def test_an_unknown_grant_is_never_in_force(self) -> None:
        assert self.judge("1 acquire a\n1 info\n2 acquire a\n2 ok 2").verdict is Verdict.VALID

    def test_keys_are_apart(self) -> None:
        assert self.judge("1 acquire a\n1 ok 1\n2 acquire b\n2 ok 2").verdict is Verdict.VALID

    def test_a_renewal_extends_the_grant(self) -> None:
        renewed = "1 acquire a lease_ms=1000\n1 ok 1\n@ 0.5\n1 renew a 1 lease_ms=1000\n{}\n@ 1.2\n2 acquire a\n2 ok 2"
        assert self.judge(renewed.format("1 ok")).verdict is Verdict.INVALID
        assert self.judge(renewed.format("1 info")).verdict is Verdict.VALID
        assert self.judge(renewed.format("1 fail not-held")).verdict is Verdict.VALID

    def test_a_renewal_may_shorten_the_grant_as_soon_as_it_is_asked_for(self) -> None:
        shortened = "1 acquire a lease_ms=9000\n1 ok 1\n1 renew a 1 lease_ms=100\n{}\n@ 0.5\n2 acquire a\n2 ok 2"
        assert self.judge(shortened.format("1 ok")).verdict is Verdict.VALID
        assert self.judge(shortened.format("1 info")).verdict is Verdict.VALID
        assert self.judge(shortened.format("1 fail not-held")).verdict is Verdict.INVALID

    def test_of_renewals_that_overlap_the_shorter_one_may_have_come_last(self) -> None:
        text = """
            1 acquire a lease_ms=1000
            1 ok 1
            1 renew a 1 lease_ms=9000
            3 renew a 1 lease_ms=100
            1 ok
            3 ok
            @ 2
            2 acquire a
            2 ok 2
            """
        assert self.judge(text).verdict is Verdict.VALID

    def test_each_grant_is_reported_once(self) -> None:
        grants = "\n".join(f"{token} acquire a\n{token} ok {token}" for token in range(1, 40))
        result = self.judge(grants)
        assert result.numbers["violations"] == 38
        assert len(result.findings) == 10

    def test_a_broken_assumption_leaves_it_unknown(self) -> None:
        text = f"""
            1 acquire a
            1 ok 1
            nemesis clock {fault("inject")}
            nemesis clock {fault("injected", evidence="the node's clock read 60 s ahead", breaks=["clock_error"])}
            2 acquire a
            2 ok 2
            nemesis clock {fault("healed")}
            """
        result = self.judge(text)
        assert result.verdict is Verdict.UNKNOWN
        assert result.numbers == {"grants": 2, "violations": 0, "assumption_broken": 1}
        assert "clock error of 0 was broken by clock of n2 (f1" in result.findings[0].message
        assert self.judge(text.replace("breaks", "mends")).verdict is Verdict.INVALID

    def test_an_assumption_broken_after_the_fact_excuses_nothing(self) -> None:
        injected = fault("injected", evidence="seen", breaks=["clock_error"])
        text = f"1 acquire a\n1 ok 1\n2 acquire a\n2 ok 2\nnemesis clock {injected}"
        assert self.judge(text).verdict is Verdict.INVALID

    def test_grants_without_a_lease_leave_it_unknown(self) -> None:
        result = self.judge("1 acquire a lease_ms=null\n1 ok 1\n2 acquire a\n2 ok 2")
        assert result.verdict is Verdict.UNKNOWN
        assert "1 of 2 grants carry no lease_ms" in result.findings[0].message

    def test_the_finding_names_what_the_nemesis_did_meanwhile(self) -> None:
        leader = '{{"node": "{}", "term": {}}}'
        text = f"""
            nemesis leader {leader.format("n1", 1)}
            1 acquire a
            nemesis partition {fault("inject", detail={"cuts": []})}
            nemesis partition {fault("injected", evidence="no answer from n2")}
            1 ok 1
            nemesis leader {leader.format("n3", 2)}
            2 acquire a
            2 ok 2
            nemesis partition {fault("heal")}
            nemesis partition {fault("healed", evidence="n2 answers")}
            nemesis leader {leader.format("n1", 3)}
            """
        (finding,) = self.judge(text).findings
        assert finding.message.splitlines()[3:] == [
            "leader changed n1 -> n3 at 0.005 s (term 2)",
            "faults active: partition of n2 (f1, 0.002 s to 0.009 s)",
        ]
        assert finding.faults[0].evidence == "no answer from n2"


class TestFencing:
    def test_a_token_granted_twice(self) -> None:
        result = judge("1 acquire a\n2 acquire a\n1 ok 1\n2 ok 1", "fencing")
        assert result.verdict is Verdict.INVALID
        (finding,) = result.findings
        assert {**finding.data, "cycle": None} == {"kind": "duplicate", "tokens": [1, 1], "cycle": None}
        assert [edge["before"] for edge in finding.data["cycle"]] == ["end of [0]", "end of [1]"]
        assert finding.message.startswith("key 'a': token 1 was granted twice\n- process 1 (n1) acquire")

    def test_a_smaller_token_after_a_larger_one(self) -> None:
        result = judge("3 acquire a\n3 ok 17\n7 acquire a\n7 ok 16", "fencing")
        assert result.verdict is Verdict.INVALID
        assert result.findings[0].message.splitlines() == [
            "key 'a': token 16 was granted to an acquire that began after token 17, a larger one, had been granted",
            "- process 3 (n3) acquire, 0.000-0.001 s [0-1] ok, token 17: had token 17 at 0.001 s",
            "- process 7 (n7) acquire, 0.002-0.003 s [2-3] ok, token 16: asked only at 0.002 s and got token 16",
        ]

    def test_grants_that_overlap_have_no_order(self) -> None:
        assert judge("1 acquire a\n2 acquire a\n2 ok 2\n1 ok 1", "fencing").verdict is Verdict.VALID

    def test_over_all_keys_only_where_promised(self) -> None:
        text = "1 acquire a\n1 ok 2\n2 acquire b\n2 ok 1"
        assert judge(text, "fencing").verdict is Verdict.VALID
        result = judge(text, "fencing", tokens_span_keys=True)
        assert result.verdict is Verdict.INVALID
        assert result.findings[0].message.startswith("keys 'a' and 'b': token 1 was granted")
        assert result.findings[0].key is None


class TestResource:
    def test_a_stale_write_that_the_guard_let_through(self) -> None:
        result = judge("1 write a 2\n1 ok\n2 write a 1\n2 ok", "resource")
        assert result.verdict is Verdict.INVALID
        assert result.findings[0].data["tokens"] == [2, 1]
        assert "accepted token 1 after it had accepted token 2" in result.findings[0].message

    def test_a_read_that_shows_one(self) -> None:
        result = judge("1 write a 2\n1 ok\n2 read a\n2 ok 1", "resource")
        assert result.verdict is Verdict.INVALID
        assert judge("2 read a\n2 ok 2\n1 write a 1\n1 ok", "resource").verdict is Verdict.INVALID

    @pytest.mark.parametrize(
        "text",
        [
            "1 write a 1\n1 ok\n2 write a 2\n2 ok\n1 write a 1\n1 fail stale-token",
            "1 write a 2\n2 write a 1\n1 ok\n2 ok",
            "1 write a 2\n1 ok\n1 write a 2\n1 ok",
            "1 write a 2\n1 info\n2 write a 1\n2 ok",
            "1 write a 2\n1 ok\n2 write b 1\n2 ok",
            "1 write a 2\n1 ok\n2 read a\n2 ok",
        ],
    )
    def test_what_a_guard_may_do(self, text: str) -> None:
        assert judge(text, "resource").verdict is Verdict.VALID

    def test_without_the_guard_lost_updates_are_counted(self) -> None:
        text = """
            1 write a 1 guarded=false
            1 ok
            2 write a 2 guarded=false
            2 ok
            1 write a 1 guarded=false
            1 ok
            1 write a 1
            1 ok
            2 write a 2 guarded=false
            2 ok
            3 write a 1
            3 fail stale-token
            """
        result = judge(text, "resource")
        assert result.verdict is Verdict.VALID
        assert result.numbers == {
            "guarded_writes": 1,
            "stale_writes_refused": 1,
            "violations": 0,
            "unguarded_writes": 4,
            "lost_updates": 1,
            "lost_updates_per_1000": 250.0,
        }


class TestCoverage:
    RUN = f"""
        nemesis leader {{"node": "n1", "term": 1}}
        nemesis leader {{"node": "n1", "term": 1}}
        nemesis kill {fault("inject")}
        nemesis kill {fault("injected", evidence="pid 7 is gone")}
        nemesis kill {fault("healed")}
        nemesis pause {json.dumps({"fault": "f2", "action": "inject"})}
        nemesis pause {json.dumps({"fault": "f2", "action": "injected"})}
        nemesis partition {json.dumps({"fault": "f3", "action": "inject"})}
        nemesis partition {json.dumps({"fault": "f3", "action": "skipped", "reason": "one node"})}
        nemesis leader {{"node": "n2", "term": 2}}
        1 acquire a
        1 ok 1
        2 acquire a
        2 fail held
        3 acquire a
        3 info
        nemesis counters {{"expiries": 4, "ghosts": 0}}
        """

    def test_everything_is_measured_and_only_evidence_counts(self) -> None:
        results = checker.check(script.events(self.RUN), [])
        assert {name: number for name, number in results.coverage.items() if number} == {
            "operations": 2,
            "leader_changes": 1,
            "expiries": 4,
            "faults": 1,
            "kills": 1,
            "nodes_with_clients": 2,
        }
        assert set(results.coverage) == set(checker.COVERAGE_KEYS)

    def test_enough_is_enough(self) -> None:
        results = checker.check(script.events(self.RUN), [], Options(coverage={"kills": 1, "operations": 2}))
        assert results.claims["coverage"].verdict is Verdict.VALID
        assert results.exit_code == 0

    def test_too_little_is_its_own_outcome(self) -> None:
        results = checker.check(script.events(self.RUN), ["fencing"], Options(coverage={"kills": 2, "pauses": 1}))
        assert results.exit_code == 3
        assert results.coverage_short
        assert results.violated == ()
        assert [finding.data for finding in results.claims["coverage"].findings] == [
            {"demand": "kills", "found": 1, "needed": 2},
            {"demand": "pauses", "found": 0, "needed": 1},
        ]
        assert results.claims["coverage"].findings[0].message.startswith("kills: 1 found, 2 needed")

    def test_missing_counters_are_named(self) -> None:
        (finding,) = judge("1 inspect a\n1 ok null", "coverage", coverage={"ghosts": 1}).findings
        assert finding.message.endswith("the history has no counters of it")

    def test_an_unknown_demand_is_the_callers_mistake(self) -> None:
        with pytest.raises(OptionsError, match="unknown coverage 'fun'; known are operations, "):
            judge("1 inspect a\n1 ok null", "coverage", coverage={"fun": 1})


class TestRecovery:
    @pytest.mark.parametrize(
        ("ready", "verdict", "word"),
        [
            ('nemesis ready {"seconds": 1.5}', Verdict.VALID, None),
            ('nemesis ready {"seconds": 31}', Verdict.INVALID, "served again 31.000 s after healing"),
            ('nemesis ready {"error": "n2 is silent"}', Verdict.INVALID, "n2 is silent"),
            ("", Verdict.UNKNOWN, "does not say"),
        ],
    )
    def test_readiness_after_healing(self, ready: str, verdict: Verdict, word: str | None) -> None:
        result = judge(f"1 inspect a\n1 ok null\n{ready}", "recovery")
        assert result.verdict is verdict
        assert word is None or word in result.findings[0].message

    @pytest.mark.parametrize(("allowed", "verdict"), [(None, Verdict.VALID), (2, Verdict.VALID), (1, Verdict.INVALID)])
    def test_a_leader_that_changes_too_often(self, allowed: int | None, verdict: Verdict) -> None:
        terms = "".join(f'nemesis leader {{"node": "n{term}", "term": {term}}}\n' for term in (1, 2, 3))
        ready = 'nemesis ready {"seconds": 1.5}'
        result = judge(f"{terms}1 inspect a\n1 ok null\n{ready}", "recovery", leader_changes_max=allowed)
        assert result.verdict is verdict
        assert [finding.message for finding in result.findings] == (
            ["the leader changed more often than allowed: 2 of 1 times"] if verdict is Verdict.INVALID else []
        )


class TestLeases:
    RUN = f"""
        nemesis clock {fault("inject", breaks=["clock_error"])}
        1 acquire a lease_ms=2000
        1 ok 1
        2 acquire a
        2 ok 2
        """

    def test_what_is_lost_while_a_fault_breaks_the_clock_error_can_be_excused(self) -> None:
        (finding,) = judge(self.RUN, "leases").findings
        assert (finding.verdict, finding.data["kind"]) == (Verdict.UNKNOWN, ASSUMPTION_BROKEN)
        (finding,) = judge(self.RUN.replace("clock_error", "nothing"), "leases").findings
        assert (finding.verdict, finding.data["kind"]) == (Verdict.INVALID, "early")


class TestGhosts:
    MAIN = """
        1 acquire a lease_ms=100
        1 ok 1
        1 release a 1
        1 ok
        2 inspect b
        2 ok null
        """
    FINAL = 'nemesis phase {"name": "final"}\n'

    @pytest.mark.parametrize(
        ("final", "verdict", "word"),
        [
            ("3 acquire a\n3 ok 2\n4 acquire b\n4 ok 3", Verdict.VALID, None),
            ("3 acquire a\n3 fail held\n3 acquire a\n3 ok 2\n4 acquire b\n4 ok 3", Verdict.VALID, None),
            ("3 acquire a\n3 fail timeout\n4 acquire b\n4 ok 3", Verdict.INVALID, "key 'a': held by nobody"),
            ("3 acquire a\n3 info\n4 acquire b\n4 ok 3", Verdict.UNKNOWN, "whether it could be had"),
            ("4 acquire b\n4 ok 3", Verdict.UNKNOWN, "not taken in the final phase: 'a' (1 of 2 keys)"),
            ("", Verdict.UNKNOWN, "not taken in the final phase: 'a', 'b' (2 of 2 keys)"),
            ("4 inspect a\n4 ok 1", Verdict.UNKNOWN, "not taken in the final phase: 'a', 'b' (2 of 2 keys)"),
        ],
    )
    def test_every_key_must_have_been_had_in_the_end(self, final: str, verdict: Verdict, word: str | None) -> None:
        result = judge(f"{self.MAIN}{self.FINAL}{final}", "ghosts")
        assert result.verdict is verdict
        assert word is None or word in result.findings[0].message

    @pytest.mark.parametrize("outcome", ["1 ok 1", "1 info"])
    def test_of_a_key_that_somebody_may_still_hold_nothing_is_said(self, outcome: str) -> None:
        held = f"1 acquire a lease_ms=60000\n{outcome}\n"
        result = judge(f"{held}{self.FINAL}3 acquire a\n3 fail timeout", "ghosts")
        assert (result.verdict, result.findings) == (Verdict.VALID, ())

    def test_a_history_without_a_final_phase_or_without_keys_proves_nothing(self) -> None:
        assert judge(self.MAIN, "ghosts").verdict is Verdict.UNKNOWN
        assert judge(self.FINAL, "ghosts").verdict is Verdict.UNKNOWN

    def test_of_many_keys_only_some_are_named(self) -> None:
        main = "".join(f"1 inspect k{number}\n1 ok null\n" for number in range(9))
        (finding,) = judge(main + self.FINAL, "ghosts").findings
        assert finding.message.endswith("'k4', ... (9 of 9 keys)")


class TestBeliefs:
    def test_an_overrun_makes_two_believers(self) -> None:
        text = """
            1 acquire a lease_ms=1000
            1 ok 1
            @ 2
            2 acquire a lease_ms=1000
            2 ok 2
            @ 2.501
            1 release a 1
            1 fail not-held
            2 release a 2
            2 ok
            """
        result = judge(text, "beliefs")
        assert result.verdict is Verdict.VALID
        assert result.numbers == {"overlaps": 1, "seconds": 0.5, "most_at_once": 2}
        assert [operation.process for operation in result.findings[0].operations] == [1, 2]

    def test_one_at_a_time(self) -> None:
        text = "1 acquire a lease_ms=1\n1 ok 1\n@ 1\n2 acquire a\n2 ok 2\n2 release a 2\n2 ok\n3 acquire a\n3 ok 3"
        assert judge(text, "beliefs").numbers == {"overlaps": 0, "seconds": 0.0, "most_at_once": 1}


def test_claims_that_are_not_known_are_named_with_those_that_are() -> None:
    with pytest.raises(OptionsError, match="unknown claim 'x', 'y'; known are linearizable, mutual-exclusion, "):
        checker.check(script.events("1 inspect a\n1 ok null"), ["x", "fencing", "y"])


@pytest.mark.parametrize("options", [{"clock_error": 1}, {"clock_error": -0.1}, {"recovery_s_max": 0}])
def test_options_out_of_range_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(OptionsError, match="needed"):
        Options(**options)
