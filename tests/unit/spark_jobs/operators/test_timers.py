"""Timers against a plain list of them, and through checkpoints."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprise.contract import SpecError, Timers, duration_us
from reprise.spark_jobs.operators.frames import END_OF_TIME
from reprise.spark_jobs.operators.testing import stored
from tests.support.examples import examples

keys = st.sampled_from(["a", "b", "\ud800", 1, None, ("a", 1), ("a", None, (True,))])
calls = st.lists(
    st.tuples(st.sampled_from(["set", "set", "cancel", "due"]), keys, st.integers(-2, 8)), max_size=40
)


def again(timers: Timers) -> Timers:
    """What is there after a checkpoint and a failure."""
    return Timers.restore(stored({"timers": timers.freeze()()})["timers"])


class Plain:
    """A list of (time, key) in the order in which timers were set."""

    def __init__(self) -> None:
        self.waiting: list[tuple[int, Any]] = []

    def set(self, key: Any, time: int) -> None:
        if (time, key) not in self.waiting:
            self.waiting.append((time, key))

    def cancel(self, key: Any, time: int) -> None:
        if (time, key) in self.waiting:
            self.waiting.remove((time, key))

    def due(self, watermark: int) -> list[tuple[int, Any]]:
        found = sorted((t for t in self.waiting if t[0] <= watermark), key=lambda t: t[0])
        self.waiting = [t for t in self.waiting if t[0] > watermark]
        return found


@examples(60)
@given(calls, st.sets(st.integers(0, 39)))
def test_timers_fire_by_time_and_then_as_they_were_set(
    said: list[tuple[str, Any, int]], failures: set[int]
) -> None:
    timers, plain = Timers(), Plain()
    for number, (what, key, time) in enumerate(said):
        if what == "due":
            assert timers.due(time) == plain.due(time)
        else:
            getattr(timers, what)(key, time)
            getattr(plain, what)(key, time)
        if number in failures:
            timers = again(timers)
        assert len(timers) == len(plain.waiting)
    assert timers.due(END_OF_TIME) == plain.due(END_OF_TIME)
    assert timers.due(END_OF_TIME) == []


def test_a_timer_fires_once_and_not_before_the_watermark_is_there() -> None:
    timers = Timers()
    timers.set("a", 5)
    assert timers.due(None) == []
    assert timers.due(4) == []
    assert timers.due(5) == [(5, "a")]
    assert timers.due(6) == []
    timers.set("a", 5)  # its time has come already
    assert timers.due(6) == [(5, "a")]


def test_a_timer_that_is_set_again_fires_after_those_that_were_set_meanwhile() -> None:
    timers = Timers()
    for key in ("a", "b"):
        timers.set(key, 5)
    timers.cancel("a", 5)
    timers.set("a", 5)
    timers.set("b", 5)  # is waited for already
    assert again(timers).due(5) == timers.due(5) == [(5, "b"), (5, "a")]


def test_a_truth_value_and_a_number_are_two_keys() -> None:
    """They are equal in Python, and two values in the stored state, where one of them would come back as the other."""
    timers = Timers()
    for key in (1, True, ("a", 0), ("a", False)):
        timers.set(key, 5)
    timers.cancel(True, 5)
    fired = again(timers).due(5)
    assert [(time, repr(key)) for time, key in fired] == [(5, "1"), (5, "('a', 0)"), (5, "('a', False)")]


def test_what_was_frozen_does_not_change() -> None:
    timers = Timers()
    timers.set("a", 5)
    encode = timers.freeze()
    timers.cancel("a", 5)
    timers.set("b", 1)
    assert encode().to_pylist() == [{"time": 5, "key": '"a"'}]


def test_a_timer_that_is_moved_again_and_again_takes_no_room() -> None:
    timers = Timers()
    for time in range(1000):
        timers.set("a", time)
        timers.cancel("a", time)
    timers.set("a", 1000)
    assert len(timers._queue) <= 100
    assert timers.due(1000) == [(1000, "a")]


@pytest.mark.parametrize("key", [1.5, b"a", ["a"], ("a", 1.5), pa.scalar(1)])
def test_keys_that_could_not_be_stored_are_refused(key: Any) -> None:
    with pytest.raises(TypeError, match="the key of a timer must be text, a whole number"):
        Timers().set(key, 1)


@pytest.mark.parametrize(
    ("time", "error"),
    [(1.5, TypeError), (True, TypeError), (1 << 63, ValueError), (-(1 << 63) - 1, ValueError)],
)
def test_times_that_are_none_are_refused(time: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        Timers().set("a", time)


def test_durations_are_read_as_in_resources() -> None:
    assert duration_us("30s", "after") == 30_000_000
    assert duration_us("1m30s", "after") == 90_000_000
    assert duration_us("0s", "after", least=0) == 0
    with pytest.raises(SpecError, match="after: 'soon' is not a duration"):
        duration_us("soon", "after")
    with pytest.raises(SpecError, match="after: '0s' is too short"):
        duration_us("0s", "after")


def test_keys_of_frozen_timers_are_columns_for_rescaling() -> None:
    timers = Timers()
    timers.set(("a", 1), 5)
    timers.set(("b", None), 6)
    found = Timers.keys_of(timers.freeze()(), ("name", "zone"))
    assert found.to_pydict() == {"name": ["a", "b"], "zone": [1, None]}
    with pytest.raises(ValueError, match="does not have 1 parts, for name"):
        Timers.keys_of(timers.freeze()(), ("name",))
