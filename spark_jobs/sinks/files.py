"""Sink output, exactly once for each (output partition, batch): what a sink promises, and the sink that writes files.

In a `FileSink` a batch's rows are one file, `<root>/<operator>/<index>/batch-<number>.<format>`, which appears whole or not
at all and is never replaced.  A batch that is replayed after a failure, or written by a zombie, finds its file there: the
bytes must be the same, and if they are not, that is an error and not a second answer.  A batch without rows
has an empty file, so that a missing batch can be told from an empty one.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
from polars.exceptions import PanicException

from reprise.spark_jobs.contract import Place
from reprise.spark_jobs.errors import EncodeError, FencedError, NotYetError, SinkError, StepError, StoreError
from reprise.spark_jobs.platform import PLATFORM, Platform
from reprise.spark_jobs.polars_frames import frame_of
from reprise.spark_jobs.storage.files import Files


@dataclass(frozen=True, slots=True, order=True)
class Owner:
    """Whose installation of an output partition writes; a later one outranks those before it.

    `stream`: when the stream began, unix seconds; `installation`: driver epoch, generation, number of the installation.
    """

    stream: float
    installation: tuple[int, ...]

    @staticmethod
    def of(stream: float, installation: str) -> Owner:
        """Read the owner from the installation id of a command, e.g. `2.5.17`."""
        return Owner(stream, tuple(int(part) for part in installation.split(".")))


@dataclass(frozen=True, slots=True)
class Opening:
    """What a sink is told before its first batch: `topology` is `<namespace>.<name>`; batches up to `position` are visible
    by the word of a complete checkpoint, or of a report of whoever wrote before; nobody has made those up to `begins` here,
    as the stream began from a savepoint behind that batch, or the query was added there.  `platform`: clocks and threads of
    the process, for a sink that shows its batches in a thread of its own."""

    topology: str
    place: Place
    owner: Owner
    position: int
    begins: int = 0
    platform: Platform = PLATFORM


class Sink(ABC):
    """Takes one output partition's batches in order and shows each exactly once.

    `write` may take a batch before it is visible; the partition does not count as further than `visible`, and no
    checkpoint covers a batch that is not.  A batch that was visible before (a replay) is recognised and left as it is.
    """

    marks: bool = False
    """Whether it can say of a batch that rows may be missing; where not, nothing upstream of it may have `availability:
    amnesia`."""

    needs_to_mark: str = ""
    """What it lacks to do so, for people, where that can be given: "`gaps`, the name of a topic"."""

    gives_up: ClassVar[Mapping[str, Mapping[str, str]]] = {}
    """Parameters -> values with which rows may be left out, or written twice -> what is given up by that, for people.
    It is said with what is promised of each output that depends on it (docs/recovery.md)."""

    visible: int = 0
    """The last batch such that it and all before it are visible, or will be found to be."""

    def open(self, opening: Opening) -> None:
        """Called once before the first `write`."""
        self.visible = opening.position

    @abstractmethod
    def write(self, batch: int, table: pa.Table | None) -> None:
        """Take a batch.  SinkError, and whatever a client library raises: it is not taken and must be given again;
        FencedError: another one writes now; EncodeError: it can never be taken, and the partition is set aside."""

    def mark(self, batch: int) -> None:
        """Say of a batch, before it is written, that rows may be missing.  What is there of it already stays as it is from
        then on, and no replay is compared with it.  Raises what `write` raises."""
        raise NotImplementedError(f"{type(self).__name__} does not mark batches")

    def settle(self, patience_s: float) -> str | None:
        """Wait, at most so long, until everything taken is visible; what is in the way, if something is."""
        return None

    @abstractmethod
    def shown(self) -> list[tuple[int, float]]:
        """Batches that have become visible since the last call, with the time (unix seconds)."""

    def close(self) -> None:  # noqa: B027 - most sinks hold no connection
        """Give back connections; what is not visible is not written any more."""


def _jsonl(table: pa.Table) -> bytes:
    if any("binary" in str(kind).partition("<")[0] for kind in table.schema.types):
        raise TypeError("JSON has no bytes")  # polars panics, and prints a stack trace
    return frame_of(table).write_ndjson().encode()


def _parquet(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table.combine_chunks(), sink, compression="zstd")
    return bytes(sink.getvalue())


ENCODERS: dict[str, Callable[[pa.Table], bytes]] = {"jsonl": _jsonl, "parquet": _parquet}


def encoded(fmt: str, table: pa.Table) -> bytes:
    """A batch in a format, a key of ENCODERS.  EncodeError: these rows do not go into it; only memory, which may be there
    again the next time, is no matter of the rows, as nothing is written here."""
    try:
        return ENCODERS[fmt](table)
    except MemoryError:
        raise
    except (Exception, PanicException):  # polars panics at types that it has no text for
        wrong = [f for i, f in enumerate(table.schema) if not _is_written(fmt, table.select([i]))]
        columns = ", ".join(f"{field.name}: {field.type}" for field in wrong or table.schema)
        advice = "CAST them, or leave them out, in a Map" if wrong else "give each column a name of its own"
        raise EncodeError(f"these rows cannot be written as {fmt} (columns {columns}): {advice}") from None


def _is_written(fmt: str, column: pa.Table) -> bool:
    try:
        ENCODERS[fmt](column)
    except (Exception, PanicException):
        return False
    return True


WHY_OTHER_ROWS = (
    "an operator upstream is not deterministic (declare `deterministic: false`), or a source left out rows that it had read "
    "before (`on_offsets_lost: earliest`)"
)


def differs(path: str, batch: int) -> SinkError:
    """What a sink says of a replayed batch whose bytes are not those of the first time."""
    return SinkError(
        f"{path} was written before with other rows: the replay of batch {batch} is not identical; "
        + WHY_OTHER_ROWS
    )


_MARK = ".gap.mark"


def marker(batch: int) -> str:
    """The name of the file that says that rows of a batch may be missing."""
    return f"batch-{batch:08d}{_MARK}"


def marked_by(name: str) -> int | None:
    """The batch of which a file of this name says so; None for other files."""
    number = name.removeprefix("batch-").removesuffix(_MARK)
    return int(number) if name.endswith(_MARK) and number.isdigit() else None


class BatchFiles(Sink):
    """A file a batch, which is visible as soon as it is stored; `fmt`: a key of ENCODERS."""

    marks = True

    def __init__(self, root: str, place: Place, fmt: str) -> None:
        """`root`: a path or any fsspec URL.  Temporary files are beside the partition's folder, so that a reader of it
        meets only batches."""
        self.fmt = fmt
        self._shown: list[tuple[int, float]] = []
        above = f"{root.rstrip('/')}/{place.operator}"
        try:
            self._files = Files(f"{above}/{place.index}", parts=f"{above}/.{place.index}.parts")
        except StoreError as error:
            raise SinkError(f"sink {error}") from error
        self._swept = False

    def name(self, batch: int) -> str:
        """The name of a batch's file."""
        return f"batch-{batch:08d}.{self.fmt}"

    def shown(self) -> list[tuple[int, float]]:
        found, self._shown = self._shown, []
        return found

    def write(self, batch: int, table: pa.Table | None) -> None:
        """Store a batch once.  SinkError when it cannot be written or is there with other bytes; EncodeError."""
        self.store(batch, b"" if table is None or table.num_rows == 0 else encoded(self.fmt, table))
        self.visible = batch
        self._shown.append((batch, time.time()))

    def mark(self, batch: int) -> None:
        """An empty file beside that of the batch; SinkError when it cannot be written."""
        try:
            self._sweep()
            self._files.create(marker(batch), b"")
        except StoreError as error:
            raise SinkError(f"cannot write {self._files.path(marker(batch))}: {error}") from error

    def store(self, batch: int, data: bytes) -> None:
        """The file, whole or not at all, durable, never replaced; SinkError as `write`."""
        name = self.name(batch)
        try:
            self._sweep()
            if self._files.create(name, data) or self._holds(name, data):
                return
            if not self._files.exists(marker(batch)):  # what was shown of a marked batch stays
                raise differs(self._files.path(name), batch)
        except StoreError as error:
            raise SinkError(f"cannot write {self._files.path(name)}: {error}") from error

    def _holds(self, name: str, data: bytes) -> bool:
        """Whether a file that is there has these bytes; they are read again before others are believed, as they can be
        damaged on their way."""
        for _ in range(2):
            if (found := self._files.read(name)) is None:
                raise StoreError("the store refuses it as if it were there, and it is not")
            if found == data:
                return True
        return False

    def _sweep(self) -> None:
        """What earlier writers of this partition left behind; none of them may write any more."""
        if not self._swept:
            self._files.sweep(older_s=0.0)
            self._swept = True


@contextmanager
def said_by_sink() -> Iterator[None]:
    """Around `write` and `mark` of a sink: what its client library raises, and is none of the errors that a sink has, passes
    as SinkError, so that the batch is given again."""
    try:
        yield
    except (SinkError, NotYetError, FencedError, EncodeError, StepError, OSError):
        raise
    except Exception as error:
        raise SinkError(f"{type(error).__name__}: {error}") from error


class FileSink(BatchFiles):
    """Writes one output partition's batches below a folder of a local or mounted file system."""

    def __init__(self, root: str | Path, place: Place, fmt: str) -> None:
        super().__init__(str(Path(root).absolute()), place, fmt)
        self.folder = Path(self._files.root)

    def path(self, batch: int) -> Path:
        """The file of a batch."""
        return self.folder / self.name(batch)
