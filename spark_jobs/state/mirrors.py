"""A stream's own files (name, clock, epochs, ledger of ranges, graphs, skips), taken over from a mirror when the location
has none.

Checkpoint files are only read, so they are read wherever they are whole.  The ledger is also written to: it has to be in the
location, and a driver that began an empty one behind a checkpoint would read other rows as the same batches.  Invariants:
files that are there are never replaced; `stream.json` comes last, so what was taken over in part is taken over again; a
ledger with a hole is not taken over, as storage may bring a mirror up to date in any order, and what is missing may still
come; and checkpoints without a ledger are an error, not a new stream.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from reprise.spark_jobs.errors import DamagedError, StoreError
from reprise.spark_jobs.state.checkpoints import STREAM, CheckpointStore
from reprise.spark_jobs.state.driver_records import EPOCHS
from reprise.spark_jobs.state.graphs import GRAPHS
from reprise.spark_jobs.state.ledger import MARK, RANGES, block_name, on_record
from reprise.spark_jobs.state.release import CLOCK, CLOCKS
from reprise.spark_jobs.state.revision import FORMER, REVISIONS, undrained
from reprise.spark_jobs.state.skips import SKIPPED
from reprise.spark_jobs.storage.files import Files

log = logging.getLogger("reprise.checkpoints")


def take_over(
    store: CheckpointStore,
    mirrors: tuple[str, ...],
    begins: Callable[[], int] = lambda: 0,
    fits: Callable[[str], None] = lambda mirror: None,
) -> str | None:
    """Make the store's location hold the stream's files, before ledger and clock are opened; the mirror they came from.

    None: they are there already, or this is a new stream.  `begins`: asked for the batch of the savepoint that a new stream
    is to begin from, whose checkpoint may be there before the name of the stream; 0: from none.  `fits`: raises where the
    stream in a mirror is not the one to go on with; nothing of it is copied then.  DamagedError: there are checkpoints and
    no ledger anywhere.
    StoreError: the location, or a mirror that may have what is missing, cannot be read, or a mirror's ledger has a hole.
    """
    here = Files(store.location)
    if here.exists(STREAM):
        return None
    unread: StoreError | None = None
    for mirror in mirrors:
        try:
            there = Files(mirror)
            if there.exists(STREAM):
                fits(mirror)
                _copy(there, here)
                log.warning("event=ledger-taken-over from=%s", there.name)
                return mirror
        except DamagedError as error:
            unread = StoreError(f"the mirror is not taken over as it is: {error}")
            log.warning("event=mirror-unreadable reason=%s", error)
        except StoreError as error:
            unread = error
            log.warning("event=mirror-unreadable reason=%s", error)
    if unread is not None:
        raise unread
    savepoint = begins()
    if known := [position for position in store.positions() if position != savepoint]:
        raise DamagedError(
            f"there are checkpoints up to batch {known[-1]}, but neither {here.name} nor a mirror has the ledger that "
            f"says which rows came after ({STREAM})"
        )
    return None


def _copy(there: Files, here: Files) -> None:
    """A mark of a drained stream is left out: it may be older than the batches that a mirror has."""
    blocks = [f"{RANGES}/{name}" for name in there.names(RANGES) if name.endswith(MARK)]
    blocks += [block_name(first) for first in on_record(there)[1]]
    of_drivers = [
        f"{folder}/{name}"
        for folder in (EPOCHS, CLOCKS, REVISIONS, GRAPHS, SKIPPED)
        for name in there.names(folder)
        if name.endswith(".json")
    ]
    for relative in (*blocks, *of_drivers, CLOCK, FORMER, STREAM):
        if (data := there.read(relative)) is not None:
            here.create(relative, undrained(data) if relative.startswith(f"{REVISIONS}/") else data)
        elif relative not in (CLOCK, FORMER):
            raise StoreError(f"cannot read {relative} in {there.name}: its name was there, and it is not")
