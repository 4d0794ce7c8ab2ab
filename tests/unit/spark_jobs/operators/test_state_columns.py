"""Rows of given columns, as they are written and read."""

from __future__ import annotations

import pyarrow as pa

from reprise.spark_jobs.operators.state_columns import RowType


def test_rows_of_one_column_are_values_and_of_several_tuples() -> None:
    one, two = RowType({"a": pa.int64()}), RowType({"a": pa.int64(), "b": pa.list_(pa.string())})
    assert one.shown(one.row(3)) == 3
    assert two.shown(two.row((3, ["x"]))) == (3, ["x"])
    assert two.table([(3, None), (4, ["x"])]).to_pylist() == [{"a": 3, "b": None}, {"a": 4, "b": ["x"]}]
    assert two.table([]).schema == two.schema
