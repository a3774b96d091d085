"""Doing something to several nodes at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from typing import TypeVar

T = TypeVar("T")


async def all_of(steps: Iterable[Awaitable[T]]) -> list[T]:
    """The results of all steps, done at once. When some fail, raises the first failure after all have ended.

    `asyncio.gather` would leave the others running then, behind the back of whoever cleans up.
    """
    results = await asyncio.gather(*steps, return_exceptions=True)
    done: list[T] = []
    for result in results:
        if isinstance(result, BaseException):
            raise result
        done.append(result)
    return done
