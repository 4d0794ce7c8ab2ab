"""The append-only table: against a list, and what it promises about the number of its parts."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprise.spark_jobs.operators.chunks import ChunkStore
from reprise.spark_jobs.operators.frames import ColumnError
from tests.support.examples import examples


@examples(40)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=12), st.data())
def test_rows_are_found_by_number_in_any_order_and_twice(sizes: list[int], data: st.DataObject) -> None:
    store, rows = ChunkStore(), list[int]()
    for size in sizes:
        frozen, before = store.freeze(), list(rows)
        more = list(range(len(rows), len(rows) + size))
        store.append(pa.table({"n": more}))
        rows += more
        assert store.size == len(rows)
        assert (frozen()["n"].to_pylist() if before else frozen().column_names) == before
        numbers = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=10))
        assert store.take(np.array(numbers, np.int64))["n"].to_pylist() == [rows[i] for i in numbers]
    assert store.freeze()()["n"].to_pylist() == rows


@examples(30)
@given(st.lists(st.integers(1, 50), min_size=1, max_size=60))
def test_there_are_never_more_parts_than_the_logarithm_of_the_rows(sizes: list[int]) -> None:
    store = ChunkStore()
    for size in sizes:
        store.append(pa.table({"n": np.arange(size)}))
        parts = [chunk.num_rows for chunk in store._chunks]
        assert len(parts) <= 1 + math.log2(store.size)
        assert all(left > 2 * right for left, right in pairwise(parts))


def test_an_empty_store_has_no_rows_to_give() -> None:
    assert ChunkStore(pa.table({"n": pa.array([], pa.int64())})).freeze()().column_names == []
    with pytest.raises(KeyError, match="no rows"):
        ChunkStore().take(np.array([], np.int64))


def test_columns_may_come_in_another_order_or_width_and_stay_what_they_were() -> None:
    store = ChunkStore(pa.table({"n": [1], "s": ["a"]}))
    store.append(pa.table({"s": pa.array(["b"], pa.large_string()), "n": pa.array([2], pa.int32())}))
    assert store.freeze()().to_pylist() == [{"n": 1, "s": "a"}, {"n": 2, "s": "b"}]
    assert store.freeze()().schema == pa.schema({"n": pa.int64(), "s": pa.string()})


@pytest.mark.parametrize(
    "table",
    [pa.table({"m": [1]}), pa.table({"n": ["x"]}), pa.table({"n": [1.5]}), pa.table({"n": [[1]]})],
    ids=["missing", "text", "fraction", "nested"],
)
def test_columns_that_change_are_refused_and_nothing_is_added(table: pa.Table) -> None:
    store = ChunkStore(pa.table({"n": [1]}))
    with pytest.raises(ColumnError, match="columns changed between batches"):
        store.append(table)
    assert store.size == 1
    assert store.freeze()()["n"].to_pylist() == [1]


@pytest.mark.parametrize(
    ("first", "later"),
    [
        (pa.array([0.5], pa.float32()), pa.array([0.1])),
        (pa.array([1], pa.int64()), pa.array(["007"])),
        (pa.array([True]), pa.array([5])),
        (pa.array([1], pa.int64()), pa.array([1.0])),
        (pa.array([0.5]), pa.array([2**53 + 1])),
        (pa.array([1]).cast(pa.decimal128(38, 2)), pa.array([1.23456])),
        (pa.array([1], pa.int32()).cast(pa.date32()), pa.array([1], pa.timestamp("us"))),
        (pa.array([1], pa.timestamp("us")), pa.array([1], pa.timestamp("us", "America/New_York"))),
        (pa.array([1], pa.timestamp("ms")), pa.array([1], pa.timestamp("us"))),
        (pa.array([1], pa.int64()), pa.array([2**64 - 1], pa.uint64())),
    ],
)
def test_a_column_of_another_type_is_refused_where_values_would_change(
    first: pa.Array, later: pa.Array
) -> None:
    store = ChunkStore(pa.table({"v": first}))
    with pytest.raises(
        ColumnError, match=r"columns changed between batches: column 'v' holds .*, and is to be"
    ):
        store.append(pa.table({"v": later}))


def test_a_column_of_other_width_keeps_its_values() -> None:
    store = ChunkStore(pa.table({"v": pa.array([1], pa.int64()), "w": pa.array([0.5])}))
    store.append(pa.table({"w": pa.array([0.25], pa.float32()), "v": pa.array([2], pa.int8())}))
    store.append(pa.table({"w": pa.array([7], pa.int64()), "v": pa.array([3], pa.int64())}))
    assert store.freeze()().to_pydict() == {"v": [1, 2, 3], "w": [0.5, 0.25, 7.0]}
    with pytest.raises(ColumnError, match="columns changed between batches"):
        store.append(pa.table({"v": [1], "w": [0.5], "x": [1]}))


def test_a_column_of_nothing_but_nulls_gets_its_type_later() -> None:
    store = ChunkStore(pa.table({"v": pa.nulls(2)}))
    store.append(pa.table({"v": ["a"]}))
    store.append(pa.table({"v": pa.nulls(1)}))
    found = store.freeze()()
    assert found["v"].to_pylist() == [None, None, "a", None]
    assert found.schema.field("v").type == pa.string()
