"""Files that cannot be read, or whose values have no type: each message has the place and the way out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reprise.spark_jobs.errors import SpecError
from reprise.spark_jobs.sources import EventTimeReplay, FileSource, TableError
from reprise.spark_jobs.sources.tables import load_files

Written = Callable[..., str]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "a.csv",
            "v\nü\n".encode("latin-1"),
            r"it is not UTF-8 text \(Latin-1, perhaps\): write it as UTF-8",
        ),
        ("a.jsonl", '{"v": "ü"}\n'.encode("latin-1"), "it is not UTF-8 text"),
        ("a.csv", "v\n1\n".encode("utf-16"), "it is UTF-16: write it as UTF-8"),
        ("a.jsonl", '{"v": 1}\n'.encode("utf-16"), "it is UTF-16: write it as UTF-8"),
        ("a.csv", b"\x1f\x8b\x08\x00abc", "it is compressed with gzip: unpack it"),
        ("a.parquet", b"\x1f\x8b\x08\x00abc", "it is damaged, or of another format"),
        ("a.csv", "v,v\n1,2\n", "two columns are called 'v'"),
        ("a.csv", '"v\n1\n', "the row that begins in line 1 has a quote that is not closed"),
    ],
)
def test_text_that_cannot_be_read_is_said_in_words(
    written: Written, name: str, content: bytes | str, message: str
) -> None:
    path = written(name, content)
    with pytest.raises(TableError, match=message):
        load_files((path,))
    with pytest.raises(SpecError, match=message):
        FileSource(paths=[path], rows=1).output_columns()


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("1\n", "line 4: values 1, columns 2; quote a value"),
        ('1,"open\n2,x\n3,y\n', "the row that begins in line 4 has a quote that is not closed"),
        ('1,"in"side\n', "the row that begins in line 4 has .* text behind a closing quote"),
    ],
)
def test_a_row_that_is_no_csv_is_refused_with_its_line(written: Written, rows: str, message: str) -> None:
    with pytest.raises(TableError, match=rf"a\.csv: {message}"):
        load_files((written("a.csv", 'v,w\n0,"two\nlines"\n' + rows),))


def test_names_and_values_may_be_longer_than_csv_of_python_takes(written: Written) -> None:
    long = "x" * 140_000
    assert load_files((written("a.csv", f"{long},w\n{long},1\n"),)).to_pylist() == [{long: long, "w": 1}]


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-16"])
def test_text_of_16_bits_is_refused_in_words(written: Written, name: str, encoding: str) -> None:
    with pytest.raises(TableError, match="it is UTF-16: write it as UTF-8"):
        load_files((written(name, "id\n1\n".encode(encoding)),))


def test_two_columns_of_one_name_in_parquet_are_refused(tmp_path: Path) -> None:
    path = str(tmp_path / "a.parquet")
    pq.write_table(pa.table([pa.array([1]), pa.array([2])], names=["v", "v"]), path)
    with pytest.raises(TableError, match="two columns are called 'v'"):
        load_files((path,))
    with pytest.raises(SpecError, match="two columns are called 'v'"):
        FileSource(paths=[path], rows=1).output_columns()


@pytest.mark.parametrize(
    ("field", "given", "message"),
    [
        ("paths", [], "needs at least 1 path"),
        ("paths", [5], r"expected paths as text, found \[5\]"),
        ("paths", [""], r"expected paths as text, found \[''\]"),
        ("paths", ["a.csv", "a.csv"], "path 'a.csv' is there twice"),
        ("paths", ["{folder}"], r"is a folder: name its files with a pattern, e.g. /.*/\*.csv"),
        ("time", 5, r"expected column names as text, found \[5\]"),
    ],
)
def test_parameters_that_are_wrong_are_refused(tmp_path: Path, field: str, given: Any, message: str) -> None:
    given = [str(tmp_path)] if given == ["{folder}"] else given
    with pytest.raises(SpecError, match=message) as caught:
        FileSource(**{"paths": ["a.csv"], "rows": 1, field: given}).output_columns()
    assert caught.value.field.startswith(field)
    if field == "time":
        with pytest.raises(SpecError, match=message):
            EventTimeReplay(data="a.csv", step="1s", time=given)
