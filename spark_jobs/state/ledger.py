"""The ledger of source ranges: what each batch reads, written ahead of the first read.

Replay is identical only if batch b is the same offsets every time; so the driver asks the sources once, writes the answer
below the checkpoint location, and only then releases the batch.  Ranges are written in blocks of
`AHEAD` batches, so that the write costs one small file every so many batches; where a source is live a block holds the
batches that are due.  Blocks behind the oldest kept checkpoint are then removed.

Invariant: what a batch is, is said once.  A block is created and never replaced, under a name that follows from the block
before it.  A driver that finds the name taken takes over what the block says, and ends if that block is of a later epoch: so
two drivers at once, one of them frozen or cut off, never read other rows as the same batch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from reprise.spark_jobs.contract import Range, Source
from reprise.spark_jobs.errors import DamagedError, NotYetError, SourceError, SpecError, StoreError
from reprise.spark_jobs.platform import PLATFORM, Platform
from reprise.spark_jobs.state.checkpoints import STREAM
from reprise.spark_jobs.state.epochs import Fence
from reprise.spark_jobs.storage.files import Files
from reprise.spark_jobs.topology import StreamTopology, Topology, make_source

AHEAD = 16
WHOLE = 1000
"""Of sources that can be read from their beginning again, all batches stay on record up to this one: a stream whose
checkpoints are all damaged then begins again.  A longer stream keeps those behind its oldest checkpoint."""
RANGES = "ranges"
MARK = ".given-up"


@dataclass(frozen=True, slots=True)
class Block:
    """Ranges by source partition and batch up to batch `last`; `ended_at`: where the sources ended, if they did; `epoch`: of
    the driver that wrote it."""

    last: int
    ended_at: int | None
    ranges: Mapping[str, Mapping[int, Range]]
    epoch: int = 0

    def encode(self) -> bytes:
        """The form in which the file holds it."""
        record = {"last": self.last, "ended_at": self.ended_at, "epoch": self.epoch, "ranges": self.ranges}
        return json.dumps(record, separators=(",", ":")).encode()

    @staticmethod
    def decode(data: bytes) -> Block:
        """The inverse of `encode`; raises what parsing raises."""
        record = json.loads(data)
        ranges = {
            p: {int(b): Range.parse(s) for b, s in spans.items()} for p, spans in record["ranges"].items()
        }
        return Block(int(record["last"]), record["ended_at"], ranges, int(record.get("epoch", 0)))


def block_name(first: int) -> str:
    """The file of the block that begins with this batch."""
    return f"{RANGES}/{first:010d}.json"


def last_released(files: Files) -> int:
    """The last batch that may have been released in a location (`Ledger.released`), 0 for none; for who does not write
    there."""
    given_up, firsts = max(_numbers(files, MARK), default=0), _numbers(files, ".json")
    following, written = max((first for first in firsts if first > given_up), default=given_up + 1), 0
    while files.exists(block_name(following)):  # a listing may lack what is there
        block = _block(files, following)
        following, written = block.last + 1, block.last
        if block.ended_at is not None:
            return block.ended_at + 1
    return written


def _numbers(files: Files, ending: str) -> list[int]:
    """Batches that names with this ending say, in order."""
    names = [name.removesuffix(ending) for name in files.names(RANGES) if name.endswith(ending)]
    return sorted(int(name) for name in names if name.isdigit())


def _block(files: Files, first: int) -> Block:
    name = block_name(first)
    try:
        found = files.parsed(name, Block.decode) or files.parsed(name, Block.decode)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedError(
            f"ledger of source ranges: {name} in {files.name} is damaged: {error!r}"
        ) from error
    if found is None:
        raise StoreError(f"cannot read {name} in {files.name}: its name was there, and it is not")
    return found


def began(files: Files) -> tuple[float, int] | None:
    """When the stream in a location began, unix seconds, and behind which batch of a savepoint; None: no stream is there.
    DamagedError: nobody knows.  StoreError: not now."""

    def parsed(data: bytes) -> tuple[float, int]:
        said = json.loads(data)
        return float(said["began"]), int(said.get("startedFrom", {}).get("position", 0))

    try:
        return files.parsed(STREAM, parsed)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedError(f"{STREAM} in {files.name}: the stream's name is damaged: {error}") from error


def on_record(files: Files, new: bool = False) -> tuple[int, dict[int, Block]]:
    """Up to which batch blocks were removed, and all others by their first batch, those that a listing lacks too.  `new`:
    nobody has said a batch before.  DamagedError: one that is between others is not there.  StoreError: not now."""
    # a block of before that was written late, by a driver that had to end
    given_up = max(_numbers(files, MARK), default=0)
    firsts = [first for first in _numbers(files, ".json") if first > given_up]
    trimmed = written = _trimmed(files, given_up, firsts)
    left, found, ended = set(firsts), dict[int, Block](), False
    while not ended and not (new and not left):
        following = written + 1
        if following not in left and not files.exists(block_name(following)):
            break  # a listing may lack what is there, also at its end
        block = found[following] = _block(files, following)
        written, ended = block.last, block.ended_at is not None
        left.discard(following)
    if left:
        raise DamagedError(
            f"ledger of source ranges in {files.name}: there is no block for batch {written + 1}, "
            f"and one for batch {min(left)}"
        )
    return trimmed, found


def _trimmed(files: Files, given_up: int, firsts: Sequence[int]) -> int:
    """Up to which batch blocks were removed: to where they were given up, whatever is listed.  Earlier versions removed
    blocks without a mark, and wrote no epochs."""
    if not firsts or firsts[0] == given_up + 1 or files.exists(block_name(given_up + 1)):
        return given_up
    if not given_up and not _block(files, firsts[0]).epoch:
        return firsts[0] - 1
    raise StoreError(
        f"{block_name(given_up + 1)} in {files.name} is not there and was not given up, as far as {RANGES} is listed, "
        f"and {block_name(firsts[0])} is: is the listing late, or was a file removed?"
    )


def has_ended(span: Range) -> bool:
    """Whether a range says that its source partition has ended, while others go on; kept as the complement of its end."""
    return span.start < 0


def offsets_after(ranges: Mapping[str, Range]) -> dict[str, int]:
    """Where each source partition goes on behind these ranges."""
    return {p: ~span.end if has_ended(span) else span.end for p, span in ranges.items()}


def logs_after(ranges: Mapping[str, Range]) -> dict[str, dict[str, int]]:
    """The same for each log of those source partitions that read several."""
    return {p: {log: end for log, (_, end) in span.logs.items()} for p, span in ranges.items() if span.logs}


def written_before(ranges: Mapping[str, Range], position: int) -> dict[str, bytes]:
    """The files, by name, with which a ledger begins behind batch `position`: that batch alone is on record, and those
    before it count as given up."""
    block = Block(position, None, {p: {position: span} for p, span in ranges.items()})
    return {f"{RANGES}/{position - 1:010d}{MARK}": b"", block_name(position): block.encode()}


def _ending(before: Range) -> Range:
    return before if has_ended(before) else before._replace(start=~before.end, end=~before.end)


class Ledger:
    """Ranges by source partition and batch, from the checkpoint at which it was opened."""

    def __init__(
        self, location: str, resource: StreamTopology, topology: Topology, fence: Fence | None = None,
        platform: Platform = PLATFORM,
    ) -> None:  # fmt: skip
        """`fence`: the driver's claim; without one there is no other driver.  `platform`: of its process."""
        self._wall = platform.wall
        self._files = Files(location)
        self._fence = fence
        self._places = {p.id: p.place for p in topology.partitions.values() if p.is_source}
        self._late = {p.id: p.late for p in topology.partitions.values() if p.is_source}
        self._sources: dict[str, Source] = {s.name: make_source(s) for s in resource.sources}
        for source in self._sources.values():
            source.runs_on(platform)
        self.live = any(source.live for source in self._sources.values())
        """Whether nobody knows what a batch is before it is due."""
        self.ranges: dict[str, dict[int, Range]] = {p: {} for p in self._places}
        self.problems: list[str] = []
        self.waits_for = self._asked = ""
        """Name of the source that could not say what there is to read, and of the one that was asked last."""
        self.trimmed = 0
        """Batches up to this one cannot be replayed any more."""
        self.written = 0
        self.ended_at: int | None = None
        self._new = False
        """Whether this driver has given the stream its name, so that nobody has said a batch before."""
        self.begins = 0
        """The batch behind which this stream began: that of a savepoint, where it goes on from one."""
        self.stream = self._began()
        """When this stream began, unix seconds: tells it from others of the same name, in the order of their beginnings."""
        self._load()

    def _began(self) -> float:
        if (found := began(self._files)) is None:
            self._new = self._files.create(STREAM, json.dumps({"began": self._wall()}).encode())
            found = began(self._files)
        if found is None:
            raise StoreError(f"cannot read {STREAM} in {self._files.name}: it was written, and is not there")
        began_at, self.begins = found
        return began_at

    def _load(self) -> None:
        self.trimmed, found = on_record(self._files, self._new)
        self.written = self.trimmed
        for block in found.values():
            self._add(block)

    def _blocks(self) -> list[int]:
        """First batch of each block, in order."""
        return _numbers(self._files, ".json")

    def _marks(self) -> list[int]:
        """Batches up to which blocks were given up."""
        return _numbers(self._files, MARK)

    def _block(self, first: int) -> Block:
        return _block(self._files, first)

    def _add(self, block: Block) -> None:
        self._require_same(block)
        for partition, spans in block.ranges.items():
            self.ranges[partition].update(spans)
        self.written, self.ended_at = block.last, block.ended_at

    def _require_same(self, block: Block) -> None:
        """SpecError where the block is of other source partitions: what one of them has read says nothing of another's."""
        if block.ranges.keys() == self.ranges.keys():
            return
        for name in sorted({partition.rpartition(".")[0] for partition in block.ranges}):
            before, now = (
                sum(partition.rpartition(".")[0] == name for partition in partitions)
                for partitions in (block.ranges, self.ranges)
            )
            if not now:
                raise SpecError(
                    "spec.sources",
                    f"the batches on record in {self._files.name} are of a source {name!r}, too",
                )
            if before != now:
                raise SpecError(
                    f"spec.sources[{name}].parallelism",
                    f"is {now}, and {before} in the batches on record in {self._files.name}: go back to {before}, or "
                    "begin anew with another checkpoint location and output",
                )

    @property
    def released(self) -> int:
        """The last batch that any driver may have released: of those on record, or the one behind the end of the sources, in
        which all windows close."""
        return self.written if self.ended_at is None else self.ended_at + 1

    def require(self, position: int) -> None:
        """StoreError where a complete checkpoint is at `position` and its batches are not on record: they were before it was
        begun, and whoever went on would say a second time, and otherwise, which rows they have."""
        if self.written < position and self.ended_at is None:
            raise StoreError(
                f"checkpoint {position} is complete, and {RANGES} in {self._files.name} has batches up to {self.written} "
                "alone: is the listing late, or were files removed?"
            )

    def reach(self, batch: int) -> int:
        """Write ranges up to `batch` or the end of the sources; returns the last batch that has rows.

        A source that cannot say now what there is to read keeps the stream where it is; `problems` says why.
        """
        self.waits_for = ""
        while self.written < batch and self.ended_at is None:
            try:
                self._extend(batch)
            except NotYetError:
                break
            except SourceError as error:
                self.problems.append(f"sources wait: {error}")
                self.waits_for = self._asked
                break
        return min(batch, self.written if self.ended_at is None else self.ended_at)

    def _extend(self, due: int) -> None:
        for name, source in self._sources.items():
            self._asked = name
            source.look()
        self._add(self._put(self.written + 1, self._planned(due)))
        for source in self._sources.values():
            self.problems += source.notices()

    def _planned(self, due: int) -> Block:
        """The next block: what each source says of its batches up to `due` or, where nobody waits for rows, of more."""
        first = self.written + 1
        last = due if self.live else self.written + AHEAD
        ended_at = None
        spans_of: dict[str, dict[int, Range]] = {p: {} for p in self._places}
        for batch in range(first, last + 1):
            spans = {p: self._next(p, batch, spans_of[p]) for p in self._places}
            if all(s is None for s in spans.values()):
                ended_at = last = batch - 1
                break
            for partition, span in spans.items():
                spans_of[partition][batch] = span or _ending(
                    self._before(partition, batch, spans_of[partition])
                )
        return Block(last, ended_at, spans_of, 0 if self._fence is None else self._fence.epoch)

    def _put(self, first: int, block: Block) -> Block:
        """Write a block that begins at batch `first`; the one that is there, where one is.  SupersededError: by a later
        driver."""
        if not self._files.create(block_name(first), block.encode()):
            block = self._block(first)
        if self._fence is not None and block.epoch > self._fence.epoch:
            raise self._fence.superseded(block.epoch)
        if self._fence is not None and block.epoch == self._fence.epoch:
            # ours, now or in an attempt before: the name may have been free because a later driver was here, and has
            # given up what it said
            self._fence.check()
        return block

    def _before(self, partition: str, batch: int, block: Mapping[int, Range]) -> Range:
        return block.get(batch - 1) or self.ranges[partition].get(batch - 1) or Range(0, 0)

    def _next(self, partition: str, batch: int, block: Mapping[int, Range]) -> Range | None:
        before = self._before(partition, batch, block)
        if has_ended(before):
            return None
        place = self._places[partition]
        self._asked = place.operator
        return self._sources[place.operator].plan(place, batch, before)

    def _at(self, partition: str, position: int) -> Range:
        """The range of batch `position`; behind the end of the stream that of its last batch."""
        last = position if self.ended_at is None else min(position, self.ended_at)
        return self._before(partition, last + 1, {})

    def spans(self, partition: str, after: int, upto: int) -> dict[int, Range]:
        """The ranges of batches after < b <= upto."""
        mine = self.ranges[partition]
        return {b: mine[b] for b in range(after + 1, upto + 1) if b in mine}

    def at(self, position: int) -> dict[str, Range]:
        """The range of batch `position` of each source partition; behind the end of the stream that of its last batch."""
        return {p: self._at(p, position) for p in self.ranges}

    def offsets(self, position: int) -> dict[str, int]:
        """Where each source partition goes on after batch `position`."""
        return offsets_after(self.at(position))

    def logs(self, position: int) -> dict[str, dict[str, int]]:
        """The same for each log of those source partitions that read several."""
        return logs_after(self.at(position))

    def stored(self, newest: int, oldest: int) -> None:
        """A checkpoint at `newest` is complete and `oldest` is the oldest that is kept: sources may trim, and those that are
        read over a feedback edge one batch less."""
        for partition, place in self._places.items():
            upto = newest - self._late[partition]
            self._sources[place.operator].stored(place, self._at(partition, upto))
        if self.live or newest > WHOLE:
            self._trim(oldest)

    def _trim(self, oldest: int) -> None:
        """Remove blocks that lie wholly before `oldest`; its own range stays, as the next one goes on from it.  That
        they are given up is written down first: their names are free then."""
        if self._fence is not None:
            self._fence.check()
        blocks = self._blocks()
        beyond = max((following for _, following in pairwise(blocks) if following <= oldest), default=0)
        if beyond:
            self._files.create(f"{RANGES}/{beyond - 1:010d}{MARK}", b"")
            self.trimmed = beyond - 1
            for first in [first for first in blocks if first < beyond]:
                self._files.remove(block_name(first))
            for mark in [mark for mark in self._marks() if mark < beyond - 1]:
                self._files.remove(f"{RANGES}/{mark:010d}{MARK}")
        for ranges in self.ranges.values():
            for old in [b for b in ranges if b < oldest]:
                del ranges[old]
