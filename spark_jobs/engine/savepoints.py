"""Taking savepoints while the stream runs: a complete checkpoint behind what is released, copied beside the jobs.

Law: a savepoint covers all that was released when it was asked for, or it is not taken.  The checkpoint of which it is
stays until it is copied (`CheckpointStore.pinned`).  What fails is tried again, by this driver or by the next one, for as
long as the wish is there; a wish whose savepoint exists already, by its id, is carried out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from reprise.spark_jobs.contract import Tables
from reprise.spark_jobs.errors import CheckpointError, DamagedError, NewerVersionError, SupersededError
from reprise.spark_jobs.node.state_tables import STAGED
from reprise.spark_jobs.platform import PLATFORM, Platform
from reprise.spark_jobs.state.checkpoints import CheckpointStore
from reprise.spark_jobs.state.epochs import Fence
from reprise.spark_jobs.state.manifest import Manifest
from reprise.spark_jobs.state.savepoint_wish import SavepointWish
from reprise.spark_jobs.state.savepoints import (
    NAME,
    NameTakenError,
    NoSavepointError,
    Savepoint,
    Savepoints,
    stages_of,
)
from reprise.spark_jobs.storage.files import Files

if TYPE_CHECKING:
    from reprise.spark_jobs.engine.engine import Engine

log = logging.getLogger("reprise.engine")
AGAIN_S = 2.0
"""Between two attempts that fail."""
KEPT = 50
"""Wishes of which it is known what came of them."""


@dataclass(frozen=True, slots=True)
class SavepointsNow:
    """How savepoints stand, for people."""

    savepoints: tuple[Savepoint, ...] = ()
    done: Mapping[str, str] = field(default_factory=dict)
    """Id of a wish that is over -> why it was refused; empty: it was carried out."""
    waits: Mapping[str, str] = field(default_factory=dict)
    """Id of a wish that is not over -> what it waits for."""


class SavepointTaker:
    """The savepoints of one driver's life; all but the copying is done by the thread that runs the engine."""

    def __init__(self, engine: Engine, fence: Fence, platform: Platform = PLATFORM) -> None:
        self._engine, self._platform = engine, platform
        # of its own: the thread beside must not share a store's client with the engine's
        self._fence = Fence(Files(engine.sites.checkpoints), fence.epoch)
        self._savepoints = Savepoints(engine.sites.checkpoints)
        self._known: dict[str, Savepoint] | None = None
        """By name; None: not asked yet."""
        self._done: dict[str, str] = {}
        self._waits: dict[str, str] = {}
        self._asked: dict[str, int] = {}
        """Id of a wish -> the last batch that was released when this driver heard of it."""
        self._working = False
        self._found: Callable[[], None] | None = None
        """What the thread beside has come to; to be called by the engine's thread."""
        self._again = float("-inf")

    @property
    def now(self) -> SavepointsNow | None:
        """How they stand; None: not known yet."""
        if self._known is None:
            return None
        known = tuple(self._known[name] for name in sorted(self._known))
        return SavepointsNow(known, dict(self._done), dict(self._waits))

    def remember(self, done: Mapping[str, str]) -> None:
        """What came of wishes in the lives of earlier drivers; before the first turn."""
        self._done = {**done, **self._done}

    @property
    def busy(self) -> bool:
        """Whether something is under way beside, or has come to an end there."""
        return self._working

    def turn(self, wishes: Iterable[SavepointWish]) -> None:
        """Go on with what is wanted.  SupersededError: a later driver has begun."""
        engine = self._engine
        if (found := self._found) is not None:
            self._found, self._working = None, False
            engine.store.pinned.clear()
            found()
        if self._working:
            return
        left = sorted((wish for wish in wishes if wish.id not in self._done), key=lambda wish: wish.id)
        for known in (self._waits, self._asked):
            for other in known.keys() - {wish.id for wish in left}:
                del known[other]
        engine.punctuations.wanted = 0
        if engine.clock() < self._again:
            return
        if self._known is None:
            self._beside(self._listed)
            return
        for wish in left:
            if not wish.delete and any(w.delete and w.name == wish.name and w.id > wish.id for w in left):
                self._over(wish, "it was to be deleted before it was taken")
            elif self._go_on(wish, self._known):
                return

    def _go_on(self, wish: SavepointWish, known: Mapping[str, Savepoint]) -> bool:
        """Whether something was begun beside for this wish; else it is over, or waits."""
        there = known.get(wish.name)
        if not NAME.fullmatch(wish.name):
            self._over(wish, f"{wish.name!r} is no name for a savepoint")
        elif wish.delete:
            self._beside(partial(self._deleted, wish))
            return True
        elif there is not None:
            taken = f"there is a savepoint {wish.name!r} already, after batch {there.position}"
            self._over(wish, "" if there.wish == wish.id else taken)
        elif refused := self._refused():
            self._over(wish, refused)
        elif why := self._not_yet(wish):
            self._waits[wish.id] = why
        else:
            return self._take(wish)
        return False

    def _refused(self) -> str:
        engine = self._engine
        if engine.resource.checkpoint.uncoordinated:
            return (
                f"savepoints need `checkpoint.protocol: coordinated`; this topology has "
                f"{engine.resource.checkpoint.protocol!r}"
            )
        if engine.final is not None and engine.horizon >= engine.final:
            return "the stream has ended: nothing could go on behind it"
        return ""

    def _not_yet(self, wish: SavepointWish) -> str:
        """What a savepoint waits for; its checkpoint is asked for.  Empty: the newest checkpoint can be copied."""
        engine = self._engine
        newest, after = engine.punctuations.newest, self._asked.setdefault(wish.id, max(1, engine.horizon))
        skipped = max((skip.last for skip in engine.skipping.skips), default=0)
        if skipped > newest:
            after = max(after, skipped)
        if newest in engine.bad_checkpoints or newest < after:
            engine.punctuations.wanted = max(engine.punctuations.wanted, after)
            if engine.desired.paused:
                return f"the topology is paused, and batches after checkpoint {newest} were released: it takes none now"
            if len(engine.at_work) < len(engine.topology.partitions):
                return "a checkpoint needs all partitions at work"
            return f"a checkpoint after batch {after} is not complete yet"
        if engine.offered < newest:
            return f"output up to batch {newest} is not shown yet"
        return ""

    def _take(self, wish: SavepointWish) -> bool:
        engine, position = self._engine, self._engine.punctuations.newest
        try:
            manifest = engine.restore_point.manifest(position)
        except CheckpointError as error:
            self._trouble(wish, error)
            return False
        resource = engine.resource
        savepoint = Savepoint(
            name=wish.name,
            namespace=resource.namespace,
            topology=resource.name,
            position=position,
            time=self._platform.wall(),
            due=engine.release.at(position),
            stages=stages_of(resource),
            ranges=engine.ledger.at(position),
            wish=wish.id,
        )
        engine.store.pinned.add(position)
        self._waits[wish.id] = f"checkpoint {position} is copied ({manifest.state_bytes} bytes)"
        self._beside(partial(self._copied, wish, savepoint, manifest))
        return True

    # -- beside --------------------------------------------------------------------------------------------------------

    def _beside(self, work: Callable[[], Callable[[], None]]) -> None:
        """`work` gives what the engine's thread is to do with what it has come to."""

        def run() -> None:
            try:
                found = work()
            except Exception as error:  # of a store's client
                found = partial(self._trouble, None, error)
            self._found = found

        self._working = True
        self._platform.begin(run, "savepoints")

    def _listed(self) -> Callable[[], None]:
        known = {}
        for name in self._savepoints.names():
            try:
                known[name] = self._savepoints.read(name)
            except CheckpointError as error:
                if isinstance(error, NoSavepointError):
                    continue
                log.warning("event=savepoint-unreadable name=%s reason=%r", name, str(error))
        return partial(setattr, self, "_known", known)

    def _copied(self, wish: SavepointWish, savepoint: Savepoint, manifest: Manifest) -> Callable[[], None]:
        engine = self._engine
        store = CheckpointStore(engine.sites.checkpoints, engine.resource.checkpoint.standby)
        try:
            kept = self._savepoints.keep(savepoint, states_of(store, manifest), self._fence)
        except NameTakenError as error:
            return partial(self._over, wish, str(error))
        except Exception as error:
            return partial(self._trouble, wish, error)
        return partial(self._taken, wish, kept)

    def _deleted(self, wish: SavepointWish) -> Callable[[], None]:
        try:
            self._fence.check()
            if (newer := self._newer_than(wish)) is not None:
                said = f"the savepoint {wish.name!r} that is there was asked for after this: to delete it, ask again"
                return partial(self._stays, wish, newer, said)
            self._savepoints.delete(wish.name)
        except NoSavepointError:
            pass  # also where the answer to an attempt before was lost
        except Exception as error:
            return partial(self._trouble, wish, error)
        return partial(self._taken, wish, None)

    def _newer_than(self, wish: SavepointWish) -> Savepoint | None:
        """The savepoint of this name, where a later wish has asked for it: a wish that was carried out may come again, from
        a driver that ended before it had removed it, or an operator that does not know any more.  NoSavepointError."""
        try:
            found = self._savepoints.read(wish.name)
        except (DamagedError, NewerVersionError):
            return None
        return found if found.wish > wish.id else None

    # -- what came of it -----------------------------------------------------------------------------------------------

    def _taken(self, wish: SavepointWish, kept: Savepoint | None) -> None:
        assert self._known is not None
        self._known.pop(wish.name, None)
        if kept is not None:
            self._known[wish.name] = kept
            log.info(
                "event=savepoint name=%s position=%d bytes=%d", kept.name, kept.position, kept.size_bytes
            )
        self._over(wish, "")

    def _stays(self, wish: SavepointWish, there: Savepoint, why: str) -> None:
        assert self._known is not None
        self._known[wish.name] = there
        self._over(wish, why)

    def _over(self, wish: SavepointWish, refused: str) -> None:
        if refused:
            log.warning("event=savepoint-refused name=%s reason=%r", wish.name, refused)
        self._waits.pop(wish.id, None)
        self._done[wish.id] = refused
        for old in list(self._done)[:-KEPT]:
            del self._done[old]

    def _trouble(self, wish: SavepointWish | None, error: Exception) -> None:
        """It is tried again after a while, from a newer checkpoint where a file of this one may be damaged."""
        if isinstance(error, SupersededError):
            raise error
        said = f"savepoint waits: {error if isinstance(error, CheckpointError) else repr(error)}"
        self._again = self._engine.clock() + AGAIN_S
        if wish is None:  # nobody waits for the list
            log.warning("event=savepoints-not-listed reason=%r", said)
        else:
            self._engine.problems.append(said)
            self._waits[wish.id] = said
            self._asked[wish.id] = max(1, self._engine.horizon)


def states_of(store: CheckpointStore, manifest: Manifest) -> Iterator[tuple[str, Tables, int]]:
    """Partition, tables and version of each state of a checkpoint, without output that was not shown yet: whoever made it
    shows it."""
    for partition, file in manifest.files.items():
        tables = store.read_state(file)
        kept = {name: table for name, table in tables.items() if not name.startswith(STAGED)}
        yield partition, kept, file.state_version
