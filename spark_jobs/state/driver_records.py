"""Records of which each driver writes its own, under the name of its epoch, and the newest counts.

Invariant: what a driver that was frozen writes beside its successor has a lower epoch in its name and counts for nothing, so
no lock is needed.  The number in the name is what counts, not its order among names.  A record may be acted on as soon as it
is written, and its driver may end then; so one that a listing lacks is looked for under the names of those that have claimed
the location.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from reprise.spark_jobs.errors import DamagedError, StoreError
from reprise.spark_jobs.storage.files import Files

T = TypeVar("T")
EPOCHS = "epochs"
"""Folder of the claims (`reprise.spark_jobs.state.epochs`)."""


def record_name(folder: str, epoch: int) -> str:
    """The name of the record of the driver of this epoch."""
    return f"{folder}/{epoch:08d}.json"


def record_epochs(files: Files, folder: str) -> list[int]:
    """Epochs of the drivers that have a record there, in order; files of other names are somebody else's.  Raises
    StoreError."""
    names = [name.removesuffix(".json") for name in files.names(folder)]
    return sorted(int(name) for name in names if name.isdigit())


def newest_written(exists: Callable[[int], bool], listed: int | None, claimed: Iterable[int]) -> int | None:
    """The newest epoch that has a record: the newest `listed` one, or one that was `claimed` later and `exists` though a
    listing lacks it."""
    later = (epoch for epoch in sorted(claimed, reverse=True) if listed is None or epoch > listed)
    return next(filter(exists, later), listed)


class DriverRecords:
    """The records of one kind: `<folder>/<epoch>.json`.  Each call raises StoreError where the location does not answer."""

    def __init__(self, files: Files, folder: str) -> None:
        self._files, self._folder = files, folder

    def newest(self, parse: Callable[[bytes], T], former: str = "") -> T | None:
        """The record that counts: that of the newest epoch; where no driver has one, the file `former` of an earlier version
        or of before the first driver; None: there is neither.  StoreError: one is listed that is not there, so what counts
        is not known now; DamagedError: `parse` refuses its bytes twice."""
        listed = max(record_epochs(self._files, self._folder), default=None)
        claimed = record_epochs(self._files, EPOCHS)
        epoch = newest_written(lambda e: self._files.exists(record_name(self._folder, e)), listed, claimed)
        name = former if epoch is None else record_name(self._folder, epoch)
        if not name:
            return None
        try:
            found = self._files.parsed(name, parse)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DamagedError(f"{name} in {self._files.name} is damaged: {error!r}") from error
        if found is None and epoch is not None:
            raise StoreError(f"cannot read {name} in {self._files.name}: it was listed, and is not there")
        return found

    def write(self, epoch: int, data: bytes) -> None:
        """Write the record in place of what this driver has written before."""
        self._files.replace(record_name(self._folder, epoch), data)

    def forget_before(self, epoch: int) -> None:
        """Remove those of earlier drivers."""
        for earlier in record_epochs(self._files, self._folder):
            if earlier < epoch:
                self._files.remove(record_name(self._folder, earlier))
