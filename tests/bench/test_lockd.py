from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from bench import lockd

ROOT = Path(__file__).parents[2]


def test_what_is_written_meanwhile_is_out_of_the_way_and_gone_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[Path] = []

    async def measure(folder: Path, seconds: float) -> None:
        assert seconds > 0
        used.append(folder.parent)
        assert os.listdir(tmp_path) == []

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(lockd, "_measure_lockd", measure)
    monkeypatch.setattr(lockd, "fsync_ms", lambda _: 0.0)
    monkeypatch.setattr(shutil, "which", lambda _: None)
    lockd.main()
    (folder,) = used
    assert folder.parent == ROOT / "build"
    assert not folder.exists()
