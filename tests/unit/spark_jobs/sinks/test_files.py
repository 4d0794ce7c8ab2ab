"""A file a batch: shown once, the same bytes however rows lie in memory, and never replaced."""

from __future__ import annotations

import io
import json
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprise.spark_jobs.contract import Place
from reprise.spark_jobs.errors import EncodeError, SinkError
from reprise.spark_jobs.sinks import ENCODERS, FileSink, Owner
from reprise.spark_jobs.sinks.files import encoded
from tests.support.examples import examples

P = Place("out", 1, 2)
SCHEMA = pa.schema({"id": pa.int64(), "name": pa.string(), "share": pa.float64()})
row = st.fixed_dictionaries(
    {
        "id": st.none() | st.integers(-(2**63), 2**63 - 1),
        "name": st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=4),
        "share": st.none() | st.floats(allow_nan=False, allow_infinity=False),
    }
)
TABLE = pa.Table.from_pylist(
    [{"id": 1, "name": "ä\n", "share": 0.5}, {"id": 2, "name": None, "share": None}], SCHEMA
)


def read(fmt: str, data: bytes) -> list[dict[str, object]]:
    if fmt == "parquet":
        return pq.read_table(io.BytesIO(data)).to_pylist()  # type: ignore[no-any-return]
    return [json.loads(line) for line in data.splitlines()]


@pytest.mark.parametrize("fmt", sorted(ENCODERS))
@examples(40)
@given(rows=st.lists(row, min_size=1, max_size=5), cut=st.integers(0, 5))
def test_rows_come_back_and_their_bytes_do_not_depend_on_chunks(
    fmt: str, rows: list[dict[str, object]], cut: int
) -> None:
    table = pa.Table.from_pylist(rows, SCHEMA)
    data = encoded(fmt, table)
    assert read(fmt, data) == rows
    assert encoded(fmt, pa.concat_tables([table.slice(0, cut), table.slice(cut)])) == data


@pytest.mark.parametrize("fmt", sorted(ENCODERS))
def test_a_replay_leaves_the_file_as_it_is_and_is_shown(tmp_path: Path, fmt: str) -> None:
    sink = FileSink(tmp_path, P, fmt)
    sink.write(1, TABLE)
    sink.write(2, None)
    sink.write(3, TABLE.slice(0, 0))
    assert sink.visible == 3
    assert [batch for batch, _ in sink.shown()] == [1, 2, 3]
    assert sink.shown() == []
    assert sorted(path.name for path in sink.folder.iterdir()) == [
        f"batch-0000000{b}.{fmt}" for b in (1, 2, 3)
    ]
    assert read(fmt, sink.path(1).read_bytes()) == TABLE.to_pylist()
    assert [sink.path(b).read_bytes() for b in (2, 3)] == [b"", b""]
    before = sink.path(1).stat().st_mtime_ns
    successor = FileSink(tmp_path, P, fmt)
    for batch, table in ((1, TABLE), (2, TABLE.slice(2)), (3, None)):
        successor.write(batch, table)
    assert successor.visible == 3
    assert sink.path(1).stat().st_mtime_ns == before


@pytest.mark.parametrize(
    "other", [TABLE.slice(1), None, pa.concat_tables([TABLE, TABLE])], ids=["fewer", "none", "more"]
)
def test_a_replay_with_other_rows_is_refused_and_the_file_stays(
    tmp_path: Path, other: pa.Table | None
) -> None:
    sink = FileSink(tmp_path, P, "jsonl")
    sink.write(1, TABLE)
    before = sink.path(1).read_bytes()
    successor = FileSink(tmp_path, P, "jsonl")
    with pytest.raises(SinkError, match="the replay of batch 1 is not identical"):
        successor.write(1, other)
    assert successor.visible == 0
    assert successor.shown() == []
    assert sink.path(1).read_bytes() == before


def test_a_slice_is_written_with_its_own_nulls_and_the_names_of_its_columns() -> None:
    lists = pa.array([[1, 2], None, [3, None]], pa.list_(pa.int64(), 2))
    rows = pa.table({"": lists, "s": pa.StructArray.from_arrays([lists], ["v"])})
    assert read("jsonl", encoded("jsonl", rows.slice(1))) == rows.to_pylist()[1:]


@pytest.mark.parametrize(
    ("fmt", "columns", "message"),
    [
        ("parquet", {"gap": pa.array([(1, 2, 3)], pa.month_day_nano_interval())}, r"gap: month_day_nano_interval\): CAST"),
        ("jsonl", {"n": [1], "b": [b"x"]}, r"b: binary\): CAST them"),
    ],
)  # fmt: skip
def test_columns_that_a_format_has_no_text_for_are_named_with_their_types(
    tmp_path: Path, fmt: str, columns: dict[str, Any], message: str
) -> None:
    sink = FileSink(tmp_path, P, fmt)
    with pytest.raises(EncodeError, match=rf"cannot be written as {fmt} \(columns {message}"):
        sink.write(1, pa.table(columns))
    assert sink.visible == 0
    assert not sink.path(1).exists()


def test_partitions_of_an_operator_have_folders_of_their_own(tmp_path: Path) -> None:
    for index in range(2):
        FileSink(tmp_path, Place("out", index, 2), "jsonl").write(1, TABLE)
    assert [p.name for p in sorted((tmp_path / "out").iterdir()) if not p.name.startswith(".")] == ["0", "1"]


def test_what_a_writer_that_died_had_begun_is_removed_with_the_first_batch(tmp_path: Path) -> None:
    parts = tmp_path / "out" / ".1.parts"
    parts.mkdir(parents=True)
    for began in (1000, int(time.time())):
        (parts / f"{began}-of-a-writer-that-died.part").write_bytes(b"half")
    FileSink(tmp_path, P, "jsonl").write(1, TABLE)
    assert list(parts.iterdir()) == []


@pytest.mark.parametrize("installation", ["", "1.x.2", "1..2", "a"])
def test_what_is_no_installation_is_refused(installation: str) -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        Owner.of(1.0, installation)


@given(
    st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99), st.integers(0, 99)), min_size=2, max_size=6)
)
def test_a_later_stream_outranks_and_within_it_numbers_count_as_numbers(
    found: list[tuple[int, int, int]],
) -> None:
    owners = [Owner.of(float(k // 3), ".".join(map(str, each))) for k, each in enumerate(found)]
    by_numbers = sorted(range(len(found)), key=lambda k: (k // 3, found[k]))
    assert sorted(owners) == [owners[k] for k in by_numbers]


def test_a_batch_that_may_lack_rows_is_marked_and_what_is_there_of_it_stays(tmp_path: Path) -> None:
    sink, again = (FileSink(tmp_path, P, "jsonl") for _ in range(2))
    sink.write(1, TABLE)
    again.mark(1)
    again.write(1, None)  # a replay, without rows
    again.mark(2)
    again.write(2, None)
    again.mark(2)
    again.write(2, TABLE)
    assert again.visible == 2
    assert {p.name: p.read_bytes() for p in sink.folder.iterdir()} == {
        "batch-00000001.jsonl": encoded("jsonl", TABLE),
        "batch-00000001.gap.mark": b"",
        "batch-00000002.jsonl": b"",
        "batch-00000002.gap.mark": b"",
    }
    again.write(3, TABLE)
    with pytest.raises(SinkError, match="was written before with other rows"):  # nobody has marked it
        again.write(3, None)


def test_a_batch_with_a_marker_stays_as_it_was_shown(tmp_path: Path) -> None:
    """Who replays it may not know yet that rows were skipped."""
    FileSink(tmp_path, P, "jsonl").write(1, TABLE)
    shown = FileSink(tmp_path, P, "jsonl")
    shown.mark(2)
    shown.write(2, None)
    again = FileSink(tmp_path, P, "jsonl")
    again.write(2, TABLE)
    assert again.visible == 2
    with pytest.raises(SinkError, match="replay of batch 1 is not identical"):
        again.write(1, None)
