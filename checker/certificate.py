"""Writes certificates: a proof of the verdict on `linearizable` that `checker.verifier` can verify by itself."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from checker import column_sweep, cycles, graph, linearizable, verifier
from checker.column_reader import read_columns
from checker.columns import Columns, Unsuited, columns_of
from checker.history import OPEN, read
from checker.verdict import Verdict
from checker.verifier import Certificate, Contradiction, Witness

CLAIM = linearizable.CLAIM


class NoCertificate(ValueError):
    """The history can be checked, but not certified: it holds numbers beyond 64 bits."""


def certify(path: str | os.PathLike[str]) -> Certificate:
    """Decide the history once more and write down why. Raises HistoryError, NoCertificate."""
    try:
        columns = read_columns(path)
    except Unsuited:
        try:
            columns = columns_of(read(path).events)
        except Unsuited as problem:
            raise NoCertificate(f"{path}: no certificate can be made of it ({problem})") from None
    witnesses: dict[str, Witness] = {}
    contradictions: list[Contradiction] = []
    for key, rows in columns.by_key.items():
        verdict = column_sweep.decide(column_sweep.Lock(columns, rows))
        if isinstance(verdict, column_sweep.Fits):
            witnesses[key] = _witness(verdict)
        else:
            contradictions.append(_contradiction(key, columns, verdict))
    certificate = Certificate(
        format=verifier.FORMAT,
        claim=CLAIM,
        verdict=str(Verdict.INVALID if contradictions else Verdict.VALID),
        history=verifier.digest(path),
        witnesses={} if contradictions else witnesses,
        contradictions=contradictions,
        seal="",
    )
    return seal(certificate)


def seal(certificate: Certificate) -> Certificate:
    return msgspec.structs.replace(certificate, seal=verifier.sealed(certificate))


def write(path: str | os.PathLike[str], certificate: Certificate) -> None:
    Path(path).write_bytes(msgspec.json.encode(certificate, order="deterministic") + b"\n")


def _witness(fits: column_sweep.Fits) -> Witness:
    intervals = column_sweep.intervals(fits)
    return Witness(
        token=[interval.token for interval in intervals],
        enter=[interval.enter for interval in intervals],
        exit=[None if interval.exit == OPEN else interval.exit for interval in intervals],
        acquire=[interval.acquire for interval in intervals],
    )


def _contradiction(key: str, columns: Columns, refused: column_sweep.Refused) -> Contradiction:
    """The cycle of the explanation, and the operations that it cites: as few as are still refused, where these are
    enough to verify it."""
    reason = column_sweep.explained(refused)
    cited = [operation for operation, _ in linearizable.cited(reason)]
    cycle = msgspec.convert([edge.step() for edge in graph.cycle_of(reason, cited)], list[cycles.Step])
    named = sorted({operation.index for operation in cited})
    everything = columns.operations(refused.lock.rows)
    try:
        if not verifier.contradicts(everything, named):
            return Contradiction(key, [], cycle)
        for index in list(named):
            fewer = [other for other in named if other != index]
            if fewer and verifier.contradicts(everything, fewer):
                named = fewer
    except verifier.Rejected:
        return Contradiction(key, [], cycle)
    return Contradiction(key, named, cycle)
