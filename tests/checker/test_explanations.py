"""What a refused history is told to be wrong with: the few operations that matter, and no others."""

from __future__ import annotations

import pytest

import checker
from checker import Finding
from tests.checker import script
from tests.checker.scripts import SCRIPTS


def explain(text: str) -> Finding:
    (finding,) = checker.check(script.events(text), ["linearizable"]).claims["linearizable"].findings
    return finding


#: name of the script -> (headline, indices of the invokes that are cited)
EXPLAINED = {
    "token-granted-twice": ("token 1 was granted twice", [0, 1]),
    "token-released-twice": ("token 1 was released twice", [2, 4]),
    "tokens-go-back": ("no moment is left at which token 1 can have been granted", [0, 4]),
    "refused-while-free": ("no moment is left at which token 2 can have been granted", [2, 4, 6]),
    "refused-by-nobody": ("somebody held the lock, but nobody can have been granted it", [0]),
    "refused-before-the-ghost": ("somebody held the lock, but nobody can have been granted it", [0]),
    "free-while-released-only-later": ("no moment is left at which token 1 can have ended", [0, 2, 4]),
    "not-held-while-held": ("no moment is left at which token 1 can have ended", [0, 2, 4]),
    "stale-read": ("no moment is left at which token 1 can have ended", [2, 6]),
    "read-from-nowhere": ("token 7 was held, but nobody can have been granted it", [0]),
    "two-tokens-for-one-unknown-grant": ("token 8 was held, but nobody can have been granted it", [3]),
    "stolen-by-a-retried-release": ("no moment is left at which token 2 can have ended", [6, 8]),
    "renewed-after-another-grant": ("no moment is left at which token 1 can have ended", [2, 4]),
    "renewal-refused-while-held": ("no moment is left at which token 1 can have ended", [0, 2, 4]),
}


@pytest.mark.parametrize("name", EXPLAINED)
def test_the_reason_is_precise(name: str) -> None:
    headline, cited = EXPLAINED[name]
    finding = explain(SCRIPTS[name])
    assert finding.message.startswith(f"key 'a': {headline}")
    assert [operation.index for operation in finding.operations] == cited


def test_the_words_say_who_when_and_what_follows() -> None:
    assert explain(SCRIPTS["refused-while-free"]).message.splitlines() == [
        "key 'a': no moment is left at which token 2 can have been granted",
        "- process 1 (n1) release of token 1, 0.002-0.003 s [2-3] ok: token 1 was released by 0.003 s",
        "- process 2 (n2) acquire, 0.004-0.005 s [4-5] fail held: saw the lock held by somebody",
        "- process 3 (n3) acquire, 0.006-0.007 s [6-7] ok, token 2: token 2 was not granted before 0.006 s",
    ]


def test_unknown_acquires_that_do_not_help_are_mentioned() -> None:
    finding = explain(SCRIPTS["ghost-used-up-by-a-token"])
    assert (
        "token 5 was held, but nobody can have been granted it (1 earlier acquire of unknown outcome" in finding.message
    )


def test_the_rest_of_a_long_history_is_left_out() -> None:
    quiet = "".join(f"1 acquire a\n1 ok {token}\n1 release a {token}\n1 ok\n" for token in range(1, 200))
    wrong = "2 acquire a\n2 ok 500\n2 release a 500\n2 ok\n3 acquire a\n3 fail held\n4 acquire a\n4 ok 501\n"
    more = "".join(f"1 acquire a\n1 ok {token}\n1 release a {token}\n1 ok\n" for token in range(600, 700))
    finding = explain(quiet + wrong + more)
    assert [(operation.process, operation.f) for operation in finding.operations] == [
        (2, "release"),
        (3, "acquire"),
        (4, "acquire"),
    ]


def test_every_key_has_its_own_finding() -> None:
    lines = [f"{process} acquire k{process:02}\n{process} fail held" for process in range(12)]
    result = checker.check(script.events("\n".join(lines)), ["linearizable"]).claims["linearizable"]
    assert [finding.key for finding in result.findings] == [f"k{process:02}" for process in range(10)]
    assert result.numbers == {"keys": 12, "violations": 12}
