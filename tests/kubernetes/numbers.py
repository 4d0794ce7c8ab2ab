"""User code of the topologies of these tests.

What must happen at one moment of the stream (its end, a driver that hangs in the middle of a turn, code that raises) is told
by files that a test makes, so no test depends on how fast its machine is.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from reprise.spark_jobs.contract import Inbox, Kind, Operator, Place, Range, Source, Tables
from reprise.spark_jobs.sources import HashtagSource

END, STOP, BROKEN = "end", "stop", "broken"
"""Files: the number of batches with which the stream ends; the driver that removes it stops itself; `Shaky` raises."""


class Numbers(Source):
    """About `rows` a batch, numbered from 0: how many depends on the moment in which a batch is cut, so that one that is cut
    twice differs.  `folder` holds the files above."""

    live: ClassVar[bool] = True

    def __init__(self, *, rows: int, folder: str) -> None:
        self.rows, self.folder = rows, Path(folder)

    def advance(self, place: Place, batch: int, start: int) -> int | None:
        self._stop_if_asked()
        if _ended(self.folder, batch):
            return None
        return start + 1 + time.time_ns() // 1000 % (2 * self.rows - 1)

    def _stop_if_asked(self) -> None:
        """The driver has looked for a later one, and has not written what the batch is: no worse moment to hang."""
        try:
            (self.folder / STOP).unlink()
        except FileNotFoundError:
            return
        os.kill(os.getpid(), signal.SIGSTOP)

    def read(self, place: Place, batch: int, span: Range) -> pa.Table:
        return pa.table({"n": pa.array(range(span.start, span.end), pa.int64())})

    def watermark(self, place: Place, batch: int, span: Range) -> int | None:
        return None


class Tags(HashtagSource):
    """Hashtags without an end, until there is the file that says how many batches there are."""

    def __init__(self, *, rate: int, seed: int, folder: str) -> None:
        super().__init__(rate=rate, seed=seed)
        self.folder = Path(folder)

    def advance(self, place: Place, batch: int, start: int) -> int | None:
        return None if _ended(self.folder, batch) else super().advance(place, batch, start)


def _ended(folder: Path, batch: int) -> bool:
    return (folder / END).exists() and batch > int((folder / END).read_text())


class Seen(Operator):
    """How many rows there were so far: a state that shows whether it was lost or made twice."""

    def initial(self, place: Place) -> Any:
        return 0

    def step(self, state: Any, inbox: Inbox) -> tuple[Any, pa.Table | None]:
        table = inbox.table()
        state += 0 if table is None else table.num_rows
        return state, pa.table({"seen": [state]})

    def freeze(self, state: Any) -> Callable[[], Tables]:
        return lambda: {"seen": pa.table({"seen": [state]})}

    def restore(self, place: Place, tables: Tables) -> Any:
        return tables["seen"]["seen"][0].as_py()


class Shaky(Operator):
    """Passes its rows on; raises while the file `breaks` is there."""

    kind = Kind.REPEATABLE

    def __init__(self, breaks: str) -> None:
        self.breaks = Path(breaks)

    def step(self, state: Any, inbox: Inbox) -> tuple[Any, pa.Table | None]:
        if self.breaks.exists():
            raise ValueError("it is broken")
        return state, inbox.table()
