from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from workloads.seeds import Seed

seeds = st.integers(0, 2**64 - 1).map(Seed)


def test_the_same_seed_gives_the_same_numbers_on_every_machine_and_version() -> None:
    seed = Seed(42)
    assert seed.split("client").split(7).bits == 0xDB764B6650E9E42F
    assert seed.split("client").between(0, 10**9) == 78_221_671


@given(seeds, st.integers(-(10**6), 10**6), st.integers(0, 10**6))
def test_a_number_lies_within_its_bounds(seed: Seed, low: int, width: int) -> None:
    assert low <= seed.between(low, low + width) <= low + width
    assert 0 <= seed.fraction() < 1


def test_names_and_numbers_give_seeds_of_their_own() -> None:
    seed = Seed(1)
    names = [*range(-500, 500), *(f"name {number}" for number in range(1000))]
    assert len({seed.split(name).bits for name in names}) == len(names)
    assert len({Seed(bits).split("a").bits for bits in range(1000)}) == 1000


def test_draws_are_even() -> None:
    """Chi-squared over 16 bins stays below the bound that chance exceeds once in 10^6; over successive numbers, as
    turns and threads are."""
    for drawn in (
        [Seed(9).split(number).between(0, 15) for number in range(16_000)],
        [Seed(number).split("x").between(0, 15) for number in range(16_000)],
        [Seed(9).split("turn").split(number).split("key").between(0, 15) for number in range(16_000)],
    ):
        counts = Counter(drawn)
        assert sum((counts[value] - 1000) ** 2 / 1000 for value in range(16)) < 56


def test_sibling_seeds_are_not_correlated() -> None:
    pairs = [(Seed(3).split(n).split("a").fraction(), Seed(3).split(n).split("b").fraction()) for n in range(10_000)]
    covariance = sum((left - 0.5) * (right - 0.5) for left, right in pairs) / len(pairs)
    assert abs(covariance) < 0.005
