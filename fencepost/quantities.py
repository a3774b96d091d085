"""Times, ranges, rates and shares as people write them in files: 60s, 50ms..500ms, 200/s, 1%.

Parsing is exact (no time is rounded) and raises ValueError with a message that says what would do; what formatting
makes, parsing reads back as the same value.
"""

from __future__ import annotations

import re
from decimal import Decimal

NS_PER_MS = 1_000_000

_UNITS_NS = {"ns": 1, "us": 1_000, "ms": NS_PER_MS, "s": 1_000_000_000, "m": 60_000_000_000, "h": 3_600_000_000_000}
_DURATION = re.compile(r"([0-9]{1,20}(?:\.[0-9]{1,15})?)(ns|us|ms|s|m|h)", re.ASCII)
_RATE = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,30})?)/s", re.ASCII)
_SPEED = re.compile(r"([0-9]{1,12})(B|KB|MB)/s", re.ASCII)
_SPEED_UNITS = {"B": 1, "KB": 1_000, "MB": 1_000_000}
_SIZE = re.compile(r"([0-9]{1,15})(B|KiB|MiB|GiB)", re.ASCII)
_SIZE_UNITS = {"B": 1, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3}
_PERCENT = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,30})?)%", re.ASCII)

A_DURATION = "a number with a unit, such as 500ms, 60s or 2m"
A_RANGE_MS = "a duration in whole milliseconds, such as 50ms, or a range, such as 50ms..500ms"
A_RATE = "a number per second, such as 200/s"
A_STEP = "a duration with a sign, such as +60s or -500ms"
A_SPEED = "bytes a second, such as 20KB/s"
A_SIZE = "bytes with a unit, such as 64MiB"
A_SHARE = "a percentage, such as 1%, or a share from 0 to 1, such as 0.01"


def parse_duration_ns(text: str) -> int:
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ValueError(A_DURATION)
    amount = Decimal(match[1]) * _UNITS_NS[match[2]]
    if amount != int(amount):
        raise ValueError("a duration of whole nanoseconds")
    return int(amount)


def format_duration(ns: int) -> str:
    """In the largest unit up to seconds in which the number is whole."""
    for unit in ("s", "ms", "us"):
        if ns % _UNITS_NS[unit] == 0:
            return f"{ns // _UNITS_NS[unit]}{unit}"
    return f"{ns}ns"


def parse_duration_ms(text: str) -> int:
    """A duration in whole milliseconds."""
    ns = parse_duration_ns(text)
    if ns % NS_PER_MS:
        raise ValueError("a duration in whole milliseconds, such as 50ms")
    return ns // NS_PER_MS


def parse_range_ms(text: str) -> tuple[int, int]:
    """`low..high`, or one duration, which is both."""
    low_text, dots, high_text = text.partition("..")
    try:
        low = parse_duration_ms(low_text)
        high = parse_duration_ms(high_text) if dots else low
    except ValueError:
        raise ValueError(A_RANGE_MS) from None
    if low > high:
        raise ValueError("a range that goes upwards")
    return low, high


def format_range_ms(bounds: tuple[int, int]) -> str:
    low, high = (format_duration(bound * NS_PER_MS) for bound in bounds)
    return low if low == high else f"{low}..{high}"


def parse_size(text: str) -> int:
    """In bytes, at least one."""
    match = _SIZE.fullmatch(text.strip())
    if match is None or int(match[1]) == 0:
        raise ValueError(A_SIZE)
    return int(match[1]) * _SIZE_UNITS[match[2]]


def format_size(size: int) -> str:
    """In the largest unit in which the number is whole."""
    unit = next(unit for unit in ("GiB", "MiB", "KiB", "B") if size % _SIZE_UNITS[unit] == 0)
    return f"{size // _SIZE_UNITS[unit]}{unit}"


def parse_rate(text: str) -> float:
    """Per second."""
    match = _RATE.fullmatch(text.strip())
    if match is None:
        raise ValueError(A_RATE)
    return float(match[1])


def format_rate(rate: float) -> str:
    return f"{plain(rate)}/s"


def parse_step_ns(text: str) -> int:
    """A duration that is added (+) or taken away (-)."""
    text = text.strip()
    sign = {"+": 1, "-": -1}.get(text[:1])
    if sign is None:
        raise ValueError(A_STEP)
    return sign * parse_duration_ns(text[1:])


def format_step(ns: int) -> str:
    return f"{'-' if ns < 0 else '+'}{format_duration(abs(ns))}"


def parse_speed(text: str) -> int:
    """Bytes per second."""
    match = _SPEED.fullmatch(text.strip())
    if match is None:
        raise ValueError(A_SPEED)
    return int(match[1]) * _SPEED_UNITS[match[2]]


def format_speed(bytes_s: int) -> str:
    for unit in ("MB", "KB"):
        if bytes_s % _SPEED_UNITS[unit] == 0:
            return f"{bytes_s // _SPEED_UNITS[unit]}{unit}/s"
    return f"{bytes_s}B/s"


def parse_share(text: str) -> float:
    """A percentage, as a share."""
    match = _PERCENT.fullmatch(text.strip())
    if match is None:
        raise ValueError(A_SHARE)
    return float(Decimal(match[1]) / 100)


def plain(number: float) -> str:
    """The shortest digits that give this very number back, without an exponent."""
    digits = format(Decimal(repr(number)), "f")
    return digits[:-2] if digits.endswith(".0") else digits
