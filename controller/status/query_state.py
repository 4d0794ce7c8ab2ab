"""How each query stands: derived from an observation alone, so `run` and `status` cannot disagree.

A query is available when all of its partitions are at work (Su and Zhou, Def. 1: not before all are) and, while an
incident is open, it is back as the incident's record says, or near the newest batch if the incident has not touched it
(`reprise.scheduler.back`).  Outside of incidents a query that is behind is slow, not down; but in and out of incidents
its output must advance where batches are due (`reprise.controller.zookeeper.advance`).  It is recovering when
everything it needs is placed on living nodes but not yet there, or behind; it waits when something it needs has no
place, and then the newest plan says why, and while the driver does not report.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from reprise.algorithms import UnionSet
from reprise.controller.status.partition_state import PartitionState, partition_state
from reprise.controller.status.share import priority_share
from reprise.controller.utc import utc
from reprise.controller.zookeeper.advance import stalled
from reprise.controller.zookeeper.observation import Observation
from reprise.scheduler import back
from reprise.scheduler.incident import PlanRecord
from reprise.scheduler.missing import Missing
from reprise.scheduler.model import QueryView
from reprise.spark_jobs.topology import Query, Topology


class Status(StrEnum):
    """How a query stands."""

    AVAILABLE = "available"
    RECOVERING = "recovering"
    WAITING = "waiting"


@dataclass(frozen=True, slots=True)
class QueryState:
    """One line of the status table."""

    id: str
    priority: int
    status: Status
    lag: int
    """Batches between its output and the last one that is due."""
    reason: str = ""
    """Why it waits, or what it is doing."""
    stalled_since: float | None = None
    """All of its partitions are at work, and its output has not advanced since then although batches are due."""


@dataclass(frozen=True, slots=True)
class RunState:
    """Everything that the status page shows."""

    observation: Observation
    queries: tuple[QueryState, ...]
    """The most valuable first."""
    standby: frozenset[str] = frozenset()
    """Nodes that host nothing."""
    frozen: frozenset[str] = frozenset()

    def count(self, status: Status) -> int:
        return sum(query.status is status for query in self.queries)

    @property
    def stalled(self) -> tuple[QueryState, ...]:
        """Queries that run and show nothing."""
        return tuple(query for query in self.queries if query.stalled_since is not None)

    @property
    def share(self) -> float:
        """Priority-weighted share of available queries, 0..1."""
        return priority_share((query.priority, query.status is Status.AVAILABLE) for query in self.queries)


def run_state(topology: Topology, observation: Observation, frozen: frozenset[str] = frozenset()) -> RunState:
    """The state of every query."""
    return state_of(topology.queries.values(), observation, frozen)


def state_of(
    every: Iterable[Query | QueryView], observation: Observation, frozen: frozenset[str] = frozenset()
) -> RunState:
    """The same for those who know of nothing but queries."""
    queries = list(every)
    parts = _Parts(queries, observation)
    states = [_query_state(query, parts, observation) for query in queries]
    states.sort(key=lambda query: -query.priority)
    desired = observation.desired
    hosting = frozenset(desired.assignment.values()) if desired else frozenset()
    return RunState(observation, tuple(states), frozenset(observation.nodes) - hosting, frozen)


class _Parts:
    """How each partition stands that a query needs; what queries share is looked at once."""

    def __init__(self, queries: Sequence[Query | QueryView], seen: Observation) -> None:
        parts = [UnionSet.parts_of(query.partitions) for query in queries]
        shared = {id(common): common for common, _ in parts}
        needed = frozenset[str]().union(*shared.values(), *(own for _, own in parts))
        self.states = {p: partition_state(p, seen) for p in needed}
        failed = seen.progress.failed if seen.progress else {}
        order = {p: k for k, p in enumerate((*failed, *(needed - failed.keys())))}
        self.poisoned, self.homeless, self.restoring = (
            Missing(order, {p for p, state in self.states.items() if state is kind})
            for kind in (PartitionState.POISONED, PartitionState.WAITING, PartitionState.RESTORING)
        )


def _query_state(query: Query | QueryView, parts: _Parts, seen: Observation) -> QueryState:
    progress, desired = seen.progress, seen.desired
    if progress is None or desired is None:
        return QueryState(
            query.id, query.priority, Status.WAITING, 0, seen.waits or "the topology has not started"
        )
    lag = back.behind(progress, seen.incident, query.id)
    if why := seen.waits or seen.silence:
        return QueryState(query.id, query.priority, Status.WAITING, lag, why)
    if poisoned := parts.poisoned.first(query.partitions, 1):
        return QueryState(query.id, query.priority, Status.WAITING, lag, str(progress.failed[poisoned[0]]))
    if parts.homeless.count(query.partitions):
        homeless = parts.homeless(query.partitions)
        return QueryState(query.id, query.priority, Status.WAITING, lag, _why(query.id, homeless, seen))
    if restoring := parts.restoring.count(query.partitions):
        reason = f"{restoring} of {len(query.partitions)} partitions are being restored"
        return QueryState(query.id, query.priority, Status.RECOVERING, lag, reason)
    return _at_work(query, parts.states.get(query.id), lag, seen)


def _at_work(
    query: Query | QueryView, output: PartitionState | None, lag: int, seen: Observation
) -> QueryState:
    """The state of a query all of whose partitions are at work: whether its output is there."""
    still = seen.still.get(query.id)
    times = seen.incident.queries.get(query.id) if seen.incident else None
    if still is not None and times is not None:
        # what it could not show while something that it needs was lost tells nothing of how it runs now
        still = None if times.restored_at is None else max(still, times.restored_at)
    if seen.connected and still is not None and stalled(still, lag, seen.time):
        reason = _no_progress(query.id, still, seen)
        return QueryState(query.id, query.priority, Status.RECOVERING, lag, reason, still)
    near = output is not PartitionState.CATCHING_UP
    if not near if times is None else times.caught_up_at is None:
        reason = (
            f"near the newest batch, and back when that holds for {back.HOLD_S:g} s"
            if near
            else "catching up"
        )
        return QueryState(query.id, query.priority, Status.RECOVERING, lag, reason)
    return QueryState(query.id, query.priority, Status.AVAILABLE, lag)


def _no_progress(query: str, since: float, seen: Observation) -> str:
    """Without numbers that grow: what says the same is not written again."""
    at = utc(since).strftime("%H:%M:%S")
    position = seen.progress.positions[query] if seen.progress else 0
    trouble = f"; the newest problem: {seen.problems[-1]}" if seen.problems else ""
    return f"shows nothing after batch {position} since {at} UTC, although more is due{trouble}"


def _why(query: str, homeless: Sequence[str], seen: Observation) -> str:
    plan = current_plan(seen)
    if plan is not None and query in plan.left_out:
        return plan.left_out[query]
    gone: Mapping[str, str] = seen.desired.assignment if seen.desired else {}
    lost = sorted({gone[p] for p in homeless if p in gone})
    return (
        f"{len(homeless)} partitions lost with {', '.join(lost)}; no plan yet"
        if lost
        else "no plan has placed it yet"
    )


def current_plan(seen: Observation) -> PlanRecord | None:
    """The newest plan of the open incident."""
    if seen.incident is None:
        return None
    plans = seen.plans_of(seen.incident)
    return plans[-1] if plans else None
