"""What the data plane can be measured by: how long the parts of a job take, what restoring and replaying cost.

The engine tells what it does as it does it, in numbers that it has anyway; nothing here asks a clock more often than twice a
partition's restoration and four times a job.  Whoever serves these figures drains the lists; nobody has to.  Invariant:
counters never fall while a driver lives, and its successor begins at zero.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from reprise.algorithms.failure import FailureKind
from reprise.spark_jobs.engine.restore_times import RestoreTimes
from reprise.spark_jobs.node.command import Report, Usage

KEPT = 1024
"""Jobs whose times are kept for a reader; older ones are forgotten."""

_TOLD = {
    "spilled": "spilled_bytes",
    **{
        name: name
        for name in (
            "states_here",
            "states_there",
            "header_bytes",
            "message_bytes",
            "standby_bytes",
            "files_stored",
            "pause_s",
            "store_s",
        )
    },
}
"""What a host counts since it began, as its report calls it -> as it is called here."""


@dataclass(frozen=True, slots=True)
class JobTimes:
    """Seconds of one chain of supersteps.  `compute_s`: the busiest node's; `exchange_s`: the rest of the Spark job."""

    prepare_s: float
    compute_s: float
    exchange_s: float
    settle_s: float


@dataclass(slots=True)
class _Restoration:
    """One partition from the order to restore it until it is where the stream was before."""

    began: float
    size: int
    working_since: float | None = None
    bytes_before: int = 0


@dataclass(slots=True)
class Figures:
    """Times are of a monotonic clock, seconds; sizes are bytes."""

    jobs: deque[JobTimes] = field(default_factory=lambda: deque(maxlen=KEPT))
    failed_jobs: int = 0
    restored: int = 0
    restore_bytes: int = 0
    restore_s: float = 0.0
    replay_bytes: int = 0
    replay_s: float = 0.0
    spilled_bytes: int = 0
    states_here: int = 0
    """States that partitions began with and that their node had kept."""
    states_there: int = 0
    """States that partitions began with and that came from the checkpoint store."""
    header_bytes: int = 0
    """What went between nodes for communication-induced checkpoints, beside rows."""
    message_bytes: int = 0
    """Rows that went between nodes, encoded; each as often as it was sent, and none that went to standbys."""
    standby_bytes: int = 0
    """What went to standbys on other nodes, encoded: rows once more to active ones, states and outputs to passive ones."""
    acknowledgement_bytes: int = 0
    """What orders said to nodes of standbys, and of output that partitions with upstream backup do not need."""
    files_stored: int = 0
    """States that hosts have stored, of checkpoints that were completed or not."""
    pause_s: float = 0.0
    """For which partitions stood still while these were frozen."""
    store_s: float = 0.0
    """From freezing these until their files were there, summed over them."""
    times: RestoreTimes = field(default_factory=RestoreTimes)
    began: float | None = None
    """When the first job of this driver was done."""
    snapshots: int = 0
    """Of partitions, in global checkpoints that were completed."""
    snapshot_bytes: int = 0
    """Bytes that were written for them."""
    checkpoint_s: float = 0.0
    """From when its batch was due until the newest checkpoint was complete."""
    _reach: int = 0
    """The last batch that was ever released and due: what is before it is replayed."""
    _under_way: dict[str, _Restoration] = field(default_factory=dict)
    _announced: dict[int, float] = field(default_factory=dict)
    _counted: dict[str, tuple[float, ...]] = field(default_factory=dict)

    def reached(self, horizon: int) -> None:
        """Before a rollback, and whenever the horizon has moved."""
        self._reach = max(self._reach, horizon)

    def installs(self, partition: str, position: int, size: int, now: float) -> None:
        """A partition is to be restored from `position`; the first placement of a new stream restores nothing."""
        self.times.installs(partition, now)
        if position > 0 or self._reach > 0:
            self._under_way[partition] = _Restoration(now, size)

    def loses(self, partition: str, kind: FailureKind, now: float) -> None:
        """It does not come back from this attempt."""
        self.times.loses(partition, kind, now)
        self._under_way.pop(partition, None)

    def applied(self, positions: Mapping[str, int], usage: Mapping[str, Usage], now: float) -> None:
        """Where partitions are after a job; those that are not in `positions` are not at work."""
        self.began = now if self.began is None else self.began
        for partition in [p for p in self._under_way if p in positions]:
            one, done = self._under_way[partition], usage.get(partition, Usage(0.0, 0))
            if one.working_since is None:
                one.working_since = now
                self.restored += 1
                self.restore_bytes += one.size
                self.restore_s += now - one.began
                self.times.installed(now - one.began, done)
            else:
                self.replay_s += now - one.working_since
                one.working_since = now
            self.replay_bytes += max(0, done.input_bytes - one.bytes_before)
            one.bytes_before = done.input_bytes
            if positions[partition] >= self._reach:
                del self._under_way[partition]

    def counts(self, report: Report) -> None:
        """What a host has counted since it began; a new host begins at zero under another name."""
        now = tuple(getattr(report, told) for told in _TOLD)
        before = self._counted.get(report.host, (0,) * len(now))
        for name, total, known in zip(_TOLD.values(), now, before, strict=True):
            setattr(self, name, getattr(self, name) + max(0, total - known))
        self._counted[report.host] = now

    def stores(self, sizes: Iterable[int]) -> None:
        """The files of a global checkpoint that is complete."""
        for size in sizes:
            self.snapshots += 1
            self.snapshot_bytes += size

    def announced(self, punctuations: Collection[int], due: Callable[[int], float]) -> None:
        """All that are open now; `due`: when a batch is."""
        self._announced = {p: self._announced.get(p) or due(p) for p in punctuations}

    def completes(self, position: int, now: float) -> None:
        """A global checkpoint."""
        self.checkpoint_s = now - self._announced.get(position, now)
