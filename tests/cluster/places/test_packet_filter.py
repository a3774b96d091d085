"""The packet filters' scripts, tried by the real tools in a network namespace of their own."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from collections.abc import Sequence

import pytest

from cluster.places.packet_filter import FILTERS, Blocked, Filter, Iptables, Nft, Step

BLOCKED = Blocked(
    frozenset({"192.0.2.1", "2001:db8::1"}),
    frozenset({"192.0.2.2", "2001:db8::2"}),
    lost_at=frozenset({("192.0.2.3", 4321), ("2001:db8::3", 4321)}),
    mute_at=frozenset({("192.0.2.4", 4321), ("2001:db8::4", 4321)}),
)
ADDRESSES = {*BLOCKED.lost, *BLOCKED.mute, *(address for address, _ in BLOCKED.lost_at | BLOCKED.mute_at)}

pytestmark = pytest.mark.skipif(os.geteuid() != 0 and not os.environ.get("CI"), reason="needs root")


def in_namespace(steps: Sequence[Step], *questions: str) -> list[str]:
    """Run steps and then questions in a new network namespace; the questions' answers."""
    script = ["set -e"]
    for step in steps:
        ignore = " || true" if step.optional else ""
        script.append(f"{shlex.join(step.argv)} >/dev/null 2>&1 <<'END'{ignore}\n{step.text}END")
    script += [f"{question}; echo --" for question in questions]
    done = subprocess.run(
        ["unshare", "--net", "sh", "-c", "\n".join(script)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split("--\n")[: len(questions)]


@pytest.mark.parametrize("family", [Nft(), Iptables()], ids=lambda one: one.name)
def test_rules_are_installed_replaced_as_a_whole_and_removed(family: Filter) -> None:
    question = "nft list ruleset" if family.name == "nft" else "iptables-save; ip6tables-save"
    first = [*family.install(), *family.replace(BLOCKED, 60)]
    (rules,) = in_namespace(first, question)
    for address in ADDRESSES:
        assert address in rules
    assert "4321" in rules
    (rules,) = in_namespace([*first, *family.replace(Blocked(mute=frozenset({"192.0.2.9"})), 60)], question)
    assert "192.0.2.9" in rules
    assert not [address for address in ADDRESSES if address in rules]
    (rules,) = in_namespace([*first, *family.install()], question)
    assert not [address for address in ADDRESSES if address in rules]
    assert rules.count("INPUT -j FENCEPOST\n") in (0, 2), "once for each family"
    (rules,) = in_namespace([*first, *family.remove(), *family.remove()], question)
    assert "FENCEPOST" not in rules.upper()


@pytest.mark.parametrize("family", [Nft(), Iptables()], ids=lambda one: one.name)
def test_other_rules_stay_as_they_are(family: Filter) -> None:
    other = [Step(("iptables", "-A", "INPUT", "-s", "198.51.100.7", "-j", "DROP"))]
    all_steps = [*other, *family.install(), *family.replace(BLOCKED, 60), *family.remove()]
    (rules,) = in_namespace(all_steps, "iptables-save -t filter")
    assert "-A INPUT -s 198.51.100.7/32 -j DROP" in rules


@pytest.mark.parametrize("kind", [Nft, Iptables])
def test_two_runs_on_one_machine_have_rules_of_their_own(kind: type[Nft | Iptables]) -> None:
    mine, theirs = kind("f00d", 7500), kind("beef")
    away = Blocked(away=frozenset({"192.0.2.7"}))
    steps = [*mine.install(), *theirs.install(), *mine.replace(away, 60), *theirs.replace(BLOCKED, 60)]
    question = "nft list ruleset; iptables-save"
    (both,) = in_namespace(steps, question)
    assert "192.0.2.7" in both
    assert "7500" in both
    (left,) = in_namespace([*steps, *theirs.remove()], question)
    assert "192.0.2.7" in left
    assert "192.0.2.1" not in left
    assert "beef" not in left.lower()


def test_nft_lets_go_by_itself() -> None:
    steps = [*Nft().install(), *Nft().replace(BLOCKED, 0.5)]
    before, after = in_namespace(steps, "nft list ruleset", "sleep 1; nft list ruleset")
    assert "192.0.2.1" in before
    assert "elements" not in after


def test_the_best_is_tried_first() -> None:
    assert [(one.name, one.keeps_time) for one in FILTERS] == [
        ("nft", True),
        ("iptables", False),
        ("iptables-legacy", False),
    ]


def test_what_is_blocked_is_the_same_after_json() -> None:
    assert Blocked.of(json.loads(json.dumps(BLOCKED.plain()))) == BLOCKED
    assert Blocked.of({}) == Blocked()
    assert not Blocked()
    assert Blocked(mute_at=BLOCKED.mute_at)
