"""The ledger of source ranges: what each batch reads, written ahead of the first read.

Replay is identical only if batch b is the same offsets every time; so the driver asks the sources once, writes the answer
below the checkpoint location, and only then releases the batch (design, section 3).  Ranges are written in blocks of
`AHEAD` batches, so that the write costs one small file every so many batches; where a source is live a block holds the
batches that are due.  Blocks behind the oldest kept checkpoint are then removed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from itertools import pairwise

import fsspec

from spark_jobs.contract import Range, Source
from spark_jobs.errors import CheckpointError, NotYetError, SourceError
from spark_jobs.topology import StreamTopology, Topology, make_source

AHEAD = 16


def has_ended(span: Range) -> bool:
    """Whether a range says that its source partition has ended, while others go on; kept as the complement of its end."""
    return span.start < 0


def _ending(before: Range) -> Range:
    return before if has_ended(before) else Range(~before.end, ~before.end, before.logs)


class Ledger:
    """Ranges by source partition and batch, from the checkpoint at which it was opened."""

    def __init__(self, location: str, resource: StreamTopology, topology: Topology) -> None:
        self._fs, root = fsspec.core.url_to_fs(location)
        self._folder = f"{root.rstrip('/')}/ranges"
        self._places = {p.id: p.place for p in topology.partitions.values() if p.is_source}
        self._sources: dict[str, Source] = {s.name: make_source(s) for s in resource.sources}
        self._live = any(source.live for source in self._sources.values())
        self.ranges: dict[str, dict[int, Range]] = {p: {} for p in self._places}
        self.problems: list[str] = []
        self.trimmed = 0
        """Batches up to this one cannot be replayed any more."""
        self.written = 0
        self.ended_at: int | None = None
        self.stream = self._began(f"{root.rstrip('/')}/stream.json")
        """When this stream began, unix seconds: tells it from others of the same name, in the order of their beginnings."""
        self._load()

    def _began(self, path: str) -> float:
        try:
            if self._fs.exists(path):
                return float(json.loads(self._fs.cat_file(path))["began"])
            began = time.time()
            self._fs.makedirs(path.rsplit("/", 1)[0], exist_ok=True)
            self._fs.pipe_file(path, json.dumps({"began": began}).encode())
            return began
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CheckpointError(f"{path}: the stream's name is damaged: {error}") from error

    def _load(self) -> None:
        try:
            self._fs.makedirs(self._folder, exist_ok=True)
            blocks = self._blocks()
            self.trimmed = blocks[0][0] - 1 if blocks else 0
            for _, path in blocks:
                block = json.loads(self._fs.cat_file(path))
                for partition, spans in block["ranges"].items():
                    self.ranges[partition].update({int(b): Range.parse(span) for b, span in spans.items()})
                self.written = max(self.written, block["last"])
                self.ended_at = block["ended_at"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CheckpointError(f"ledger of source ranges in {self._folder} is damaged: {error}") from error

    def _blocks(self) -> list[tuple[int, str]]:
        """First batch and path of each block, in order."""
        paths = sorted(self._fs.glob(f"{self._folder}/*.json"))
        return [(int(path.rsplit("/", 1)[1].removesuffix(".json")), path) for path in paths]

    def reach(self, batch: int) -> int:
        """Write ranges up to `batch` or the end of the sources; returns the last batch that has rows.

        A source that cannot say now what there is to read keeps the stream where it is; `problems` says why.
        """
        while self.written < batch and self.ended_at is None:
            try:
                self._extend(batch)
            except NotYetError:
                break
            except SourceError as error:
                self.problems.append(f"sources wait: {error}")
                break
        return min(batch, self.written if self.ended_at is None else self.ended_at)

    def _extend(self, due: int) -> None:
        for source in self._sources.values():
            source.look()
        first = self.written + 1
        last = due if self._live else self.written + AHEAD
        block: dict[str, dict[int, Range]] = {p: {} for p in self._places}
        for batch in range(first, last + 1):
            spans = {p: self._next(p, batch, block[p]) for p in self._places}
            if all(s is None for s in spans.values()):
                self.ended_at, last = batch - 1, batch - 1
                break
            for partition, span in spans.items():
                block[partition][batch] = span or _ending(self._before(partition, batch, block[partition]))
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
        for source in self._sources.values():
            self.problems += source.notices()

    def _before(self, partition: str, batch: int, block: Mapping[int, Range]) -> Range:
        return block.get(batch - 1) or self.ranges[partition].get(batch - 1) or Range(0, 0)

    def _next(self, partition: str, batch: int, block: Mapping[int, Range]) -> Range | None:
        before = self._before(partition, batch, block)
        if has_ended(before):
            return None
        place = self._places[partition]
        return self._sources[place.operator].plan(place, batch, before)

    def _at(self, partition: str, position: int) -> Range:
        """The range of batch `position`; behind the end of the stream that of its last batch."""
        last = position if self.ended_at is None else min(position, self.ended_at)
        return self._before(partition, last + 1, {})

    def spans(self, partition: str, after: int, upto: int) -> dict[int, Range]:
        """The ranges of batches after < b <= upto."""
        mine = self.ranges[partition]
        return {b: mine[b] for b in range(after + 1, upto + 1) if b in mine}

    def offsets(self, position: int) -> dict[str, int]:
        """Where each source partition goes on after batch `position`."""
        ends = {p: self._at(p, position) for p in self.ranges}
        return {p: ~span.end if has_ended(span) else span.end for p, span in ends.items()}

    def logs(self, position: int) -> dict[str, dict[str, int]]:
        """The same for each log of those source partitions that read several."""
        ends = {p: self._at(p, position) for p in self.ranges}
        return {p: {log: end for log, (_, end) in span.logs.items()} for p, span in ends.items() if span.logs}

    def stored(self, newest: int, oldest: int) -> None:
        """A checkpoint at `newest` is complete and `oldest` is the oldest that is kept: sources may trim."""
        for partition, place in self._places.items():
            self._sources[place.operator].stored(place, self._at(partition, newest))
        if self._live:
            self._trim(oldest)

    def _trim(self, oldest: int) -> None:
        """Remove blocks that lie wholly before `oldest`; its own range stays, as the next one goes on from it."""
        blocks = self._blocks()
        for (_, path), (following, _) in pairwise(blocks):
            if following > oldest:
                break
            self._fs.rm(path)
            self.trimmed = following - 1
        for ranges in self.ranges.values():
            for old in [b for b in ranges if b < oldest]:
                del ranges[old]
