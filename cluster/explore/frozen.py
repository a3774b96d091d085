"""Copies of a core, and what makes two cores the same.

A copy is a pickle. The leader's desk keeps closures (what to answer once a read is served), which pickle refuses: they
are taken apart into their code and their cells, and put together again around the copies of what they refer to.

Two cores are the same when everything that they are made of is: `freeze` walks over all attributes, of mutants too, so
none can be forgotten. It leaves out only `LEFT_OUT`, which no decision of a core looks at.
"""

from __future__ import annotations

import io
import pickle
import types
from collections import deque
from collections.abc import Hashable
from enum import Enum
from typing import Any, NamedTuple

from cluster.node.message import Message

#: Attributes that tell of the past and decide nothing; and those that are the same in all cores of one exploration.
LEFT_OUT = frozenset({"counters", "draw", "timing"})

_ATOMS = frozenset({int, str, bytes, bool, float, type(None)})

_codes: list[types.CodeType] = []
_known: dict[types.CodeType, int] = {}


def pack(thing: object) -> bytes:
    buffer = io.BytesIO()
    _Pickler(buffer, protocol=pickle.HIGHEST_PROTOCOL).dump(thing)
    return buffer.getvalue()


def unpack(data: bytes) -> Any:
    """A copy of what was packed; only for what this very process has packed."""
    return pickle.loads(data)


class _Pickler(pickle.Pickler):
    def reducer_override(self, thing: object) -> Any:
        if not isinstance(thing, types.FunctionType) or thing.__closure__ is None:
            return NotImplemented
        code = thing.__code__
        if code not in _known:
            _known[code] = len(_codes)
            _codes.append(code)
        cells = tuple(cell.cell_contents for cell in thing.__closure__)
        # The cells lead back to who holds the closure, so they can be filled only when that one is there.
        return _hollow, (_known[code], thing.__module__), cells, None, None, _fill


def _hollow(code: int, module: str) -> types.FunctionType:
    import sys

    cells = tuple(types.CellType() for _ in _codes[code].co_freevars)
    return types.FunctionType(_codes[code], vars(sys.modules[module]), closure=cells)


def _fill(function: types.FunctionType, contents: tuple[object, ...]) -> None:
    for cell, content in zip(function.__closure__ or (), contents, strict=True):
        cell.cell_contents = content


def freeze(thing: object) -> Hashable:
    """A value that is equal for equal things only, and can be hashed."""
    return _freeze(thing, {})


def _freeze(thing: Any, met: dict[int, int]) -> Hashable:
    kind = type(thing)
    if kind in _ATOMS:
        return thing  # type: ignore[no-any-return]
    if kind is tuple or kind is list or kind is deque:
        return tuple([part if type(part) in _ATOMS else _freeze(part, met) for part in thing])
    if kind is dict:
        # In its order: queues are dictionaries, and the first to come is the first to be served.
        return tuple([(_freeze(key, met), _freeze(value, met)) for key, value in thing.items()])
    shape = _shapes.get(kind)
    if shape is None:
        shape = _shapes[kind] = _shape(kind)
    if shape.itself:
        return thing  # type: ignore[no-any-return]
    if kind is set or kind is frozenset:
        return frozenset(_freeze(part, met) for part in thing)
    if not shape.immutable:
        if id(thing) in met:
            return ("met", met[id(thing)])
        met[id(thing)] = len(met)
    if kind is types.FunctionType:
        cells = tuple(_freeze(cell.cell_contents, met) for cell in thing.__closure__ or ())
        return (thing.__qualname__, thing.__code__.co_firstlineno, cells)
    if isinstance(thing, tuple):
        return (shape.name, *[_freeze(part, met) for part in thing])
    parts: list[Hashable] = [shape.name]
    for name in shape.slots:
        value = getattr(thing, name)
        parts.append(value if type(value) in _ATOMS else _freeze(value, met))
    if shape.has_dict:
        for name, value in vars(thing).items():
            if name not in LEFT_OUT:
                parts.append((name, value if type(value) in _ATOMS else _freeze(value, met)))
    return tuple(parts)


class _Shape(NamedTuple):
    """What `_freeze` has to know of a class. `itself`: its objects never change, and are equal when their parts are;
    `immutable`: it is no matter which of several equal ones something refers to."""

    name: str
    itself: bool
    immutable: bool
    slots: tuple[str, ...]
    has_dict: bool


def _shape(kind: type) -> _Shape:
    parameters = getattr(kind, "__dataclass_params__", None)
    return _Shape(
        name=kind.__qualname__,
        itself=issubclass(kind, Message | Enum | type),
        immutable=parameters is not None and parameters.frozen,
        slots=tuple(name for one in kind.__mro__ for name in getattr(one, "__slots__", ()) if name not in LEFT_OUT),
        has_dict=hasattr(kind, "__dict__") and kind.__dictoffset__ != 0,
    )


_shapes: dict[type, _Shape] = {}
