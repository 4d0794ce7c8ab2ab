"""Event times of messages and the watermark: against a model that keeps everything, and times that cannot be."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprise.spark_jobs.errors import SpecError
from reprise.spark_jobs.kafka.event_time import UNITS, Clock, EventTimeError, Seen, parse_clock
from reprise.spark_jobs.operators.testing import stored
from tests.support.examples import examples

logs = st.sampled_from(["t/0", "t/1", "u/0"])
stream = st.lists(st.dictionaries(logs, st.integers(-50, 50)), min_size=1, max_size=14)


@examples(80)
@given(stream, st.integers(0, 5), st.integers(1, 4), st.integers(0, 13))
def test_the_watermark_is_the_least_of_the_logs_that_count_and_survives_a_checkpoint(
    batches: list[dict[str, int]], disorder: int, idle: int, stop: int
) -> None:
    clock, seen, shown = Clock(disorder_us=disorder, idle=idle), Seen(), None
    for number, newest in enumerate(batches, 1):
        counting = {
            log: max(b[log] for b in batches[:number] if log in b)
            for log in ("t/0", "t/1", "u/0")
            if any(log in b for b in batches[max(0, number - idle) : number])
        }
        if counting:
            now = min(counting.values()) - disorder
            shown = now if shown is None else max(shown, now)
        seen = seen.after(number, newest, clock)
        assert seen.watermark == shown
        if number == stop:
            seen = Seen.of(stored(seen.tables()))


class Sent:
    """A message's timestamp."""

    def __init__(self, sent_ms: int) -> None:
        self._sent = sent_ms

    def timestamp(self) -> tuple[int, int]:
        return 1, self._sent


ONE: dict[str, list[Any]] = {"t/0": [Sent(0)]}
"""A message by log."""


@examples(80)
@given(
    st.dictionaries(
        logs, st.lists(st.lists(st.integers(-9, 30), max_size=3), min_size=1, max_size=4), min_size=1
    ),
    st.none() | st.integers(0, 20),
)
def test_the_greatest_time_of_each_log_is_that_of_its_rows_which_are_not_ahead(
    rows: dict[str, list[list[int]]], ahead: int | None
) -> None:
    """Messages of one log after the other; a message has no row, one or several; all were sent at second 5."""
    messages: dict[str, list[Any]] = {log: [Sent(5000)] * len(found) for log, found in rows.items()}
    counts = np.array([len(each) for found in rows.values() for each in found])
    times = [t for found in rows.values() for each in found for t in each]
    clock = Clock("at", "s", ahead_us=None if ahead is None else ahead * 1_000_000)
    stamped, newest, odd = clock.stamp(pa.table({"at": pa.array(times, pa.int64())}), messages, counts)
    good = {
        log: [t for each in found for t in each if ahead is None or t <= 5 + ahead]
        for log, found in rows.items()
    }
    assert newest == {log: max(found) * 1_000_000 for log, found in good.items() if found}
    assert odd == len(times) - sum(map(len, good.values()))
    assert stamped["time"].to_pylist() == [t * 1_000_000 for t in times]


@pytest.mark.parametrize(
    ("unit", "given", "told"),
    [
        ("us", 7, 7),
        ("ms", -7, -7000),
        ("s", 7, 7_000_000),
        ("ns", 7999, 7),
        ("ns", -1, -1),
        ("ns", 2**63 - 1, (2**63 - 1) // 1000),
    ],
)
def test_units_of_integer_times(unit: str, given: int, told: int) -> None:
    stamped, newest, _ = Clock("at", unit).stamp(pa.table({"at": [given]}), ONE, np.array([1]))
    assert stamped["time"].to_pylist() == [told]
    assert newest == {"t/0": told}


@pytest.mark.parametrize("unit", ["us", "ms", "s"])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_time_that_would_be_the_end_of_time_is_refused_and_does_not_wrap_around(
    unit: str, sign: int
) -> None:
    factor = UNITS[unit][0]
    most = sign * ((2**60 - 1) // factor)
    stamped, _, _ = Clock("at", unit).stamp(pa.table({"at": [most]}), ONE, np.array([1]))
    assert stamped["time"].to_pylist() == [most * factor]
    with pytest.raises(
        EventTimeError, match=f"column 'at' has times more than 36,000 .*; is its unit really {unit}"
    ):
        Clock("at", unit).stamp(pa.table({"at": [0, most + sign]}), ONE, np.array([2]))


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pa.array(["soon"]), "column 'at' does not hold event times: .*'soon' is no time of ISO 8601"),
        (pa.array([1.5]), "column 'at' holds double that is no event time: give whole numbers"),
        (pa.array([[1]]), "column 'at' holds list<item: int64> that is no event time"),
        (pa.array([1, None]), "1 rows have no event time in column 'at'"),
    ],
    ids=str,
)
def test_what_is_no_event_time_is_named(column: pa.Array, message: str) -> None:
    with pytest.raises(EventTimeError, match=message):
        Clock("at").stamp(pa.table({"at": column}), ONE, np.array([len(column)]))


def test_timestamps_keep_their_instant_whatever_unit_and_zone() -> None:
    for kind in (pa.timestamp("s"), pa.timestamp("ns", tz="Asia/Tokyo"), pa.timestamp("us", tz="UTC")):
        at = pa.array([datetime(2026, 1, 1)]).cast(kind)
        stamped, _, _ = Clock("at", "s").stamp(pa.table({"at": at}), ONE, np.array([1]))
        assert stamped["time"].to_pylist() == [1_767_225_600_000_000]


def test_a_column_called_time_is_replaced_where_it_stands() -> None:
    table = pa.table({"time": [7], "id": [1]})
    stamped, _, _ = Clock("time", "ms").stamp(table, ONE, np.array([1]))
    assert stamped.to_pylist() == [{"time": 7000, "id": 1}]
    assert stamped.column_names == ["time", "id"]


@pytest.mark.parametrize(
    ("value", "field"),
    [
        ("at", "time"),
        (["at"], "time"),
        ({"unit": "minutes"}, "time.unit"),
        ({"disorder": "-1s"}, "time.disorder"),
        ({"disorder": 5}, "time.disorder"),
        ({"idle": 0}, "time.idle"),
        ({"idle": "3"}, "time.idle"),
        ({"ahead": "soon"}, "time.ahead"),
        ({"colum": "at"}, "time.colum"),
    ],
)
def test_wrong_settings_are_named(value: Any, field: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_clock(value)
    assert caught.value.field == field


def test_without_settings_the_time_is_that_of_the_message() -> None:
    assert parse_clock(None) == parse_clock({}) == Clock()
    assert parse_clock({"column": "at", "unit": "ms", "disorder": "1s", "idle": 3, "ahead": "0s"}) == Clock(
        "at", "ms", 1_000_000, 3, 0
    )


def test_a_source_partition_is_idle_without_logs_and_when_none_has_brought_rows_for_long() -> None:
    clock = Clock(idle=5)
    assert Seen().idle(1, [], clock)
    assert not Seen().idle(4, ["t/0"], clock), "its first rows may still come"
    assert Seen().idle(5, ["t/0"], clock)
    seen = Seen().after(7, {"t/0": 100}, clock)
    assert not seen.idle(11, ["t/0", "t/1"], clock)
    assert seen.idle(12, ["t/0", "t/1"], clock)
    assert not seen.after(13, {"t/1": 50}, clock).idle(13, ["t/0", "t/1"], clock)
    assert seen.after(13, {"t/1": 50}, clock).watermark == 100, "it does not go back"


@pytest.mark.parametrize(
    "column",
    [
        pa.array([5]),
        pa.array(["5"]),
        pa.array(["5"], pa.large_string()),
        pa.array([5], pa.decimal128(5, 0)),
        pa.array([5]).dictionary_encode(),
        pa.array([5.0]),
        pa.array(["1970-01-01T00:00:05Z"]),
        pa.array([5], pa.timestamp("s")),
    ],
    ids=lambda column: str(column.type),
)
def test_an_event_time_may_be_written_in_many_ways(column: pa.Array) -> None:
    assert Clock(column="at", unit="s")._read(pa.table({"at": column})).tolist() == [5_000_000]
