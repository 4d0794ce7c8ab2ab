"""Aggregates against plain Python over all values, and integers that 64 bits do not hold."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprise.spark_jobs.errors import SpecError
from reprise.spark_jobs.operators import KeyedAggregate, SlidingWindow
from reprise.spark_jobs.operators.aggregates import parse_aggregates, partials
from reprise.spark_jobs.operators.frames import ColumnError
from reprise.spark_jobs.operators.testing import check_recovery, inbox, run
from tests.support.examples import examples

ALL = {"n": "count()", "c": "count(v)", "s": "sum(v)", "m": "mean(v)", "low": "min(v)", "high": "max(v)"}
LARGE = 2**63 - 1
row = st.tuples(st.sampled_from("ab"), st.none() | st.integers(-(10**6), 10**6))


def table(rows: list[tuple[str, Any]], kind: pa.DataType | None = None) -> pa.Table:
    values = pa.array([v for _, v in rows], kind or pa.int64())
    return pa.table({"k": pa.array([k for k, _ in rows], pa.string()), "v": values})


def by_definition(rows: list[tuple[str, Any]], key: str) -> dict[str, Any]:
    mine = [v for k, v in rows if k == key and v is not None]
    told: dict[str, Any] = {"k": key, "n": sum(k == key for k, _ in rows), "c": len(mine)}
    if not mine:
        return {**told, "s": None, "m": None, "low": None, "high": None}
    return {**told, "s": sum(mine), "m": sum(mine) / len(mine), "low": min(mine), "high": max(mine)}


@examples(40)
@given(st.lists(st.lists(row, max_size=6), min_size=1, max_size=5))
def test_each_batch_tells_of_its_keys_what_all_rows_so_far_make(stream: list[list[tuple[str, Any]]]) -> None:
    inboxes = [inbox(n, table(rows)) for n, rows in enumerate(stream, 1)]
    so_far: list[tuple[str, Any]] = []
    for rows, out in zip(stream, run(KeyedAggregate(keys=["k"], aggregate=ALL), inboxes), strict=True):
        so_far += rows
        keys = dict.fromkeys(k for k, _ in rows)
        assert ([] if out is None else out.to_pylist()) == [by_definition(so_far, key) for key in keys]


@pytest.mark.parametrize(
    ("kind", "values", "told"),
    [
        (pa.bool_(), [True, None, True], (2, 1, 1)),
        (pa.int8(), [127, 127, -1], (253, -1, 127)),
        (pa.float32(), [0.5, None, 1.5], (2.0, 0.5, 1.5)),
        (pa.decimal128(5, 2), [Decimal("0.50"), None, Decimal("1.50")], (2.0, 0.5, 1.5)),
        (pa.timestamp("ms"), [1, 2, None], (3000, 1000, 2000)),
        (pa.timestamp("ns"), [-1000, None, 2000], (1, -1, 2)),
        (pa.null(), [None, None, None], (None, None, None)),
        (pa.float64(), [math.inf, 1.0, 2.0], (math.inf, 1.0, math.inf)),
    ],
    ids=str,
)
def test_every_type_of_number_is_summed_and_compared(
    kind: pa.DataType, values: list[Any], told: tuple[Any, ...]
) -> None:
    aggregate = {"s": "sum(v)", "low": "min(v)", "high": "max(v)"}
    (out,) = run(
        KeyedAggregate(keys=[], aggregate=aggregate), [inbox(1, pa.table({"v": pa.array(values, kind)}))]
    )
    assert out is not None
    assert tuple(out.to_pylist()[0].values()) == told


@examples(80)
@given(
    st.lists(
        st.tuples(st.sampled_from([0, 1]), st.sampled_from([LARGE, -LARGE - 1, 1, -1, 2**62, -(2**62), 0])),
        max_size=7,
    )
)
def test_a_sum_of_integers_is_right_or_refused(rows: list[tuple[int, int]]) -> None:
    codes = np.array([c for c, _ in rows], np.int64)
    values = pa.table({"v": pa.array([v for _, v in rows], pa.int64())})
    exact = [sum(v for c, v in rows if c == code) for code in (0, 1)]
    if all(-LARGE - 1 <= total <= LARGE for total in exact):
        found = partials(values, codes, 2, parse_aggregates({"s": "sum(v)"}))
        assert found["sum:v"].tolist() == exact
    else:
        with pytest.raises(ColumnError, match="sum:v: a sum is beyond 64 bits; make the numbers floats"):
            partials(values, codes, 2, parse_aggregates({"s": "sum(v)"}))


@pytest.mark.parametrize("function", ["sum", "mean"])
@pytest.mark.parametrize("value", [LARGE, -LARGE - 1])
def test_a_sum_that_grows_beyond_64_bits_over_batches_and_panes_is_refused(function: str, value: int) -> None:
    rows = pa.table({"time": [0], "v": [value]})
    keyed = KeyedAggregate(keys=[], aggregate={"x": f"{function}(v)"})
    window = SlidingWindow(size="2s", slide="1s", aggregate={"x": f"{function}(v)"})
    later = rows.set_column(0, "time", pa.array([1_000_000]))
    assert run(keyed, [inbox(1, rows)])[0] is not None
    with pytest.raises(ColumnError, match="sum:v: a sum is beyond 64 bits"):
        run(keyed, [inbox(1, rows), inbox(2, rows)])
    with pytest.raises(ColumnError, match="sum:v: a sum is beyond 64 bits"):
        run(window, [inbox(1, rows), inbox(2, later), inbox(3, rows.slice(1), 9_000_000)])


def test_the_mean_of_recent_times_is_a_recent_time() -> None:
    """Microseconds since 1970 add up to more than 64 bits after five thousand rows."""
    moments = pa.table({"v": np.full(6000, 1_790_000_000_000_000)})
    mean = KeyedAggregate(keys=[], aggregate={"x": "mean(v)"})
    with pytest.raises(ColumnError, match="beyond 64 bits"):
        run(mean, [inbox(1, moments)])
    floats = pa.table({"v": moments["v"].cast(pa.float64())})
    (out,) = run(mean, [inbox(1, floats)])
    assert out is not None
    assert out["x"].to_pylist() == [1_790_000_000_000_000.0]


@examples(40)
@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30), st.integers(1, 30))
def test_the_mean_of_floats_is_near_the_exact_one_however_rows_are_cut(values: list[float], cut: int) -> None:
    whole = pa.table({"v": values})
    inboxes = [inbox(1, whole.slice(0, cut)), inbox(2, whole.slice(cut))]
    outputs = check_recovery(KeyedAggregate(keys=[], aggregate={"m": "mean(v)"}), inboxes)
    (mean,) = [out for out in outputs if out is not None][-1]["m"].to_pylist()
    exact = sum(map(Fraction, values), Fraction(0)) / len(values)
    assert abs(Fraction(mean) - exact) <= Fraction(1e-15) * len(values) * 10**6


@pytest.mark.parametrize(
    ("forms", "field", "reason"),
    [
        ({}, "aggregate", "expected at least one"),
        (["count()"], "aggregate", "expected at least one"),
        ({"n": "count"}, "aggregate.n", "'count' is not an aggregate"),
        ({"n": "sum()"}, "aggregate.n", r"'sum\(\)' is not an aggregate"),
        ({"n": "sum(a)(b)"}, "aggregate.n", "is not an aggregate"),
        ({"n": "median(a)"}, "aggregate.n", "is not an aggregate"),
        ({"n": None}, "aggregate.n", "None is not an aggregate"),
        ({"n": 3}, "aggregate.n", "3 is not an aggregate"),
    ],
)
def test_a_form_that_is_no_aggregate_is_named(forms: Any, field: str, reason: str) -> None:
    with pytest.raises(SpecError, match=reason) as caught:
        parse_aggregates(forms)
    assert caught.value.field == field


@pytest.mark.parametrize(("unit", "value"), [("ns", -1), ("ns", 1001), ("s", 2**60), ("ms", -(2**60))])
def test_a_time_that_is_no_microsecond_is_refused(unit: str, value: int) -> None:
    rows = pa.table({"t": pa.array([value], pa.timestamp(unit))})
    with pytest.raises(ColumnError, match="'t': a time is no whole number of microseconds"):
        run(KeyedAggregate(keys=[], aggregate={"x": "min(t)"}), [inbox(1, rows)])


def test_spaces_in_a_form_and_in_the_name_of_a_column_are_taken() -> None:
    (found,) = parse_aggregates({"x": "  mean ( delay in minutes ) "})
    assert (found.function, found.column) == ("mean", "delay in minutes")


@pytest.mark.parametrize("kind", [pa.string(), pa.binary(), pa.list_(pa.int64()), pa.date32()], ids=str)
def test_what_cannot_be_summed_can_be_counted(kind: pa.DataType) -> None:
    rows = pa.table({"v": pa.array([None], kind)})
    (out,) = run(KeyedAggregate(keys=[], aggregate={"n": "count(v)"}), [inbox(1, rows)])
    assert out is not None
    assert out["n"].to_pylist() == [0]
    with pytest.raises(ColumnError, match="max of 'v' needs numbers or times; the column holds"):
        run(KeyedAggregate(keys=[], aggregate={"n": "max(v)"}), [inbox(1, rows)])


NULLS = pa.nulls(1)
COLUMNS = {"int": pa.array([2]), "float": pa.array([0.5]), "null": NULLS}


@pytest.mark.parametrize(
    "order", [("null", "int"), ("int", "null"), ("null", "float", "null"), ("null", "null", "int")]
)
def test_a_column_of_nulls_has_no_type_yet(order: tuple[str, ...]) -> None:
    """A left join gives such columns before its table has rows; they must not decide what sums are made of."""
    aggregate = {"n": "count(v)", "s": "sum(v)", "low": "min(v)", "m": "mean(v)"}
    batches = [pa.table({"time": [n * 1_000_000], "v": COLUMNS[kind]}) for n, kind in enumerate(order)]
    (value,) = {v for kind in order for v in COLUMNS[kind].to_pylist()} - {None}
    told = {"n": 1, "s": value, "low": value, "m": value}
    keyed = KeyedAggregate(keys=[], aggregate=aggregate)
    outputs = check_recovery(keyed, [inbox(n, table) for n, table in enumerate(batches, 1)])
    assert outputs[-1] is not None
    assert outputs[-1].to_pylist() == [told]
    window = SlidingWindow(size="4s", slide="1s", aggregate=aggregate)
    inboxes = [inbox(n, table) for n, table in enumerate(batches, 1)]
    outputs = check_recovery(window, [*inboxes, inbox(9, batches[0].slice(1), 4_000_000)])
    assert outputs[-1] is not None
    assert outputs[-1].select(list(told)).to_pylist()[-1] == told
    assert isinstance(outputs[-1]["s"].to_pylist()[-1], type(value))


@pytest.mark.parametrize("order", [("int", "float"), ("float", "int"), ("int", "null", "float")])
def test_a_type_that_changes_between_panes_is_refused_when_it_comes_and_not_at_the_checkpoint(
    order: tuple[str, ...],
) -> None:
    window = SlidingWindow(size="4s", slide="1s", aggregate={"s": "sum(v)"})
    batches = [pa.table({"time": [n * 1_000_000], "v": COLUMNS[kind]}) for n, kind in enumerate(order)]
    with pytest.raises(ColumnError, match=r"sum:v changed its type from .* to .* between batches"):
        run(window, [inbox(n, table) for n, table in enumerate(batches, 1)])
