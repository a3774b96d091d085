"""`python -m tests.fuzz TARGET [libFuzzer options]`: a coverage-guided fuzzer on our own code; inputs go to `corpus/`.

python -m tests.fuzz port -max_total_time=150
"""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["cluster.node"]):
    from tests.fuzz import targets


def main() -> None:
    if len(sys.argv) < 2 or sys.argv[1] not in targets.TARGETS:
        sys.exit(
            f"usage: python -m tests.fuzz TARGET [libFuzzer options]; TARGET is one of {', '.join(targets.TARGETS)}"
        )
    name = sys.argv.pop(1)
    folder = targets.CORPUS / name
    folder.mkdir(parents=True, exist_ok=True)
    atheris.Setup([*sys.argv, "-max_len=6000", "-timeout=20", "-rss_limit_mb=1024", str(folder)], targets.TARGETS[name])
    atheris.Fuzz()


main()
