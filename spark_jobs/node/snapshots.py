"""Checkpoint writing off the critical path: a frozen state is encoded and stored by one background thread.

`freeze` runs on the processing thread and must be quick; what it returns is immutable, so processing goes on at once
(docs/decisions/0020-global-checkpoints.md).  With rounds the queue is bounded by the punctuations that are under way,
which the driver limits.  A store that refuses (a full disk) is asked again for as long as the punctuation is open: a
checkpoint is late then, and not lost.  While states of lost partitions are fetched somewhere, the driver has snapshots
wait (`hold`).

A snapshot belongs to one installation of its partition.  When that is dropped (a rollback, a move), what is queued of it is
forgotten: it is the state of a history that does not count any more.  File names hold the installation, so that a snapshot
that was being stored meanwhile never overwrites one of the next.  Whatever the encoding function of an operator or a store's
client raises is reported and tried again: nothing ends the thread, as no partition of the node would have a checkpoint then.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

from polars.exceptions import PanicException

from reprise.spark_jobs.node.command import GRANT_S, Ack
from reprise.spark_jobs.node.local_state import LocalState
from reprise.spark_jobs.node.state_tables import version_of
from reprise.spark_jobs.pages import Parts
from reprise.spark_jobs.platform import PLATFORM, Platform
from reprise.spark_jobs.spill import SpillStore
from reprise.spark_jobs.state.checkpoints import CheckpointStore
from reprise.spark_jobs.state.page_file import OvertakenError, PagedState, tables_alone
from reprise.spark_jobs.state.snapshot import StateFile

Encode = Callable[[], Parts]

MOST_WAITING = 2
"""Snapshots of one partition that may wait for the store at once, where it stores itself by its own clock."""
LOOK_S = 0.05
"""Between two looks whether snapshots still wait for states that are fetched."""
RETRY_S = 1.0
"""Between two attempts to store a snapshot."""


@dataclass(frozen=True, slots=True)
class FrozenState:
    """The frozen state of one installation of a partition."""

    partition: str
    installation: str
    position: int
    encode: Encode
    pause_s: float
    """For how long the partition stood still for it."""
    since: float
    """When it was frozen, by the platform's clock of seconds."""
    local: LocalState | None = None
    """Set for a snapshot by the partition's own clock, which is worth storing for as long as the installation stands."""
    held: list[tuple[PagedState, int]] = field(default_factory=list)
    """A state in pages with its version, once it is encoded: the same bytes are stored when that is tried again, as it is
    known no longer by then what a file had of it when it was frozen."""


@dataclass(slots=True)
class StoreCost:
    """What all files of states that were stored have cost."""

    files: int = 0
    pause_s: float = 0.0
    """Seconds for which partitions stood still while their states were frozen."""
    store_s: float = 0.0
    """Seconds from freezing each until its file was there."""


class SnapshotWriter:
    """One thread that stores snapshots in the order they were taken; `host` goes into the file names.  `spilled`: where
    states are that are larger than memory; what is written of them goes there first, too."""

    def __init__(
        self,
        store: CheckpointStore,
        host: str,
        platform: Platform = PLATFORM,
        spilled: SpillStore | None = None,
    ) -> None:
        self._store, self._platform = store, platform
        self._keep = None if spilled is None else spilled.kept
        self._host = host
        self.cost = StoreCost()
        """For the driver of now; read by the host's thread, and changed by the writer's."""
        self._jobs = platform.queue()
        self._lock = threading.Lock()
        self._acks: list[Ack] = []
        self._problems: list[str] = []
        self._open: Collection[int] = ()
        self._installed: Mapping[str, str] | None = None
        self._closing = platform.event()
        self._held_until = float("-inf")
        self._thread = platform.begin(self._work, "snapshots")

    def submit(
        self, partition: str, installation: str, position: int, encode: Encode | None, pause_s: float = 0.0
    ) -> None:
        """Store a snapshot later; one without state is acknowledged at once.  `pause_s`: seconds that freezing it took."""
        if encode is None:
            with self._lock:
                self._acks.append(Ack(partition, installation, position, None))
        else:
            now = self._platform.elapsed()
            self._jobs.put(FrozenState(partition, installation, position, encode, pause_s, now))

    def submit_local(
        self, partition: str, installation: str, position: int, state: LocalState, pause_s: float = 0.0
    ) -> None:
        """The same for one that the partition takes by its own clock."""
        if state.encode is None and state.sealed is None:
            with self._lock:
                self._acks.append(
                    Ack(
                        partition, installation, position, None, state.channels, state.watermark, state.forced
                    )
                )
        else:
            encode, now = state.encode or dict, self._platform.elapsed()
            self._jobs.put(FrozenState(partition, installation, position, encode, pause_s, now, state))

    def is_full(self, partition: str) -> bool:
        """Whether as many snapshots of a partition wait as there may be: each holds memory, and one that messages force
        comes whether those before it are stored or not."""
        with self._jobs.mutex:
            waiting = [job for job in self._jobs.queue if job is not None and job.partition == partition]
        return len(waiting) >= MOST_WAITING

    def keep(self, punctuations: Collection[int], installed: Mapping[str, str]) -> None:
        """The punctuations that are open, and the installation of each partition here: a snapshot of another punctuation is
        worth no second attempt, one of another installation is forgotten."""
        with self._lock:
            self._open, self._installed = tuple(punctuations), dict(installed)
            self._acks = [a for a in self._acks if self._current(a.partition, a.installation)]

    def hold(self, held: bool) -> None:
        """Whether what is queued waits; until the next call, for `GRANT_S` at most."""
        self._held_until = self._platform.elapsed() + GRANT_S if held else float("-inf")

    def collect(self) -> tuple[list[Ack], list[str]]:
        """What was stored, and what went wrong, since the last call."""
        with self._lock:
            acks, problems = self._acks, self._problems
            self._acks, self._problems = [], []
        return acks, problems

    def count_anew(self) -> None:
        """Begin the cost at nothing: another driver counts now."""
        with self._lock:
            self.cost = StoreCost()

    def close(self, wait: bool = True) -> None:
        """Try once what is queued, then end the thread; without `wait` forget what is queued, and wait for nothing."""
        if not wait:
            with self._lock:
                self._installed = {}
        self._closing.set()
        self._jobs.put(None)
        if wait:
            self._thread.join()

    def _current(self, partition: str, installation: str) -> bool:
        return self._installed is None or self._installed.get(partition) == installation

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            while self._platform.elapsed() < self._held_until and not self._closing.wait(LOOK_S):
                pass
            if not self._current(job.partition, job.installation):
                continue
            try:
                ack = self._stored(job)
            except (Exception, PanicException) as error:  # of user code, or of a store's client: others go on
                with self._lock:
                    self._problems.append(
                        f"{job.partition}: checkpoint {job.position} not stored: {type(error).__name__}: {error}"
                    )
                wanted = job.local is not None or job.position in self._open
                wanted = wanted and not isinstance(error, OvertakenError)
                if not self._closing.wait(RETRY_S) and wanted:
                    self._jobs.put(job)
            else:
                with self._lock:
                    self.cost.files += 1
                    self.cost.pause_s += job.pause_s
                    self.cost.store_s += self._platform.elapsed() - job.since
                    if self._current(job.partition, job.installation):
                        self._acks.append(ack)

    def _stored(self, job: FrozenState) -> Ack:
        writer, local = f"{self._host}.{job.installation}", job.local or LocalState(None)
        if (sealed := local.sealed) is not None:
            segment = sealed.encode()
            file = self._store.write_segment(
                job.position, job.partition, writer, segment.data, segment.others, segment.others_bytes
            )
            sealed.is_stored(file)
            return Ack(
                job.partition,
                job.installation,
                sealed.since,
                file.to_json(),
                sealed.channels,
                sent=sealed.batch,
                footprints=segment.footprints,
            )
        file = self._write(job, writer)
        return Ack(
            job.partition,
            job.installation,
            job.position,
            file.to_json(),
            local.channels,
            forced=local.forced,
            made=local.made,
            inputs=local.inputs,
        )

    def _write(self, job: FrozenState, writer: str) -> StateFile:
        if not job.held:
            parts = job.encode()
            version = version_of(parts)
            if (tables := tables_alone(parts)) is not None:
                file = self._store.write_state(job.position, job.partition, writer, tables)
                return replace(file, state_version=version)
            job.held.append(
                (self._store.pages_of(job.position, job.partition, writer, parts, self._keep), version)
            )
        paged, version = job.held[0]
        return replace(self._store.write_pages(paged), state_version=version)
