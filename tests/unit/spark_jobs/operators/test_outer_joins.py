"""Outer joins of two streams against SQL in DuckDB over all rows that came in time, with the batch in which each comes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprise.spark_jobs.contract import Inbox
from reprise.spark_jobs.errors import SpecError
from reprise.spark_jobs.operators import TumblingWindow, WindowedJoin
from reprise.spark_jobs.operators.frames import END_OF_TIME, ColumnError
from reprise.spark_jobs.operators.testing import PLACE, check_recovery, inbox, run, stored
from reprise.spark_jobs.topology.routing import split
from tests.support.examples import examples

S = 1_000_000
Row = dict[str, Any]
LEFT = pa.schema({"time": pa.int64(), "key": pa.string(), "x": pa.int64(), "name": pa.string()})
RIGHT = pa.schema({"time": pa.int64(), "key": pa.string(), "x": pa.float64(), "y": pa.int32()})
COLUMNS: dict[str, dict[str, str]] = {
    "left_columns": {"x": "int64", "name": "string"},
    "right_columns": {"x": "float64", "y": "int32"},
}
HOWS = {"left": ["right_columns"], "right": ["left_columns"], "full": ["left_columns", "right_columns"]}
SQL = """
    SELECT CASE WHEN l.batch IS NOT NULL AND r.batch IS NOT NULL THEN greatest(l.batch, r.batch)
                ELSE (SELECT min(batch) FROM marks WHERE closed > coalesce(l.time, r.time) + {within}) END AS batch,
           coalesce(l.key, r.key) AS key, greatest(l.time, r.time) AS time, l.x AS x, name, r.x AS x_right, y
    FROM l {how} OUTER JOIN r ON l.key = r.key AND abs(l.time - r.time) <= {within}"""

side = st.lists(st.tuples(st.integers(0, 16), st.sampled_from(["a", "b", None])), max_size=4)
stream = st.lists(st.tuples(side, side, st.none() | st.integers(0, 3)), min_size=1, max_size=6)
Stream = list[tuple[list[tuple[int, str | None]], list[tuple[int, str | None]], int | None]]


def joined(how: str, within: int, lateness: int = 0) -> WindowedJoin:
    columns: dict[str, Any] = {n: COLUMNS[n] for n in HOWS[how]}
    return WindowedJoin(
        left="l", right="r", keys=["key"], within=f"{within}us", lateness=f"{lateness}us", how=how, **columns
    )


def lefts(rows: list[tuple[int, str | None]], first: int) -> pa.Table:
    found = [{"time": t * S // 2, "key": k, "x": first + i, "name": f"l{i}"} for i, (t, k) in enumerate(rows)]
    return pa.Table.from_pylist(found, LEFT)


def rights(rows: list[tuple[int, str | None]], first: int) -> pa.Table:
    found = [{"time": t * S // 2, "key": k, "x": i / 2, "y": first + i} for i, (t, k) in enumerate(rows)]
    return pa.Table.from_pylist(found, RIGHT)


def marked(batches: Stream) -> list[Inbox]:
    found, mark = [], None
    for number, (left, right, step) in enumerate(batches, 1):
        if step is not None:
            mark = (mark or 0) + step * S
        found.append(inbox(number, {"l": lefts(left, number * 10), "r": rights(right, number * 100)}, mark))
    return [*found, inbox(len(found) + 1, {}, END_OF_TIME)]


def by_sql(inboxes: list[Inbox], how: str, within: int, lateness: int) -> tuple[list[Row], int]:
    closed, late, marks = None, 0, []
    events: dict[str, list[Row]] = {"l": [], "r": []}
    for each in inboxes:
        for name, rows in events.items():
            for one in (each.table(name) or pa.table({})).to_pylist():
                if closed is not None and one["time"] < closed:
                    late += 1
                else:
                    rows.append({"batch": each.batch, **one})
        if each.watermark is not None:
            closed = each.watermark - lateness
            marks.append({"batch": each.batch, "closed": closed})
    with duckdb.connect() as database:
        for name, schema in (("l", LEFT), ("r", RIGHT)):
            batch = pa.field("batch", pa.int64())
            database.register(name, pa.Table.from_pylist(events[name], pa.schema([batch, *schema])))
        database.register("marks", pa.Table.from_pylist(marks))
        answer = database.execute(SQL.format(how=how.upper(), within=within))
        return list(answer.to_arrow_table().to_pylist()), late


def told(outputs: list[pa.Table | None]) -> Counter[str]:
    return Counter(
        repr(sorted({"batch": batch, **row}.items()))
        for batch, out in enumerate(outputs, 1)
        for row in (out.to_pylist() if out is not None else [])
    )


def counted(rows: list[Row]) -> Counter[str]:
    return Counter(repr(sorted(row.items())) for row in rows)


def compared(batches: Stream, how: str, within: int, lateness: int) -> None:
    join, inboxes = joined(how, within, lateness), marked(batches)
    expected, late = by_sql(inboxes, how, within, lateness)
    outputs = check_recovery(join, inboxes)
    assert told(outputs) == counted(expected)
    assert len({str(out.schema) for out in outputs if out is not None}) <= 1
    declared = join.output_columns({"l": tuple(LEFT.names), "r": tuple(RIGHT.names)})
    assert all(tuple(out.column_names) == declared for out in outputs if out is not None)
    state = join.initial(PLACE)
    for each in inboxes:
        state, _ = join.step(state, each)
    assert join.counters(state) == {"late_rows": late, "left_rows": 0, "right_rows": 0}


@pytest.mark.parametrize("how", HOWS)
@examples(15)
@given(stream, st.sampled_from([0, S // 2, 2 * S]), st.sampled_from([0, S]))
def test_pairs_and_rows_without_a_partner_are_those_of_the_sql(
    how: str, batches: Stream, within: int, lateness: int
) -> None:
    compared(batches, how, within, lateness)


@pytest.mark.wide
@pytest.mark.parametrize("how", HOWS)
@examples(30)
@given(stream, st.integers(0, 5).map(lambda half: half * S // 2), st.integers(0, 3).map(lambda s: s * S))
def test_many_more_streams(how: str, batches: Stream, within: int, lateness: int) -> None:
    compared(batches, how, within, lateness)


@examples(15)
@given(stream)
def test_partitions_by_key_give_together_what_one_gives(batches: Stream) -> None:
    join, inboxes = joined("full", S), marked(batches)
    parts: list[list[Inbox]] = [[], [], []]
    for each in inboxes:
        sent = {i.operator: split(i.table, ["key"], len(parts)) for i in each.inputs}
        for index, part in enumerate(parts):
            tables = {name: targets[index] for name, targets in sent.items() if index in targets}
            part.append(inbox(each.batch, tables, each.watermark))
    together: Counter[str] = Counter()
    for part in parts:
        together += told(run(join, part))
    assert together == told(run(join, inboxes))


@examples(15)
@given(stream, st.sampled_from([0, S]), st.sampled_from([0, S]))
def test_a_window_behind_it_needs_the_lateness_that_the_page_names(
    batches: Stream, within: int, lateness: int
) -> None:
    join, inboxes = joined("full", within, lateness), marked(batches)
    window = TumblingWindow(size="1s", lateness=f"{within + lateness}us", aggregate={"n": "count()"})
    outputs, state, counted_rows = run(join, inboxes), window.initial(PLACE), 0
    for each, out in zip(inboxes, outputs, strict=True):
        rows = {} if out is None else {"join": out}
        state, closed = window.step(state, inbox(each.batch, rows, each.watermark))
        counted_rows += 0 if closed is None else sum(closed["n"].to_pylist())
    assert window.counters(state)["late_rows"] == 0
    assert counted_rows == sum(out.num_rows for out in outputs if out is not None)


def test_a_row_comes_out_alone_once_nobody_can_meet_it_any_more() -> None:
    join = joined("left", S)
    outputs = check_recovery(
        join,
        [
            inbox(1, {"l": lefts([(2, "a"), (2, "b"), (2, None)], 0)}, 2 * S),  # all at second 1
            inbox(2, {"r": rights([(4, "a")], 0)}, 2 * S),
            inbox(3, {}, 2 * S + 1),
            inbox(4, {}, END_OF_TIME),
        ],
    )
    found = [
        None if out is None else [(r["key"], r["time"], r["y"]) for r in out.to_pylist()] for out in outputs
    ]
    # At watermark 2 s a row of second 2 may still come, and does; one microsecond later none can.
    assert found == [None, [("a", 2 * S, 0)], [("b", S, None), (None, S, None)], None]


def test_a_side_that_never_comes_has_its_columns_all_the_same() -> None:
    (out,) = run(joined("full", 0), [inbox(1, {"r": rights([(1, "a")], 5)}, END_OF_TIME)])
    assert out is not None
    assert out.to_pylist() == [{"key": "a", "time": S // 2, "x": None, "name": None, "x_right": 0.0, "y": 5}]
    assert out.schema.types == [
        *(pa.string(), pa.int64()),
        *(pa.int64(), pa.string()),
        *(pa.float64(), pa.int32()),
    ]


def test_only_declared_columns_come_and_with_their_types() -> None:
    join = WindowedJoin(
        left="l", right="r", keys=["key"], within="0s", how="left", right_columns={"y": "float64"}
    )
    rows = {"l": lefts([(0, "a"), (1, "b")], 0), "r": rights([(0, "a")], 7)}
    (out,) = run(join, [inbox(1, rows, END_OF_TIME)])
    assert out is not None
    assert out.drop_columns(["name"]).to_pylist() == [
        {"key": "a", "time": 0, "x": 0, "y": 7.0},
        {"key": "b", "time": S // 2, "x": 1, "y": None},
    ]


def test_values_that_are_not_of_the_declared_type_are_an_error() -> None:
    wrong = WindowedJoin(
        left="l", right="r", keys=["key"], within="0s", how="left", right_columns={"y": "bool"}
    )
    texts = pa.table({"time": [0], "key": ["a"], "y": ["perhaps"]})
    with pytest.raises(ColumnError, match="column 'y' holds string, and is to be bool"):
        run(wrong, [inbox(1, {"r": texts})])
    missing = WindowedJoin(
        left="l", right="r", keys=["key"], within="0s", how="left", right_columns={"z": "bool"}
    )
    with pytest.raises(ColumnError, match="column 'z' is not in the input"):
        run(missing, [inbox(1, {"r": texts})])


def test_a_column_that_would_hide_another_is_an_error_and_no_wrong_row() -> None:
    join = WindowedJoin(
        left="l", right="r", keys=["key"], within="0s", how="left", right_columns={"x": "int64"}
    )
    rows = pa.table({"time": [0], "key": ["a"], "x": [1], "x_right": [2]})
    with pytest.raises(ColumnError, match="two columns of the output would be called 'x_right'"):
        run(join, [inbox(1, {"l": rows}, END_OF_TIME)])


def test_the_state_of_an_inner_join_is_refused() -> None:
    inner = WindowedJoin(left="l", right="r", keys=["key"], within="1s")
    state, _ = inner.step(inner.initial(PLACE), inbox(1, {"l": lefts([(0, "a")], 0)}, 0))
    tables = stored(inner.freeze(state)())
    with pytest.raises(SpecError, match="how: the state is that of an inner join"):
        joined("left", S).restore(PLACE, tables)


def test_a_left_join_can_become_a_full_one() -> None:
    before, after = joined("left", S), joined("full", S)
    rows = {"l": lefts([(0, "a")], 0), "r": rights([(0, "b")], 0)}
    state, _ = before.step(before.initial(PLACE), inbox(1, rows, 0))
    state = after.restore(PLACE, stored(before.freeze(state)()))
    _, out = after.step(state, inbox(2, {}, END_OF_TIME))
    assert out is not None
    assert out["key"].to_pylist() == ["a", "b"]


@pytest.mark.parametrize(
    ("parameters", "field"),
    [
        ({"how": "outer"}, "how"),
        ({"how": "left"}, "right_columns"),
        ({"how": "right"}, "left_columns"),
        ({"how": "full", "left_columns": {}}, "right_columns"),
        ({"how": "left", "right_columns": ["y"]}, "right_columns"),
        ({"how": "left", "right_columns": {"y": "number"}}, "right_columns.y"),
        ({"how": "left", "right_columns": {"key": "string"}}, "right_columns.key"),
        ({"how": "left", "right_columns": {"time": "int64"}}, "right_columns.time"),
        ({"how": "left", "right_columns": {}, "left_columns": {}}, "left_columns"),
        ({"right_columns": {"y": "int64"}}, "right_columns"),
        ({"how": "full", "left_columns": {"x": "int64", "x_right": "int64"}, "right_columns": {"x": "int64"}}, "suffix"),
    ],
)  # fmt: skip
def test_wrong_parameters_are_refused_by_name(parameters: dict[str, Any], field: str) -> None:
    with pytest.raises(SpecError) as caught:
        WindowedJoin(**{"left": "l", "right": "r", "keys": ["key"], "within": "1s"} | parameters)
    assert caught.value.field == field


def test_declared_columns_are_looked_for_in_the_inputs() -> None:
    join = joined("left", 0)
    with pytest.raises(
        SpecError, match="right_columns: there is no column 'x'; the columns are time, key, y"
    ):
        join.output_columns({"l": ("time", "key"), "r": ("time", "key", "y")})
    assert join.output_columns({"l": None, "r": None}) is None
    assert joined("full", 0).output_columns({"l": None, "r": None}) == (
        *("key", "time", "x", "name"),
        *("x_right", "y"),
    )


def test_keys_of_two_widths_come_out_with_one() -> None:
    narrow = pa.table({"time": [0, 0], "key": pa.array([1, 2], pa.int32()), "x": [1, 2], "name": ["a", "b"]})
    wide = pa.table(
        {
            "time": [0, 0],
            "key": pa.array([1, 3], pa.int64()),
            "x": [0.5, 1.5],
            "y": pa.array([1, 3], pa.int32()),
        }
    )
    outputs = check_recovery(
        joined("full", 0), [inbox(1, {"l": narrow}), inbox(2, {"r": wide}), inbox(3, {}, END_OF_TIME)]
    )
    rows = [table for table in outputs if table is not None]
    assert {table.schema.field("key").type for table in rows} == {pa.int64()}
    assert sorted(row["key"] for table in rows for row in table.to_pylist()) == [1, 2, 3]


@pytest.mark.parametrize("name", ["__left", "__right", "__time", "__same"])
def test_names_that_the_join_uses_for_itself_are_refused(name: str) -> None:
    with pytest.raises(SpecError) as caught:
        WindowedJoin(
            left="l", right="r", keys=["key"], within="1s", how="left", right_columns={name: "int64"}
        )
    assert caught.value.field == f"right_columns.{name}"
    own = lefts([(0, "a")], 1).append_column(name, pa.array([1]))
    for operator in (joined("left", 0), WindowedJoin(left="l", right="r", keys=["key"], within="1s")):
        with pytest.raises(ColumnError, match=f"column '{name}' has a name that the join uses for itself"):
            run(operator, [inbox(1, {"l": own})])
