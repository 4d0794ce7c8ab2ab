"""What any source over tables promises: every row once over partitions and batches, and no row behind its watermark."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprise.spark_jobs.contract import Place, Range, Source
from reprise.spark_jobs.operators.frames import END_OF_TIME, ColumnError
from reprise.spark_jobs.sources import EventTimeReplay, FileSource
from reprise.spark_jobs.sources.tables import TableError, load_files
from tests.support.examples import examples

times_of = st.lists(st.integers(-5, 12), max_size=12)


def drain(
    source: Source, parallelism: int
) -> tuple[list[int], list[list[tuple[int, list[int], int | None]]]]:
    """All rows, and by partition its batches: number, event times, watermark."""
    rows, told = [], []
    for index in range(parallelism):
        place, before, batches = Place("in", index, parallelism), Range(0, 0), []
        for batch in range(1, 200):
            span = source.plan(place, batch, before)
            if span is None:
                break
            assert before.end == span.start <= span.end
            table = source.read(place, batch, span)
            assert table.num_rows == span.end - span.start
            assert source.read(place, batch, span).equals(table)
            if span.end - span.start > 1:  # a range is its rows, however it is cut
                middle = (span.start + span.end) // 2
                parts = [
                    source.read(place, batch, Range(*p)) for p in ((span.start, middle), (middle, span.end))
                ]
                assert pa.concat_tables(parts).equals(table)
            rows += table["n"].to_pylist()
            batches.append((batch, table["time"].to_pylist(), source.watermark(place, batch, span)))
            before = span
        else:
            raise AssertionError("it never ended")
        told.append(batches)
    return rows, told


@examples(25)
@given(st.lists(times_of, min_size=1, max_size=3), st.integers(1, 3), st.integers(1, 4), st.integers(0, 3))
def test_files_give_every_row_once_and_the_watermark_is_what_was_seen_less_disorder(
    files: list[list[int]], parallelism: int, size: int, disorder: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        number, paths = 0, []
        for k, found in enumerate(files):
            paths.append(f"{folder}/{k}.parquet")
            table = pa.table(
                {
                    "time": pa.array(found, pa.int64()),
                    "n": pa.array(range(number, number + len(found)), pa.int64()),
                }
            )
            pq.write_table(table, paths[-1])
            number += len(found)
        source = FileSource(paths=paths, rows=size, time="time", disorder=f"{disorder}us")
        rows, told = drain(source, parallelism)
    times = [t for found in files for t in found]
    assert sorted(rows) == list(range(len(times)))
    for index, batches in enumerate(told):
        own = list(range(index, len(times), parallelism))
        at = 0
        for _, found, mark in batches:
            at += len(found)
            assert len(found) == size or at == len(own)
            assert mark == (END_OF_TIME if at == len(own) else max(times[: own[at - 1] + 1]) - disorder)


@examples(25)
@given(
    times_of,
    st.integers(1, 3),
    st.integers(1, 4),
    st.none() | st.integers(-7, 14),
    st.none() | st.integers(-7, 14),
)
def test_a_replay_gives_every_row_between_its_bounds_in_the_batch_of_its_time(
    times: list[int], parallelism: int, step: int, start: int | None, until: int | None
) -> None:
    if start is not None and until is not None and until <= start:
        return
    instant = {None: None} | {
        t: f"{'1970-01-01' if t >= 0 else '1969-12-31'}T{'00:00:00' if t >= 0 else '23:59:59'}.{t % 10**6:06}"
        for t in range(-7, 15)
    }
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/rows.parquet"
        pq.write_table(
            pa.table({"time": pa.array(times, pa.int64()), "n": pa.array(range(len(times)), pa.int64())}),
            path,
        )
        source = EventTimeReplay(data=path, step=f"{step}us", start=instant[start], until=instant[until])
        rows, told = drain(source, parallelism)
        batches = source.batches()
    first = start if start is not None else min(times, default=0)
    last = until if until is not None else max(times, default=first - 1) + 1
    assert sorted(rows) == [n for n, t in enumerate(times) if first <= t < last]
    assert batches == max(0, -(-(last - first) // step))
    for found in told:
        assert [batch for batch, _, _ in found] == list(range(1, batches + 1))
        for batch, times_there, mark in found:
            assert all(first + (batch - 1) * step <= t < first + batch * step for t in times_there)
            assert mark == (END_OF_TIME if batch == batches else first + batch * step)


def test_files_of_different_columns_are_put_together_and_of_different_types_are_named(tmp_path: Path) -> None:
    kinds = {"a": pa.table({"x": [1]}), "b": pa.table({"y": ["p"]}), "c": pa.table({"x": ["text"]})}
    for name, table in kinds.items():
        pq.write_table(table, tmp_path / f"{name}.parquet")
    paths = {name: str(tmp_path / f"{name}.parquet") for name in kinds}
    assert load_files((paths["a"], paths["b"])).to_pylist() == [{"x": 1, "y": None}, {"x": None, "y": "p"}]
    with pytest.raises(TableError, match="do not go together: column 'x' is int64 and string; declare"):
        load_files((paths["a"], paths["c"]))


def test_a_time_column_with_gaps_is_named(tmp_path: Path) -> None:
    pq.write_table(pa.table({"time": pa.array([1, None], pa.int64())}), tmp_path / "gaps.parquet")
    place = Place("in", 0, 1)
    with pytest.raises(ColumnError, match="time column 'time' has no time in 1 rows"):
        EventTimeReplay(data=str(tmp_path / "gaps.parquet"), step="1s").plan(place, 1, Range(0, 0))
    source = FileSource(paths=[str(tmp_path / "gaps.parquet")], rows=1, time="time")
    with pytest.raises(ColumnError, match="time column 'time' has no time in 1 rows"):
        source.watermark(place, 1, Range(0, 1))


@pytest.mark.parametrize("index", [0, 1, 2])
def test_the_watermark_of_a_partition_is_that_of_its_own_last_row(tmp_path: Path, index: int) -> None:
    path = tmp_path / "rising.parquet"
    pq.write_table(pa.table({"time": list(range(0, 90, 10)), "n": list(range(9))}), path)
    source = FileSource(paths=[str(path)], rows=1, time="time")
    place = Place("in", index, 3)
    marks = [source.watermark(place, batch, Range(batch - 1, batch)) for batch in (1, 2, 3)]
    assert marks == [10 * index, 10 * (index + 3), END_OF_TIME]
