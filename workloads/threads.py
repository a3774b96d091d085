"""Generators that deal the threads out: one for each thread, one for each key."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import msgspec

from checker.history import Event
from workloads.combinators import sequence
from workloads.generator import PENDING, Answer, Context, Generator, Op, Wait, sooner


def each_thread(threads: Sequence[int], make: Callable[[int], Generator]) -> Generator:
    """A generator of its own for every thread, which sees that thread alone. The longest idle thread goes first."""
    return groups([((thread,), make(thread)) for thread in threads])


def on_threads(threads: Sequence[int], generator: Generator) -> Generator:
    """The generator, kept to these threads."""
    return groups([(threads, generator)])


def per_key(
    threads: Sequence[int], keys: Sequence[str], make: Callable[[str], Generator], *, threads_per_key: int = 1
) -> Generator:
    """A generator of its own for every key. The threads form groups of `threads_per_key`, the keys are dealt out to
    the groups, and each group goes through its keys one after the other. Raises ValueError when the threads are too
    few for one group."""
    count = min(len(threads) // threads_per_key, len(keys))
    if count == 0 and keys:
        raise ValueError(f"{len(threads)} threads make no group of {threads_per_key}")
    return groups(
        [
            (
                threads[group * threads_per_key : (group + 1) * threads_per_key],
                sequence([make(key) for key in keys[group::count]]),
            )
            for group in range(count)
        ]
    )


def groups(parts: Sequence[tuple[Sequence[int], Generator]]) -> Generator:
    """Generators side by side, each on threads of its own; no thread may be in two groups."""
    members = tuple(frozenset(threads) for threads, _ in parts)
    group_of = {thread: group for group, threads in enumerate(members) for thread in threads}
    return _Groups(members, group_of, {group: (generator, None) for group, (_, generator) in enumerate(parts)})


class _Groups(msgspec.Struct, frozen=True):
    """`running` has the generators that are not over, by group, each with the answer that still stands if it was to
    wait. With one thread in the group nothing but an event of that thread, or the time that it named, can change such
    an answer, so it is not asked for again: what an op costs does not grow with the clients that hold or pause."""

    members: tuple[frozenset[int], ...]
    group_of: Mapping[int, int]
    running: Mapping[int, tuple[Generator, Wait | None]]

    def op(self, ctx: Context) -> Answer:
        wait = PENDING
        asked: set[int] = set()
        changed: dict[int, tuple[Generator, Wait | None]] = {}
        over: list[int] = []
        for thread in ctx.free:
            group = self.group_of.get(thread)
            if group is None or group in asked or group not in self.running:
                continue
            asked.add(group)
            generator, standing = self.running[group]
            if standing is not None and (standing.until_ns is None or ctx.time < standing.until_ns):
                wait = sooner(wait, standing)
                continue
            answer, after = generator.op(self._view(ctx, group, thread))
            if isinstance(answer, Op):
                changed[group] = after, None
                return answer, self._with(changed, over)
            if answer is None:
                over.append(group)
            else:
                changed[group] = after, answer if len(self.members[group]) == 1 else None
                wait = sooner(wait, answer)
        return (wait if len(over) < len(self.running) else None), self._with(changed, over)

    def update(self, ctx: Context, event: Event) -> Generator:
        thread = ctx.thread_of(event)
        group = None if thread is None else self.group_of.get(thread)
        if thread is None or group is None or group not in self.running:
            return self
        updated = self.running[group][0].update(self._view(ctx, group, thread), event)
        return self._with({group: (updated, None)}, ())

    def _with(self, changed: Mapping[int, tuple[Generator, Wait | None]], over: Collection[int]) -> _Groups:
        if not changed and not over:
            return self
        running = {**self.running, **changed}
        for group in over:
            del running[group]
        return _Groups(self.members, self.group_of, running)

    def _view(self, ctx: Context, group: int, thread: int) -> Context:
        members = self.members[group]
        return ctx.only(thread) if len(members) == 1 else ctx.among(members)
