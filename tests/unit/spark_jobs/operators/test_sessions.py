"""Sessions against SQL in DuckDB over all rows that came in time."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprise.spark_jobs.contract import Inbox, Operator
from reprise.spark_jobs.errors import SpecError
from reprise.spark_jobs.operators import SessionWindow, entries
from reprise.spark_jobs.operators.frames import END_OF_TIME, ColumnError
from reprise.spark_jobs.operators.testing import PLACE, check_recovery, inbox, run
from reprise.spark_jobs.topology.routing import split
from tests.support.examples import examples

S = 1_000_000
SCHEMA = pa.schema({"time": pa.int64(), "key": pa.string(), "zone": pa.int64(), "value": pa.int64()})
Row = dict[str, Any]
Batches = list[tuple[list[Row], int | None]]
AGGREGATE = {
    "n": "count()",
    "c": "count(value)",
    "s": "sum(value)",
    "low": "min(value)",
    "high": "max(value)",
}
SQL = """
    WITH begun AS (SELECT *, coalesce(time - lag(time) OVER w >= {gap}, true)::INT AS begins FROM events
                   WINDOW w AS (PARTITION BY key, zone ORDER BY time)),
         numbered AS (SELECT *, sum(begins) OVER (PARTITION BY key, zone ORDER BY time RANGE UNBOUNDED PRECEDING) AS session
                      FROM begun),
         sessions AS (SELECT min(time) AS window_start, max(time) + {gap} AS window_end, max(time) + {gap} - 1 AS time,
                             key, zone, count(*) AS n, count(value) AS c, sum(value)::BIGINT AS s,
                             min(value) AS low, max(value) AS high
                      FROM numbered GROUP BY key, zone, session)
    SELECT (SELECT min(batch) FROM marks WHERE closed >= window_end) AS batch, * FROM sessions
    WHERE batch IS NOT NULL"""

row = st.fixed_dictionaries(
    {
        "time": st.integers(-4, 40).map(lambda half: half * S // 2),
        "key": st.sampled_from(["a", "b", None]),
        "zone": st.integers(0, 1),
        "value": st.none() | st.integers(-9, 9),
    }
)
stream = st.lists(st.tuples(st.lists(row, max_size=7), st.none() | st.integers(0, 4)), min_size=1, max_size=6)


def table(rows: list[Row]) -> pa.Table:
    return pa.Table.from_pylist(rows, SCHEMA)


def marked(batches: Batches) -> list[Inbox]:
    """Batches, of which each moves the watermark by some seconds or not."""
    mark, found = None, []
    for number, (rows, step) in enumerate(batches, 1):
        if step is not None:
            mark = (0 if mark is None else mark) + step * S
        found.append(inbox(number, table(rows), mark))
    return [*found, inbox(len(found) + 1, table([]), END_OF_TIME)]


def by_sql(inboxes: list[Inbox], gap: int, lateness: int) -> tuple[list[Row], int, list[Any]]:
    """The sessions of the rows that came in time, with the batch in which each is complete; how many rows came late; and the
    keys of those in time, by first appearance."""
    closed, events, marks, late = None, [], [], 0
    for each in inboxes:
        for one in (each.table() or table([])).to_pylist():
            if closed is not None and one["time"] < closed:
                late += 1
            else:
                events.append(one)
        if each.watermark is not None:
            closed = each.watermark - lateness
            marks.append({"batch": each.batch, "closed": closed})
    with duckdb.connect() as database:
        database.register("events", table(events))
        database.register("marks", pa.Table.from_pylist(marks))
        answer = database.execute(SQL.format(gap=gap)).to_arrow_table().to_pylist()
    return answer, late, list(dict.fromkeys((each["key"], each["zone"]) for each in events))


def told(outputs: list[pa.Table | None]) -> list[Row]:
    return [
        {"batch": batch, **each}
        for batch, out in enumerate(outputs, 1)
        for each in (out.to_pylist() if out is not None else [])
    ]


def counted(rows: list[Row]) -> Counter[str]:
    return Counter(repr(sorted(each.items())) for each in rows)


def late_rows(operator: Operator, inboxes: list[Inbox]) -> int:
    state = operator.initial(PLACE)
    for each in inboxes:
        state, _ = operator.step(state, each)
    return operator.counters(state)["late_rows"]


def compared(batches: Batches, gap: int, lateness: int) -> None:
    window = SessionWindow(
        gap=f"{gap}us", keys=["key", "zone"], aggregate=AGGREGATE, lateness=f"{lateness}us"
    )
    inboxes = marked(batches)
    expected, late, keys = by_sql(inboxes, gap, lateness)
    found = told(check_recovery(window, inboxes))
    assert counted(found) == counted(expected)
    assert late_rows(window, inboxes) == late
    order = [(each["batch"], each["window_end"], keys.index((each["key"], each["zone"]))) for each in found]
    assert order == sorted(order)


@examples(25)
@given(stream, st.sampled_from([S // 2, S, 2 * S + 1]), st.sampled_from([0, S, 3 * S]))
def test_sessions_are_those_of_the_sql_in_the_batch_that_completes_them(
    batches: Batches, gap: int, lateness: int
) -> None:
    compared(batches, gap, lateness)


@pytest.mark.wide
@examples(80)
@given(stream, st.integers(1, 8).map(lambda half: half * S // 2), st.integers(0, 3).map(lambda s: s * S))
def test_many_more_streams(batches: Batches, gap: int, lateness: int) -> None:
    compared(batches, gap, lateness)


@examples(30)
@given(st.data())
def test_disorder_within_the_lateness_loses_nothing_and_does_not_show(data: st.DataObject) -> None:
    """The watermark is the greatest time so far, as of a source that knows of no disorder."""
    lateness = 2 * S
    steps = data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=20))
    times, now = [], 0
    for step in steps:
        now += step * S // 2
        times.append(now)
    late = [data.draw(st.integers(0, lateness // S)) * S for _ in times]
    arrival = sorted(range(len(times)), key=lambda i: times[i] + late[i])
    rows = [{"time": times[i], "key": "ab"[i % 2], "zone": 0, "value": i} for i in arrival]
    cuts = sorted(data.draw(st.sets(st.integers(0, len(rows)))) | {0, len(rows)})
    inboxes, seen = [], 0
    for number, (begin, end) in enumerate(pairwise(cuts), 1):
        seen = max([seen, *(r["time"] for r in rows[begin:end])])
        inboxes.append(inbox(number, table(rows[begin:end]), seen))
    inboxes.append(inbox(len(inboxes) + 1, table([]), END_OF_TIME))
    window = SessionWindow(gap="1s", keys=["key", "zone"], aggregate=AGGREGATE, lateness="2s")
    in_order = [inbox(1, table(sorted(rows, key=lambda r: r["time"])), END_OF_TIME)]
    found, whole = told(run(window, inboxes)), told(run(window, in_order))
    assert late_rows(window, inboxes) == 0
    assert sum(each["n"] for each in found) == len(rows)
    for each in (*found, *whole):
        each.pop("batch")
    assert counted(found) == counted(whole)


@examples(20)
@given(stream)
def test_partitions_by_key_give_together_what_one_gives(batches: Batches) -> None:
    window = SessionWindow(gap="1s", keys=["key", "zone"], aggregate=AGGREGATE)
    inboxes = marked(batches)
    parts: list[list[Inbox]] = [[], [], []]
    for each in inboxes:
        rows = each.table()
        sent = {} if rows is None else split(rows, ["key"], len(parts))
        for index, part in enumerate(parts):
            part.append(inbox(each.batch, sent.get(index, table([])), each.watermark))
    together = [one for part in parts for one in told(run(window, part))]
    assert counted(together) == counted(told(run(window, inboxes)))


def rows_at(*times: float, key: str = "a") -> pa.Table:
    return table([{"time": int(t * S), "key": key, "zone": 0, "value": 1} for t in times])


def test_a_row_between_two_sessions_makes_one_of_them() -> None:
    window = SessionWindow(gap="2s", keys=["key"], aggregate={"n": "count()", "s": "sum(value)"})
    batches = [inbox(1, rows_at(0, 3), 0), inbox(2, rows_at(1.5), 4 * S), inbox(3, rows_at(5), 7 * S)]
    outputs = check_recovery(window, batches)
    assert outputs[:2] == [None, None]
    assert outputs[2] is not None
    # A row exactly the gap after the last one begins another session: sessions are half open.
    assert outputs[2].to_pylist() == [
        {"window_start": 0, "window_end": 5 * S, "time": 5 * S - 1, "key": "a", "n": 3, "s": 3},
        {"window_start": 5 * S, "window_end": 7 * S, "time": 7 * S - 1, "key": "a", "n": 1, "s": 1},
    ]


def test_rows_far_from_each_other_inside_an_open_session_belong_to_it() -> None:
    window = SessionWindow(gap="1500ms", keys=["key"], aggregate={"n": "count()"})
    batches = [inbox(1, rows_at(0, 1, 2, 3, 4), 0), inbox(2, rows_at(0.5, 3.5), END_OF_TIME)]
    out = check_recovery(window, batches)[1]
    assert out is not None
    assert out.select(["window_start", "window_end", "n"]).to_pylist() == [
        {"window_start": 0, "window_end": 5_500_000, "n": 7}
    ]


def test_late_rows_are_dropped_and_counted_also_where_a_session_is_open() -> None:
    window = SessionWindow(gap="5s", keys=["key"], aggregate={"n": "count()"}, lateness="1s")
    state = window.initial(PLACE)
    state, _ = window.step(state, inbox(1, rows_at(4), 5 * S))
    state, out = window.step(state, inbox(2, rows_at(3, 4.5), 6 * S))
    assert out is None
    assert window.counters(state) == {"late_rows": 1, "keys": 1, "sessions": 1}
    state, out = window.step(state, inbox(3, rows_at(), END_OF_TIME))
    assert out is not None
    assert out.select(["window_start", "n"]).to_pylist() == [{"window_start": 4 * S, "n": 2}]


def test_a_session_without_keys_is_one_of_all_rows() -> None:
    window = SessionWindow(gap="1s", aggregate={"n": "count()"})
    batches = [inbox(1, pa.concat_tables([rows_at(0), rows_at(0.5, key="b")]), 0), inbox(2, rows_at(), 9 * S)]
    out = check_recovery(window, batches)[1]
    assert out is not None
    assert out.to_pylist() == [{"window_start": 0, "window_end": 1_500_000, "time": 1_499_999, "n": 2}]


def test_keys_that_come_and_go_do_not_grow_the_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entries, "_COMPACT_FROM", 8)
    window = SessionWindow(gap="1s", keys=["key"], aggregate={"n": "count()", "s": "sum(value)"})
    batches = [
        inbox(b, table([{"time": b * S, "key": f"{b}-{i}", "zone": 0, "value": i} for i in range(6)]), b * S)
        for b in range(1, 12)
    ]
    outputs = check_recovery(window, [*batches, inbox(12, table([]), END_OF_TIME)])
    assert sum(out.num_rows for out in outputs if out is not None) == 66
    state = window.initial(PLACE)
    for each in batches:
        state, _ = window.step(state, each)
        assert window.counters(state)["keys"] <= 12
        assert state.open._values.size <= 12


def test_the_place_of_a_session_that_has_ended_is_taken_again() -> None:
    window = SessionWindow(gap="1s", keys=["key"], aggregate={"n": "count()"})
    state = window.initial(PLACE)
    for second in range(50):
        state, _ = window.step(state, inbox(second + 1, rows_at(2 * second, 2 * second + 1), 2 * second * S))
    assert state.open._values.size <= 4


def test_a_column_of_nulls_takes_its_type_when_values_come() -> None:
    window = SessionWindow(gap="9s", keys=["key"], aggregate={"m": "mean(value)"})
    nulls = pa.table({"time": [0], "key": ["a"], "value": pa.nulls(1)})
    (_, out) = check_recovery(window, [inbox(1, nulls, 0), inbox(2, rows_at(1, 2), END_OF_TIME)])
    assert out is not None
    assert out["m"].to_pylist() == [1.0]


@pytest.mark.parametrize(
    ("parameters", "field"),
    [
        ({"gap": "0s"}, "gap"),
        ({"gap": "soon"}, "gap"),
        ({"gap": "1s", "lateness": "-1s"}, "lateness"),
        ({"gap": "1s", "keys": ["a", "a"]}, "keys"),
        ({"gap": "1s", "keys": ["n"]}, "aggregate.n"),
        ({"gap": "1s", "keys": ["zone", "window_start"]}, "keys"),
        ({"gap": "1s", "aggregate": {"time": "count()"}}, "aggregate.time"),
        ({"gap": "1s", "aggregate": {}}, "aggregate"),
    ],
)
def test_wrong_parameters_are_refused_by_name(parameters: dict[str, Any], field: str) -> None:
    with pytest.raises(SpecError) as caught:
        SessionWindow(**{"aggregate": {"n": "count()"}} | parameters)
    assert caught.value.field == field


def test_columns_are_known_before_the_first_row() -> None:
    window = SessionWindow(gap="1s", keys=["key"], aggregate={"n": "count()", "m": "max(value)"})
    columns = window.output_columns({"input": ("time", "key", "zone", "value")})
    assert columns == ("window_start", "window_end", "time", "key", "n", "m")
    (out,) = run(window, [inbox(1, rows_at(1), END_OF_TIME)])
    assert out is not None
    assert tuple(out.column_names) == columns
    for missing, field in (("time", "time"), ("key", "keys"), ("value", "aggregate.m")):
        with pytest.raises(SpecError) as caught:
            window.output_columns({"input": tuple({"time", "key", "value"} - {missing})})
        assert caught.value.field == field


def test_a_time_column_with_nulls_is_an_error() -> None:
    rows = pa.table({"time": pa.array([None], pa.int64()), "key": ["a"]})
    with pytest.raises(ColumnError, match="has no time in 1 rows"):
        run(SessionWindow(gap="1s", keys=["key"], aggregate={"n": "count()"}), [inbox(1, rows)])


@pytest.mark.parametrize(
    ("changed", "field"),
    [({"gap": "5s"}, "gap"), ({"aggregate": {"n": "count()", "s": "sum(value)"}}, "aggregate")],
)
def test_sessions_that_are_open_do_not_go_on_with_another_gap_or_other_aggregates(
    changed: dict[str, Any], field: str
) -> None:
    """Two that are near each other by the new gap would come out apart, and what was not counted would be missing."""
    asked: dict[str, Any] = {"gap": "1s", "keys": ["key"], "aggregate": {"n": "count()"}}
    before = SessionWindow(**asked)
    state, _ = before.step(before.initial(PLACE), inbox(1, rows_at(1), 0))
    tables = before.freeze(state)()
    assert len(before.restore(PLACE, tables).open.all()) == 1
    with pytest.raises(SpecError, match="has changed, and sessions are open") as caught:
        SessionWindow(**asked | changed).restore(PLACE, tables)
    assert caught.value.field == field
