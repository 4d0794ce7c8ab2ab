"""What a partition needs before it begins, got beside the host's thread: its stored state, read, checked and decoded, and
its source or sink, opened.

A store, a broker or a file system may take seconds to answer, or for ever.  A thread of its own waits for it here;
the host's thread, on which all partitions of the node work, asks whether it is there, and installs the partition when it is.
Invariants: the host's thread waits for nothing here; what is no longer wanted (the partition was dropped, or is to begin
from something else) is never handed out, and its source or sink is closed; the states that are being read, or wait to be
installed, are together no larger than `LIMIT`, but one may always be; and what standbys begin with holds up no partition: it
is got one at a time, while no state of a partition is read or waits for that, and is no part of these bounds; and a state
that the driver has not granted is not begun to be read (`allow`), nor is any when nothing was heard of it for `GRANT_S`.

Threads are made as they are needed and end with their work: one that hangs in a client which never answers keeps no other
partition waiting, up to `MOST_THREADS` of them.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial

from polars.exceptions import PanicException

from reprise.spark_jobs.contract import Source, Tables
from reprise.spark_jobs.node.command import GRANT_S
from reprise.spark_jobs.node.partition_log import EventualCheckpoint
from reprise.spark_jobs.platform import PLATFORM, Platform
from reprise.spark_jobs.sinks import Sink

log = logging.getLogger("reprise.node")

LIMIT = 256 * 2**20
"""Bytes of states that are being read or wait to be installed, on one node."""
PARALLEL = 4
"""Preparations at the same time that somebody still waits for."""
MOST_THREADS = 16
"""Also with those that nobody waits for any more, and that have not been answered yet."""
SLOW_S = 10.0
"""What takes longer is told as a problem."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """What a partition begins with: its stored state, and its source or its sink, opened; None: it has none.  `log`: what is
    stored of it, where that is slot by slot."""

    tables: Tables | None = None
    source: Source | None = None
    sink: Sink | None = None
    log: EventualCheckpoint | None = None
    seconds: float = 0.0
    """That it took to read."""
    fetched: int = 0
    """Bytes of it that the store has given; the others were on the disk of this node."""

    def close(self) -> None:
        """Give back connections, where no partition was made of it."""
        for opened in (self.source, self.sink):
            if opened is not None:
                opened.close()


class _Stage(Enum):
    QUEUED = auto()
    UNDER_WAY = auto()
    DONE = auto()


@dataclass(slots=True, eq=False)
class _Preparation:
    installation: str
    size: int
    prepare: Callable[[], Prepared]
    asked: float
    value: float = 0.0
    standby: bool = False
    stage: _Stage = _Stage.QUEUED
    told: bool = False
    dropped: bool = False
    prepared: Prepared | None = None
    error: BaseException | None = None


class Restorer:
    """The preparations of one host, those of the greatest value first and else as they were asked for."""

    def __init__(
        self, limit: int = LIMIT, clock: Callable[[], float] | None = None, platform: Platform = PLATFORM
    ) -> None:
        self._limit, self._clock, self._begin = limit, clock or platform.elapsed, platform.begin
        self._changed = threading.Condition()
        self._wanted: dict[str, _Preparation] = {}
        self._threads = 0
        """Those of partitions."""
        self._held = 0
        """Bytes of states that are being read or wait to be installed, also of those that nobody wants any more."""
        self._standby: _Preparation | None = None
        """That of a standby which has begun and is not over, also if nobody wants it any more."""
        self._waits: Collection[str] = ()
        """Partitions whose states are not to be read yet."""
        self._heard: float | None = None
        """When that was said; None: nobody says it, and nothing waits."""

    def allow(self, waits: Collection[str]) -> None:
        """What is asked for may be begun, but the states of `waits`; until the next call, for `GRANT_S` at most."""
        with self._changed:
            self._waits, self._heard = frozenset(waits), self._clock()
            self._begin_more()

    def ask(
        self,
        partition: str,
        installation: str,
        size: int,
        prepare: Callable[[], Prepared],
        value: float = 0.0,
        standby: bool = False,
    ) -> Prepared | None:
        """What `prepare` has made for this installation, handed out once; None: not yet, ask again.

        The first call has it begun; `size`: bytes of the state that it reads; `value`: the greater, the earlier its turn
        comes among those that wait; `standby`: it is for one.  Raises what `prepare` has raised, and the next call has it
        begun anew.
        """
        with self._changed:
            found = self._wanted.get(partition)
            if found is not None and found.installation != installation:
                self._drop(partition)
                found = None
            if found is None:
                found = self._wanted[partition] = _Preparation(
                    installation, size, prepare, self._clock(), value, standby
                )
                self._begin_more()
            if found.stage is not _Stage.DONE:
                return None
            self._release(self._wanted.pop(partition))
            if found.error is not None:
                raise found.error
            return found.prepared

    def slow(self) -> list[str]:
        """What is asked for since `SLOW_S` and is not there, each told once."""
        found = []
        with self._changed:
            for partition, one in self._wanted.items():
                if one.stage is not _Stage.DONE and not one.told and self._clock() - one.asked >= SLOW_S:
                    one.told = True
                    found.append(
                        f"{partition}: what it begins with ({one.size} bytes of state, its source or sink) has not come for "
                        f"{SLOW_S:.0f} s; the others go on"
                    )
        return found

    def forget(self, partition: str) -> None:
        """The partition is not to be installed any more."""
        with self._changed:
            if partition in self._wanted:
                self._drop(partition)
                self._begin_more()

    def close(self) -> None:
        """Nothing is wanted any more; nobody is waited for."""
        with self._changed:
            for partition in list(self._wanted):
                self._drop(partition)

    def _drop(self, partition: str) -> None:
        found = self._wanted.pop(partition)
        found.dropped = True
        if found.stage is _Stage.DONE:
            self._release(found)
            self._begin(partial(_close, found.prepared), "dropped")

    def _release(self, found: _Preparation) -> None:
        if found.standby:
            self._standby = None
        else:
            self._held -= found.size
        self._begin_more()

    def _is_granted(self, one: _Preparation) -> bool:
        if not one.size or self._heard is None:
            return True  # it reads no state: a source or a sink is opened
        waits = self._wanted.keys() & self._waits
        return self._clock() - self._heard <= GRANT_S and not any(self._wanted[p] is one for p in waits)

    def _begin_more(self) -> None:
        self._begin_partitions([p for p in self._wanted.values() if not p.standby])
        queued = [p for p in self._wanted.values() if p.standby and p.stage is _Stage.QUEUED]
        if self._standby is None and queued and not any(map(_comes_first, self._wanted.values())):
            self._standby = found = max(queued, key=lambda one: one.value)
            found.stage = _Stage.UNDER_WAY
            self._begin(partial(self._work, found), "restoring")

    def _begin_partitions(self, wanted: Sequence[_Preparation]) -> None:
        begun = sum(p.stage is _Stage.UNDER_WAY for p in wanted)
        holding = any(p.stage is not _Stage.QUEUED for p in wanted)
        queued = [p for p in wanted if p.stage is _Stage.QUEUED and self._is_granted(p)]
        for found in sorted(queued, key=lambda one: -one.value):
            if begun >= PARALLEL or self._threads >= MOST_THREADS:
                return
            if holding and self._held + found.size > self._limit:
                return  # nobody of less value overtakes it, or what is large would wait for ever
            found.stage = _Stage.UNDER_WAY
            begun, holding = begun + 1, True
            self._threads += 1
            self._held += found.size
            self._begin(partial(self._work, found), "restoring")

    def _work(self, found: _Preparation) -> None:
        prepared: Prepared | None = None
        error: BaseException | None = None
        try:
            prepared = found.prepare()
        except (Exception, PanicException) as raised:  # of a store's or a broker's client, or of user code
            error = raised
        except BaseException as raised:
            # user code that ends its process, as it thinks: its partition alone fails
            error = RuntimeError(f"{type(raised).__name__}: {raised}")
        with self._changed:
            self._threads -= not found.standby
            found.prepared, found.error, found.stage = prepared, error, _Stage.DONE
            if dropped := found.dropped:
                self._release(found)
            else:
                self._begin_more()
            self._changed.notify_all()
        if dropped:
            _close(prepared)


def _comes_first(one: _Preparation) -> bool:
    """Whether standbys wait for it: a partition whose turn has not come, or whose state is being read."""
    queued, reads = one.stage is _Stage.QUEUED, one.stage is _Stage.UNDER_WAY and one.size > 0
    return not one.standby and (queued or reads)


def _close(prepared: Prepared | None) -> None:
    """Nobody has used what is closed here, so what it raises concerns nobody."""
    try:
        if prepared is not None:
            prepared.close()
    except Exception:
        log.debug("event=closing-failed", exc_info=True)
