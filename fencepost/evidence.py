"""What the nodes give away from inside, for the claim `agreement` and for settling operations of unknown outcome.

`nodes/<node>/applied.jsonl` is what a node wrote down of what it applied (see `cluster.node.record`), or what a place
knows of it that sees into its nodes; `nodes/failures.jsonl` has a line for each node that such a place saw fail.
`nodes/origin.json` says when the history's time began by the clock of the machine that recorded it: a node whose clock
has the same name reads the same clock, so its times are times of the history. Of others no times are known.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import msgspec

from checker import Applied, Evidence, Proposal
from cluster.node import record
from cluster.node.commands import (
    Command,
    Configure,
    Expire,
    Expired,
    Grant,
    Granted,
    Noop,
    NothingDone,
    Release,
    Result,
)
from cluster.node.core import Applied as AppliedByNode
from cluster.node.steward import Proposed
from fencepost.exits import UserError

APPLIED = "applied.jsonl"
FAILURES = "failures.jsonl"
ORIGIN = "origin.json"

#: The clock of lines whose times are the history's own.
HISTORY = "history"

_encode = msgspec.json.Encoder().encode
#: The words of commands and results.
_Words = dict[tuple[Command, Result], tuple[str, str]]

_TAG = re.compile(r"\d{1,18}")


class Origin(msgspec.Struct, frozen=True):
    """Time 0 of the history is `at_ns` by this clock."""

    clock: str
    at_ns: int


@runtime_checkable
class GivesEvidence(Protocol):
    """A place that sees into its nodes: what each applied, with its life and the time in ns; what came into their logs
    for tagged requests; and what went wrong inside."""

    def applied(self) -> Mapping[str, Sequence[tuple[int, int, AppliedByNode]]]: ...
    def proposed(self) -> Mapping[str, Sequence[Proposed]]: ...
    def failures(self) -> Sequence[str]: ...


def begin(folder: Path, place: object, origin_ns: int) -> None:
    """The history's time begins now: `origin_ns` of this machine's monotonic clock."""
    if not isinstance(place, GivesEvidence):
        (folder / "nodes").mkdir(parents=True, exist_ok=True)
        (folder / "nodes" / ORIGIN).write_bytes(_encode(Origin(record.machine_clock(), origin_ns)) + b"\n")


def of(place: object, origin_ns: int) -> Evidence | None:
    """What a place knows whose history began at `origin_ns`; None when it can't look inside."""
    if not isinstance(place, GivesEvidence):
        return None
    words: _Words = {}
    applied = {
        node: [_applied(life, at - origin_ns, one, words) for life, at, one in entries]
        for node, entries in place.applied().items()
    }
    proposed = [one for of_node in place.proposed().values() for one in of_node]
    proposals = _proposals((one.index, one.term, one.tag) for one in proposed)
    return Evidence(applied, tuple(place.failures()), proposals, whole=True)


def collect(folder: Path, place: object, origin_ns: int) -> None:
    """Into the run's folder, what a place knows; nothing when it can't look inside."""
    if not isinstance(place, GivesEvidence):
        return
    proposed = place.proposed()
    for node, entries in place.applied().items():
        home = folder / "nodes" / node
        home.mkdir(parents=True, exist_ok=True)
        lines: list[object] = []
        for life, of_life in groupby(entries, key=itemgetter(0)):
            lines.append(record.Began(HISTORY, life))
            lines += (line for _, at, one in of_life for line in record.lines((), [one], at - origin_ns))
        lines = lines or [record.Began(HISTORY, 0)]
        (home / APPLIED).write_bytes(record.encode([*lines, *record.lines(proposed[node], (), 0)]))
    (folder / "nodes").mkdir(exist_ok=True)  # where nodes were never laid out
    (folder / "nodes" / FAILURES).write_bytes(record.encode(place.failures()))


def read(folder: Path) -> Evidence | None:
    """From a run's folder; None where there is none. Raises UserError for files that are something else."""
    homes = sorted(home for home in (folder / "nodes").glob("*/") if home.is_dir())
    files = [home / APPLIED for home in homes if (home / APPLIED).exists()]
    if not files:
        return None
    origin = _decoded(folder / "nodes" / ORIGIN, Origin)
    applied: dict[str, list[Applied]] = {}
    proposals: list[tuple[int, int, str]] = []
    failures: list[str] = _decoded_lines(folder / "nodes" / FAILURES)
    leaders: dict[int, str] = {}
    words: _Words = {}
    for file in files:
        node = file.parent.name
        entries = applied[node] = []
        for life, clock, one in _read_lines(file):
            if one.index is not None:
                command, result = one.command or Noop(), one.result or NothingDone()
                at = _time(one.at, clock, origin)
                entries.append(_applied(life, at, AppliedByNode(one.index, one.term, command, result), words))
            elif one.proposed is not None:
                proposals.append((one.proposed, one.term, one.tag))
            elif one.leads is not None and leaders.setdefault(one.leads, node) != node:
                failures.append(f"{leaders[one.leads]} and {node} both led term {one.leads}")
            elif one.failed is not None:
                failures.append(f"{node} failed: {one.failed}")
    return Evidence(applied, tuple(failures), _proposals(proposals), whole=len(files) == len(homes))


def _read_lines(file: Path) -> Iterable[tuple[int, str, record.Line]]:
    """The lines with the number of the life that wrote each, and the clock of its times. The last line of a life may be
    torn; nobody was told of what it says."""
    life, clock = 0, ""
    lines = file.read_bytes().split(b"\n")
    for number, text in enumerate(lines, 1):
        if not text:
            continue
        try:
            one = record.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError) as problem:
            following = next((other for other in lines[number:] if other), None)
            if following is None or following.startswith(b'{"began"'):
                continue
            raise UserError(f"{file}, line {number}: not what a node writes down: {problem}") from None
        if one.began is not None:
            life, clock = life + 1, one.began
        if not life:
            raise UserError(f"{file}, line {number}: no life of the node has begun; was it written by another version?")
        yield life, clock, one


def _time(at: int | None, clock: str, origin: Origin | None) -> int | None:
    if at is None or clock == HISTORY:
        return at
    return at - origin.at_ns if origin is not None and origin.clock and clock == origin.clock else None


def _proposals(found: Iterable[tuple[int, int, str]]) -> tuple[Proposal, ...]:
    """Those that the testbed's clients tagged."""
    return tuple(Proposal(index, term, int(tag)) for index, term, tag in found if _TAG.fullmatch(tag))


def _decoded(file: Path, type: type[Origin]) -> Origin | None:
    if not file.exists():
        return None
    try:
        return msgspec.json.decode(file.read_bytes(), type=type)
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        raise UserError(f"{file}: not what a run writes there: {problem}") from None


def _decoded_lines(file: Path) -> list[str]:
    if not file.exists():
        return []
    try:
        found: list[Any] = msgspec.json.Decoder(str).decode_lines(file.read_bytes())
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        raise UserError(f"{file}: not what a run writes there: {problem}") from None
    return found


def _applied(life: int, at: int | None, one: AppliedByNode, words: _Words) -> Applied:
    """Most entries are applied by every node: their words are made once."""
    command, result = one.command, one.result
    said = words.get((command, result))
    if said is None:
        said = words[command, result] = (_command(command), _result(result))
    key = None if isinstance(command, Noop | Configure) else command.key
    token = result.token if isinstance(result, Granted) else None
    return Applied(life, one.index, *said, key, token, one.term, at)


def _command(command: Command) -> str:
    match command:
        case Grant(key, lease_ms):
            return f"Grant {key} {lease_ms} ms"
        case Release(key):
            return f"Release {key}"
        case Expire(key, token):
            return f"Expire {key} {token}"
        case Configure(members):
            return f"Configure {', '.join(member.id for member in members.all)}"
        case Noop():
            return "Noop"


def _result(result: Result) -> str:
    match result:
        case Granted(token):
            return f"Granted {token}"
        case Expired(existed):
            return "Expired" if existed else "Expired nothing"
        case _:
            return type(result).__name__
