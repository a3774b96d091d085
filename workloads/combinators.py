"""Generators made of generators: choice, order, limits, rates.

Times are nanoseconds; a limit or delay counts from the moment at which its generator was first asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

import msgspec

from checker.history import Event
from workloads.generator import PENDING, Answer, Context, Generator, Op, Wait, sooner
from workloads.seeds import Seed

NS_PER_S = 1_000_000_000


def mix(seed: Seed, generators: Sequence[Generator]) -> Generator:
    """One of them at random for every op, with even odds; over when all are. One that waits is passed over."""
    return _Mix(seed, tuple(generators))


def soonest(generators: Sequence[Generator]) -> Generator:
    """Whichever has something to do, the first named first; over when all are."""
    return _Soonest(tuple(generators))


def limit(count: int, generator: Generator) -> Generator:
    """At most `count` ops."""
    return _Limit(count, generator)


def time_limit(duration_ns: int, generator: Generator) -> Generator:
    """No op once `duration_ns` have passed."""
    return _TimeLimit(duration_ns, generator)


def stagger(seed: Seed, rate: float, generator: Generator) -> Generator:
    """At most `rate` ops a second on average, at random distances (even between 0 and twice the mean).

    A prompt op is not held back, but moves what follows. Time lost to a slow client is not made up for, beyond one
    mean distance. Put it under `each_thread`, one for each client: above it, one client's op that is held back would
    hide the prompt ops of the others.
    """
    return _Stagger(seed, NS_PER_S / rate, generator)


def delay(interval_ns: int, generator: Generator) -> Generator:
    """At least `interval_ns` between the start of one op and the next."""
    return _Delay(interval_ns, generator)


def sequence(generators: Sequence[Generator]) -> Generator:
    """One after the other; the next begins when nothing more comes from the one before, while its last ops may
    still be open."""
    return _Sequence(tuple(generators))


def synchronize(generator: Generator) -> Generator:
    """Begins when every thread is free."""
    return _Synchronize(generator)


def phases(generators: Sequence[Generator]) -> Generator:
    """One after the other, each once everything that the one before started has come back."""
    return sequence([synchronize(generator) for generator in generators])


class _Mix(msgspec.Struct, frozen=True):
    seed: Seed
    parts: tuple[Generator, ...]
    drawn: int = 0

    def op(self, ctx: Context) -> Answer:
        if not self.parts:
            return None, self
        first = self.seed.split(self.drawn).between(0, len(self.parts) - 1)
        parts: list[Generator | None] = list(self.parts)
        wait = PENDING
        for position in [*range(first, len(parts)), *range(first)]:
            answer, after = self.parts[position].op(ctx)
            parts[position] = None if answer is None else after
            if isinstance(answer, Op):
                return answer, _Mix(self.seed, _present(parts), self.drawn + 1)
            if answer is not None:
                wait = sooner(wait, answer)
        left = _present(parts)
        return (wait if left else None), _Mix(self.seed, left, self.drawn)

    def update(self, ctx: Context, event: Event) -> Generator:
        return _Mix(self.seed, _updated(self.parts, ctx, event), self.drawn)


@dataclass(frozen=True, slots=True)
class _Soonest:
    parts: tuple[Generator, ...]

    def op(self, ctx: Context) -> Answer:
        parts: list[Generator | None] = list(self.parts)
        wait = PENDING
        for position, part in enumerate(self.parts):
            answer, after = part.op(ctx)
            parts[position] = None if answer is None else after
            if isinstance(answer, Op):
                return answer, _Soonest(_present(parts))
            if answer is not None:
                wait = sooner(wait, answer)
        left = _present(parts)
        return (wait if left else None), _Soonest(left)

    def update(self, ctx: Context, event: Event) -> Generator:
        return _Soonest(_updated(self.parts, ctx, event))


@dataclass(frozen=True, slots=True)
class _Limit:
    left: int
    inner: Generator

    def op(self, ctx: Context) -> Answer:
        if self.left <= 0:
            return None, self
        answer, inner = self.inner.op(ctx)
        return answer, _Limit(self.left - isinstance(answer, Op), inner)

    def update(self, ctx: Context, event: Event) -> Generator:
        return _Limit(self.left, self.inner.update(ctx, event))


class _TimeLimit(msgspec.Struct, frozen=True):
    duration_ns: int
    inner: Generator
    end_ns: int | None = None

    def op(self, ctx: Context) -> Answer:
        end_ns = ctx.time + self.duration_ns if self.end_ns is None else self.end_ns
        if ctx.time >= end_ns:
            return None, self
        answer, inner = self.inner.op(ctx)
        if isinstance(answer, Wait):
            answer = sooner(answer, Wait(end_ns))
        return answer, _TimeLimit(self.duration_ns, inner, end_ns)

    def update(self, ctx: Context, event: Event) -> Generator:
        return _TimeLimit(self.duration_ns, self.inner.update(ctx, event), self.end_ns)


class _Stagger(msgspec.Struct, frozen=True):
    seed: Seed
    mean_ns: float
    inner: Generator
    sent: int = 0
    #: When the next op may go; None before the first question.
    slot_ns: float | None = None

    def op(self, ctx: Context) -> Answer:
        slot_ns = ctx.time + self._distance_ns() / 2 if self.slot_ns is None else self.slot_ns
        answer, inner = self.inner.op(ctx)
        if not isinstance(answer, Op):
            return answer, self._with(inner, slot_ns)
        if ctx.time < slot_ns and not answer.prompt:
            return Wait(ceil(slot_ns)), self._with(self.inner, slot_ns)
        begun = max(slot_ns, ctx.time - self.mean_ns)
        return answer, _Stagger(self.seed, self.mean_ns, inner, self.sent + 1, begun + self._distance_ns())

    def update(self, ctx: Context, event: Event) -> Generator:
        return self._with(self.inner.update(ctx, event), self.slot_ns)

    def _with(self, inner: Generator, slot_ns: float | None) -> _Stagger:
        return _Stagger(self.seed, self.mean_ns, inner, self.sent, slot_ns)

    def _distance_ns(self) -> float:
        return 2 * self.mean_ns * self.seed.split(self.sent).fraction()


@dataclass(frozen=True, slots=True)
class _Delay:
    interval_ns: int
    inner: Generator
    slot_ns: int = 0

    def op(self, ctx: Context) -> Answer:
        answer, inner = self.inner.op(ctx)
        if not isinstance(answer, Op):
            return answer, _Delay(self.interval_ns, inner, self.slot_ns)
        if ctx.time < self.slot_ns:
            return Wait(self.slot_ns), self
        return answer, _Delay(self.interval_ns, inner, ctx.time + self.interval_ns)

    def update(self, ctx: Context, event: Event) -> Generator:
        return _Delay(self.interval_ns, self.inner.update(ctx, event), self.slot_ns)


class _Sequence(msgspec.Struct, frozen=True):
    parts: tuple[Generator, ...]

    def op(self, ctx: Context) -> Answer:
        for position, part in enumerate(self.parts):
            answer, after = part.op(ctx)
            if answer is not None:
                return answer, _Sequence((after, *self.parts[position + 1 :]))
        return None, _Sequence(())

    def update(self, ctx: Context, event: Event) -> Generator:
        if not self.parts:
            return self
        return _Sequence((self.parts[0].update(ctx, event), *self.parts[1:]))


@dataclass(frozen=True, slots=True)
class _Synchronize:
    inner: Generator

    def op(self, ctx: Context) -> Answer:
        if len(ctx.free) < len(ctx.threads):
            return PENDING, self
        return self.inner.op(ctx)

    def update(self, ctx: Context, event: Event) -> Generator:
        return self


def _present(parts: Sequence[Generator | None]) -> tuple[Generator, ...]:
    return tuple(part for part in parts if part is not None)


def _updated(parts: Sequence[Generator], ctx: Context, event: Event) -> tuple[Generator, ...]:
    return tuple(part.update(ctx, event) for part in parts)
