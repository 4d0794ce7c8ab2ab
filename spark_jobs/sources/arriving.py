"""A source of files that arrive while the stream runs: a folder or the prefix of a bucket, in the order of names.

Which rows a batch has is decided once, in the driver, and written to the ledger with the names of the files, their sizes and
how many rows they have; so a replay reads the same rows, and finds out where a file is another one than it was.  The order
is that of names, as a listing has no other that stays: each file that arrives must have a greater name than those before it.
One whose turn is over when it comes stops the stream, with its name, unless it was said that such files are left out.

Memory: the row groups in which a batch has rows, however large files are and however many there are.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import BinaryIO, ClassVar, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from reprise.spark_jobs.contract import Columns, Place, Range, Source, Tables
from reprise.spark_jobs.errors import SourceError, SpecError
from reprise.spark_jobs.operators.frames import END_OF_TIME, times
from reprise.spark_jobs.operators.parameters import choice, duration_us, names, whole
from reprise.spark_jobs.platform import PLATFORM
from reprise.spark_jobs.storage.clients import missing_client
from reprise.spark_jobs.storage.files import Files

T = TypeVar("T")
SUFFIX = ".parquet"
FILES, END = ".files", ".end"
"""Among the logs of a range: how many files were begun, and that the source ends with it.  No file that counts begins so."""
NEVER = -(2**63)
"""The greatest time before there was one."""


@dataclass(frozen=True, slots=True, order=True)
class Planned:
    """A file as it was when its first row was planned."""

    name: str
    rows: int
    size: int

    @property
    def log(self) -> str:
        """Its name among the logs of a range."""
        return f"{self.name}#{self.rows}-{self.size}"

    @staticmethod
    def of(log: str) -> Planned:
        """The inverse of `log`."""
        name, _, rest = log.rpartition("#")
        rows, _, size = rest.partition("-")
        return Planned(name, int(rows), int(size))


def _planned(logs: Mapping[str, tuple[int, int]]) -> list[tuple[Planned, int, int]]:
    """The files of a range in order, with the rows of each."""
    return sorted(
        (Planned.of(log), start, end) for log, (start, end) in logs.items() if log not in (FILES, END)
    )


class ArrivingFiles(Source):
    """Rows of the Parquet files of a folder or URL, those that arrive later too; `rows` a batch and partition at most.

    Files are dealt to partitions by a hash of their names.  `until`: the stream ends behind the file of that name.
    """

    live: ClassVar[bool] = True
    files: ClassVar[tuple[str, ...]] = ("location",)

    def __init__(
        self,
        *,
        location: str,
        rows: int,
        columns: Sequence[str] | None = None,
        time: str | None = None,
        disorder: str = "0s",
        every: str = "5s",
        until: str | None = None,
        on_late_file: str = "fail",
    ) -> None:
        self.location = str(location)
        if reason := missing_client(self.location):
            raise SpecError("location", reason)
        self.size = whole(rows, "rows")
        self.columns = None if columns is None else names(columns, "columns", least=1)
        self.time, self.disorder = time, duration_us(disorder, "disorder", least=0)
        if time is not None and self.columns is not None and time not in self.columns:
            raise SpecError("time", f"{time!r} is not among `columns`")
        self.every_s = duration_us(every, "every", least=0) / 1e6
        self.until = until
        self.fails = choice(on_late_file, "on_late_file", ("fail", "skip")) == "fail"
        self._found: Mapping[str, int] | None = None
        self._asked_at = 0.0
        self._seen: dict[str, frozenset[str]] = {}
        """Of each partition: the files that were there when its batch before was planned."""
        self._late: dict[str, frozenset[str]] = {}
        self._told: set[str] = set()
        self._notices: list[str] = []
        self._folder: Files | None = None
        self._open: tuple[Planned, BinaryIO, pq.ParquetFile] | None = None
        self._group: tuple[Planned, int, pa.Table] | None = None

    def output_columns(self) -> Columns:
        return self.columns

    # -- in the driver -------------------------------------------------------------------------------------------------

    def look(self) -> None:
        now = PLATFORM.elapsed()
        if self._found is not None and now - self._asked_at < self.every_s:
            return
        found = self._tried(lambda: self._files().sizes())
        files = {name: size for name, size in found.items() if name.endswith(SUFFIX)}
        self._found, self._asked_at = files, now

    def plan(self, place: Place, batch: int, before: Range) -> Range | None:
        """Raises SourceError, by the choice `on_late_file: fail`, when a file has come whose turn is over."""
        if END in before.logs:
            return None
        if self._found is None:
            self.look()
        assert self._found is not None
        mine = sorted(name for name in self._found if _reader_of(name, place.parallelism) == place.index)
        at, begun = self._position(before)
        self._look_for_late(place.partition, mine, at, begun)
        logs: dict[str, tuple[int, int]] = {}
        room = self.size
        for file, start in self._ahead(mine, at):
            taken = min(room, file.rows - start)
            logs[file.log] = (start, start + taken)
            begun += int(start == 0)
            room -= taken
            if room <= 0:
                break
        if not logs and at is not None:
            logs[at[0].log] = (at[1], at[1])
        logs[FILES] = (begun, begun)
        if self._ends(mine, logs):
            logs[END] = (0, 0)
        return Range(before.end, before.end + self.size - room, logs)

    def advance(self, place: Place, batch: int, start: int) -> int | None:
        raise NotImplementedError("a source of several files plans them together")

    def _position(self, before: Range) -> tuple[tuple[Planned, int] | None, int]:
        """The last file that was begun, with the row it goes on at; and how many were begun."""
        files = _planned(before.logs)
        return ((files[-1][0], files[-1][2]) if files else None), before.logs.get(FILES, (0, 0))[1]

    def _ahead(self, mine: Iterable[str], at: tuple[Planned, int] | None) -> Iterator[tuple[Planned, int]]:
        """Files that have rows to be read, in order, from which row; each is measured when its turn comes."""
        assert self._found is not None
        if at is not None and at[1] < at[0].rows:
            yield at
        for name in mine:
            if (at is None or name > at[0].name) and (self.until is None or name <= self.until):
                yield Planned(name, self._rows_of(name), self._found[name]), 0

    def _ends(self, mine: Sequence[str], logs: Mapping[str, tuple[int, int]]) -> bool:
        """Whether a range is the last: the file that ends the stream is there, and nothing before it is left."""
        if self.until is None or self._found is None or self.until not in self._found:
            return False
        files = _planned(logs)
        last = max((name for name in mine if name <= self.until), default=None)
        return last is None or bool(files and files[-1][0].name >= last and files[-1][2] >= files[-1][0].rows)

    def _look_for_late(
        self, partition: str, mine: Sequence[str], at: tuple[Planned, int] | None, begun: int
    ) -> None:
        """Files whose names lie behind what was begun: seen to arrive, or more of them than were ever begun."""
        behind = [name for name in mine if at is not None and name <= at[0].name]
        new = frozenset(behind) - self._seen.get(partition, frozenset(behind))
        self._seen[partition] = frozenset(mine)
        self._late[partition] = (self._late.get(partition, frozenset()) | new) & frozenset(mine)
        late = sorted(self._late[partition])
        what = f"{', '.join(late)} came" if late else f"{len(behind) - begun} of {len(behind)} files came"
        if at is None or (not late and len(behind) <= begun):
            return
        why = f"{what} after {at[0].name}, which has been read, and is not read: a file that arrives needs a greater name"
        if self.fails:
            raise SourceError(
                f"{self.location}: {why}; rename or remove it, or let `on_late_file: skip` go on without"
            )
        if why not in self._told:
            self._told.add(why)
            self._notices.append(f"{self.location}: {why}")

    def _rows_of(self, name: str) -> int:
        def rows() -> int:
            with self._files().opened(name) as file:
                return int(pq.ParquetFile(file).metadata.num_rows)

        return self._tried(rows)

    def notices(self) -> list[str]:
        found, self._notices = self._notices, []
        return found

    # -- in the executors ----------------------------------------------------------------------------------------------

    def read(self, place: Place, batch: int, span: Range) -> pa.Table:
        pieces = [
            piece
            for file, start, end in _planned(span.logs)
            if end > start
            for piece in self._tried(lambda f=file, s=start, e=end: self._pieces(f, s, e))  # type: ignore[misc]
        ]
        if not pieces:
            return pa.table({})
        try:
            return pa.concat_tables(pieces, promote_options="default")
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            files = ", ".join(file.name for file, _, _ in _planned(span.logs))
            raise ValueError(f"the files {files} do not go together: {error}") from error

    def watermark(self, place: Place, batch: int, span: Range) -> int | None:
        raise NotImplementedError("the watermark of arriving files depends on what was read before")

    def initial(self, place: Place) -> int:
        """The greatest time so far, in a state that is never None."""
        return NEVER

    def follow(
        self, place: Place, state: int, batch: int, span: Range, table: pa.Table | None
    ) -> tuple[int, int | None]:
        if self.time is not None and table is not None and table.num_rows:
            state = max(state, int(times(table, self.time).max()))
        if END in span.logs:
            return state, END_OF_TIME
        return state, None if state == NEVER else state - self.disorder

    def freeze(self, state: int) -> Callable[[], Tables]:
        return lambda: {"greatest": pa.table({"time": pa.array([state], pa.int64())})}

    def restore(self, place: Place, tables: Tables) -> int:
        return int(tables["greatest"]["time"][0].as_py())

    def close(self) -> None:
        if self._open is not None:
            self._open[1].close()
        self._open = self._group = None

    def _pieces(self, planned: Planned, first: int, last: int) -> list[pa.Table]:
        """Rows first <= at < last of a file, a piece from each row group that has some."""
        file = self._opened(planned)
        found, at = [], 0
        for index in range(file.metadata.num_row_groups):
            count = file.metadata.row_group(index).num_rows
            start, end = max(first - at, 0), min(last - at, count)
            if start < end:
                found.append(self._group_of(planned, file, index).slice(start, end - start))
            at += count
        return found

    def _group_of(self, planned: Planned, file: pq.ParquetFile, index: int) -> pa.Table:
        """One row group, which is kept for the next batch."""
        if self._group is None or self._group[:2] != (planned, index):
            self._group = None  # two at a time would be twice the memory
            self._group = (
                planned,
                index,
                file.read_row_group(index, columns=None if self.columns is None else list(self.columns)),
            )
        return self._group[2]

    def _opened(self, planned: Planned) -> pq.ParquetFile:
        if self._open is None or self._open[0] != planned:
            self.close()
            size = self._files().sizes().get(planned.name)
            if size != planned.size:
                what = (
                    "is gone"
                    if size is None
                    else f"has {size} bytes, and had {planned.size} when its batches were planned"
                )
                raise SourceError(f"{self.location}: {planned.name} {what}")
            handle = self._files().opened(planned.name)
            self._open = (planned, handle, pq.ParquetFile(handle, page_checksum_verification=True))
            known = set(self._open[2].schema_arrow.names)
            if missing := [name for name in self.columns or () if name not in known]:
                raise SourceError(f"{self.location}: {planned.name} has no column {missing[0]!r}")
        return self._open[2]

    def _files(self) -> Files:
        if self._folder is None:
            self._folder = Files(self.location)
        return self._folder

    def _tried(self, action: Callable[[], T]) -> T:
        """What the store's client or the file has against it passes: it comes back, or somebody puts it right."""
        try:
            return action()
        except SourceError:
            self.close()
            raise
        except Exception as error:  # a store's client raises what it likes
            self.close()
            raise SourceError(f"{self.location}: {error}") from error


def _reader_of(name: str, parallelism: int) -> int:
    return zlib.crc32(name.encode()) % parallelism
