"""Which queries are not there, in the order in which they are to come back.

The order is the plan's.  What is being restored or catches up comes first, as plans chose it; then what the newest plan has
chosen and nobody has begun; then what it leaves out, that which needs the least free CPU first.  Behind these is what no
plan has looked at, and last what waits for repaired code, as no capacity brings it back.
Invariant: each query that is not available stands in the order once, as long as there are no more than `MOST`.
"""

from __future__ import annotations

from dataclasses import dataclass

from reprise.controller.analysis.explain import Expected, explain
from reprise.controller.status import StatusDocument
from reprise.controller.status.model import IncidentView, PlanView, QueryView
from reprise.controller.status.partition_state import PartitionState
from reprise.controller.status.query_state import Status

MOST = 40
"""Queries that are explained: each takes a walk over all partitions."""
_LAST = 10**9
Rank = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Upcoming:
    """A query that is not available."""

    query: str
    waits_for: str
    """One sentence."""
    expected: Expected
    """Seconds from the time of the document until it is back."""
    enters_at: int | None
    """Milli-CPU, free in sum before a plan, at which it comes in; None where no capacity is waited for or known."""
    exact: bool
    """Of `enters_at`: False, it comes in there for certain, and may come in earlier."""


def upcoming(document: StatusDocument) -> tuple[Upcoming, ...]:
    """The next one first; the first `MOST` of them."""
    poisoned = frozenset(p.reason for p in document.partitions if p.state is PartitionState.POISONED)
    down = [query for query in document.queries.items if query.state is not Status.AVAILABLE]
    chosen, left_out = _chosen(document.incident), _left_out(document.plan)
    in_order = sorted(down, key=lambda query: _rank(query, chosen, left_out, document.plan, poisoned))
    return tuple(_explained(document, query.id) for query in in_order[:MOST])


def _explained(document: StatusDocument, query: str) -> Upcoming:
    found = explain(document, query)
    capacity = found.capacity
    return Upcoming(
        query,
        found.waits_for,
        found.expected,
        capacity.enters_at if capacity else None,
        capacity.exact if capacity else False,
    )


def _chosen(incident: IncidentView | None) -> dict[str, tuple[int, int]]:
    """Query -> number of the last plan that chose it, and its place there."""
    plans = incident.plans if incident else ()
    return {c.query: (number, k) for number, plan in enumerate(plans) for k, c in enumerate(plan.chosen)}


def _left_out(plan: PlanView | None) -> dict[str, int | None]:
    """Query -> free capacity at which it comes in."""
    return {entry.query: entry.enters_at for entry in plan.left_out} if plan else {}


def _rank(
    query: QueryView,
    chosen: dict[str, tuple[int, int]],
    left_out: dict[str, int | None],
    plan: PlanView | None,
    poisoned: frozenset[str],
) -> Rank:
    """Less comes earlier; queries of equal rank stay in the order of their priority.  `poisoned`: what raised code has said,
    which is the reason of each query that needs it, however many partitions that misses besides."""
    number, place = chosen.get(query.id, (_LAST, _LAST))
    if query.state is Status.RECOVERING:
        return 0, number, place, -query.priority
    if query.reason in poisoned:
        return 4, 0, 0, -query.priority
    if plan is not None and any(entry.query == query.id for entry in plan.chosen):
        return 1, number, place, -query.priority
    if (enters_at := left_out.get(query.id)) is not None:
        return 2, enters_at, 0, -query.priority
    return 3, 0, 0, -query.priority
