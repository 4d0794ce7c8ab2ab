"""`events.jsonl` of a local run: a line for each batch that an output partition has shown.

A full disk delays lines and loses none of those that fit into `WAITING` bytes; beyond that the newest are left out, because
what this file is for (figures of a run) is not worth the driver's memory.  On Kubernetes nobody reads such a file, so
none is written there.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from io import FileIO
from pathlib import Path

WAITING = 4 * 2**20


class OutputEvents:
    """Appends to `path`; None: writes nothing."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._file: FileIO | None = None
        self._waiting = bytearray()

    def write(self, written: Iterable[tuple[str, int, float, float]]) -> None:
        """`written`: query, batch, when it was written and when it was due, unix seconds.  Raises OSError when lines wait;
        they go with the next."""
        if self.path is None:
            return
        for query, batch, at, due in written:
            line = {"query": query, "batch": batch, "at": round(at, 4), "due": round(due, 4)}
            if len(self._waiting) < WAITING:
                self._waiting += json.dumps(line).encode() + b"\n"
        if self._waiting and self._file is None:
            self._file = self.path.open("ab", buffering=0)
        while self._waiting and self._file is not None:
            count = self._file.write(self._waiting)
            del self._waiting[: count or 0]

    def close(self) -> None:
        """What waits is lost."""
        if self._file is not None:
            self._file.close()
            self._file = None
