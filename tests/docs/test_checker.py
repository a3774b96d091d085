"""What docs/checker.md says about models, formats and the example of one's own model."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from checker import CLAIMS, Verdict, search
from checker.formats import Format
from checker.search import Call
from tests.docs.markdown import DOCS, blocks, table

PAGE = DOCS / "checker.md"


def named(heading: str) -> set[str]:
    """What the first column of a section's table names as code."""
    return {name for row in table(PAGE, heading) for name in re.findall("`([^`]+)`", row[0])}


def test_every_model_format_and_claim_is_listed() -> None:
    assert named("Without tokens: models and the search") == set(search.MODELS)
    assert named("Other tools' histories") == set(Format) - {Format.AUTO}
    assert set(CLAIMS) <= named("What is exact, and what is only sound")


def test_the_model_in_the_page_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (source,) = (block.text for block in blocks(PAGE, "python") if "class Counter" in block.text)
    (tmp_path / "counted.py").write_text(source)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    calls = [
        Call(1, "add", 2, None, "ok", 0, 1),
        Call(2, "add", 3, None, "info", 2, 1 << 62),
        Call(3, "read", None, 5, "ok", 4, 5),
    ]
    assert search.check(calls, "counted:Counter").verdict is Verdict.VALID
    wrong = [*calls, Call(3, "read", None, 2, "ok", 6, 7)]
    assert search.check(wrong, "counted:Counter").verdict is Verdict.INVALID
