"""What the nodes give away from inside, for the claim `agreement`: from the place, to the run's folder, and back.

`nodes/<node>/applied.jsonl` has one line for each entry of the replicated log as that node applied it;
`nodes/failures.jsonl` one for each node that ended by itself. A place that gives no evidence leaves neither.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

import msgspec

from checker import Applied, Evidence
from cluster.node.commands import Command, Configure, Expire, Expired, Grant, Granted, Noop, Release, Result
from cluster.node.core import Applied as AppliedByNode

APPLIED = "applied.jsonl"
FAILURES = "failures.jsonl"

_encode = msgspec.json.Encoder().encode
_applied_decoder = msgspec.json.Decoder(Applied)


@runtime_checkable
class GivesEvidence(Protocol):
    """A place that sees into its nodes."""

    def applied(self) -> Mapping[str, Sequence[tuple[int, AppliedByNode]]]: ...
    def failures(self) -> Sequence[str]: ...


def of(place: object) -> Evidence | None:
    """What a place knows; None when it can't look inside."""
    if not isinstance(place, GivesEvidence):
        return None
    words: dict[tuple[Command, Result], tuple[str, str]] = {}
    applied = {node: [_applied(life, one, words) for life, one in entries] for node, entries in place.applied().items()}
    return Evidence(applied, tuple(place.failures()))


def write(folder: Path, evidence: Evidence | None) -> None:
    """Into the run's folder; nothing when there is none."""
    if evidence is None:
        return
    for node, entries in evidence.applied.items():
        home = folder / "nodes" / node
        home.mkdir(parents=True, exist_ok=True)
        (home / APPLIED).write_bytes(b"".join(_encode(one) + b"\n" for one in entries))
    (folder / "nodes" / FAILURES).write_bytes(b"".join(_encode(failure) + b"\n" for failure in evidence.failures))


def read(folder: Path) -> Evidence | None:
    """From a run's folder; None where there is none."""
    files = sorted((folder / "nodes").glob(f"*/{APPLIED}"))
    if not files:
        return None
    applied = {file.parent.name: _applied_decoder.decode_lines(file.read_bytes()) for file in files}
    failures = folder / "nodes" / FAILURES
    told = msgspec.json.Decoder(str).decode_lines(failures.read_bytes()) if failures.exists() else []
    return Evidence(applied, tuple(told))


def _applied(life: int, one: AppliedByNode, words: dict[tuple[Command, Result], tuple[str, str]]) -> Applied:
    """Most entries are applied by every node: their words are made once."""
    said = words.get((one.command, one.result))
    if said is None:
        said = words[one.command, one.result] = (_command(one.command), _result(one.result))
    if isinstance(one.command, Grant) and isinstance(one.result, Granted):
        return Applied(life, one.index, *said, one.command.key, one.result.token)
    return Applied(life, one.index, *said)


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
