"""Tables between libraries: canonical types, event times, and what is said of columns that do not fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprise.spark_jobs.operators.frames import (
    END_OF_TIME,
    IDLE,
    ColumnError,
    canonical,
    column,
    concat,
    inbox_table,
    later,
    least,
    rows,
    select,
    split_rows,
    times,
    to_arrow,
    to_polars,
)
from reprise.spark_jobs.operators.testing import inbox
from tests.support.examples import examples

texts = st.lists(st.none() | st.text("aä\0\U0001f680", max_size=3), max_size=6)


@examples(60)
@given(texts, st.integers(0, 6))
def test_rows_come_back_from_polars_as_they_went(values: list[str | None], cut: int) -> None:
    array = pa.chunked_array([pa.array(values[:cut], pa.string()), pa.array(values[cut:], pa.string())])
    there = pa.table({"s": array, "n": pa.array(range(len(values)), pa.int64())})
    for sent in (there, there.set_column(0, "s", array.cast(pa.large_string()))):
        back = to_arrow(to_polars(sent))
        assert back.to_pylist() == there.to_pylist()
        assert back.schema.equals(there.schema)
    assert column(there, "s").to_pylist() == values


def test_a_table_that_needs_no_change_is_the_same_object() -> None:
    table = pa.table({"s": ["a"], "n": [1]})
    assert canonical(table) is table


@pytest.mark.parametrize(
    ("values", "told"),
    [
        (pa.array([1, -2], pa.int8()), [1, -2]),
        (pa.array([1, 2], pa.uint64()), [1, 2]),
        (pa.array([1, -1], pa.timestamp("s")), [1_000_000, -1_000_000]),
        (pa.array([1, 2], pa.timestamp("ms", tz="Asia/Tokyo")), [1000, 2000]),
        (pa.array([1999, -1], pa.timestamp("ns")), [1, -1]),
        (pa.array([], pa.timestamp("us")), []),
    ],
    ids=str,
)
def test_event_times_are_microseconds(values: pa.Array, told: list[int]) -> None:
    found = times(pa.table({"t": values}), "t")
    assert found.dtype == np.int64
    assert [abs(a - b) <= (values.type == pa.timestamp("ns")) for a, b in zip(found, told, strict=True)] == [
        True
    ] * len(told)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (pa.array([1.5]), "time column 't' holds double; expected integer microseconds, timestamps"),
        (pa.array([1], pa.time32("s")), r"time column 't' holds time32\[s\]"),
        (pa.array(["soon"]), "column 't': 'soon' is no time of ISO 8601"),
        (pa.array(["2025-02-29"]), "column 't': '2025-02-29' is no time of ISO 8601"),
        (
            pa.array([2**60], pa.timestamp("s")),
            "time column 't' holds a time more than 36,000 years from 1970",
        ),
        (pa.array([1, None, None]), "time column 't' has no time in 2 rows"),
        (pa.array([2**63], pa.uint64()), "time column 't' holds a time more than 36,000 years"),
    ],
    ids=str,
)
def test_what_is_no_event_time_is_named(values: pa.Array, message: str) -> None:
    with pytest.raises(ColumnError, match=message):
        times(pa.table({"t": values}), "t")


def test_a_column_that_one_upstream_does_not_send_is_null_there() -> None:
    both = inbox(
        1, {"a": pa.table({"x": [1], "y": ["p"]}), "b": pa.table({"y": ["q"]}), "c": pa.table({"z": []})}
    )
    found = inbox_table(both)
    assert found is not None
    assert found.to_pylist() == [{"x": 1, "y": "p"}, {"x": None, "y": "q"}]
    only = inbox_table(both, "b")
    assert only is not None
    assert only.to_pylist() == [{"y": "q"}]
    assert inbox_table(both, "c") is None
    assert inbox_table(both, "nobody") is None


def test_a_column_of_another_type_is_refused_by_name() -> None:
    with pytest.raises(ColumnError, match="column 'x' holds int64 in some rows and string in others; CAST"):
        inbox_table(inbox(1, {"a": pa.table({"x": [1]}), "b": pa.table({"x": ["1"]})}))
    with pytest.raises(ColumnError, match="columns changed between batches: column 'x' holds int64"):
        concat([pa.table({"x": [1]}), pa.table({"x": ["1"]})])
    with pytest.raises(ColumnError, match="two columns of one table have one name"):
        concat([pa.table([[1], [2]], names=["x", "x"])] * 2)


def test_outputs_are_put_together_and_nothing_is_none() -> None:
    empty = pa.table({"x": pa.array([], pa.int64())})
    assert concat([None, empty]) is None
    one = pa.table({"x": [1]})
    assert concat([None, one, empty]) is one
    joined = concat([one, None, one])
    assert joined is not None
    assert (joined["x"].to_pylist(), joined["x"].num_chunks) == ([1, 1], 1)
    assert rows({"x": np.zeros(0)}) is None


@examples(40)
@given(st.lists(st.integers(0, 5), max_size=6))
def test_slices_are_consecutive(sizes: list[int]) -> None:
    table = pa.table({"n": np.arange(sum(sizes))})
    parts = [part["n"].to_pylist() for part in split_rows(table, sizes)]
    assert [len(part) for part in parts] == sizes
    assert [n for part in parts for n in part] == list(range(sum(sizes)))


def test_each_column_once_and_a_missing_one_is_named_with_those_there_are() -> None:
    table = pa.table({"a": [1], "b": [2]})
    assert select(table, ["b", "a", "b"]).column_names == ["b", "a"]
    with pytest.raises(ColumnError, match="column 'c' is not in the input; its columns are a, b"):
        select(table, ["a", "c"])


@pytest.mark.parametrize(("before", "now", "told"), [(None, -5, -5), (3, 2, 3), (3, 4, 4), (0, -1, 0)])
def test_time_does_not_go_back(before: Any, now: int, told: int) -> None:
    assert later(before, now) == told


@pytest.mark.parametrize(
    ("marks", "expected"),
    [
        ([5, 3], 3),
        ([5, None], None),
        ([5, IDLE], 5),
        ([None, IDLE], None),
        ([IDLE, IDLE], IDLE),
        ([END_OF_TIME, IDLE], IDLE),
        ([END_OF_TIME, IDLE, 7], 7),
        ([END_OF_TIME, END_OF_TIME], END_OF_TIME),
        ([END_OF_TIME, 7], 7),
    ],
)
def test_who_is_idle_holds_nobody_back(marks: list[int | None], expected: int | None) -> None:
    assert least(marks) == expected


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (pa.array([-1, -1000, -1001, 1001], pa.timestamp("ns")), [-1, -1, -2, 1]),
        (pa.array([-1, 1], pa.timestamp("s")), [-1_000_000, 1_000_000]),
        (pa.array([-1], pa.date32()), [-86_400_000_000]),
        (pa.array(["1969-12-31T23:59:59.9999999Z", "1970-01-01"]), [-1, 0]),
        (pa.array(["2025-03-30T01:30+01:00", "2025-03-30 00:30:00"]), [1743294600_000_000] * 2),
        (pa.array([0], pa.timestamp("us", "Europe/Berlin")), [0]),
        (pa.array(["1970-01-01", "1970-01-01"]).dictionary_encode(), [0, 0]),
    ],
    ids=str,
)
def test_event_times_are_microseconds_rounded_down(values: pa.Array, expected: list[int]) -> None:
    assert times(pa.table({"t": values}), "t").tolist() == expected
