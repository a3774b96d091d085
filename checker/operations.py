"""From events to operations: every invoke with its completion, and everything that is wrong with either.

A history that is not well-formed is refused here, once, so that no claim has to ask what a missing token could mean.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

import msgspec

from checker.events import NEMESIS, Event, HistoryError

#: The end of an operation whose outcome nobody knows: it may take effect at any later time. Larger than any position.
OPEN = 1 << 62


class Operation(msgspec.Struct, frozen=True, gc=False):
    """One call of a client.

    `index` is the position of its invoke; `end` that of its completion, or OPEN when it is unknown whether it happened
    (completed as `info`, or never). `outcome` is "ok", "fail" or "info". `token` is the one that an acquire was
    granted, a release, renew or write named, an inspect or read saw. `lease_ns` is the lease that was asked for, in
    nanoseconds; None where the history does not say. `settled` is the entry of the nodes' log that says what became of
    it, where its client was not told (see `checker.settle`).
    """

    invoke: Event
    completion: Event | None
    index: int
    end: int
    process: int
    f: str
    key: str
    outcome: str
    token: int | None
    error: str | None
    lease_ns: int | None
    settled: int | None = None

    @property
    def node(self) -> str | None:
        if self.invoke.node is not None or self.completion is None:
            return self.invoke.node
        return self.completion.node

    @property
    def value(self) -> dict[str, Any]:
        return self.invoke.value or {}


NANOSECONDS_PER_MS = 1_000_000

#: For each operation: whether its invoke names a token, whether its `ok` shows one, and whether that may be null.
_NAMES_TOKEN = {"acquire": False, "release": True, "renew": True, "inspect": False, "write": True, "read": False}
_SHOWS_TOKEN = {"acquire": "token", "inspect": "token or null"}

OPERATIONS = tuple(_NAMES_TOKEN)


def pair(events: Iterable[Event]) -> tuple[list[Operation], list[str]]:
    """The clients' operations in the order of their invokes, and warnings about what is odd but harmless.

    Raises HistoryError for what is no history, with the line that is to blame (index + 1).
    """
    operations: list[Operation | None] = []
    open_invokes: dict[int, tuple[int, Event]] = {}
    retired: set[int] = set()
    reused: set[int] = set()
    time = 0
    for due, event in enumerate(events):
        if event.index != due:
            raise HistoryError(f"index is {event.index} where {due} is due: positions must be dense", line=due + 1)
        if event.time < time:
            _refuse(event, f"time goes back from {time} to {event.time} ns")
        time = event.time
        process = event.process
        if isinstance(process, str):
            check_named(event)
            continue
        if event.type == "invoke":
            _check_invoke(event)
            if process in open_invokes:
                open_one = _words(open_invokes[process][1])
                _refuse(event, f"process {process} invokes {event.f!r} while its {open_one} is open")
            if process in retired:
                reused.add(process)
            open_invokes[process] = (len(operations), event)
            operations.append(None)
            continue
        if process not in open_invokes:
            _refuse(event, f"process {process} completes {event.f!r} ({event.type}) without having invoked it")
        number, invoke = open_invokes.pop(process)
        if invoke.f != event.f or invoke.key != event.key:
            _refuse(event, f"{event.f!r} of key {event.key!r} completes process {process}'s {_words(invoke)}")
        if event.type == "info":
            retired.add(process)
        elif event.type == "ok":
            _check_ok(event)
        operations[number] = operation_of(process, invoke, event)
    for process, (number, invoke) in open_invokes.items():
        operations[number] = operation_of(process, invoke, None)
    warnings = [reuse_warning(sorted(reused))] if reused else []
    return [operation for operation in operations if operation is not None], warnings


def is_unnumbered(event: Event) -> bool:
    """Whether a client's operation has a process that is text, so that it would be taken for no client's."""
    return isinstance(event.process, str) and event.process != NEMESIS and event.f in _NAMES_TOKEN


def check_named(event: Event) -> None:
    """Refuse what would be ignored although somebody meant it. Raises HistoryError."""
    if is_unnumbered(event):
        _refuse(
            event,
            f"{event.f!r} of process {event.process!r}, which is text: the process of a client's operation must be a"
            " whole number, so number the clients",
        )


def reuse_warning(processes: Sequence[int]) -> str:
    """`processes`, in their order, went on although nobody knew the outcome of an operation of theirs."""
    some = ", ".join(map(str, processes[:5]))
    who = "1 process" if len(processes) == 1 else f"{len(processes)} processes"
    return (
        f"{who} went on after an operation of unknown outcome ({some}), which is no order between the two: such an"
        " operation may take effect later"
    )


def operation_of(process: int, invoke: Event, completion: Event | None) -> Operation:
    f, key, value = invoke.f, invoke.key, invoke.value
    assert key is not None
    token = lease_ns = error = None
    if value is not None:
        if _NAMES_TOKEN[f]:
            token = value["token"]
        if (lease_ms := value.get("lease_ms")) is not None:
            lease_ns = round(lease_ms * NANOSECONDS_PER_MS)
    outcome: str = "info"
    end = OPEN
    if completion is not None:
        error = completion.error
        if completion.type != "info":
            outcome, end = completion.type, completion.index
            if outcome == "ok" and token is None and completion.value is not None:
                token = completion.value.get("token")
    return Operation(invoke, completion, invoke.index, end, process, f, key, outcome, token, error, lease_ns)


def _check_invoke(event: Event) -> None:
    names_token = _NAMES_TOKEN.get(event.f)
    if names_token is None:
        _refuse(event, f"unknown operation {event.f!r}; known are {', '.join(OPERATIONS)}")
    if event.key is None:
        _refuse(event, f"{event.f!r} without a key")
    value = event.value
    if names_token and (value is None or type(value.get("token")) is not int):
        _refuse(event, f"{event.f!r} must name a whole number as its token, found {_found(value, 'token')}")
    if (
        value is not None
        and (lease := value.get("lease_ms")) is not None
        and (type(lease) not in (int, float) or not 0 <= lease < float("inf"))
    ):
        _refuse(event, f"lease_ms of {event.f!r} must be a number of milliseconds from 0 up, found {lease!r}")


def _check_ok(event: Event) -> None:
    wanted = _SHOWS_TOKEN.get(event.f)
    value = event.value
    if wanted is None:
        if event.f == "read" and value is not None and type(value.get("token")) not in (int, type(None)):
            _refuse(event, f"the token that a read saw must be a whole number or null, found {value['token']!r}")
        return
    if value is None or "token" not in value:
        _refuse(event, f"{event.f!r} ok must carry a {wanted}, found {_found(value, 'token')}")
    token = value["token"]
    if type(token) is not int and (token is not None or event.f == "acquire"):
        _refuse(event, f"{event.f!r} ok must carry a whole number as its {wanted}, found {token!r}")


def _found(value: dict[str, Any] | None, field: str) -> str:
    if value is None:
        return "no value"
    return repr(value[field]) if field in value else f"a value without {field!r}"


def _words(invoke: Event) -> str:
    return f"{invoke.f!r} of key {invoke.key!r} (line {invoke.index + 1})"


def _refuse(event: Event, problem: str) -> NoReturn:
    raise HistoryError(problem, line=event.index + 1)
