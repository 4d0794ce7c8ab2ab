"""How many seconds each partition and each query would be down if a node were lost now.

A partition takes what every recovery takes (`Overhead`), the reading of its state, and the rows that it applies once more.
All partitions of a node are lost together, and where there is room for them on one other node they are read and replayed
there by one process: so a query takes as long as the node with the most to do, of those that it needs something of.

Not in it: waiting for a node, and catching up with what comes in meanwhile.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, replace
from typing import Protocol

from reprise.algorithms import UnionSet
from reprise.algorithms.recovery_time import Aim, Overhead, RestoreWork
from reprise.controller.zookeeper.observation import Observation
from reprise.scheduler.model import PartitionStats, Progress


@dataclass(frozen=True, slots=True)
class PartitionRecovery:
    """Seconds beyond `Overhead`.  `assumed`: parts that rest on no measurement."""

    load_s: float
    replay_s: float
    rows: int
    assumed: tuple[str, ...]
    aim: Aim | None = None
    """How much it may have to do, where that follows from an objective."""


class Needing(Protocol):
    """A query."""

    @property
    def id(self) -> str:
        """Its output partition."""

    @property
    def partitions(self) -> Set[str]:
        """All that it needs."""


@dataclass(frozen=True, slots=True)
class QueryRecovery:
    """`node`: the one that would take longest, of those that it needs something of."""

    seconds: float
    node: str


def overhead_of(seen: Observation) -> Overhead:
    """What every recovery takes, as the driver has measured it."""
    return Overhead.of(seen.progress.overhead if seen.progress else {})


def partition_recoveries(
    partitions: Iterable[str], seen: Observation, every: Mapping[str, int], batch_interval_s: float
) -> dict[str, PartitionRecovery]:
    """What each partition at work would take, of which it is known.  One with a standby that could go on in its place reads
    nothing; it replays nothing where that is active, and what its copy does not have where it is passive.  What one is fed
    again from that its upstreams keep for it is not known.

    `every`: operators whose standbys are passive, with the batches between what each is sent; `batch_interval_s`: seconds
    between batches."""
    progress = seen.progress
    if progress is None:
        return {}
    unknown = progress.backed | progress.unbacked
    found = {}
    for partition in partitions:
        stats = seen.stats.get(partition)
        if stats is None or stats.restore is None or partition not in progress.positions:
            continue
        work, state_bytes = stats.restore, stats.state_bytes
        if partition in progress.standbys:
            sent_every, state_bytes = every.get(partition.rpartition(".")[0], 0), 0
            rows = _missing_in_copy(partition, stats, work, progress, sent_every, batch_interval_s)
            work = replace(work, rows=rows, aim=None)
        elif partition in unknown:
            continue
        load_s, replay_s = work.load_s(state_bytes), work.replay_s
        found[partition] = PartitionRecovery(
            round(load_s, 3), round(replay_s, 3), work.rows, work.assumed(state_bytes), work.aim
        )
    return found


def _missing_in_copy(
    partition: str,
    stats: PartitionStats,
    work: RestoreWork,
    progress: Progress,
    every: int,
    batch_interval_s: float,
) -> int:
    """Rows that a standby which is promoted applies once more: none where it is active.  A passive one lacks up to `every`
    batches, or as many as it is behind now, of as many rows as the last ones had.  No checkpoint is ahead of one that could
    go on, so it never lacks more than what follows the checkpoint, which counts where it is not known how many come."""
    if not every:
        return 0
    if stats.input_rows_s is None:
        return work.rows
    batches = max(every, progress.positions[partition] - progress.standbys[partition])
    return min(work.rows, math.ceil(stats.input_rows_s * batch_interval_s * batches))


def query_recoveries(
    queries: Iterable[Needing], seconds: Mapping[str, tuple[str, float]], overhead: Overhead
) -> dict[str, QueryRecovery]:
    """The recovery of each query of whose partitions all is known; a set that queries share is gone through once.
    `seconds`: partition -> its node, and what it takes there beyond `overhead`."""
    nodes: dict[str, float] = {}
    for node, own_s in seconds.values():
        nodes[node] = nodes.get(node, 0.0) + own_s
    shared = dict[int, frozenset[str] | None]()
    found = {}
    for query in queries:
        common, own = UnionSet.parts_of(query.partitions)
        if id(common) not in shared:
            shared[id(common)] = _nodes_of(common, seconds)
        among, mine = shared[id(common)], _nodes_of(own, seconds)
        if among is not None and mine is not None and (all_of := among | mine):
            slowest = max(sorted(all_of), key=lambda node: nodes[node])
            found[query.id] = QueryRecovery(round(overhead.seconds + nodes[slowest], 3), slowest)
    return found


def _nodes_of(members: Set[str], seconds: Mapping[str, tuple[str, float]]) -> frozenset[str] | None:
    """Where they are; None: of one of them it is not known what it would have to do."""
    return frozenset(seconds[p][0] for p in members) if members <= seconds.keys() else None
