"""Feeds the targets what a coverage-guided fuzzer found, and what hypothesis thinks of."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz import targets


@pytest.fixture(autouse=True, scope="module")
def _clean_up() -> Iterator[None]:
    yield
    targets.clean_up()


@pytest.mark.parametrize("target", targets.TARGETS)
def test_the_corpus(target: str) -> None:
    inputs = sorted((targets.CORPUS / target).iterdir())
    assert len(inputs) >= 2
    for one in inputs:
        targets.TARGETS[target](one.read_bytes())


@pytest.mark.parametrize("target", targets.TARGETS)
def test_random_bytes_and_spliced_inputs(target: str) -> None:
    inputs = [one.read_bytes() for one in sorted((targets.CORPUS / target).iterdir())[:200]]

    @settings(max_examples=100)
    @given(data=st.data())
    def run(data: st.DataObject) -> None:
        pieces = data.draw(st.lists(st.one_of(st.binary(max_size=40), st.sampled_from(inputs)), max_size=4))
        stream = bytearray(b"".join(pieces)[:6000])
        for position in data.draw(st.lists(st.integers(0, max(0, len(stream) - 1)), max_size=4)):
            if stream:
                stream[position] = data.draw(st.integers(0, 255))
        targets.TARGETS[target](bytes(stream))

    run()
