"""How each query stands: derived from an observation alone, so `run` and `status` cannot disagree.

A query is available when all of its partitions are at work and, while an incident is open, its output is close to the
horizon (seed 003, Def. 1: not before all are).  Outside of incidents a query that is behind is slow, not down.  It is
recovering when everything it needs is placed on living nodes but not yet there, or behind; it waits when something it
needs has no place, and then the newest plan says why.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from controller.run.observation import Observation
from scheduler.incident import PlanRecord
from scheduler.model import QueryView
from spark_jobs.topology import Query, Topology

CAUGHT_UP_BATCHES = 2
"""As `scheduler.model.Policy.caught_up_batches`."""


class Status(StrEnum):
    """Of a query."""

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
    """Batches between its output and the horizon."""
    reason: str = ""
    """Why it waits, or what it is doing."""


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
    def share(self) -> float:
        """Priority-weighted share of available queries, 0..1."""
        total = sum(query.priority for query in self.queries)
        ready = sum(query.priority for query in self.queries if query.status is Status.AVAILABLE)
        return ready / total if total else 1.0


def run_state(topology: Topology, observation: Observation, frozen: frozenset[str] = frozenset()) -> RunState:
    """The state of every query."""
    return state_of(topology.queries.values(), observation, frozen)


def state_of(
    every: Iterable[Query | QueryView], observation: Observation, frozen: frozenset[str] = frozenset()
) -> RunState:
    """The same for those who know of nothing but queries."""
    queries = [_query_state(query, observation) for query in every]
    queries.sort(key=lambda query: -query.priority)
    desired = observation.desired
    hosting = frozenset(desired.assignment.values()) if desired else frozenset()
    return RunState(observation, tuple(queries), frozenset(observation.nodes) - hosting, frozen)


def _query_state(query: Query | QueryView, seen: Observation) -> QueryState:
    progress, desired = seen.progress, seen.desired
    if progress is None or desired is None:
        return QueryState(query.id, query.priority, Status.WAITING, 0, "the topology has not started")
    lag = max(0, progress.horizon - progress.positions.get(query.id, 0))
    poisoned = {
        p: why for p, why in progress.failed.items() if p in query.partitions and why.startswith("poison")
    }
    if poisoned:
        return QueryState(query.id, query.priority, Status.WAITING, lag, next(iter(poisoned.values())))
    homeless = sorted(p for p in query.partitions if desired.assignment.get(p) not in seen.nodes)
    if homeless:
        return QueryState(query.id, query.priority, Status.WAITING, lag, _why(query.id, homeless, seen))
    restoring = [p for p in query.partitions if p not in progress.positions or p in progress.failed]
    if restoring:
        reason = f"{len(restoring)} of {len(query.partitions)} partitions are being restored"
        return QueryState(query.id, query.priority, Status.RECOVERING, lag, reason)
    if lag > CAUGHT_UP_BATCHES and seen.incident is not None:
        return QueryState(query.id, query.priority, Status.RECOVERING, lag, "catching up")
    return QueryState(query.id, query.priority, Status.AVAILABLE, lag)


def _why(query: str, homeless: list[str], seen: Observation) -> str:
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
    plans = [seen.plans[name] for name in seen.incident.plans if name in seen.plans]
    return plans[-1] if plans else None
