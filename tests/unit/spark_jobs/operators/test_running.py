"""Aggregates after each row, against a loop over the rows before it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprise.spark_jobs.errors import SpecError
from reprise.spark_jobs.operators import RunningAggregate
from reprise.spark_jobs.operators.frames import ColumnError
from reprise.spark_jobs.operators.testing import check_recovery, inbox, run
from tests.support.examples import examples

ALL = {"n": "count()", "c": "count(v)", "s": "sum(v)", "m": "mean(v)", "low": "min(v)", "high": "max(v)"}
values = st.none() | st.integers(-(10**6), 10**6)
rows = st.lists(st.tuples(st.sampled_from(["a", "b", None]), values), max_size=8)


def table(some: list[tuple[str | None, Any]], kind: pa.DataType | None = None) -> pa.Table:
    numbers = pa.array([v for _, v in some], kind or pa.int64())
    return pa.table(
        {"k": pa.array([k for k, _ in some], pa.string()), "v": numbers, "i": list(range(len(some)))}
    )


def by_definition(key: str | None, seen: list[Any]) -> dict[str, Any]:
    mine = [v for v in seen if v is not None]
    told: dict[str, Any] = {"k": key, "n": len(seen), "c": len(mine)}
    if not mine:
        return {**told, "s": None, "m": None, "low": None, "high": None}
    return {**told, "s": sum(mine), "m": sum(mine) / len(mine), "low": min(mine), "high": max(mine)}


@examples(40)
@given(st.lists(rows, min_size=1, max_size=6), st.none() | st.integers(1, 3))
def test_each_row_gives_what_came_up_to_it(batches: list[Any], size: int | None) -> None:
    windows = {} if size is None else {"size": f"{size}s", "interval": "1s"}
    operator = RunningAggregate(keys=["k"], aggregate=ALL, keep=["i"], **windows)  # type: ignore[arg-type]
    outputs = check_recovery(operator, [inbox(b, table(some)) for b, some in enumerate(batches, 1)])
    seen: dict[Any, list[Any]] = {}
    for number, (some, out) in enumerate(zip(batches, outputs, strict=True)):
        expected = []
        for place, (key, value) in enumerate(some):
            window = None if size is None else number // size
            mine = seen.setdefault((window, key), [])
            mine.append(value)
            head = {} if size is None else {"window_start": window * size * 10**6, "window_end": (window + 1) * size * 10**6}  # type: ignore[operator]  # fmt: skip
            expected.append({**head, **by_definition(key, mine), "i": place})
        assert ([] if out is None else out.to_pylist()) == expected


@examples(40)
@given(st.lists(st.lists(st.sampled_from([0.1, 1e16, -1e16, 3.3]), max_size=5), max_size=5))
def test_sums_of_floats_are_taken_batch_by_batch_in_the_order_of_rows(batches: list[list[float]]) -> None:
    operator = RunningAggregate(keys=[], aggregate={"s": "sum(v)"})
    outputs = run(
        operator,
        [inbox(b, table([("a", v) for v in some], pa.float64())) for b, some in enumerate(batches, 1)],
    )
    before = 0.0
    for some, out in zip(batches, outputs, strict=True):
        part, expected = 0.0, []
        for value in some:
            part += value
            expected.append(before + part)
        assert ([] if out is None else out["s"].to_pylist()) == expected
        before = expected[-1] if expected else before


@pytest.mark.parametrize("batches", [[[2**62, 2**62]], [[2**62], [2**62]], [[2**62, 2**62, -(2**62)]]])
def test_a_sum_that_64_bits_do_not_hold_is_an_error_and_never_a_wrong_number(
    batches: list[list[int]],
) -> None:
    operator = RunningAggregate(keys=["k"], aggregate={"s": "sum(v)"})
    with pytest.raises(ColumnError, match=r"sum:v.*64 bits"):
        run(operator, [inbox(b, table([("a", v) for v in some])) for b, some in enumerate(batches, 1)])


def test_large_values_whose_sums_fit_are_added() -> None:
    operator = RunningAggregate(keys=["k"], aggregate={"s": "sum(v)"})
    (out,) = run(operator, [inbox(1, table([("a", v) for v in (2**62, -(2**62), 2**62, -5)]))])
    assert out is not None and out["s"].to_pylist() == [2**62, 0, 2**62, 2**62 - 5]


def test_a_column_of_nothing_but_nulls_takes_the_type_that_comes_later() -> None:
    operator = RunningAggregate(keys=["k"], aggregate={"low": "min(v)"})
    nulls = pa.table({"k": ["a"], "v": pa.nulls(1)})
    outputs = check_recovery(operator, [inbox(1, nulls), inbox(2, table([("a", 5)])), inbox(3, nulls)])
    assert [out["low"].to_pylist() for out in outputs if out is not None] == [[None], [5], [5]]


@pytest.mark.parametrize(
    ("parameters", "field"),
    [
        ({"aggregate": {"k": "count()"}}, "aggregate.k"),
        ({"keys": ["window_end"], "size": "2s", "interval": "1s"}, "keys"),
        ({"aggregate": {"window_end": "count()"}, "size": "2s", "interval": "1s"}, "aggregate.window_end"),
        ({"keep": ["n"]}, "keep"),
        ({"keep": ["k"]}, "keep"),
    ],
)
def test_two_output_columns_of_one_name_are_refused(parameters: dict[str, Any], field: str) -> None:
    with pytest.raises(SpecError) as caught:
        RunningAggregate(**{"keys": ["k"], "aggregate": {"n": "count()"}, **parameters})
    assert caught.value.field == field


def test_columns_are_known_and_missing_ones_are_refused() -> None:
    operator = RunningAggregate(keys=["k"], aggregate={"s": "sum(v)"}, keep=["t"], size="2s", interval="1s")
    assert operator.output_columns({"in": ("k", "v", "t")}) == ("window_start", "window_end", "k", "s", "t")
    for there, field in ((("v", "t"), "keys"), (("k", "t"), "aggregate.s"), (("k", "v"), "keep")):
        with pytest.raises(SpecError) as caught:
            operator.output_columns({"in": there})
        assert caught.value.field == field


def test_text_cannot_be_summed() -> None:
    operator = RunningAggregate(keys=["k"], aggregate={"s": "sum(v)"})
    with pytest.raises(ColumnError, match="needs numbers"):
        run(operator, [inbox(1, table([("a", "x")], pa.string()))])
