"""What objects do, one operation after the other: the models that the search knows, and the base of everybody's own.

A model is a class with an initial state and a step. States must be hashable. `step` gives the states that a call can
lead to, none where it can't have happened in that state as it is reported; of a call of unknown outcome it gives what
it could have done. Write one in a module of your own and name it as `mypackage.mymodule:MyModel`:

    class Counter(Model):
        initial = 0

        def step(self, state, call):
            match call.f:
                case "add":
                    yield state + call.value
                case "read" if call.outcome == "info" or call.result == state:
                    yield state
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, ClassVar

from checker.search.calls import Call


class ModelError(ValueError):
    """There is no such model, or it can't make sense of an operation; the message says which."""


class Model:
    """`initial` is the state at the start. `functions` are the operations that the model knows, None for any.

    `observes` names, for functions that can fail because of what they found, the `error`s that say so; a call that
    failed for another reason never happened and is left out. `anonymous` models don't care which process calls, so that
    of equal calls of unknown outcome only the earliest need be tried.
    """

    initial: Hashable = None
    functions: ClassVar[frozenset[str] | None] = None
    observes: ClassVar[dict[str, tuple[str, ...]]] = {}
    anonymous: ClassVar[bool] = False

    def step(self, state: Any, call: Call) -> Iterable[Hashable]:
        raise NotImplementedError

    def considered(self, calls: Iterable[Call]) -> list[Call]:
        """Those that can matter. Raises ModelError for an operation that the model doesn't know."""
        found = []
        for call in calls:
            if self.functions is not None and call.f not in self.functions:
                where = f"line {call.line}: " if call.line else ""
                known = ", ".join(sorted(self.functions))
                raise ModelError(f"{where}{call.f!r} is no operation of this model; it knows {known}")
            if call.outcome != "fail" or call.error in self.observes.get(call.f, ()):
                found.append(call)
        return found


def _unknown(call: Call) -> bool:
    return call.outcome == "info"


class Register(Model):
    """`write v`, `read` -> v."""

    functions = frozenset({"read", "write"})
    anonymous = True

    def step(self, state: Any, call: Call) -> Iterator[Hashable]:
        if call.f == "write":
            yield hashable(call.value)
        elif _unknown(call) or hashable(call.result) == state:
            yield state


class CasRegister(Register):
    """A register with `cas [old, new]`, which succeeds where it finds the old value."""

    functions = frozenset({"read", "write", "cas"})

    def step(self, state: Any, call: Call) -> Iterator[Hashable]:
        if call.f != "cas":
            yield from super().step(state, call)
            return
        if not isinstance(call.value, list | tuple) or len(call.value) != 2:
            raise ModelError(f"cas needs [old, new], found {call.value!r}")
        old, new = map(hashable, call.value)
        if state == old:
            yield new


class Mutex(Model):
    """`acquire`, `release`, by anybody. The state is whether it is held."""

    initial = False
    functions = frozenset({"acquire", "release"})
    observes: ClassVar[dict[str, tuple[str, ...]]] = {"acquire": ("held",), "release": ("not-held",)}
    anonymous = True

    def step(self, state: bool, call: Call) -> Iterator[Hashable]:
        acquires = call.f == "acquire"
        if call.outcome == "fail":
            if state == acquires:
                yield state
        elif state != acquires:
            yield acquires


class OwnerMutex(Model):
    """A mutex that only its holder can release. The state is the holder."""

    functions = frozenset({"acquire", "release"})
    observes: ClassVar[dict[str, tuple[str, ...]]] = {"acquire": ("held",), "release": ("not-held",)}

    def step(self, state: Any, call: Call) -> Iterator[Hashable]:
        holds = state is not None and state == call.owner
        if call.f == "acquire":
            if call.outcome == "fail":
                if state is not None:
                    yield state
            elif state is None:
                yield call.owner
        elif call.outcome == "fail":
            if not holds:
                yield state
        elif holds:
            yield None


class LeasedMutex(OwnerMutex):
    """An owner-aware mutex whose lease may end at any time, unseen."""

    def step(self, state: Any, call: Call) -> Iterator[Hashable]:
        found = dict.fromkeys(super().step(state, call))
        if state is not None:
            found |= dict.fromkeys(super().step(None, call))
        yield from found


class ReentrantMutex(Model):
    """A mutex that its holder can acquire again, up to `depth_max` times in all. The state is (holder, depth)."""

    initial = (None, 0)
    functions = frozenset({"acquire", "release"})
    depth_max = 2

    def step(self, state: tuple[Any, int], call: Call) -> Iterator[Hashable]:
        holder, depth = state
        if call.f == "acquire":
            if holder is None:
                yield call.owner, 1
            elif holder == call.owner and depth < self.depth_max:
                yield holder, depth + 1
        elif holder == call.owner and holder is not None:
            yield (holder, depth - 1) if depth > 1 else (None, 0)


def _fence(call: Call) -> int | None:
    """The fence that an acquire returned; None where it is unknown. Hazelcast says 0 for a fence that got lost."""
    result = call.result
    if isinstance(result, dict):
        result = result.get("fence", result.get("token"))
    return result if isinstance(result, int) and result > 0 else None


class FencedMutex(Model):
    """An owner-aware mutex whose fences grow from holder to holder. The state is (holder, largest fence so far).

    A fence may be unknown: then it is only known to be larger than those before, and smaller than those after it.
    """

    initial = (None, 0)
    functions = frozenset({"acquire", "release"})

    def step(self, state: tuple[Any, int], call: Call) -> Iterator[Hashable]:
        holder, last = state
        if call.f == "release":
            if holder is not None and holder == call.owner:
                yield None, last
        elif holder is None:
            fence = _fence(call)
            if fence is None:
                yield call.owner, last
            elif fence > last:
                yield call.owner, fence


class ReentrantFencedMutex(Model):
    """Both at once. A holder that acquires again is told the fence that it has.

    The state is (holder, depth, the holder's fence or None, largest fence so far).
    """

    initial = (None, 0, None, 0)
    functions = frozenset({"acquire", "release"})
    depth_max = 2

    def step(self, state: tuple[Any, int, int | None, int], call: Call) -> Iterator[Hashable]:
        holder, depth, own, last = state
        if call.f == "release":
            if holder is not None and holder == call.owner:
                yield (holder, depth - 1, own, last) if depth > 1 else (None, 0, None, last)
            return
        fence = _fence(call)
        if holder is None:
            if fence is None:
                yield call.owner, 1, None, last
            elif fence > last:
                yield call.owner, 1, fence, fence
        elif holder == call.owner and depth < self.depth_max:
            if fence is None or fence == own:
                yield holder, depth + 1, own, last
            elif own is None and fence > last:
                # The first acquire lost its fence; it was this one.
                yield holder, depth + 1, fence, fence


class Semaphore(Model):
    """`acquire n`, `release n` (1 without a value): at most `permits` are held in all, and each by its owner.

    The state holds (owner, permits that it has), in a fixed order.
    """

    initial = ()
    functions = frozenset({"acquire", "release"})
    permits = 2

    def step(self, state: tuple[tuple[Any, int], ...], call: Call) -> Iterator[Hashable]:
        wanted = call.value if isinstance(call.value, int) else 1
        held = dict(state)
        if call.f == "acquire":
            if sum(held.values()) + wanted > self.permits:
                return
            held[call.owner] = held.get(call.owner, 0) + wanted
        else:
            left = held.pop(call.owner, 0) - wanted
            if left < 0:
                return
            if left:
                held[call.owner] = left
        yield tuple(sorted(held.items(), key=lambda item: str(item[0])))


class ReadWriteLock(Model):
    """`read-lock`, `read-unlock`, `write-lock`, `write-unlock`. The state is (writer, readers)."""

    initial: Hashable = (None, frozenset())
    functions = frozenset({"read-lock", "read-unlock", "write-lock", "write-unlock"})

    def step(self, state: tuple[Any, frozenset[Any]], call: Call) -> Iterator[Hashable]:
        writer, readers = state
        match call.f:
            case "read-lock" if writer is None and call.owner not in readers:
                yield None, readers | {call.owner}
            case "read-unlock" if call.owner in readers:
                yield writer, readers - {call.owner}
            case "write-lock" if writer is None and not readers:
                yield call.owner, readers
            case "write-unlock" if writer is not None and writer == call.owner:
                yield None, readers


class FifoQueue(Model):
    """`enqueue v`, `dequeue` -> v, or None where it was empty."""

    initial = ()
    functions = frozenset({"enqueue", "dequeue"})
    anonymous = True

    def step(self, state: tuple[Any, ...], call: Call) -> Iterator[Hashable]:
        if call.f == "enqueue":
            yield (*state, hashable(call.value))
        elif _unknown(call):
            yield state[1:]
        elif call.result is None:
            if not state:
                yield state
        elif state and state[0] == hashable(call.result):
            yield state[1:]


class KeyValue(Model):
    """`put v`, `append v`, `get` -> the whole text, of one key; it starts empty."""

    initial = ""
    functions = frozenset({"get", "put", "append"})
    anonymous = True

    def step(self, state: str, call: Call) -> Iterator[Hashable]:
        if call.f == "put":
            yield str(call.value)
        elif call.f == "append":
            yield state + str(call.value)
        elif _unknown(call) or (call.result or "") == state:
            yield state


class Set(Model):
    """`add v`, `remove v`, `read` -> all values."""

    initial: Hashable = frozenset()
    functions = frozenset({"add", "remove", "read"})
    anonymous = True

    def step(self, state: frozenset[Any], call: Call) -> Iterator[Hashable]:
        if call.f == "add":
            yield state | {hashable(call.value)}
        elif call.f == "remove":
            yield state - {hashable(call.value)}
        elif _unknown(call) or frozenset(map(hashable, call.result or ())) == state:
            yield state


#: The models by the names that the command line knows.
MODELS: dict[str, Callable[[], Model]] = {
    "register": Register,
    "cas-register": CasRegister,
    "mutex": Mutex,
    "owner-mutex": OwnerMutex,
    "leased-mutex": LeasedMutex,
    "reentrant-mutex": ReentrantMutex,
    "fenced-mutex": FencedMutex,
    "reentrant-fenced-mutex": ReentrantFencedMutex,
    "semaphore": Semaphore,
    "read-write-lock": ReadWriteLock,
    "fifo-queue": FifoQueue,
    "set": Set,
    "key-value": KeyValue,
}


def create(name: str) -> Model:
    """The model of this name, or the class `module:Class`. Raises ModelError."""
    if name in MODELS:
        return MODELS[name]()
    module, colon, attribute = name.partition(":")
    if not colon:
        raise ModelError(f"unknown model {name!r}; known are {', '.join(MODELS)}, and your own as module:Class")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as problem:
        raise ModelError(f"model {name!r}: {problem}") from None
    model = found() if callable(found) else found
    if not isinstance(model, Model):
        raise ModelError(f"model {name!r} is no checker.search.Model")
    return model


def hashable(value: Any) -> Hashable:
    if isinstance(value, list | tuple):
        return tuple(map(hashable, value))
    if isinstance(value, set | frozenset):
        return frozenset(map(hashable, value))
    if isinstance(value, dict):
        return tuple(sorted(((hashable(name), hashable(item)) for name, item in value.items()), key=repr))
    return value  # type: ignore[no-any-return]
