"""Files that arrive while the stream runs: each row once, the same ones in a replay, and no file left out in silence."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reprise.spark_jobs.contract import Place, Range
from reprise.spark_jobs.errors import SourceError, SpecError
from reprise.spark_jobs.sources import END_OF_TIME, ArrivingFiles
from reprise.spark_jobs.state.ledger import Ledger
from reprise.spark_jobs.topology import StreamTopology, expand, load_text, to_json

ONE = Place("in", 0, 1)
TOPOLOGY = """
apiVersion: reprise.dev/v1alpha1
kind: StreamTopology
metadata: {{name: small}}
spec:
  sources:
    - {{name: in, class: "reprise.sources:ArrivingFiles", parallelism: 2,
       with: {{location: "{folder}", rows: 3, every: 0s, until: f9.parquet}}}}
  operators:
    - {{name: out, class: "reprise.operators:Sink", inputs: [{{from: in}}], output: {{}}}}
"""


def put(folder: Path, name: str, first: int, count: int, group: int = 2) -> None:
    """A file that appears whole, with numbers from `first` on."""
    hidden = folder / f".{name}"
    table = pa.table(
        {"n": list(range(first, first + count)), "time": [10 * n for n in range(first, first + count)]}
    )
    pq.write_table(table, hidden, row_group_size=group)
    hidden.rename(folder / name)


def source(folder: Path | str, **more: object) -> ArrivingFiles:
    return ArrivingFiles(**{"location": str(folder), "rows": 3, "every": "0s", **more})  # type: ignore[arg-type]


def planned(reader: ArrivingFiles, before: Range, batch: int = 1, place: Place = ONE) -> Range:
    reader.look()
    found = reader.plan(place, batch, before)
    assert found is not None
    return Range.parse(found)


def numbers(reader: ArrivingFiles, span: Range, place: Place = ONE) -> list[int]:
    table = reader.read(place, 1, span)
    return table["n"].to_pylist() if table.num_rows else []


def test_files_are_read_in_the_order_of_names_and_those_that_come_later_behind_them(tmp_path: Path) -> None:
    put(tmp_path, "b.parquet", 4, 4)
    put(tmp_path, "a.parquet", 0, 4)
    (tmp_path / "notes.txt").write_text("is not looked at")
    driver, host = source(tmp_path), source(tmp_path)
    spans = [planned(driver, Range(0, 0))]
    spans.append(planned(driver, spans[-1], 2))
    put(tmp_path, "c.parquet", 8, 2)
    spans += [planned(driver, spans[-1], 3)]
    spans += [planned(driver, spans[-1], 4)]
    spans += [planned(driver, spans[-1], 5)]
    assert [numbers(host, span) for span in spans] == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9], []]
    assert [(span.start, span.end) for span in spans] == [(0, 3), (3, 6), (6, 9), (9, 10), (10, 10)]
    assert [numbers(source(tmp_path), span) for span in reversed(spans)] == [
        [],
        [9],
        [6, 7, 8],
        [3, 4, 5],
        [0, 1, 2],
    ]


def test_a_range_grows_with_the_files_of_its_batch_and_not_with_all_that_there_were(tmp_path: Path) -> None:
    for number in range(30):
        put(tmp_path, f"f{number:02d}.parquet", number, 1)
    driver, span = source(tmp_path), Range(0, 0)
    for batch in range(1, 11):
        span = planned(driver, span, batch)
        assert len(span.logs) == 4
    assert span.end == 30


def _drivers(folder: Path, location: Path) -> Iterator[tuple[StreamTopology, Ledger]]:
    resource = load_text(TOPOLOGY.format(folder=folder), folder=folder)
    assert str(folder) in to_json(resource)
    while True:
        yield resource, Ledger(str(location), resource, expand(resource))


def test_a_driver_that_begins_again_goes_on_where_the_ledger_ends_and_replays_read_the_same(
    tmp_path: Path,
) -> None:
    folder, location = tmp_path / "in", tmp_path / "checkpoints"
    folder.mkdir()
    for number in range(5):
        put(folder, f"f{number}.parquet", 10 * number, 4)
    drivers, hosts = _drivers(folder, location), [source(folder), source(folder)]
    _, first = next(drivers)
    assert first.reach(2) == 2
    said = {p: dict(spans) for p, spans in first.ranges.items()}
    for number in (5, 9):
        put(folder, f"f{number}.parquet", 10 * number, 4)
    _, second = next(drivers)
    assert second.ranges == said, "what a batch is does not change with what has come since"
    batches = 2
    while second.ended_at is None and batches < 20:
        batches += 1
        second.reach(batches)
    assert second.ended_at is not None
    shown = [
        numbers(hosts[i], second.ranges[f"in.{i}"][b], Place("in", i, 2))
        for i in range(2)
        for b in sorted(second.ranges[f"in.{i}"])
        if b <= second.ended_at and second.ranges[f"in.{i}"][b].start >= 0
    ]
    assert sorted(n for batch in shown for n in batch) == [
        10 * f + n for f in (0, 1, 2, 3, 4, 5, 9) for n in range(4)
    ]
    _, third = next(drivers)
    assert third.ranges == second.ranges and third.ended_at == second.ended_at


@pytest.mark.parametrize("seen", [True, False], ids=["seen to come", "while no driver ran"])
def test_a_file_that_comes_late_stops_the_stream_by_name_or_is_left_out_and_told(
    tmp_path: Path, seen: bool
) -> None:
    put(tmp_path, "a.parquet", 0, 1)
    put(tmp_path, "c.parquet", 1, 1)
    drivers = {way: source(tmp_path, on_late_file=way) for way in ("fail", "skip")}
    span = planned(drivers["fail"], Range(0, 0))
    assert planned(drivers["skip"], Range(0, 0)) == span
    put(tmp_path, "b.parquet", 5, 1)
    if not seen:
        drivers = {way: source(tmp_path, on_late_file=way) for way in ("fail", "skip")}
    what = r"b\.parquet came" if seen else "1 of 3 files came"
    for _ in range(2):
        with pytest.raises(
            SourceError, match=f"{what} after c.parquet, which has been read, and is not read"
        ):
            planned(drivers["fail"], span, 2)
        assert planned(drivers["skip"], span, 2).end == 2
    (notice,) = drivers["skip"].notices()
    assert "is not read" in notice
    (tmp_path / "b.parquet").rename(tmp_path / "d.parquet")
    after = planned(drivers["fail"], span, 2)
    assert numbers(source(tmp_path), after) == [5]


def test_several_that_come_at_once_are_not_late_when_they_have_been_read(tmp_path: Path) -> None:
    put(tmp_path, "a.parquet", 0, 1)
    driver = source(tmp_path)
    span = planned(driver, Range(0, 0))
    for number, name in enumerate(("b.parquet", "c.parquet", "d.parquet")):
        put(tmp_path, name, number + 1, 2)
    read = []
    for batch in range(2, 6):
        span = planned(driver, span, batch)
        read += numbers(source(tmp_path), span)
    assert read == [1, 2, 2, 3, 3, 4]


def test_a_file_that_is_another_one_or_gone_keeps_its_batch_waiting(tmp_path: Path) -> None:
    put(tmp_path, "a.parquet", 0, 3)
    span = planned(source(tmp_path), Range(0, 0))
    put(tmp_path, "a.parquet", 0, 300)
    with pytest.raises(
        SourceError, match=r"a\.parquet has \d+ bytes, and had \d+ when its batches were planned"
    ):
        source(tmp_path).read(ONE, 1, span)
    (tmp_path / "a.parquet").unlink()
    reader = source(tmp_path)
    with pytest.raises(SourceError, match=r"a\.parquet is gone"):
        reader.read(ONE, 1, span)
    put(tmp_path, "a.parquet", 0, 3)
    assert numbers(reader, span) == [0, 1, 2]


def test_a_file_that_was_read_may_go(tmp_path: Path) -> None:
    put(tmp_path, "a.parquet", 0, 2)
    driver = source(tmp_path)
    span = planned(driver, Range(0, 0))
    put(tmp_path, "b.parquet", 2, 2)
    (tmp_path / "a.parquet").unlink()
    span = planned(driver, span, 2)
    assert numbers(source(tmp_path), span) == [2, 3]


def test_what_is_no_parquet_file_is_named_and_passes(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"half of a file")
    driver = source(tmp_path)
    with pytest.raises(SourceError, match=str(tmp_path)):
        planned(driver, Range(0, 0))
    (tmp_path / "a.parquet").unlink()
    put(tmp_path, "a.parquet", 0, 2)
    assert planned(driver, Range(0, 0)).end == 2


def test_a_file_without_a_column_keeps_its_batch_waiting(tmp_path: Path) -> None:
    put(tmp_path, "a.parquet", 0, 2)
    reader = source(tmp_path, columns=["n", "name"])
    span = planned(reader, Range(0, 0))
    for _ in range(2):
        with pytest.raises(SourceError, match=r"a\.parquet has no column 'name'"):
            reader.read(ONE, 1, span)


def test_row_groups_are_read_when_they_are_needed_and_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, "a.parquet", 0, 12, group=4)
    driver, host, asked = source(tmp_path), source(tmp_path), []
    read = pq.ParquetFile.read_row_group
    monkeypatch.setattr(
        pq.ParquetFile, "read_row_group", lambda self, i, **more: asked.append(i) or read(self, i, **more)
    )
    span, seen = Range(0, 0), []
    for batch in range(1, 5):
        span = planned(driver, span, batch)
        numbers(host, span)
        seen.append(list(asked))
    assert seen == [[0], [0, 1], [0, 1, 2], [0, 1, 2]]


def test_the_watermark_is_of_what_was_read_lives_in_the_state_and_ends_with_the_stream(
    tmp_path: Path,
) -> None:
    put(tmp_path, "a.parquet", 0, 4)
    put(tmp_path, "b.parquet", 4, 1)
    reader = source(tmp_path, time="time", disorder="5us", until="b.parquet")
    spans = [planned(reader, Range(0, 0))]
    spans.append(planned(reader, spans[0], 2))
    assert reader.plan(ONE, 3, spans[1]) is None
    state = reader.initial(ONE)
    assert reader.follow(ONE, state, 0, Range(0, 0), None) == (state, None)
    state, mark = reader.follow(ONE, state, 1, spans[0], reader.read(ONE, 1, spans[0]))
    assert mark == 20 - 5
    state = reader.restore(ONE, reader.freeze(state)())
    assert reader.follow(ONE, state, 1, Range(3, 3), None)[1] == 15
    assert reader.follow(ONE, state, 2, spans[1], reader.read(ONE, 2, spans[1]))[1] == END_OF_TIME


def test_a_partition_without_files_ends_with_the_others(tmp_path: Path) -> None:
    put(tmp_path, "a.parquet", 0, 1)
    reader = source(tmp_path, until="a.parquet")
    ends = [planned(reader, Range(0, 0), 1, Place("in", i, 4)) for i in range(4)]
    assert sorted(span.end for span in ends) == [0, 0, 0, 1]
    assert all(reader.plan(Place("in", i, 4), 2, ends[i]) is None for i in range(4))


@pytest.mark.parametrize(
    ("field", "more"),
    [
        ("rows", {"rows": 0}),
        ("on_late_file", {"on_late_file": "ignore"}),
        ("time", {"columns": ["n"], "time": "t"}),
    ],
)
def test_wrong_parameters_are_named(field: str, more: dict[str, object], tmp_path: Path) -> None:
    with pytest.raises(SpecError) as refused:
        source(tmp_path, **more)
    assert refused.value.field == field


def test_a_location_whose_client_is_missing_is_refused() -> None:
    with pytest.raises(SpecError, match="oss://") as refused:
        source("oss://bucket/in")
    assert refused.value.field == "location"
