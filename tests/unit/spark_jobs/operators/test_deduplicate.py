"""Deduplicate against a loop over all rows, and, where nothing is let go, against SQL in DuckDB."""

from __future__ import annotations

from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprise.spark_jobs.contract import Inbox
from reprise.spark_jobs.errors import SpecError
from reprise.spark_jobs.operators import Deduplicate, entries
from reprise.spark_jobs.operators.frames import END_OF_TIME
from reprise.spark_jobs.operators.testing import PLACE, check_recovery, inbox, run
from reprise.spark_jobs.topology.routing import split
from tests.support.examples import examples

S = 1_000_000
SCHEMA = pa.schema({"time": pa.int64(), "key": pa.string(), "zone": pa.int64(), "n": pa.int64()})
Keys = tuple[str | None, int]
Rows = list[tuple[int, str | None, int]]
Stream = list[tuple[Rows, int | None]]

row = st.tuples(st.integers(0, 24), st.sampled_from(["a", "b", None]), st.integers(0, 1))
stream = st.lists(
    st.tuples(st.lists(row, max_size=10), st.none() | st.integers(0, 4)), min_size=1, max_size=6
)


def table(rows: Rows, first: int = 0) -> pa.Table:
    found = [{"time": t * S // 2, "key": k, "zone": z, "n": first + i} for i, (t, k, z) in enumerate(rows)]
    return pa.Table.from_pylist(found, SCHEMA)


def marked(batches: Stream) -> list[Inbox]:
    found, mark, count = [], None, 0
    for number, (rows, step) in enumerate(batches, 1):
        if step is not None:
            mark = (mark or 0) + step * S
        found.append(inbox(number, table(rows, count), mark))
        count += len(rows)
    return found


def by_hand(inboxes: list[Inbox], within: int, lateness: int) -> tuple[list[list[int]], dict[str, int]]:
    """The numbers of the rows that each batch gives, and the counters; nothing that was given is ever forgotten."""
    closed, found = None, []
    given: dict[Keys, list[int]] = {}
    counts = {"late_rows": 0, "duplicates": 0}
    for each in inboxes:
        found.append(list[int]())
        for one in (each.table() or table([])).to_pylist():
            times = given.setdefault((one["key"], one["zone"]), [])
            if closed is not None and one["time"] < closed:
                counts["late_rows"] += 1
            elif any(abs(one["time"] - other) <= within for other in times):
                counts["duplicates"] += 1
            else:
                times.append(one["time"])
                found[-1].append(one["n"])
        if each.watermark is not None:
            closed = each.watermark - lateness
    kept = [t for times in given.values() for t in times if closed is None or t >= closed - within]
    return found, counts | {"rows_kept": len(kept)}


def compared(batches: Stream, within: int, lateness: int) -> None:
    dedup = Deduplicate(keys=["key", "zone"], within=f"{within}us", lateness=f"{lateness}us")
    inboxes = marked(batches)
    expected, counts = by_hand(inboxes, within, lateness)
    outputs = check_recovery(dedup, inboxes)
    assert [[] if out is None else out["n"].to_pylist() for out in outputs] == expected
    state = dedup.initial(PLACE)
    for each in inboxes:
        state, _ = dedup.step(state, each)
    assert dedup.counters(state) == counts


@examples(40)
@given(stream, st.sampled_from([0, S // 2, S, 4 * S]), st.sampled_from([0, S]))
def test_the_rows_of_each_batch_are_those_of_the_loop(batches: Stream, within: int, lateness: int) -> None:
    compared(batches, within, lateness)


@pytest.mark.wide
@examples(120)
@given(stream, st.integers(0, 9).map(lambda half: half * S // 2), st.integers(0, 3).map(lambda s: s * S))
def test_many_more_streams(batches: Stream, within: int, lateness: int) -> None:
    compared(batches, within, lateness)


@examples(10)
@given(stream)
def test_within_the_whole_stream_the_first_row_of_each_key_is_that_of_the_sql(batches: Stream) -> None:
    dedup = Deduplicate(keys=["key"], within="1h", lateness="1h")
    inboxes = marked(batches)
    whole = pa.concat_tables([table([]), *(t for i in inboxes if (t := i.table()) is not None)])
    with duckdb.connect() as database:
        database.register("events", whole)
        expected = database.execute("SELECT min(n) FROM events GROUP BY key").fetchall()
    found = [n for out in run(dedup, inboxes) if out is not None for n in out["n"].to_pylist()]
    assert found == sorted(n for (n,) in expected)


@examples(15)
@given(stream)
def test_partitions_by_key_give_together_what_one_gives(batches: Stream) -> None:
    dedup = Deduplicate(keys=["key", "zone"], within="1s", lateness="1s")
    inboxes = marked(batches)
    found: list[list[int]] = [[] for _ in inboxes]
    for index in range(3):
        parts = [
            inbox(
                each.batch,
                split(each.table() or table([]), ["key", "zone"], 3).get(index, table([])),
                each.watermark,
            )
            for each in inboxes
        ]
        for at, out in enumerate(run(dedup, parts)):
            found[at] += [] if out is None else out["n"].to_pylist()
    whole = [[] if out is None else out["n"].to_pylist() for out in run(dedup, inboxes)]
    assert [sorted(numbers) for numbers in found] == whole


def test_rows_go_on_as_they_came_with_all_their_columns() -> None:
    dedup = Deduplicate(keys=["key"], within="1s")
    rows = table([(4, "b", 1), (0, "a", 1), (2, "a", 0), (3, "a", 0), (4, "b", 0)])
    (out,) = run(dedup, [inbox(1, rows)])
    assert out is not None
    assert out.equals(rows.take([0, 1, 3]))  # second 1 is within a second of second 0, second 1.5 is not
    assert dedup.output_columns({"input": ("time", "key", "n")}) == ("time", "key", "n")


def test_what_was_given_is_let_go_and_rows_that_may_be_duplicates_of_it_are_late() -> None:
    dedup = Deduplicate(keys=["key"], within="2s")
    state = dedup.initial(PLACE)
    state, _ = dedup.step(state, inbox(1, table([(0, "a", 0)]), 2 * S))
    state, out = dedup.step(state, inbox(2, table([(4, "a", 0)]), 2 * S + 1))
    assert out is None
    state, out = dedup.step(state, inbox(3, table([(4, "a", 0), (5, "a", 0)]), 3 * S))
    assert out is not None
    assert out["time"].to_pylist() == [5 * S // 2]
    assert dedup.counters(state) == {"late_rows": 1, "duplicates": 1, "rows_kept": 1}
    state, _ = dedup.step(state, inbox(4, table([]), END_OF_TIME))
    assert dedup.counters(state)["rows_kept"] == 0


def test_keys_that_come_and_go_do_not_grow_the_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entries, "_COMPACT_FROM", 8)
    dedup = Deduplicate(keys=["key"], within="1s")
    batches = [
        inbox(b, table([(2 * b, f"{b}-{i}", 0) for i in (*range(6), *range(6))], 12 * b), b * S)
        for b in range(1, 20)
    ]
    assert [out.num_rows for out in check_recovery(dedup, batches) if out is not None] == [6] * 19
    state = dedup.initial(PLACE)
    for each in batches:
        state, _ = dedup.step(state, each)
    assert state.given.index.size <= 24
    assert state.given._values.size <= 24


@pytest.mark.parametrize(
    ("parameters", "field"),
    [
        ({"keys": []}, "keys"),
        ({"within": "-1s"}, "within"),
        ({"within": "long"}, "within"),
        ({"lateness": "1"}, "lateness"),
    ],
)
def test_wrong_parameters_are_refused_by_name(parameters: dict[str, Any], field: str) -> None:
    with pytest.raises(SpecError) as caught:
        Deduplicate(**{"keys": ["key"], "within": "1s"} | parameters)
    assert caught.value.field == field


def test_columns_that_are_not_there_are_refused() -> None:
    for missing, field in (("key", "keys"), ("time", "time")):
        with pytest.raises(SpecError) as caught:
            Deduplicate(keys=["key"], within="1s").output_columns(
                {"input": tuple({"time", "key"} - {missing})}
            )
        assert caught.value.field == field
