"""The checkpoint that is wanted, read from the store: what each partition is installed from.

A store that is away is not a damaged checkpoint: it is asked again, after pauses that grow, and meanwhile the answer is the
last error.  Bytes that are there and wrong are a DamagedError, which is final.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from spark_jobs.checkpoints import CheckpointStore
from spark_jobs.command import Install
from spark_jobs.errors import CheckpointError

STORE_PATIENCE_S = 10.0
"""The longest time between two attempts to read a checkpoint from a store that is away."""


@dataclass(slots=True)
class RestorePoint:
    """Reads manifests of one store; `clock`: monotonic seconds."""

    store: CheckpointStore
    clock: Callable[[], float] = time.monotonic
    _refused: int | None = None
    """The checkpoint that could not be read, `_why`, after how many attempts, and when it is asked for again."""
    _why: CheckpointError = field(default_factory=CheckpointError)
    _asked: int = 0
    _ask_again: float = 0.0

    def read(self, position: int) -> Mapping[str, Install]:
        """What cp(position) has for each partition that has state; raises StoreError, DamagedError."""
        if position == 0:
            return {}
        if self._refused == position and self.clock() < self._ask_again:
            raise self._why
        try:
            manifest = self.store.manifest(position)
        except CheckpointError as error:
            self._asked = self._asked + 1 if self._refused == position else 0
            self._refused, self._why = position, error
            self._ask_again = self.clock() + min(0.2 * 2**self._asked, STORE_PATIENCE_S)
            raise
        self._refused = None
        return {
            p: Install(position, {"path": f.path, "size": f.size, "sha256": f.sha256})
            for p, f in manifest.files.items()
        }
