"""Writes certificates: a proof of the verdict on `linearizable` that `checker.verifier` can verify by itself."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np

from checker import column_sweep, cycles, graph, linearizable, together, verifier, verify_together
from checker.column_claims import operations_by_key
from checker.column_reader import read_columns
from checker.column_together import Locks
from checker.columns import Columns, Unsuited, columns_of
from checker.history import OPEN, Operation, read
from checker.verdict import Verdict
from checker.verifier import Certificate, Contradiction, Witness

CLAIM = linearizable.CLAIM


class NoCertificate(ValueError):
    """The history can be checked, but not certified."""


def certify(path: str | os.PathLike[str], *, tokens_span_keys: bool = False) -> Certificate:
    """Decide the history once more and write down why: of each key, or with `tokens_span_keys` of all together.

    Raises HistoryError; NoCertificate for numbers beyond 64 bits, and for keys whose fitting together could be decided
    only by telling apart ways to use acquires of unknown outcome."""
    try:
        columns = read_columns(path)
    except Unsuited:
        try:
            columns = columns_of(read(path).events)
        except Unsuited as problem:
            raise NoCertificate(f"{path}: no certificate can be made of it ({problem})") from None
    witnesses: dict[str, Witness] = {}
    contradictions: list[Contradiction] = []
    locks = {key: column_sweep.Lock(columns, rows) for key, rows in columns.by_key.items()}
    spans = tokens_span_keys and len(locks) > 1
    found = Locks(list(locks.values())).witness() if spans else None
    for place, (key, lock) in enumerate(locks.items()):
        verdict = column_sweep.decide(lock)
        if not isinstance(verdict, column_sweep.Fits):
            contradictions.append(_contradiction(key, columns, verdict))
        else:
            witnesses[key] = _witness(column_sweep.intervals(verdict) if found is None else found[place])
    if spans and found is None and not contradictions:
        contradictions.append(_between_keys(path, columns, list(locks.values())))
    certificate = Certificate(
        format=verifier.FORMAT,
        claim=CLAIM,
        verdict=str(Verdict.INVALID if contradictions else Verdict.VALID),
        history=verifier.digest(path),
        witnesses={} if contradictions else witnesses,
        contradictions=contradictions,
        seal="",
        tokens_span_keys=tokens_span_keys,
    )
    return seal(certificate)


def seal(certificate: Certificate) -> Certificate:
    return msgspec.structs.replace(certificate, seal=verifier.sealed(certificate))


def write(path: str | os.PathLike[str], certificate: Certificate) -> None:
    Path(path).write_bytes(msgspec.json.encode(certificate, order="deterministic") + b"\n")


def _witness(intervals: list[column_sweep.Interval]) -> Witness:
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


def _between_keys(path: str | os.PathLike[str], columns: Columns, locks: Sequence[column_sweep.Lock]) -> Contradiction:
    """Operations of several keys, each of which fits by itself; as few as are still refused."""
    decided = operations_by_key(Locks(locks).impossible())
    verdict = together.decide(decided)
    if isinstance(verdict, together.Fits):
        decided = operations_by_key(columns.operations(np.arange(len(columns.f))))
        verdict = together.decide(decided)
    if isinstance(verdict, together.Refused) and not isinstance(verdict.reason, together.Shortage):
        edges = linearizable.joint_cycle(verdict, decided)
        cycle = msgspec.convert([edge.step() for edge in edges], list[cycles.Step])
        cited = [operation for operation, _ in linearizable.cited(verdict.reason)]
        everything = {key: columns.operations(columns.by_key[key]) for key in {one.key for one in cited}}
        named = _enough(everything, sorted({operation.index for operation in cited}))
        if cycle or named:
            return Contradiction(None, named, cycle)
    raise NoCertificate(
        f"{path}: each key fits by itself; that all keys together do, or do not, takes telling apart ways to use"
        " acquires of unknown outcome, which no certificate says yet"
    )


def _enough(everything: Mapping[str, Sequence[Operation]], named: list[int]) -> list[int]:
    """As few of the named operations as still contradict each other, whoever tries all orders; none if that is no way
    to tell."""
    try:
        if not verify_together.contradict(everything, named):
            return []
        for index in list(named):
            fewer = [other for other in named if other != index]
            if fewer and verify_together.contradict(everything, fewer):
                named = fewer
    except verifier.Rejected:
        return []
    return named
