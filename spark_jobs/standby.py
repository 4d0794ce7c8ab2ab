"""A stream's own files, its name, clock and ledger of ranges, taken over from a mirror when the location has none.

Checkpoint files are only read, so they are read wherever they are whole.  The ledger is also written to: it has to be in the
location, and a driver that began an empty one behind a checkpoint would read other rows as the same batches.  Invariants:
files that are there are never replaced; `stream.json` comes last, so what was taken over in part is taken over again; and
checkpoints without a ledger are an error, not a new stream.
"""

from __future__ import annotations

import logging

import fsspec

from spark_jobs.checkpoints import CheckpointStore
from spark_jobs.errors import CheckpointError

log = logging.getLogger("reprise.checkpoints")
NAME = "stream.json"
FILES = ("ranges/*.json", "clock.json", NAME)


def take_over(store: CheckpointStore, standby: tuple[str, ...]) -> str | None:
    """Make the store's location hold the stream's files, before ledger and clock are opened; the mirror they came from.

    None: they are there already, or this is a new stream.  CheckpointError: there are checkpoints and no ledger anywhere.
    """
    if _has(store.location, NAME):
        return None
    for mirror in standby:
        try:
            if _has(mirror, NAME):
                _copy(mirror, store.location)
                log.warning("event=ledger-taken-over from=%s", mirror)
                return mirror
        except OSError as error:
            log.warning("event=standby-unreadable location=%s reason=%s", mirror, error)
    if known := store.positions():
        raise CheckpointError(
            f"there are checkpoints up to batch {known[-1]}, but neither {store.location} nor a mirror has the ledger that "
            f"says which rows came after ({NAME})"
        )
    return None


def _has(location: str, name: str) -> bool:
    fs, root = fsspec.core.url_to_fs(location)
    return bool(fs.exists(f"{root.rstrip('/')}/{name}"))


def _copy(mirror: str, location: str) -> None:
    source, origin = fsspec.core.url_to_fs(mirror)
    target, root = fsspec.core.url_to_fs(location)
    for pattern in FILES:
        for path in source.glob(f"{origin.rstrip('/')}/{pattern}"):
            relative = str(path).removeprefix(f"{origin.rstrip('/')}/")
            to = f"{root.rstrip('/')}/{relative}"
            target.makedirs(to.rsplit("/", 1)[0], exist_ok=True)
            target.pipe_file(to, source.cat_file(path))
