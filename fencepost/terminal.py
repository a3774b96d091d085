"""Text of other people's on its way to a terminal.

Names of nodes and faults, keys and errors come from histories that somebody sent. A terminal obeys the control
characters in them: they could hide a violation, or write `VALID` over it.
"""

from __future__ import annotations

import re

#: All that a terminal obeys instead of showing it, but for the ends of lines: C0, DEL, C1, what turns the direction of
#: text around, and halves of surrogate pairs, which cannot be written at all.
_OBEYED = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def harmless(text: str) -> str:
    """The text with what a terminal would obey as Python writes it, such as \\x1b."""
    return _OBEYED.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
