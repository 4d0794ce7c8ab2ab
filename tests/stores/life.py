"""A stream's files as its drivers and its sinks write them, one driver after the other, on whatever store.

What is done, and in which order, is what the engine does; who meets trouble that passes tries again, as the engine does.
The verdict is read from the server itself: each batch once, with its bytes, and checkpoints that have all their files.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa

from reprise.spark_jobs.contract import Place
from reprise.spark_jobs.errors import SinkError, StoreError
from reprise.spark_jobs.sinks.url import file_sink
from reprise.spark_jobs.state.checkpoints import CheckpointStore
from reprise.spark_jobs.state.epochs import claim_epoch
from reprise.spark_jobs.state.ledger import Ledger
from reprise.spark_jobs.state.manifest import Manifest
from reprise.spark_jobs.storage.files import Files
from reprise.spark_jobs.topology import expand, load_text
from tests.unit.spark_jobs.state.test_storage import SMALL, TABLES

T = TypeVar("T")
PLACE = Place("out", 0, 1)
EVERY = 3
KEPT = 2
PATIENCE_S = 300.0


def rows(batch: int) -> pa.Table:
    """What a batch shows."""
    return pa.table({"batch": [batch] * 40, "n": list(range(40))})


def lines(batch: int) -> bytes:
    """The bytes of its file."""
    return b"".join(b'{"batch":%d,"n":%d}\n' % (batch, n) for n in range(40))


def repeated(action: Callable[[], T]) -> T:
    """As the engine does with trouble that passes; anything else is raised."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return action()
        except (StoreError, SinkError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


@dataclass(slots=True)
class Life:
    """One stream below `location`."""

    location: str
    began: float = 0.0

    def driver(self, upto: int) -> int:
        """A driver begins, goes on from the newest checkpoint up to batch `upto`, and is gone; where it went on from."""
        resource = load_text(SMALL)
        store = CheckpointStore(f"{self.location}/checkpoints")
        fence = repeated(lambda: claim_epoch(store.location, lambda least: least))
        newest = repeated(lambda: store.begin(fence))
        ledger = repeated(lambda: Ledger(store.location, resource, expand(resource), fence))
        assert self.began in (0.0, ledger.stream), "the stream is the one that it was"
        self.began = ledger.stream
        if newest:
            assert repeated(lambda: store.verify(newest)).position == newest
        sink = repeated(lambda: file_sink(f"{self.location}/sink", PLACE, "jsonl"))
        for batch in range(newest + 1, upto + 1):
            assert repeated(lambda b=batch: ledger.reach(b)) >= batch  # type: ignore[misc]
            repeated(lambda b=batch: sink.write(b, rows(b)))  # type: ignore[misc]
            if batch % EVERY == 0:
                self._checkpoint(store, batch, fence.epoch)
        return newest

    def _checkpoint(self, store: CheckpointStore, position: int, epoch: int) -> None:
        file = repeated(lambda: store.write_state(position, "out.0", f"host-{epoch}", TABLES))
        repeated(lambda: store.complete(Manifest.of_round(position, {"out.0": file}, {})))
        repeated(lambda: store.prune(KEPT))


def whole(location: str) -> list[int]:
    """Positions of the complete checkpoints, each of which has its files."""
    kept = CheckpointStore(f"{location}/checkpoints")
    positions = kept.positions()
    for position in positions:
        kept.verify(position)
    return positions


def shown(client: Any, location: str) -> dict[str, bytes]:
    """What a sink's folder holds, read by a client of nobody else's."""
    folder = f"{location}/sink/out/0"
    return {path.rsplit("/", 1)[1]: client.cat_file(path) for path in client.find(folder)}


def expected(upto: int) -> dict[str, bytes]:
    """What it has to hold."""
    return {f"batch-{batch:08d}.jsonl": lines(batch) for batch in range(1, upto + 1)}


def assert_files(location: str) -> None:
    """A file is created once, removed as a whole, and read in parts."""
    here = Files(location)
    assert here.create("cp-1/a", b"0123456789") and not here.create("cp-1/a", b"another")
    assert here.create("cp-10/a", b"") and here.names() == ["cp-1", "cp-10"]
    assert here.read_part("cp-1/a", 2, 5) == b"234" and here.read_part("cp-1/a", 90, 95) == b""
    assert (here.read("cp-1/b"), here.exists("cp-1/b"), here.names("cp-2")) == (None, False, [])
    here.remove("cp-1")
    here.remove("cp-2")
    assert here.names() == ["cp-10"]
