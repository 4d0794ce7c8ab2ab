"""One state of Reprise for `benchmarks.state_sizes`, in a process of its own: made, stored, written to, lost and restored.

The operator is stepped by one thread and another one stores, as on a node; the store is a folder.  Prints one line of JSON.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa

from benchmarks.state_sizes_load import BATCHES, Load, operator, quantile, sleep_until, table
from reprise.spark_jobs.node.partition_log import Pace, PartitionLog, Sealed, eventual_checkpoint
from reprise.spark_jobs.operators.slotted import unseen
from reprise.spark_jobs.operators.testing import PLACE, inbox
from reprise.spark_jobs.state.checkpoints import CheckpointStore
from reprise.spark_jobs.state.footprints import Targets
from reprise.spark_jobs.state.snapshot import StateFile
from reprise.spark_jobs.state.state_file import encode_state

WAYS = ("synchronous", "asynchronous", "arrays", "paged", "eventual")
Rest = Callable[[], int]
"""What is left to do of a snapshot beside processing; bytes that were written."""


class Way(ABC):
    """How a state is stored and read back."""

    def __init__(self, folder: Path, load: Load) -> None:
        self.operator = operator()
        self.state: Any = self.operator.initial(PLACE)
        self.store = CheckpointStore(str(folder))
        self.file: StateFile | None = None
        self._folder = folder

    def apply(self, batch: int, rows: pa.Table) -> None:
        self.state, _ = self.operator.step(self.state, inbox(batch, rows))

    @abstractmethod
    def snapshot(self, batch: int) -> Rest: ...

    def recovered(self, upto: int, rows: Callable[[int], pa.Table]) -> Any:
        """The state after batch `upto`, from what is stored; `rows`: of a batch."""
        assert self.file is not None
        found = self.operator.restore(PLACE, self.store.read_state(self.file))
        for batch in range(int(Path(self.file.path).parent.name.split("-")[1]) + 1, upto + 1):
            found, _ = self.operator.step(found, inbox(batch, rows(batch)))
        return found

    def is_stored(self, file: StateFile) -> int:
        """What nobody needs any more is removed."""
        self.file, kept = file, {file.path, *file.others}
        for path in self._folder.rglob("*"):
            if path.suffix in (".state", ".log") and str(path.relative_to(self._folder)) not in kept:
                path.unlink()
        return file.size


class Whole(Way):
    """`arrays`: references are taken, and who writes next copies; it is encoded beside."""

    def snapshot(self, batch: int) -> Rest:
        encode = self.operator.freeze(self.state)
        return lambda: self.is_stored(self.store.write_state(batch, "s.0", "h.1", encode()))


class Serialised(Way):
    """`asynchronous`: it is encoded before processing goes on."""

    def snapshot(self, batch: int) -> Rest:
        tables = self.operator.freeze(self.state)()
        data = encode_state(tables)
        self.state.values._shared = False  # it was copied already
        return lambda: self._write(batch, data)

    def _write(self, batch: int, data: bytes) -> int:
        return self.is_stored(self.store._written(batch, f"cp-{batch:08d}/s.0.h.1.state", [data]))


class Synchronous(Serialised):
    """`synchronous`: it is stored before processing goes on."""

    def snapshot(self, batch: int) -> Rest:
        written = super().snapshot(batch)()
        return lambda: written


class Paged(Way):
    """`paged`: pages that have changed."""

    def snapshot(self, batch: int) -> Rest:
        frozen = self.operator.freeze_pages(self.state)
        return lambda: self.is_stored(
            self.store.write_pages(self.store.pages_of(batch, "s.0", "h.1", frozen()))
        )


class Eventual(Way):
    """`eventual`: a log of slots, with as many records beside the state's keys, and at most an interval's rows to replay."""

    def __init__(self, folder: Path, load: Load) -> None:
        super().__init__(folder, load)
        targets = Targets(2 * load.keys, 5 * BATCHES * load.rows)
        self.log = PartitionLog(self.operator, targets, Pace(0.01, 0.1))
        self.sealed: Sealed | None = None

    def apply(self, batch: int, rows: pa.Table) -> None:
        super().apply(batch, rows)
        self.log.applied(batch, rows.num_rows, self.state, None)

    def snapshot(self, batch: int) -> Rest:
        self.log.sealed_upto(False)
        sealed = self.log.seal(batch, self.state, None, (), {})
        return lambda: self._write(batch, sealed)

    def _write(self, batch: int, sealed: Sealed) -> int:
        segment = sealed.encode()
        file = self.store.write_segment(
            batch, "s.0", "h.1", segment.data, segment.others, segment.others_bytes
        )
        sealed.is_stored(file)
        self.sealed = sealed
        return self.is_stored(file)

    def recovered(self, upto: int, rows: Callable[[int], pa.Table]) -> Any:
        assert self.sealed is not None
        assert self.file is not None
        read = eventual_checkpoint(self.store.read_segments(self.file), self.sealed.batch)
        found = self.operator.load(PLACE, read.slots, read.found.end.rest)
        for batch in range(read.found.since + 1, upto + 1):
            one = inbox(batch, rows(batch))
            again = unseen(self.operator, one, read.found.seen) if batch <= self.sealed.batch else one
            found, _ = self.operator.step(found, again)
        return found


MAKE: dict[str, type[Way]] = {
    "synchronous": Synchronous,
    "asynchronous": Serialised,
    "arrays": Whole,
    "paged": Paged,
    "eventual": Eventual,
}


def measured(way: str, load: Load, folder: Path) -> dict[str, Any]:
    """The figures of one state."""
    held, number = MAKE[way](folder, load), 0
    made = list(load.filling())
    for keys in made:
        number += 1
        held.apply(number, table(keys, number))
    first, before = held.snapshot(number)(), number
    latencies, pauses, plain, written = list[float](), list[float](), list[float](), list[int]()
    drawn = list(load.batches())
    frozen, thread, due = 0.0, None, time.monotonic()
    for keys in drawn:
        number += 1
        rows = table(keys, number)
        sleep_until(due)
        began = time.monotonic()
        held.apply(number, rows)
        took = time.monotonic() - began
        if frozen:
            pauses.append(frozen + took)
        else:
            plain.append(took)
        latencies.append(time.monotonic() - due)
        due, frozen = due + load.interval_s, 0.0
        if (number - before) % BATCHES == 0:
            if thread is not None:  # a store that is behind holds up the next snapshot, and no rows
                thread.join()
                due = max(due, time.monotonic())
            began = time.monotonic()
            rest = held.snapshot(number)
            frozen = time.monotonic() - began
            thread = threading.Thread(target=lambda do=rest: written.append(do()))  # type: ignore[misc]
            thread.start()
    if thread is not None:
        thread.join()
    expected = _sums(held.state)
    held.state = None
    if isinstance(held, Eventual):
        held.log = None  # type: ignore[assignment]
    gc.collect()
    forgotten = _forget_pages(folder)

    def rows_of(batch: int) -> pa.Table:
        return table(made[batch - 1] if batch <= before else drawn[batch - before - 1], batch)

    began = time.monotonic()
    again = held.recovered(number, rows_of)
    recovery = time.monotonic() - began
    if _sums(again) != expected:
        raise SystemExit(f"{way}: the state that was restored is another one")
    return {
        "first_mb": first / 2**20,
        "written_mb": sum(written) / len(written) / 2**20,
        "pause_ms": max(0.0, max(pauses) - median(plain)) * 1e3,
        "p50_ms": quantile(latencies, 0.5) * 1e3,
        "p99_ms": quantile(latencies, 0.99) * 1e3,
        "greatest_ms": max(latencies) * 1e3,
        "recovery_s": recovery,
        "from_disk": forgotten,
    }


def _sums(state: Any) -> dict[str, int]:
    columns = state.values.freeze()()
    state.values._shared = False
    found = {name: int(columns.column(name).to_numpy().sum()) for name in columns.column_names}
    return {**found, "keys": state.index.size}


def _forget_pages(folder: Path) -> bool:
    """Let the kernel read the files anew."""
    for path in folder.rglob("*"):
        if path.is_file():
            fd = os.open(path, os.O_RDONLY)
            try:
                os.fsync(fd)
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(fd)
    return not str(folder.resolve()).startswith("/dev/shm")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--way", choices=WAYS, required=True)
    parser.add_argument("--load", type=json.loads, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    options = parser.parse_args()
    sys.stdout.write(json.dumps(measured(options.way, Load(**options.load), options.folder)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
