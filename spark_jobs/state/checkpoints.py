"""Checkpoint files: the state of one partition at one position, and the manifest that makes a line of them a checkpoint.

Layout below the location (any fsspec URL): `cp-<position>/<partition>.<incarnation>.state` and, beside those, the manifest
`cp-<position>/COMPLETE.<epoch>.json` (`COMPLETE.json`: of an earlier version).  A driver writes only manifests of its own
epoch, so none replaces another's; which of them count is told by `reprise.spark_jobs.state.epochs`.
Files are written under a name of the writer's own, so that a zombie cannot overwrite what another node wrote; the manifest
names the files that count, with size and SHA-256, and is written last.  A checkpoint without manifest does not exist.
What is in a state file: `reprise.spark_jobs.state.state_file`; of a state in pages, some of which are in earlier files:
`reprise.spark_jobs.state.page_file`.  Invariant: a file stays for as long as a checkpoint that is kept has pages in it.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TypeVar

import pyarrow as pa

from reprise.spark_jobs.contract import Tables
from reprise.spark_jobs.errors import CheckpointError, DamagedError, StoreError
from reprise.spark_jobs.pages import Parts
from reprise.spark_jobs.spill import SpillStore
from reprise.spark_jobs.state.epochs import Fence, recorded
from reprise.spark_jobs.state.local_copies import LocalCopies
from reprise.spark_jobs.state.manifest import Manifest
from reprise.spark_jobs.state.page_file import Keep, PagedState, Span, decode_pages, encode_pages
from reprise.spark_jobs.state.skips import SkipRecords
from reprise.spark_jobs.state.snapshot import Kind, StateFile, folder
from reprise.spark_jobs.state.state_file import decode_state, encoded
from reprise.spark_jobs.state.window_log import Segment
from reprise.spark_jobs.storage.files import Files

log = logging.getLogger("reprise.checkpoints")
T = TypeVar("T")
B = TypeVar("B", bytes, memoryview)
MANIFEST = "COMPLETE.json"
PART = 8 << 20
"""Bytes of a file that are in memory at once, where a state may be larger than that."""
STREAM = "stream.json"
"""The stream's name: where it can be read, the location is there, and a file that is missing is missing."""


@contextmanager
def said_by_store(path: str) -> Iterator[None]:
    """Around reads of a state: what a store's client library raises, and is no CheckpointError, passes as StoreError."""
    try:
        yield
    except CheckpointError:
        raise
    except Exception as error:
        raise StoreError(f"{path}: {type(error).__name__}: {error}") from error


class CheckpointStore:
    """Reads and writes checkpoints below one location; reads from a mirror of it what it does not have whole.

    Nothing is written to a mirror: keeping it up to date is the work of the storage.  `copies`: where states that are
    written from here are kept, too, and looked for first.
    """

    def __init__(self, location: str, mirrors: Sequence[str] = (), copies: LocalCopies | None = None) -> None:
        self.location = location
        self._files = Files(location)
        self._copies = copies
        self.fetched = 0
        """Bytes of states that were read from the location or a mirror of it, and not from copies that are here."""
        self._mirrors = tuple(CheckpointStore(mirror) for mirror in mirrors)
        self._fence: Fence | None = None
        self._recorded: tuple[int, Mapping[int, int]] = (0, {})
        """What the newest driver wrote down that has; nobody changes it."""
        self._unsure: set[int] = set()
        """Checkpoints whose manifest is written, and that may be void: whether a later driver has begun was not seen."""
        self._counted: dict[int, int] = {}
        """Whose manifest of each checkpoint counts, by the last answer: a mirror is asked for that one and no other."""
        self._others: dict[int, frozenset[str]] = {}
        """Of complete checkpoints: the files in which their states have pages beside their own."""
        self.pinned: set[int] = set()
        """Complete checkpoints that stay, whatever is asked to be kept: they are being copied."""
        self._cleared: dict[int, frozenset[str]] = {}
        """Of folders of checkpoints that are not kept: the files that stay there, all others being removed."""

    def begin(self, fence: Fence) -> int:
        """Write as the driver that has claimed the location; the newest checkpoint that counts, 0 if there is none."""
        self._fence = fence
        fence.record(self._listed())
        return max(self.positions(), default=0)

    def skip_records(self) -> SkipRecords:
        """Where it is written which batches were skipped."""
        return SkipRecords(self.location, self._fence)

    def _first_whole(self, read: Callable[[CheckpointStore], T]) -> T:
        """What the location answers, or else the first mirror that can; when none can the location's own error, with what
        the mirrors said.  It names no file where a mirror is not heard, as that may have it: nothing else that needs the
        file counts as damaged by that."""
        try:
            return read(self)
        except CheckpointError as error:
            said, file = [str(error)], error.file
            for mirror in self._mirrors:
                try:
                    found = read(mirror)
                except CheckpointError as other:
                    said.append(str(other))
                    file = "" if isinstance(other, StoreError) else file
                    continue
                log.warning("event=checkpoint-read-from-mirror location=%s", mirror._files.name)
                return found
            together = type(error)("; ".join(said))
            together.file = file
            raise together from error

    def _read(self, relative: str, accepted: Callable[[bytes], T], part: tuple[int, int] | None = None) -> T:
        """What a file says that has to be there, or bytes `part` of it; `accepted` raises ValueError where they are wrong.

        Read twice before it is called damaged or missing, as bytes can be damaged on their way, too.
        """
        wrong: ValueError | None = None
        for _ in range(2):
            data = self._files.read(relative) if part is None else self._files.read_part(relative, *part)
            if data is None:
                wrong = None
                continue
            try:
                return accepted(data)
            except ValueError as error:
                wrong = error
        if wrong is not None:
            raise DamagedError(f"{relative} in {self._files.name} is damaged: {wrong}", relative) from wrong
        raise self._missing(relative)

    def _missing(self, relative: str) -> CheckpointError:
        """Why a file that has to be there cannot be read: only in a location that is there it is missing."""
        name = self._files.name
        if self._files.exists(STREAM):
            return DamagedError(f"cannot read {relative} in {name}: it is missing", relative)
        return StoreError(f"cannot read {relative} in {name}: there is no stream ({STREAM}) there")

    def write_state(self, position: int, partition: str, incarnation: str, tables: Tables) -> StateFile:
        """Store one partition's state at `position`; returns what the manifest says of it."""
        relative = f"{folder(position)}/{partition}.{incarnation}.state"
        return self._written(position, relative, encoded(tables))

    def pages_of(
        self, position: int, partition: str, incarnation: str, parts: Parts, keep: Keep | None = None
    ) -> PagedState:
        """One partition's state at `position` as `write_pages` stores it.  `keep`: see `encode_pages`.  OvertakenError: a
        later one came before."""
        return encode_pages(parts, f"{folder(position)}/{partition}.{incarnation}.state", position, keep)

    def write_pages(self, state: PagedState) -> StateFile:
        """Store a state in pages; returns what the manifest says of it.  StoreError: to be repeated."""
        file = self._written(state.position, state.path, state.chunks, (state.others, state.state_bytes))
        state.is_stored()
        return file

    def write_segment(
        self,
        position: int,
        partition: str,
        incarnation: str,
        data: bytes,
        others: Sequence[str],
        others_bytes: int,
    ) -> StateFile:
        """Store a segment of a partition's log, which ends with batch `position`; returns what the manifest says of it.
        `others`: earlier segments that a recovery reads with it, oldest first."""
        relative = f"{folder(position)}/{partition}.{incarnation}.log"
        return self._written(position, relative, [data], (tuple(others), len(data) + others_bytes))

    def read_segments(self, file: StateFile) -> list[Segment]:
        """The segments of a log, newest first.  CheckpointError: one is missing or damaged."""
        here = None if self._copies is None else self._copies.read(file)
        newest = Segment.read(self._found_whole(file) if here is None else here)
        return [newest, *(self._segment(path) for path in reversed(file.others))]

    def _segment(self, path: str) -> Segment:
        """An earlier segment: the copy that is here, which has the SHA-256 of when it was written, else from where it is
        found whole."""
        if self._copies is not None and (here := self._copies.read_named(path)) is not None:
            return Segment.read(here)
        found = self._first_whole(lambda store: store._read(path, _whole_segment))
        self.fetched += len(found.data)
        return found

    def _written(
        self,
        position: int,
        relative: str,
        pieces: Sequence[bytes | memoryview],
        pages: tuple[tuple[str, ...], int | None] = ((), None),
    ) -> StateFile:
        self._files.replace(relative, pieces)
        digest = hashlib.sha256()
        for piece in pieces:
            digest.update(piece)
        file = StateFile(relative, sum(len(piece) for piece in pieces), digest.hexdigest(), *pages)
        if self._copies is not None:
            self._copies.keep(file, position, pieces)
        return file

    def read_state(self, file: StateFile, spilled: SpillStore | None = None) -> dict[str, pa.Table]:
        """A state file's tables.  `spilled`: where those of a state in pages are put, which may be larger than memory.
        Raises CheckpointError when it is missing or not the bytes that the manifest names, or when a page that it has in
        another file is not the one that was stored; SpillFullError."""
        if file.all_bytes is not None and spilled is not None:
            return decode_pages(self._in_parts(file, spilled), self._span, spilled)
        here = None if self._copies is None else self._copies.read(file)
        data = self._found_whole(file) if here is None else here
        return decode_state(data) if file.all_bytes is None else decode_pages(data, self._span)

    def _in_parts(self, file: StateFile, spilled: SpillStore) -> memoryview:
        """A whole file that is never in memory as a whole."""
        room = spilled.room(file.size)

        def filled(read: Callable[[int, int], bytes | None]) -> bool:
            digest = hashlib.sha256()
            for at in range(0, file.size, PART):
                data = read(at, min(at + PART, file.size))
                if data is None or len(data) != min(PART, file.size - at):
                    return False
                room[at : at + len(data)] = data
                digest.update(data)
                spilled.hold()
            return digest.hexdigest() == file.sha256

        if self._copies is not None and self._copies.in_parts(file, filled):
            return room

        def whole(store: CheckpointStore) -> memoryview:
            for _ in range(2):  # bytes can be damaged on their way, too
                if filled(lambda start, end: store._files.read_part(file.path, start, end)):
                    return room
            if not store._files.exists(file.path):
                raise store._missing(file.path)
            said = f"{file.path} in {store._files.name} is damaged: its SHA-256 is not the manifest's"
            raise DamagedError(said, file.path)

        return self._fetched(whole)

    def _span(self, path: str, span: Span) -> bytes:
        """Pages of another state's file: from the copy that is here, else from where they are found whole."""
        if (
            self._copies is not None
            and (here := self._copies.read_part(path, span.start, span.end)) is not None
        ):
            with suppress(ValueError):
                return span.whole(here)
            log.warning("event=local-copy-damaged file=%s", path)
        return self._fetched(lambda store: store._read(path, span.whole, (span.start, span.end)))

    def _found_whole(self, file: StateFile) -> bytes:
        return self._fetched(lambda store: store._whole(file))

    def _fetched(self, ask: Callable[[CheckpointStore], B]) -> B:
        found = self._first_whole(ask)
        self.fetched += len(found)
        return found

    def _whole(self, file: StateFile) -> bytes:
        def accepted(data: bytes) -> bytes:
            if len(data) != file.size or hashlib.sha256(data).hexdigest() != file.sha256:
                raise ValueError("its SHA-256 is not the manifest's")
            return data

        return self._read(file.path, accepted)

    def complete(self, manifest: Manifest) -> None:
        """Make a checkpoint exist.  SupersededError: a later driver has begun, and goes on from an older one or from this.
        StoreError: to be tried again; it may or may not exist."""
        text = json.dumps(manifest.to_json(), indent=1)
        self._unsure.add(manifest.position)
        self._others.pop(manifest.position, None)
        self._cleared.pop(manifest.position, None)
        self._files.replace(manifest_name(manifest.position, self._epoch), text.encode())
        if self._fence is not None:
            self._fence.check()
        self._unsure.discard(manifest.position)
        self._counted[manifest.position] = self._epoch
        self._others[manifest.position] = _others(manifest)

    @property
    def _epoch(self) -> int:
        return 0 if self._fence is None else self._fence.epoch

    def withdraw(self, after: int) -> None:
        """The stream goes back to batch `after`: what `complete` did not confirm behind it is undone."""
        for position in [k for k in self._unsure if k > after]:
            self._files.remove(manifest_name(position, self._epoch))
            self._unsure.discard(position)
            self._counted.pop(position, None)

    def discard(self, position: int) -> None:
        """What was complete at `position` is not any more, for whoever comes later either: its manifests go, the files of
        states stay for others that name them.  SupersededError: a later driver may go on from it."""
        if self._fence is not None:
            self._fence.check()
        for name in self._files.names(folder(position)):
            if _manifest_epoch(name) is not None:
                self._files.remove(f"{folder(position)}/{name}")
        self._counted.pop(position, None)

    def manifest(self, position: int) -> Manifest:
        """The manifest of cp(position), which is one driver's: a mirror may hold another's, of other files, and is asked for
        the one that counts in the location.  DamagedError: there is none.  StoreError: not now, or it is not known which."""
        relative = manifest_name(position, self._epoch_of(position))

        def parsed(data: bytes) -> Manifest:
            return Manifest.from_json(json.loads(data))

        return self._first_whole(lambda store: store._read(relative, parsed))

    def _epoch_of(self, position: int) -> int:
        """Whose manifest of cp(position) counts: what the location says, or has said last where it is not heard."""
        try:
            if position not in self._listed():
                self._listed()  # looked for again before it is called missing
        except CheckpointError as error:
            if position in self._counted:
                return self._counted[position]
            if self._fence is None and (theirs := self._for_people().get(position)) is not None:
                return theirs
            raise type(error)(
                f"it is not known which driver's manifest of checkpoint {position} counts: {error}"
            ) from error
        if position not in self._counted:
            raise self._missing(
                f"{folder(position)}/{MANIFEST}, or COMPLETE.<epoch>.json of a driver that counts,"
            )
        return self._counted[position]

    def verify(self, position: int) -> Manifest:
        """The manifest, after every one of its files was read and found whole."""
        manifest = self.manifest(position)
        for snapshot in manifest.snapshots.values():
            if (file := snapshot.file) is None:
                continue
            if snapshot.kind is Kind.WINDOW_LOG:
                self.read_segments(file)
                continue
            data = self._found_whole(file)
            if file.others:
                decode_pages(data, self._span)
        return manifest

    def of_many_ages(self) -> frozenset[str]:
        """Partitions that any checkpoint has with slots of different ages (`Manifest.of_many_ages`): an older one is taken
        where the newest is damaged; those whose manifest is damaged are not.  StoreError: it cannot be told now."""
        found = set[str]()
        for position in self.positions():
            with suppress(DamagedError):
                found.update(self.manifest(position).of_many_ages)
        return frozenset(found)

    def positions(self) -> list[int]:
        """Positions of all complete checkpoints, oldest first; those of a mirror where the location has none.

        CheckpointError: nobody can tell.  A location that is not heard may have newer ones than a mirror, whose output is
        shown, so a mirror does not answer for it.
        """
        return sorted(self._listed())

    def _listed(self) -> Mapping[int, int]:
        """`positions`, each with the epoch of the manifest that counts."""
        newest, seen = self._recorded = recorded(self._files, self._recorded)
        found: Mapping[int, int] = self._counting(newest, seen)
        if not found and self._mirrors:
            if self._fence is not None:
                self._fence.check()  # a volume that is not mounted is empty, too
            found = self._of_mirrors((newest, seen) if seen else None)
        self._counted.update(found)
        return found

    def _of_mirrors(self, by: tuple[int, Mapping[int, int]] | None) -> Mapping[int, int]:
        """The same in the first mirror that has any.  `by`: epoch and content of the record that says what counts (see
        `recorded`), where the location has one: of a mirror's own, a later driver may know nothing."""
        for mirror in self._mirrors:
            if found := mirror._counting(*(by or recorded(mirror._files))):
                return found
        return {}

    def known(self) -> list[int]:
        """The same for people: those of a mirror also where the location cannot be read."""
        try:
            return self.positions()
        except CheckpointError:
            if found := sorted(self._for_people()):
                return found
            raise

    def _for_people(self) -> Mapping[int, int]:
        """What the first mirror says that has any, by its own records: not for who decides anything."""
        for mirror in self._mirrors:
            with suppress(CheckpointError):
                if found := mirror._listed():
                    return found
        return {}

    def _counting(self, newest: int, seen: Mapping[int, int]) -> dict[int, int]:
        """Complete checkpoints here that count, each with the epoch of its newest manifest that does (`recorded`)."""
        found = {}
        for position in filter(None, map(_position, self._files.names())):
            if position in self._cleared:  # files of others stay there, and no manifest
                continue
            epochs = map(_manifest_epoch, self._files.names(folder(position)))
            counting = [e for e in epochs if e is not None and (e >= newest or seen.get(position) == e)]
            if counting:
                found[position] = max(counting)
        return found

    def remove_states(self, paths: Collection[str]) -> None:
        """Remove state files that no checkpoint names any more.  SupersededError: a later driver may name them."""
        if paths and self._fence is not None:
            self._fence.check()
        for path in paths:
            self._files.remove(path)

    def prune(self, keep: int, needed: int | None = None, named: Collection[str] = ()) -> int:
        """Remove all but the newest `keep` complete checkpoints, and incomplete ones older than those, but not cp(`needed`)
        nor what is newer; the position of the oldest that stays.  There must be one.  Files that those, or `named`, have
        pages in stay in whichever folder they are.  While a manifest that is kept is damaged nothing is removed: it is read
        again, and goes in its turn."""
        if self._fence is not None:
            self._fence.check()
        if not (complete := self.positions()):
            raise StoreError(f"{self._files.name} lists no complete checkpoint, and there is one")
        oldest = complete[-keep:][0]
        oldest = min((oldest, *self.pinned))
        if needed is not None:
            oldest = min(oldest, needed)
        try:
            stay = {path for k in complete if k >= oldest for path in self._others_of(k)}.union(named)
        except DamagedError as error:
            log.warning("event=nothing-removed reason=%s", error)
            return min(oldest, complete[0])
        for position in map(_position, self._files.names()):
            if position and position < oldest:
                self._clear(position, frozenset(p for p in stay if p.startswith(f"{folder(position)}/")))
        for position in [k for k in self._others if k < oldest]:
            del self._others[position]
        return oldest

    def _others_of(self, position: int) -> frozenset[str]:
        """Files in which the states of a complete checkpoint have pages beside their own.  CheckpointError: it is not known,
        so nothing may be removed now."""
        if position not in self._others:
            self._others[position] = _others(self.manifest(position))
        return self._others[position]

    def _clear(self, position: int, stay: frozenset[str]) -> None:
        """Remove the folder of a checkpoint that is not kept, but not these files; the manifests first, without which it
        does not exist: a removal that is interrupted leaves none whose files are gone."""
        if stay and self._cleared.get(position) == stay:
            return
        names = self._files.names(folder(position))
        manifests = [name for name in names if _manifest_epoch(name) is not None]
        for name in manifests:
            self._files.remove(f"{folder(position)}/{name}")
        if stay:
            paths = {f"{folder(position)}/{name}" for name in names if name not in manifests}
            for path in sorted(paths - stay):
                self._files.remove(path)
            self._cleared[position] = stay
        else:
            self._files.remove(folder(position))
            self._cleared.pop(position, None)
        self._counted.pop(position, None)


def _whole_segment(data: bytes) -> Segment:
    segment = Segment.read(data)
    if not segment.whole or not all(True for _ in segment.backwards(segment.last or 0)):
        raise ValueError("it is cut off")
    return segment


def _others(manifest: Manifest) -> frozenset[str]:
    taken = (*manifest.snapshots.values(), *manifest.before.values())
    return frozenset(path for s in taken if s.file is not None for path in s.file.others)


def manifest_name(position: int, epoch: int) -> str:
    """The file with the manifest of cp(position) that the driver of this epoch writes; 0: of before there were epochs."""
    return f"{folder(position)}/COMPLETE.{epoch}.json" if epoch else f"{folder(position)}/{MANIFEST}"


def _manifest_epoch(name: str) -> int | None:
    """Whose manifest a file is; None: it is none."""
    if name == MANIFEST:
        return 0
    epoch = name.removeprefix("COMPLETE.").removesuffix(".json")
    return int(epoch) if name == f"COMPLETE.{epoch}.json" and epoch.isdigit() else None


def _position(name: str) -> int:
    """The checkpoint whose folder this is; 0: of none."""
    digits = name.removeprefix("cp-")
    return int(digits) if name != digits and digits.isdigit() else 0
