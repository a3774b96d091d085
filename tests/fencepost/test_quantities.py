from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.quantities import (
    format_duration,
    format_range_ms,
    format_rate,
    parse_duration_ms,
    parse_duration_ns,
    parse_range_ms,
    parse_rate,
    parse_share,
)

S = 1_000_000_000


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("60s", 60 * S),
        ("500ms", S // 2),
        ("2m", 120 * S),
        ("1.5h", 5400 * S),
        ("0.1s", S // 10),
        ("0.000000001s", 1),
        ("250us", 250_000),
        ("7ns", 7),
        ("0s", 0),
        (" 3s ", 3 * S),
    ],
)
def test_durations_are_exact(text: str, ns: int) -> None:
    assert parse_duration_ns(text) == ns


@pytest.mark.parametrize(
    "text",
    ["", "60", "s", "60 s", "-1s", "+1s", "1e3s", "1_000s", "1m30s", "٣s", "1.s", ".5s", "0.5ns", "1S", "9" * 21 + "s"],
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^a (number with a unit|duration)"):
        parse_duration_ns(text)


@given(st.integers(0, 10**18))
def test_a_duration_survives_being_written(ns: int) -> None:
    assert parse_duration_ns(format_duration(ns)) == ns


@given(st.integers(0, 10**9), st.integers(0, 10**9))
def test_a_range_survives_being_written(low: int, width: int) -> None:
    assert parse_range_ms(format_range_ms((low, low + width))) == (low, low + width)


def test_one_duration_is_a_range() -> None:
    assert parse_range_ms("50ms") == (50, 50)
    assert format_range_ms((50, 50)) == "50ms"
    assert parse_range_ms("0ms..1s") == (0, 1000)


@pytest.mark.parametrize("text", ["", "..", "1ms..", "..1ms", "1..2ms", "2ms..1ms", "1ms...2ms", "1us..2us", "1ms-2ms"])
def test_what_is_no_range_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^a (duration in whole milliseconds|range that goes upwards)"):
        parse_range_ms(text)


def test_milliseconds_are_whole() -> None:
    assert parse_duration_ms("1.5s") == 1500
    with pytest.raises(ValueError, match="whole milliseconds"):
        parse_duration_ms("1500us")


@given(st.floats(1e-9, 1e9))
def test_a_rate_survives_being_written(rate: float) -> None:
    assert parse_rate(format_rate(rate)) == rate


@pytest.mark.parametrize("text", ["", "200", "/s", "200/m", "200 /s", "-1/s", "1e3/s", "inf/s", "nan/s"])
def test_what_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="per second"):
        parse_rate(text)


@pytest.mark.parametrize(
    ("text", "share"), [("1%", 0.01), ("0%", 0.0), ("100%", 1.0), ("0.1%", 0.001), ("12.5%", 0.125)]
)
def test_percentages_are_shares(text: str, share: float) -> None:
    assert parse_share(text) == share


@pytest.mark.parametrize("text", ["", "1", "%", "-1%", "1 %", "nan%", "1000%"])
def test_what_is_no_percentage_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="percentage"):
        parse_share(text)
