"""Numbers in sentences."""

from __future__ import annotations


def counted(number: int, one: str, many: str | None = None) -> str:
    """How many of something there are: "1 node", "2,000 nodes". `many` is for nouns that don't just end in s."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"
