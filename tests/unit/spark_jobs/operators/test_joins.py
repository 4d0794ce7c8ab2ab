"""Joins against nested loops over all rows."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprise.spark_jobs.errors import SpecError
from reprise.spark_jobs.operators import StreamTableJoin, WindowedJoin
from reprise.spark_jobs.operators.frames import ColumnError
from reprise.spark_jobs.operators.testing import PLACE, inbox, run
from tests.support.examples import examples

S = 1_000_000
Side = list[tuple[int, str]]
sides = st.lists(st.tuples(st.integers(0, 8), st.sampled_from("ab")), max_size=4)


def table(rows: Side, value: str, first: int) -> pa.Table:
    times = pa.array([t * S for t, _ in rows], pa.int64())
    numbers = pa.array(range(first, first + len(rows)), pa.int64())
    return pa.table({"time": times, "key": pa.array([k for _, k in rows], pa.string()), value: numbers})


@examples(80)
@given(st.lists(st.tuples(sides, sides), min_size=1, max_size=5), st.integers(0, 3))
def test_every_pair_within_the_bound_is_found_once(stream: list[tuple[Side, Side]], within: int) -> None:
    join = WindowedJoin(left="l", right="r", keys=["key"], within=f"{within}s")
    left: Side = []
    right: Side = []
    inboxes = []
    for number, (some, more) in enumerate(stream, 1):
        tables = {"l": table(some, "x", len(left)), "r": table(more, "y", len(right))}
        inboxes.append(inbox(number, tables, watermark=0))
        left, right = left + some, right + more
    pairs = [
        (r["x"], r["y"], r["time"]) for out in run(join, inboxes) if out is not None for r in out.to_pylist()
    ]
    expected = {
        (i, j, max(s, t) * S)
        for i, (s, k) in enumerate(left)
        for j, (t, m) in enumerate(right)
        if k == m and abs(s - t) <= within
    }
    assert len(pairs) == len(set(pairs))
    assert set(pairs) == expected


def test_rows_leave_when_nothing_can_meet_them_and_late_rows_are_dropped() -> None:
    join = WindowedJoin(left="l", right="r", keys=["key"], within="2s", suffix="_r")
    state = join.initial(PLACE)
    state, _ = join.step(state, inbox(1, {"l": table([(0, "a"), (4, "a")], "x", 0)}, watermark=5 * S))
    assert join.counters(state) == {"late_rows": 0, "left_rows": 1, "right_rows": 0}
    state, out = join.step(state, inbox(2, {"r": table([(4, "a"), (6, "a")], "x", 7)}, watermark=20 * S))
    # The row of second 4 came after the watermark 5; second 6 meets second 4.
    assert out is not None and out.to_pylist() == [{"key": "a", "time": 6 * S, "x": 1, "x_r": 8}]
    assert join.counters(state) == {"late_rows": 1, "left_rows": 0, "right_rows": 0}


def test_a_stream_sees_the_latest_row_of_the_table_including_this_batch() -> None:
    join = StreamTableJoin(stream="s", table="t", keys=["key"], columns=["y", "time"])
    outputs = run(
        join,
        [
            inbox(1, {"s": table([(1, "a")], "x", 0)}),
            inbox(
                2,
                {
                    "t": table([(1, "a"), (2, "a"), (2, "b")], "y", 10),
                    "s": table([(3, "a"), (3, "c")], "x", 1),
                },
            ),
            inbox(3, {"s": table([(4, "b"), (5, "a")], "x", 3), "t": table([(9, "a")], "y", 20)}),
        ],
    )
    assert outputs[0] is None
    assert [o.to_pylist() for o in outputs if o is not None] == [
        [{"time": 3 * S, "key": "a", "x": 1, "y": 11, "time_table": 2 * S}],
        [
            {"time": 4 * S, "key": "b", "x": 3, "y": 12, "time_table": 2 * S},
            {"time": 5 * S, "key": "a", "x": 4, "y": 20, "time_table": 9 * S},
        ],
    ]


def test_a_left_join_keeps_what_finds_nothing() -> None:
    join = StreamTableJoin(stream="s", table="t", keys=["key"], columns=["y"], how="left")
    outputs = run(
        join,
        [
            inbox(1, {"s": table([(1, "a")], "x", 0)}),
            inbox(2, {"t": table([(1, "a")], "y", 7), "s": table([(2, "b"), (2, "a")], "x", 1)}),
        ],
    )
    assert [[r["y"] for r in o.to_pylist()] for o in outputs if o is not None] == [[None], [None, 7]]


def test_many_updates_of_few_keys_do_not_grow_the_state() -> None:
    join = StreamTableJoin(stream="s", table="t", keys=["key"])
    state = join.initial(PLACE)
    for number in range(1, 30):
        rows = table([(number, f"{i}") for i in range(500)], "y", number * 1000)
        state, _ = join.step(state, inbox(number, {"t": rows}))
    assert join.counters(state) == {"keys": 500}
    assert state._rows.size <= 4096 + 500
    _, out = join.step(state, inbox(31, {"s": pa.table({"key": ["7"]})}))
    assert out is not None and out.column("y").to_pylist() == [29_007]


def test_the_two_inputs_must_differ() -> None:
    with pytest.raises(SpecError, match="another upstream"):
        WindowedJoin(left="a", right="a", keys=["k"], within="1s")
    with pytest.raises(SpecError, match="another upstream"):
        StreamTableJoin(stream="a", table="a", keys=["k"])
    with pytest.raises(SpecError, match="within"):
        WindowedJoin(left="a", right="b", keys=["k"], within="soon")


@examples(100)
@given(
    st.lists(st.tuples(sides, sides, st.none() | st.integers(0, 12)), min_size=1, max_size=6),
    st.integers(0, 2),
    st.integers(0, 2),
)
def test_rows_in_time_meet_and_what_nobody_can_meet_is_let_go(
    stream: list[tuple[Side, Side, int | None]], within: int, lateness: int
) -> None:
    join = WindowedJoin(left="l", right="r", keys=["key"], within=f"{within}s", lateness=f"{lateness}s")
    state, closed, late, number = join.initial(PLACE), None, 0, 0
    kept: dict[str, list[tuple[int, str, int]]] = {"l": [], "r": []}
    for batch, (left, right, mark) in enumerate(stream, 1):
        fresh: dict[str, list[tuple[int, str, int]]] = {"l": [], "r": []}
        tables = {"l": table(left, "x", number), "r": table(right, "y", number + len(left))}
        for side, rows in (("l", left), ("r", right)):
            for t, key in rows:
                if closed is None or t >= closed:
                    fresh[side].append((t, key, number))
                else:
                    late += 1
                number += 1
        state, out = join.step(state, inbox(batch, tables, None if mark is None else mark * S))
        old = {side: list(rows) for side, rows in kept.items()}
        kept = {side: kept[side] + fresh[side] for side in kept}
        pairs = [
            (i, j, max(s, t) * S)
            for first, second in ((old["l"], fresh["r"]), (fresh["l"], kept["r"]))
            for s, k, i in first
            for t, m, j in second
            if k == m and abs(s - t) <= within
        ]
        found = [] if out is None else [(r["x"], r["y"], r["time"]) for r in out.to_pylist()]
        assert found == pairs  # in this order: by left row, then by right row
        if mark is not None:
            closed = mark - lateness if closed is None else max(closed, mark - lateness)
            kept = {side: [r for r in rows if r[0] >= closed - within] for side, rows in kept.items()}
        counts = {"late_rows": late, "left_rows": len(kept["l"]), "right_rows": len(kept["r"])}
        assert join.counters(state) == counts


def test_null_keys_meet_nothing_and_zeros_and_not_a_number_meet_themselves() -> None:
    def rows(name: str, keys: list[float | None]) -> pa.Table:
        return pa.table(
            {"time": [0] * len(keys), "key": pa.array(keys, pa.float64()), name: range(len(keys))}
        )

    join = WindowedJoin(left="l", right="r", keys=["key"], within="0s")
    keys = [None, 0.0, float("nan"), 1.0]
    (out,) = run(join, [inbox(1, {"l": rows("x", keys), "r": rows("y", [None, -0.0, float("nan"), 2.0])})])
    assert out is not None
    assert [(r["x"], r["y"]) for r in out.to_pylist()] == [(1, 1), (2, 2)]


@examples(80)
@given(
    st.lists(st.tuples(sides, sides), min_size=1, max_size=5),
    st.sampled_from(["inner", "left"]),
    st.sampled_from([None, ["y"], ["key", "y"], ["time", "y"]]),
)
def test_a_lookup_gives_what_a_dict_of_the_latest_rows_gives(
    stream: list[tuple[Side, Side]], how: str, columns: list[str] | None
) -> None:
    join = StreamTableJoin(stream="s", table="t", keys=["key"], how=how, columns=columns)
    latest: dict[str, dict[str, object]] = {}
    state = join.initial(PLACE)
    for batch, (rows, updates) in enumerate(stream, 1):
        sent = {"s": table(rows, "x", 0), "t": table(updates, "y", batch * 10)}
        state, out = join.step(state, inbox(batch, sent))
        latest.update({str(r["key"]): r for r in sent["t"].to_pylist()})
        wanted = [c for c in (columns or ["time", "y"]) if c != "key"]
        added = {c: "time_table" if c == "time" else c for c in wanted}
        if columns is None and not latest:
            added = {}
        expected = [
            {**r, **{name: latest.get(str(r["key"]), {}).get(c) for c, name in added.items()}}
            for r in sent["s"].to_pylist()
            if how == "left" or r["key"] in latest
        ]
        assert ([] if out is None else out.to_pylist()) == expected
        declared = join.output_columns({"s": ("time", "key", "x"), "t": ("time", "key", "y")})
        assert out is None or not latest or tuple(out.column_names) == declared
        assert out is None or columns is None or tuple(out.column_names) == declared


def test_a_column_that_the_table_does_not_have_is_named() -> None:
    join = StreamTableJoin(stream="s", table="t", keys=["key"], columns=["z"])
    with pytest.raises(ColumnError, match="column 'z' is not in the input; its columns are time, key, y"):
        run(join, [inbox(1, {"s": table([(0, "a")], "x", 0), "t": table([(0, "a")], "y", 0)})])


def test_rows_whose_columns_change_are_named_and_not_joined() -> None:
    join = WindowedJoin(left="l", right="r", keys=["key"], within="1s")
    texts = pa.table({"time": [0], "key": ["a"], "x": ["text"]})
    with pytest.raises(ColumnError, match="columns changed between batches"):
        run(join, [inbox(1, {"l": table([(0, "a")], "x", 0)}), inbox(2, {"l": texts})])


@pytest.mark.parametrize(
    ("left", "right", "met"),
    [
        (pa.array([1, -1], pa.int32()), pa.array([1, -1], pa.int64()), 2),
        (pa.array([2**53], pa.int64()), pa.array([2**53 + 1], pa.uint64()), 0),
        (pa.array([1, -1], pa.timestamp("us")), pa.array([1000, -1001], pa.timestamp("ns")), 1),
        (
            pa.array([1, 2], pa.timestamp("us", "UTC")),
            pa.array([1000, 2001], pa.timestamp("ns", "Etc/UTC")),
            1,
        ),
        (pa.array([1]).cast(pa.decimal128(20, 1)), pa.array([1]).cast(pa.decimal128(21, 1)), 1),
        (pa.nulls(1), pa.array([1]), 0),
        (pa.array(["a"]), pa.array(["a"], pa.large_string()), 1),
    ],
)
@pytest.mark.parametrize("how", ["inner", "full"])
def test_keys_of_two_widths_and_units_meet(how: str, left: pa.Array, right: pa.Array, met: int) -> None:
    of = {} if how == "inner" else {"left_columns": {}, "right_columns": {}}
    join = WindowedJoin(left="l", right="r", keys=["k"], within="1s", how=how, **of)
    tables = {n: pa.table({"k": keys, "time": [1] * len(keys)}) for n, keys in (("l", left), ("r", right))}
    (out,) = run(join, [inbox(1, tables)])
    assert (0 if out is None else out.num_rows) == met


def test_columns_of_nulls_alone_get_a_type_with_later_rows() -> None:
    join = WindowedJoin(left="l", right="r", keys=["key"], within="1s")
    nulls = pa.table({"time": [0], "key": pa.nulls(1), "x": pa.nulls(1)})
    both = {"l": table([(0, "a")], "x", 5), "r": table([(0, "a")], "y", 7)}
    for order in ([{"l": nulls}, both], [both, {"l": nulls}]):
        outputs = run(join, [inbox(n, tables) for n, tables in enumerate(order, 1)])
        assert [out.to_pylist() for out in outputs if out] == [[{"key": "a", "time": 0, "x": 5, "y": 7}]]


@pytest.mark.parametrize("columns", [["key", "y"], ["y"], ["y", "key"]])
def test_a_left_join_has_the_same_columns_before_the_table_has_rows(columns: list[str]) -> None:
    join = StreamTableJoin(stream="s", table="t", keys=["key"], how="left", columns=columns)
    rows = table([(0, "a")], "x", 0)
    before, after = run(join, [inbox(1, {"s": rows}), inbox(2, {"s": rows, "t": table([(0, "a")], "y", 1)})])
    assert before is not None
    assert after is not None
    assert before.column_names == after.column_names == ["time", "key", "x", "y"]
