"""What transfers have measured of a store: rates by hand, and bounds whatever was measured."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprise.spark_jobs.engine import capacity
from reprise.spark_jobs.engine.capacity import Capacity
from tests.support.examples import examples

GIB = 2**30


def test_all_together_give_their_bytes_by_the_time_in_which_there_were_any() -> None:
    held = Capacity()
    held.measured(1000, 10.0, 10.0)
    held.measured(3000, 10.0, 15.0)
    assert held.of_all == pytest.approx(4000 / 15)
    held.measured(500, 5.0, 100.0)  # long after
    assert held.of_all == pytest.approx(4500 / 20)
    assert held.of_one == 100.0


def test_one_slow_reading_is_forgotten_though_all_that_follow_are_short() -> None:
    held = Capacity()
    held.measured(1 << 20, 100.0, 100.0)
    assert held.bytes_in(0.5, 64 << 20) == capacity.LEAST_BYTES
    for k in range(capacity.KEPT):
        held.measured(1000, 0.1, 101.0 + k)
    assert held.of_one is None
    assert held.bytes_in(0.5, 64 << 20) == 64 << 20


def test_a_short_one_that_was_faster_than_a_slow_reading_counts_at_once() -> None:
    held = Capacity()
    held.measured(1 << 20, 100.0, 100.0)
    for k in range(2):
        held.measured(100 << 20, 0.3, 101.0 + k)
    assert held.of_one == pytest.approx(200 << 20), "at least"
    assert held.of_all == pytest.approx(200 << 20)
    held.measured(1000, 0.3, 110.0)  # small: it was waiting for an answer
    assert held.of_one == pytest.approx(200 << 20)


def test_one_that_hung_tells_nothing_of_all_together() -> None:
    held = Capacity()
    for k in range(8):
        held.measured(GIB, 10.0, 10.0 * (k + 1))
    held.measured(1 << 20, 600.0, 700.0)
    assert held.of_all == pytest.approx(GIB / 10)


def test_what_was_there_at_once_tells_nothing() -> None:
    held = Capacity()
    held.measured(GIB, capacity.LEAST_S / 2, 1.0)
    held.measured(0, 10.0, 20.0)
    assert held.of_one is None
    assert held.bytes_in(0.5, 7) == 7


@examples(100)
@given(st.lists(st.tuples(st.integers(0, 2**40), st.floats(0, 1000), st.floats(0, 10**6)), max_size=50))
def test_whatever_was_measured_a_driver_can_work_with_it(
    transfers_done: list[tuple[int, float, float]],
) -> None:
    held = Capacity()
    for size, seconds, now in transfers_done:
        held.measured(size, seconds, now)
    told = any(size and seconds >= capacity.LEAST_S for size, seconds, _ in transfers_done)
    assert (held.of_one is not None) == (held.of_all is not None) == told
    assert held.bytes_in(0.5, 7) == 7 if not told else capacity.LEAST_BYTES <= held.bytes_in(0.5, 7) <= GIB
    assert capacity.PATIENCE_S <= held.patience(2**40) <= capacity.MOST_PATIENCE_S
    assert held.patience(0) == capacity.PATIENCE_S
