"""The greatest k against sorting everything, with ties, extremes of 64 bits and groups."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprise.spark_jobs.operators import TopK
from reprise.spark_jobs.operators.frames import ColumnError
from reprise.spark_jobs.operators.testing import check_recovery, inbox, run
from tests.support.examples import examples

LEAST, MOST = -(2**63), 2**63 - 1
integers = st.none() | st.sampled_from([LEAST, LEAST + 1, -1, 0, 1, 2, MOST - 1, MOST])
floats = st.none() | st.sampled_from([-math.inf, -1.0, -0.0, 0.0, 0.5, math.inf, math.nan])


def rows(values: st.SearchStrategy[Any]) -> st.SearchStrategy[list[list[tuple[str, int, Any]]]]:
    row = st.tuples(st.sampled_from("abc"), st.integers(0, 7), values)
    return st.lists(st.lists(row, max_size=14), min_size=1, max_size=4)


def table(rows: list[tuple[str, int, Any]], kind: pa.DataType) -> pa.Table:
    return pa.table(
        {
            "group": pa.array([g for g, _, _ in rows], pa.string()),
            "key": pa.array([k for _, k, _ in rows], pa.int64()),
            "value": pa.array([v for _, _, v in rows], kind),
        }
    )


def ranked(candidates: list[tuple[Any, int, Any]], k: int) -> list[tuple[Any, int, Any, int]]:
    """Of rows (group, key, value) in order of first appearance the best k of each group, groups in that order."""
    told = []
    for group in dict.fromkeys(g for g, _, _ in candidates):
        mine = sorted((c for c in candidates if c[0] == group), key=lambda c: -c[2])
        told += [(*c, rank) for rank, c in enumerate(mine[:k], 1)]
    return told


def usable(value: Any) -> bool:
    return value is not None and not (isinstance(value, float) and math.isnan(value))


def told(out: pa.Table | None) -> list[tuple[Any, ...]]:
    names = ("group", "key", "value", "rank")
    return [] if out is None else list(zip(*(out[n].to_pylist() for n in names), strict=True))


@examples(60)
@given(st.data(), st.sampled_from([(integers, pa.int64()), (floats, pa.float64())]), st.integers(1, 3))
def test_the_best_of_a_batch(data: st.DataObject, kind: tuple[Any, pa.DataType], k: int) -> None:
    stream = data.draw(rows(kind[0]))
    operator = TopK(k=k, by="value", keys=["key"], per=["group"], scope="batch")
    outputs = run(operator, [inbox(n, table(batch, kind[1])) for n, batch in enumerate(stream, 1)])
    for batch, out in zip(stream, outputs, strict=True):
        first = dict.fromkeys(g for g, _, _ in batch)
        listed = [row for g in first for row in batch if row[0] == g and usable(row[2])]
        assert told(out) == ranked(listed, k)


@examples(60)
@given(
    st.data(),
    st.sampled_from([(integers, pa.int64()), (floats, pa.float64())]),
    st.integers(1, 3),
    st.booleans(),
)
def test_the_best_of_the_latest_values(
    data: st.DataObject, kind: tuple[Any, pa.DataType], k: int, positive: bool
) -> None:
    stream = data.draw(rows(kind[0]))
    operator = TopK(k=k, by="value", keys=["key"], per=["group"], positive=positive)
    outputs = run(operator, [inbox(n, table(batch, kind[1])) for n, batch in enumerate(stream, 1)])
    latest: dict[tuple[str, int], Any] = {}
    for batch, out in zip(stream, outputs, strict=True):
        latest.update({(g, key): value for g, key, value in batch})
        groups = dict.fromkeys(g for g, _ in latest)
        touched = [g for g in groups if g in {row[0] for row in batch}]
        listed = [
            (g, key, value)
            for g in touched
            for (own, key), value in latest.items()
            if own == g and usable(value) and (value > 0 or not positive)
        ]
        assert told(out) == ranked(listed, k)


def test_of_many_equal_values_the_first_keys_are_taken() -> None:
    many = pa.table({"key": range(200), "value": [7] * 100 + [9] + [7] * 99})
    for scope in ("stream", "batch"):
        (out,) = run(TopK(k=3, by="value", keys=["key"], scope=scope), [inbox(1, many)])
        assert out is not None
        assert out.to_pylist() == [
            {"key": 100, "value": 9, "rank": 1},
            {"key": 0, "value": 7, "rank": 2},
            {"key": 1, "value": 7, "rank": 3},
        ]


@pytest.mark.parametrize("nulls", [pa.int64(), pa.null()])
def test_a_key_leaves_the_list_with_null_and_comes_back_at_its_old_place_among_equals(
    nulls: pa.DataType,
) -> None:
    def batch(number: int, *pairs: tuple[str, Any], kind: pa.DataType | None = None) -> Any:
        keys, values = [k for k, _ in pairs], pa.array([v for _, v in pairs], kind or pa.int64())
        return inbox(number, pa.table({"key": keys, "value": values}))

    outputs = check_recovery(
        TopK(k=2, by="value", keys=["key"]),
        [
            batch(1, ("a", 5), ("b", 5)),
            batch(2, ("a", None), kind=nulls),
            batch(3, ("c", 5), ("a", 5)),
            batch(4, ("b", 0)),
        ],
    )
    assert [[] if o is None else o["key"].to_pylist() for o in outputs] == [
        ["a", "b"],
        ["b"],
        ["a", "b"],
        ["a", "c"],
    ]


@pytest.mark.parametrize("kind", [pa.int64(), pa.uint64(), pa.decimal128(9, 2), pa.float64()], ids=str)
@pytest.mark.parametrize("scope", ["stream", "batch"])
def test_a_batch_of_nulls_alone_has_no_type(scope: str, kind: pa.DataType) -> None:
    typed = pa.array([1, 2], pa.int16()).cast(kind)
    values = [pa.nulls(2), typed, pa.nulls(2), typed]
    batches = [pa.table({"key": ["a", "b"], "value": column}) for column in values]
    outputs = check_recovery(
        TopK(k=1, by="value", keys=["key"], scope=scope), [inbox(n, t) for n, t in enumerate(batches, 1)]
    )
    best = [{"key": "b", "value": 2, "rank": 1}]
    assert [out and out.to_pylist() for out in outputs] == [None, best, None, best]


@pytest.mark.parametrize("scope", ["stream", "batch"])
@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"key": [1], "other": [1]}, "column 'value' is not in the input; its columns are key, other"),
        ({"value": [1], "other": [1]}, "column 'key' is not in the input; its columns are value, other"),
        ({"key": [1], "value": ["x"]}, "'value' must hold numbers to rank by, not string"),
    ],
)
def test_rows_that_cannot_be_ranked_are_named(
    scope: str, columns: dict[str, list[Any]], message: str
) -> None:
    with pytest.raises(ColumnError, match=message):
        run(TopK(k=1, by="value", keys=["key"], scope=scope), [inbox(1, pa.table(columns))])
