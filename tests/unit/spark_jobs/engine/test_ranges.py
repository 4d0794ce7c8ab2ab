"""A source is told each range until it has answered after it, and no more of them than one command may name."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from reprise.spark_jobs.contract import Range
from reprise.spark_jobs.engine.ranges import ToldRanges
from reprise.spark_jobs.state.ledger import Ledger

HORIZON = 20


class Known(SimpleNamespace):
    """A ledger that has the ranges of the batches up to the horizon."""

    spans = Ledger.spans


def told(most: int = 5) -> ToldRanges:
    ranges = {"source.0": {b: Range(10 * b, 10 * b + 10) for b in range(1, HORIZON + 1)}}
    ledger: Any = Known(ranges=ranges)
    return ToldRanges(ledger, most)


def test_it_is_told_again_until_a_report_has_come() -> None:
    ranges = told()
    assert list(ranges.new("source.0", "i1", 2, HORIZON)) == [3, 4, 5, 6, 7]
    assert list(ranges.new("source.0", "i1", 2, HORIZON)) == [3, 4, 5, 6, 7], "its report was lost"
    ranges.taken("i1", 2, HORIZON)
    assert list(ranges.new("source.0", "i1", 2, HORIZON)) == [8, 9, 10, 11, 12]


def test_another_installation_begins_at_its_own_checkpoint() -> None:
    ranges = told()
    ranges.taken("i1", 2, HORIZON)
    assert list(ranges.new("source.0", "i2", 0, HORIZON)) == [1, 2, 3, 4, 5]
    ranges.forget("i1")
    assert list(ranges.new("source.0", "i1", 2, HORIZON)) == [3, 4, 5, 6, 7]


def test_one_that_lived_on_without_a_driver_is_told_what_follows_its_position() -> None:
    ranges = told()
    ranges.holds("i1", 17)
    assert list(ranges.new("source.0", "i1", 2, HORIZON)) == [18, 19, 20]


@given(st.integers(1, 7), st.integers(0, HORIZON), st.lists(st.booleans(), max_size=60))
def test_in_the_end_it_has_each_range_once_whatever_reports_are_lost(
    most: int, origin: int, lost: list[bool]
) -> None:
    ranges, has = told(most), dict[int, Range]()
    for gone in [*lost, *([False] * HORIZON)]:
        new = ranges.new("source.0", "i1", origin, HORIZON)
        assert len(new) <= most
        assert not has.keys() & new.keys(), "what was answered is not told again"
        if not gone:
            has |= new
            ranges.taken("i1", origin, HORIZON)
    assert list(has) == list(range(origin + 1, HORIZON + 1))
