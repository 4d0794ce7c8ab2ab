"""One position for all partitions and those that differ: it answers as a plain mapping of every partition would."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from reprise.algorithms.positions import Positions

NAMES = ["a", "b", "c"]
BATCHES = st.integers(0, 5)
POSITIONS = st.builds(Positions, BATCHES, st.dictionaries(st.sampled_from(NAMES), BATCHES))


def spelled_out(positions: Positions) -> dict[str, int]:
    """`rest` stands for all that are not named."""
    return {**dict.fromkeys([*NAMES, "rest"], positions.everybody), **positions.others}


@given(POSITIONS, st.sets(st.sampled_from(NAMES), min_size=1))
def test_each_partition_has_its_position(positions: Positions, some: set[str]) -> None:
    plain = spelled_out(positions)
    assert {p: positions.of(p) for p in plain} == plain
    assert positions.least(some) == min(plain[p] for p in some)
    assert (positions.oldest, positions.newest) == (min(plain.values()), max(plain.values()))


@given(POSITIONS, POSITIONS)
def test_it_is_beyond_another_where_everybody_is(one: Positions, other: Positions) -> None:
    expected = all(k > spelled_out(other)[p] for p, k in spelled_out(one).items())
    assert one.beyond(other) == expected
