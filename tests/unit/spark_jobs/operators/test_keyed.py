"""Keyed aggregates, latest rows and top-k lists against plain Python over all rows seen."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprise.spark_jobs.errors import SpecError
from reprise.spark_jobs.operators import KeyedAggregate, KeyedCount, Latest, TopK, WindowedJoin
from reprise.spark_jobs.operators.frames import ColumnError
from reprise.spark_jobs.operators.testing import PLACE, inbox, run
from tests.support.examples import examples

Rows = list[tuple[str, int]]
streams = st.lists(
    st.lists(st.tuples(st.sampled_from("abcd"), st.integers(-3, 9)), min_size=1, max_size=6),
    min_size=1,
    max_size=6,
)


def table(rows: Rows) -> pa.Table:
    return pa.table({"key": [k for k, _ in rows], "value": pa.array([v for _, v in rows], pa.int64())})


def batches(stream: list[Rows]) -> list[object]:
    return [inbox(number, table(rows)) for number, rows in enumerate(stream, 1)]


@examples(60)
@given(streams)
def test_aggregates_are_those_of_all_rows_so_far(stream: list[Rows]) -> None:
    operator = KeyedAggregate(keys=["key"], aggregate={"n": "count()", "s": "sum(value)", "x": "max(value)"})
    seen: Rows = []
    for rows, out in zip(stream, run(operator, batches(stream)), strict=True):  # type: ignore[arg-type]
        seen += rows
        touched = list(dict.fromkeys(k for k, _ in rows))
        own = {k: [v for key, v in seen if key == k] for k in touched}
        assert out is not None
        assert out.to_pylist() == [
            {"key": k, "n": len(own[k]), "s": sum(own[k]), "x": max(own[k])} for k in touched
        ]


@examples(60)
@given(streams)
def test_latest_emits_the_last_row_of_each_key_and_keeps_it(stream: list[Rows]) -> None:
    operator = Latest(keys=["key"])
    state, last = operator.initial(PLACE), {}
    for each, rows in zip(batches(stream), stream, strict=True):
        state, out = operator.step(state, each)  # type: ignore[arg-type]
        last.update(dict(rows))
        assert out is not None
        assert {r["key"]: r["value"] for r in out.to_pylist()} == dict(rows)
    kept = operator.freeze(state)()["latest"].to_pylist()
    assert {r["key"]: r["value"] for r in kept} == last
    assert [r["key"] for r in kept] == list(dict.fromkeys(k for rows in stream for k, _ in rows))


@examples(100)
@given(streams, st.integers(1, 3))
def test_top_k_of_the_stream_is_by_value_then_first_appearance(stream: list[Rows], k: int) -> None:
    operator = TopK(k=k, by="value", keys=["key"])
    latest: dict[str, int] = {}
    for rows, out in zip(stream, run(operator, batches(stream)), strict=True):  # type: ignore[arg-type]
        for key, value in rows:
            latest[key] = value
        ranked = sorted((key for key in latest if latest[key] > 0), key=lambda key: -latest[key])[:k]
        expected = [{"key": key, "value": latest[key], "rank": i} for i, key in enumerate(ranked, 1)]
        assert ([] if out is None else out.to_pylist()) == expected


def test_top_k_of_many_keys_sorts_out_ties_at_the_threshold() -> None:
    rows = [(f"k{i}", i % 5) for i in range(200)]
    (out,) = run(TopK(k=3, by="value", keys=["key"]), [inbox(1, table(rows))])
    assert out is not None
    assert out.column("key").to_pylist() == ["k4", "k9", "k14"]


def test_top_k_per_group_emits_the_groups_of_the_batch() -> None:
    operator = TopK(k=1, by="value", keys=["name"], per=["zone"])

    def rows(*items: tuple[str, str, float | None]) -> pa.Table:
        zone, name, value = zip(*items, strict=True)
        return pa.table({"zone": zone, "name": name, "value": pa.array(value, pa.float64())})

    outputs = run(
        operator,
        [
            inbox(1, rows(("n", "a", 1.0), ("s", "a", 5.0), ("n", "b", 2.0))),
            inbox(2, rows(("n", "b", None))),
            inbox(3, rows(("n", "a", None))),
        ],
    )
    assert [
        None if o is None else [(r["zone"], r["name"], r["rank"]) for r in o.to_pylist()] for o in outputs
    ] == [
        [("n", "b", 1), ("s", "a", 1)],
        [("n", "a", 1)],
        None,
    ]


def test_top_k_of_a_batch_forgets_the_batch_before() -> None:
    operator = TopK(k=2, by="value", keys=["key"], scope="batch")
    outputs = run(operator, [inbox(1, table([("a", 9)])), inbox(2, table([("b", -1), ("c", 0), ("d", -2)]))])
    assert [o.column("key").to_pylist() for o in outputs if o is not None] == [["a"], ["c", "b"]]


def test_a_null_key_is_a_key() -> None:
    (out,) = run(KeyedCount(keys=["key"], name="n"), [inbox(1, pa.table({"key": ["a", None, None]}))])
    assert out is not None and out.to_pylist() == [{"key": "a", "n": 1}, {"key": None, "n": 2}]


def test_float_sums_follow_the_order_of_rows() -> None:
    values = [1e16, 1.0, -1e16, 1.0] * 50
    rows = pa.table({"key": ["k"] * len(values), "value": values})
    (out,) = run(KeyedAggregate(keys=["key"], aggregate={"s": "sum(value)"}), [inbox(1, rows)])
    expected = 0.0
    for value in values:
        expected += value
    assert out is not None and out.column("s").to_pylist() == [expected]


def test_a_column_that_changes_its_type_is_refused() -> None:
    texts = pa.table({"key": ["a"], "value": [0.5]})
    batches = [inbox(1, table([("a", 1)])), inbox(2, texts)]
    for operator in (
        KeyedAggregate(keys=["key"], aggregate={"s": "sum(value)"}),
        TopK(k=1, by="value", keys=["key"]),
    ):
        with pytest.raises(ColumnError, match=r"changed its type from int64 to (float64|double)"):
            run(operator, batches)
    with pytest.raises(ColumnError, match="must hold numbers"):
        run(TopK(k=1, by="key", keys=["key"]), batches)


@pytest.mark.parametrize(
    ("build", "field"),
    [
        (lambda: TopK(k=0, by="v", keys=["k"]), "k"),
        (lambda: TopK(k=True, by="v", keys=["k"]), "k"),
        (lambda: TopK(k=1, by="v", keys=["k"], positive="no"), "positive"),  # type: ignore[arg-type]
        (lambda: TopK(k=1, by="v", keys=[]), "keys"),
        (lambda: TopK(k=1, by="rank", keys=["k"]), "by"),
        (lambda: TopK(k=1, by="v", keys=["k"], per=["rank"]), "per"),
        (lambda: WindowedJoin(left="a", right="b", keys=["time"], within="1s"), "keys"),
        (lambda: TopK(k=1, by="v", keys=["k"], scope="all"), "scope"),
        (lambda: KeyedCount(keys=["k"], name="k"), "aggregate.k"),
    ],
)
def test_wrong_parameters_are_named(build: object, field: str) -> None:
    with pytest.raises(SpecError) as caught:
        build()  # type: ignore[operator]
    assert caught.value.field == field
