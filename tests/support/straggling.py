"""Sources whose batches can be held back, or that end when a test says so, for tests of what waits for a slow input and what
does not."""

from __future__ import annotations

import fcntl
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, TextIO

import pyarrow as pa

from reprise.spark_jobs.contract import Place, Range, Source
from reprise.spark_jobs.errors import NotYetError
from reprise.spark_jobs.sources import FileSource, HashtagSource, NexmarkSource, ReachabilitySource


class Straggler(HashtagSource):
    """Hashtags; batches behind `upto` cannot be read yet."""

    upto: ClassVar[int | None] = None

    def read(self, place: Place, batch: int, span: Range) -> pa.Table:
        if self.upto is not None and batch > self.upto:
            raise NotYetError(f"batch {batch} is held back")
        return super().read(place, batch, span)


@contextmanager
def _asked(end: Path) -> Iterator[TextIO]:
    """The file with a line for each batch that a driver has asked for first, held against all others."""
    with end.with_suffix(".asked").open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        yield file


def _newest(asked: TextIO) -> int:
    """Each line is one write, so a driver that is killed leaves whole ones."""
    return max(map(int, asked), default=0)


def end_stream(file: Path, more: int) -> None:
    """End the stream of all sources with this `file`, so many batches behind the last that a driver has asked for.

    A batch that was planned already would else be in the run and not in its definition."""
    with _asked(file) as asked:
        (there := file.with_suffix(".new")).write_text(str(_newest(asked) + more))
        there.rename(file)


class _Told(Source):
    """A stream without an end until `file` is there (`end_stream`).  The file holds the last batch, or the end offset of
    each partition."""

    file: Path

    def told(self, batch: int) -> Any:
        """Where the stream ends, as far as that is known to who asks for this batch."""
        with _asked(self.file) as asked:
            end = json.loads(self.file.read_text()) if self.file.exists() else batch
            if batch > _newest(asked):
                asked.write(f"{batch}\n")
        return end

    def advance(self, place: Place, batch: int, start: int) -> int | None:
        end = self.told(batch)
        if isinstance(end, int):
            return None if batch > end else super().advance(place, batch, start)
        last: int = end[place.partition]
        if start >= last:
            return None
        usual = super().advance(place, batch, start)
        return last if usual is None else min(usual, last)


class EndsWhenTold(_Told, HashtagSource):
    """Hashtags."""

    def __init__(self, *, file: str, rate: int, **hashtags: Any) -> None:
        super().__init__(rate=rate, **hashtags)
        self.file = Path(file)


class NexmarkEndsWhenTold(_Told, NexmarkSource):
    """Events of NexMark."""

    def __init__(self, *, file: str, kind: str, rate: int, **nexmark: Any) -> None:
        super().__init__(kind=kind, rate=rate, **nexmark)
        self.file = Path(file)


class _Gated(Source):
    """Batches behind `upto` cannot be read before the file `gate` is there."""

    upto: int
    gate: Path

    def read(self, place: Place, batch: int, span: Range) -> pa.Table:
        if batch > self.upto and not self.gate.exists():
            raise NotYetError(f"batch {batch} is held back")
        return super().read(place, batch, span)


class GatedFiles(_Gated, FileSource):
    """Rows of files."""

    def __init__(self, *, paths: list[str], rows: int, upto: int, gate: str) -> None:
        super().__init__(paths=paths, rows=rows)
        self.upto, self.gate = upto, Path(gate)


class GatedChanges(_Gated, ReachabilitySource):
    """Changes of a graph."""

    def __init__(self, *, kind: str, rate: int, upto: int, gate: str, **graph: Any) -> None:
        super().__init__(kind=kind, rate=rate, **graph)
        self.upto, self.gate = upto, Path(gate)


class ComesInBursts(EndsWhenTold):
    """The same, where every sixth batch is there two seconds after it was asked for, and those behind it with it."""

    def __init__(self, *, file: str, rate: int, tags: int, seed: int) -> None:
        super().__init__(file=file, rate=rate, tags=tags, seed=seed)
        self._asked: dict[int, float] = {}

    def read(self, place: Place, batch: int, span: Range) -> pa.Table:
        if batch % 6 == 0 and time.monotonic() < self._asked.setdefault(batch, time.monotonic()) + 2.0:
            raise NotYetError(f"batch {batch} comes later")
        return super().read(place, batch, span)
