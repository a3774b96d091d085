"""From other people's names to ours: records become the events of a lock history.

Jepsen's lock tests say `:acquire` and `:release`, others `:lock` and `:unlock`; the token is the value itself, or in it
as `:token` or `:fence`; a release names none, since its client knows what it holds. What is missing is filled in only
where there is no doubt: a release names the token that its process (or the client that its value names) was granted
last.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from checker.events import NEMESIS, Event, HistoryError
from checker.formats.records import Record
from checker.operations import OPERATIONS

#: Other names for our operations, as they are found in the wild.
SYNONYMS: Mapping[str, str] = {
    "lock": "acquire",
    "try-lock": "acquire",
    "trylock": "acquire",
    "grab": "acquire",
    "unlock": "release",
    "free": "release",
    "keepalive": "renew",
    "extend": "renew",
    "query": "inspect",
    "holder": "inspect",
}

#: Where tokens are looked for in a value that is a map.
TOKEN_FIELDS = ("token", "fence", "fencing-token", "fencing_token", "revision", "zxid")

#: Errors that are observations, under names that others give them.
ERRORS: Mapping[str, str] = {
    "held": "held",
    "locked": "held",
    "already-locked": "held",
    "not-held": "not-held",
    "not-owner": "not-held",
    "not-lock-owner": "not-held",
}


@dataclass(frozen=True, slots=True)
class Names:
    """What things are called in a history: `functions` and `errors` from theirs to ours, `token` the field of a value
    that holds the token, `key` the key of operations that name none."""

    functions: Mapping[str, str] = field(default_factory=dict)
    errors: Mapping[str, str] = field(default_factory=dict)
    token: str | None = None
    key: str = "lock"

    def __post_init__(self) -> None:
        for theirs, ours in self.functions.items():
            if ours not in OPERATIONS:
                raise HistoryError(f"{theirs!r} can't stand for {ours!r}; known are {', '.join(OPERATIONS)}")

    def function(self, name: str) -> str | None:
        if name in self.functions:
            return self.functions[name]
        return str(name) if name in OPERATIONS else SYNONYMS.get(name)

    def observation(self, error: str | None) -> str | None:
        """An error under our name; as it is where it is none of ours."""
        if error is None:
            return None
        return self.errors.get(error) or ERRORS.get(error, error)

    def token_of(self, value: Any) -> int | None:
        if isinstance(value, Mapping):
            fields = TOKEN_FIELDS if self.token is None else (self.token,)
            value = next((value[name] for name in fields if name in value), None)
        return value if type(value) is int else None


def to_events(records: Iterable[Record], names: Names) -> list[Event]:
    """The records as events of our own. Raises HistoryError where a name or a token is missing."""
    events: list[Event] = []
    granted: dict[tuple[Any, str], int] = {}
    timed = False
    time = 0
    for index, record in enumerate(records):
        timed = timed or record.time is not None
        # Where no record has a time, its place has to do; where others have one, that of the one before.
        time = record.time if record.time is not None else time if timed else index
        if record.process is None:
            events.append(Event(index, time, NEMESIS, "info", str(record.f), None, _nemesis_value(record.value)))
            continue
        f = names.function(record.f)
        if f is None:
            raise HistoryError(
                f"{record.f!r} is no operation of a lock; --map {record.f}=acquire, say, tells what it is,"
                " and --model checks other objects",
                line=record.line,
            )
        key = names.key if record.key is None else str(record.key)
        value = _value(record, f, key, names, granted)
        error = names.observation(record.error) if record.type in ("fail", "info") else None
        error = None if error is None else str(error)
        events.append(Event(index, time, record.process, record.type, f, key, value, error, record.node))  # type: ignore[arg-type]
    return events


def _value(
    record: Record, f: str, key: str, names: Names, granted: dict[tuple[Any, str], int]
) -> dict[str, Any] | None:
    owner = _owner(record), key
    token = names.token_of(record.value)
    extra = {"lease_ms": record.value["lease_ms"]} if _has_lease(record.value) else {}
    if record.type == "invoke":
        if f in ("release", "renew", "write"):
            token = granted.get(owner) if token is None else token
            if token is None:
                raise HistoryError(
                    f"{record.f!r} names no token, and {owner[0]!r} was granted none before; without tokens, check it"
                    " with a model (--model owner-mutex, say)",
                    line=record.line,
                )
            return {"token": token, **extra}
        return extra or None
    if record.type == "ok" and f in ("acquire", "inspect", "read"):
        if f == "acquire":
            if token is None:
                raise HistoryError(
                    f"{record.f!r} was granted without a token; --token FIELD names where it is, and without tokens"
                    " a model is needed (--model owner-mutex, say)",
                    line=record.line,
                )
            granted[owner] = token
        return {"token": token}
    return None


def _owner(record: Record) -> Any:
    if isinstance(record.value, Mapping) and record.value.get("client") is not None:
        return record.value["client"]
    return record.process


def _has_lease(value: Any) -> bool:
    return isinstance(value, Mapping) and isinstance(value.get("lease_ms"), int | float)


def _nemesis_value(value: Any) -> dict[str, Any] | None:
    if value is None:
        return None
    return plain if isinstance(plain := _plain(value), dict) else {"value": plain}


def _plain(value: Any) -> Any:
    """Without the types of other notations."""
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, str) else value


@dataclass(frozen=True, slots=True)
class Suspicion:
    """Something that is well-formed and yet hardly what was meant."""

    line: int
    problem: str

    def words(self) -> str:
        return f"line {self.line}: {self.problem}"


#: Parts of errors that say that nobody knows what happened.
_DOUBTS = ("timeout", "timed-out", "timed out", "connection", "unknown", "interrupted", "closed", "reset")

#: Suspicions of one kind that are told; a mistake in a recorder repeats itself.
SUSPICIONS_MAX = 3


def lint(records: Sequence[Record]) -> list[Suspicion]:
    """What a checker would believe, and people should look at first."""
    found: dict[str, list[Suspicion]] = {}

    def suspect(kind: str, record: Record, problem: str) -> None:
        found.setdefault(kind, []).append(Suspicion(record.line, problem))

    waiting: dict[Any, Record] = {}
    retired: dict[Any, Record] = {}
    time: int | None = None
    for record in records:
        if record.time is not None:
            if time is not None and record.time < time:
                suspect("time", record, f"time goes back, from {time} to {record.time}")
            time = record.time
        process = record.process
        if process is None:
            continue
        if record.type == "invoke":
            if process in waiting:
                other = waiting[process]
                suspect(
                    "open", record, f"process {process} has two operations open, this and that of line {other.line}"
                )
            if process in retired:
                line = retired.pop(process).line
                suspect("reused", record, f"process {process} goes on although nobody knows the outcome of line {line}")
            waiting[process] = record
            continue
        if waiting.pop(process, None) is None:
            suspect("orphan", record, f"process {process} completes an operation that it has not invoked")
        if record.type == "info":
            retired[process] = record
        if record.type == "fail" and any(doubt in (record.error or "").lower() for doubt in _DOUBTS):
            suspect(
                "doubt",
                record,
                f"{record.f!r} failed with {record.error!r}: if nobody knows whether it happened, its type is info",
            )
        if record.type == "ok" and record.error is not None:
            suspect("error", record, f"{record.f!r} is ok and has the error {record.error!r}")
    told: list[Suspicion] = []
    for kind in found.values():
        told += kind[:SUSPICIONS_MAX]
        if more := kind[SUSPICIONS_MAX:]:
            told.append(Suspicion(more[0].line, f"and {len(more)} more of the kind of line {kind[0].line}"))
    return sorted(told, key=_line)


def _line(suspicion: Suspicion) -> int:
    return suspicion.line
