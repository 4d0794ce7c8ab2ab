"""Spans of batches: in order, apart, and with every batch that was put in."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from reprise.algorithms.spans import Span, batches, joined, whole

SPANS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 6)).map(lambda one: (one[0], one[0] + one[1])))


def named(spans: tuple[Span, ...] | list[Span]) -> set[int]:
    return {batch for first, last in spans for batch in range(first, last + 1)}


@given(SPANS)
def test_joined_spans_have_the_same_batches_in_order_and_apart(spans: list[Span]) -> None:
    found = joined(spans)
    assert named(found) == named(spans)
    assert all(after[0] > before[1] + 1 for before, after in pairwise(found))
    assert batches(found) == len(named(spans))
    if found:
        assert whole(found) == (min(named(spans)), max(named(spans)))


def test_a_partition_of_which_nobody_lacks_a_batch_has_a_span_without_any() -> None:
    assert joined([(31, 30)]) == ((31, 30),)
    assert batches([(31, 30)]) == 0
    assert joined([(20, 30), (31, 30)]) == ((20, 30),)
