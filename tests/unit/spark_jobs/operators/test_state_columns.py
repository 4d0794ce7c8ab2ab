"""Rows of given columns, as they are written and read."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest

from reprise.spark_jobs.operators.frames import ColumnError
from reprise.spark_jobs.operators.state_columns import RowType


def test_rows_of_one_column_are_values_and_of_several_tuples() -> None:
    one, two = RowType({"a": pa.int64()}), RowType({"a": pa.int64(), "b": pa.list_(pa.string())})
    assert one.shown(one.row(3)) == 3
    assert two.shown(two.row((3, ["x"]))) == (3, ["x"])
    assert two.table([(3, None), (4, ["x"])]).to_pylist() == [{"a": 3, "b": None}, {"a": 4, "b": ["x"]}]
    assert two.table([]).schema == two.schema


FINE = datetime(2026, 1, 1, 5, 0, 0, 5)
EAST = FINE.replace(tzinfo=timezone(timedelta(hours=2)))
TWICE = datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=1)
BERLIN = pa.timestamp("us", "Europe/Berlin")


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (1.5, pa.int64()),
        (np.float64(1.5), pa.int64()),
        (Decimal("1.5"), pa.int64()),
        (math.nan, pa.int64()),
        (math.inf, pa.int64()),
        (300, pa.int8()),
        (-1, pa.uint8()),
        (2**53 + 1, pa.float64()),
        (1e300, pa.float32()),
        (Decimal("1.23"), pa.decimal128(5, 1)),
        (FINE, pa.timestamp("s")),
        (FINE, pa.date32()),
        (1.5, pa.timestamp("us")),
        (timedelta(microseconds=5), pa.duration("ms")),
        (time(1, 2, 3, 4), pa.time32("ms")),
        (time(1, 2, tzinfo=UTC), pa.time64("us")),
        ([1, 1.5], pa.list_(pa.int64())),
        ({"a": 1.5}, pa.struct({"a": pa.int64()})),
        ({"a": 1, "b": 2}, pa.struct({"a": pa.int64()})),
        ({"a": [FINE]}, pa.map_(pa.string(), pa.list_(pa.timestamp("s")))),
    ],
)
def test_a_value_that_the_column_would_cut_is_refused(value: Any, kind: pa.DataType) -> None:
    with pytest.raises(TypeError, match=r"^n: .* is no "):
        RowType({"n": kind}).row(value)


@pytest.mark.parametrize(
    ("value", "kind", "read"),
    [
        (1.0, pa.int64(), 1),
        (np.int32(7), pa.int64(), 7),
        (pa.scalar(7), pa.int64(), 7),
        (pa.array([1, None]), pa.list_(pa.int64()), [1, None]),
        (0.5, pa.float32(), 0.5),
        (0.1, pa.float32(), float(np.float32(0.1))),
        (math.inf, pa.float32(), math.inf),
        (Decimal("1.5"), pa.decimal128(5, 2), Decimal("1.50")),
        (FINE, pa.timestamp("us"), FINE),
        (FINE, pa.timestamp("us", "UTC"), FINE.replace(tzinfo=UTC)),
        (EAST, pa.timestamp("us", "UTC"), EAST),
        (TWICE.astimezone(UTC), BERLIN, TWICE),
        (TWICE, pa.timestamp("us"), datetime(2026, 10, 25, 1, 30)),
        (5, pa.date32(), date(1970, 1, 6)),
        ((1, None), pa.list_(pa.int64()), [1, None]),
        (np.array([1.0, 2.0]), pa.list_(pa.int64()), [1, 2]),
        ({"a": 1}, pa.struct({"a": pa.int64(), "b": pa.int64()}), {"a": 1, "b": None}),
        ({"a": 1}, pa.map_(pa.string(), pa.int64()), [("a", 1)]),
        (None, pa.int64(), None),
    ],
)
def test_a_value_that_the_column_holds_is_read_as_it_was_written(
    value: Any, kind: pa.DataType, read: Any
) -> None:
    rows = RowType({"n": kind})
    assert rows.shown(rows.row(value)) == read


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        (pa.array([0.1]), pa.float32()),
        (pa.array([1.5]), pa.int64()),
        (pa.array([300]), pa.int8()),
        (pa.array([FINE]), pa.timestamp("s")),
        (pa.array([FINE]), pa.date32()),
        (pa.array([EAST]), pa.timestamp("us")),
        (pa.array([{"a": 300}]), pa.struct({"a": pa.int8()})),
        (pa.array([{"a": 1}]), pa.struct({"b": pa.int64()})),
        (pa.array([[1.5]]), pa.list_(pa.int64())),
        (pa.array([[300]]), pa.list_(pa.int8())),
    ],
)
def test_a_table_that_the_columns_would_cut_is_refused(column: pa.Array, kind: pa.DataType) -> None:
    with pytest.raises(ColumnError):
        RowType({"n": kind}).fitted(pa.table({"n": column}))


def test_a_table_of_structures_may_hold_texts_of_another_library() -> None:
    inner = pa.struct({"a": pa.large_string(), "b": pa.list_(pa.int32())})
    rows = pa.table({"n": pa.array([[{"a": "x", "b": [1]}]], pa.large_list(inner))})
    wanted = RowType({"n": pa.list_(pa.struct({"a": pa.string(), "b": pa.list_(pa.int64())}))})
    assert wanted.fitted(rows) == rows.cast(wanted.schema)
