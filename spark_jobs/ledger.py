"""The ledger of source ranges: what each batch reads, written ahead of the first read.

Replay is identical only if batch b is the same offsets every time; so the driver asks the sources once, writes the answer
below the checkpoint location, and only then releases the batch (design, section 3).  Ranges are written in blocks of
`AHEAD` batches, so that the write costs one small file every so many batches.  Blocks behind the oldest kept checkpoint are
removed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

import fsspec

from spark_jobs.command import Span
from spark_jobs.contract import Source
from spark_jobs.errors import CheckpointError
from spark_jobs.topology import StreamTopology, Topology, make_source

AHEAD = 16


def has_ended(span: Span) -> bool:
    """Whether a range says that its source partition has ended, while others go on; kept as the complement of its end."""
    return span[0] < 0


class Ledger:
    """Ranges by source partition and batch, from the checkpoint at which it was opened."""

    def __init__(self, location: str, resource: StreamTopology, topology: Topology) -> None:
        self._fs, root = fsspec.core.url_to_fs(location)
        self._folder = f"{root.rstrip('/')}/ranges"
        self._places = {p.id: p.place for p in topology.partitions.values() if p.is_source}
        self._sources: dict[str, Source] = {s.name: make_source(s) for s in resource.sources}
        self.ranges: dict[str, dict[int, Span]] = {p: {} for p in self._places}
        self.written = 0
        self.ended_at: int | None = None
        self._load()

    def _load(self) -> None:
        try:
            self._fs.makedirs(self._folder, exist_ok=True)
            for path in sorted(self._fs.glob(f"{self._folder}/*.json")):
                block = json.loads(self._fs.cat_file(path))
                for partition, spans in block["ranges"].items():
                    self.ranges[partition].update({int(b): (s, e) for b, (s, e) in spans.items()})
                self.written = max(self.written, block["last"])
                self.ended_at = block["ended_at"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CheckpointError(f"ledger of source ranges in {self._folder} is damaged: {error}") from error

    def reach(self, batch: int) -> int:
        """Write ranges up to `batch` or the end of the sources; returns the last batch that has rows."""
        while self.written < batch and self.ended_at is None:
            self._extend()
        return batch if self.ended_at is None else min(batch, self.ended_at)

    def _extend(self) -> None:
        first, last = self.written + 1, self.written + AHEAD
        block: dict[str, dict[int, Span]] = {p: {} for p in self._places}
        for batch in range(first, last + 1):
            spans = {p: self._next(p, batch, block[p]) for p in self._places}
            if all(s is None for s in spans.values()):
                self.ended_at, last = batch - 1, batch - 1
                break
            for partition, span in spans.items():
                start = self._start(partition, batch, block[partition])
                block[partition][batch] = span or (~start, ~start)
        record = {"last": last, "ended_at": self.ended_at, "ranges": block}
        path = f"{self._folder}/{first:010d}.json"
        try:
            with self._fs.open(path + ".part", "w") as file:
                json.dump(record, file, separators=(",", ":"))
            self._fs.mv(path + ".part", path)
        except OSError as error:
            self.ended_at = None
            raise CheckpointError(f"cannot write source ranges {path}: {error}") from error
        for partition, spans_of in block.items():
            self.ranges[partition].update(spans_of)
        self.written = last

    def _start(self, partition: str, batch: int, block: Mapping[int, Span]) -> int:
        before = block.get(batch - 1) or self.ranges[partition].get(batch - 1)
        if before is None:
            return 0
        return ~before[1] if has_ended(before) else before[1]

    def _next(self, partition: str, batch: int, block: Mapping[int, Span]) -> Span | None:
        before = block.get(batch - 1) or self.ranges[partition].get(batch - 1)
        if before is not None and has_ended(before):
            return None
        place = self._places[partition]
        start = self._start(partition, batch, block)
        end = self._sources[place.operator].advance(place, batch, start)
        return None if end is None else (start, end)

    def spans(self, partition: str, after: int, upto: int) -> dict[int, Span]:
        """The ranges of batches after < b <= upto."""
        mine = self.ranges[partition]
        return {b: mine[b] for b in range(after + 1, upto + 1) if b in mine}

    def offsets(self, position: int) -> dict[str, int]:
        """Where each source partition goes on after batch `position`."""
        return {p: self._start(p, position + 1, {}) for p in self.ranges}
