"""The most valuable query first, whatever it costs: plans in strict order of priority.

`solve` maximises the summed priority, so a query of priority 10 can come back after several of lesser priority that together
are worth more for the same capacity.  Here a query is chosen only when every failed query of a higher priority is chosen,
too.  Of the first priority that does not fit as a whole the best part is chosen, and what stays free is kept for the rest of
it: a lesser query that took it would be in the way when the next node arrives, as a running partition is never moved.  The
one exception is a query whose partitions are all restored anyway: it comes back at no cost.

Not in the papers: Su and Zhou maximise the sum ("Incremental Recovery in Distributed Stream Processing Systems",
Definition 2).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from reprise.algorithms.model import Choice, Exclusion, FailedQuery, Instance, Plan
from reprise.algorithms.registry import OPERATOR_CENTRIC, solve

LEAST_S = 0.05
"""Seconds that a call of the planner gets even when those before it have used up the limit."""


def solve_strict(
    instance: Instance,
    algorithm: str = "auto",
    time_limit: float = 1.0,
    clock: Callable[[], float] | None = None,
) -> Plan:
    """Like `solve`, but in strict order of priority: `optimal` and `bound` speak of the plans that keep the order.

    The operator-centric baseline knows no queries and therefore no order: it answers as in `solve`.  `time_limit` is
    shared by the calls of the planner, of which there are at most five for ten priorities.
    Raises InstanceError, UnknownAlgorithm, TooLarge.
    """
    levels = sorted({query.priority for query in instance.queries}, reverse=True)
    if algorithm == OPERATOR_CENTRIC or len(levels) < 2:
        return solve(instance, algorithm, time_limit, clock)
    spent = 0.0

    def plan_for(part: Instance) -> Plan:
        nonlocal spent
        plan = solve(part, algorithm, max(LEAST_S, time_limit - spent), clock)
        spent += plan.seconds
        return plan

    fits, fails, best = 0, len(levels) + 1, None
    while fails - fits > 1:
        middle = (fits + fails) // 2
        part = _down_to(instance, levels[middle - 1])
        plan = plan_for(part)
        if len(plan.queries) == len(part.queries):
            fits, best = middle, plan
        else:
            fails = middle
    if best is not None and fits == len(levels):
        return replace(best, seconds=spent, why=_why(best.why))
    last = levels[fits]
    part = _down_to(instance, last)
    partial = plan_for(_first_the_higher(part, last))
    if best is not None and not set(best.queries) <= set(partial.queries):
        # nodes have room for all of the higher priorities, but none was found beside a part of this one
        partial = replace(best, optimal=False)
    return replace(_in_own_priorities(instance, partial, last), seconds=spent)


def _down_to(instance: Instance, least: int) -> Instance:
    return replace(instance, queries=tuple(q for q in instance.queries if q.priority >= least))


def _first_the_higher(part: Instance, last: int) -> Instance:
    """The same question with weights instead of priorities: one query above `last` outweighs all at `last` together."""
    much = 1 + sum(query.priority == last for query in part.queries)
    return replace(
        part, queries=tuple(replace(q, priority=much if q.priority > last else 1) for q in part.queries)
    )


@dataclass(frozen=True, slots=True)
class _Order:
    """What explains a query that waits for its turn: the queries before it, and what things cost."""

    instance: Instance
    restored: frozenset[str]
    first: FailedQuery
    """The most valuable query that is not chosen."""

    def cost(self, partitions: Iterable[str]) -> int:
        wanted = set(partitions)
        return sum(p.cost for p in self.instance.partitions if p.id in wanted)

    def exclusion(self, query: FailedQuery) -> Exclusion:
        before = [q for q in self.instance.queries if q.priority > query.priority]
        enters_at = self.cost(p for q in (*before, query) for p in q.partitions)
        first = f"{self.first.id} (priority {self.first.priority})"
        return Exclusion(
            query=query.id,
            reason=f"waits for {first}, which comes first in strict order of priority",
            missing=tuple(p for p in query.partitions if p not in self.restored),
            missing_capacity=max(0, enters_at - self.instance.budget()),
            competes_with=(self.first.id,),
            enters_at=enters_at,
            code="order",
        )


def _in_own_priorities(instance: Instance, plan: Plan, last: int) -> Plan:
    """The plan told in the instance's priorities, with a reason for every query that it leaves out."""
    by_id = {query.id: query for query in instance.queries}
    restored = frozenset(plan.partitions)
    free = sorted(
        q.id for q in instance.queries if q.id not in plan.queries and restored >= set(q.partitions)
    )
    queries = (*plan.queries, *free)
    down = sorted((q for q in instance.queries if q.id not in queries), key=lambda q: q.id)
    order = _Order(instance, restored, max(down, key=lambda q: q.priority))
    known = {e.query: e for e in plan.excluded}
    chosen = [replace(choice, priority=by_id[choice.query].priority) for choice in plan.chosen]
    chosen += [Choice(q, by_id[q].priority, 0, order.cost(by_id[q].partitions), ()) for q in free]
    value = sum(by_id[query].priority for query in queries)
    # what another plan in order could have beside: more of `last` if this is not proven, other queries at no cost
    within = {p for q in instance.queries if q.priority >= last for p in q.partitions}
    more = sum(
        q.priority for q in down if (not plan.optimal if q.priority >= last else within >= set(q.partitions))
    )
    return replace(
        plan,
        queries=queries,
        chosen=tuple(chosen),
        value=value,
        bound=value + more,
        optimal=more == 0,
        packing_loss=0,
        excluded=tuple(known.get(query.id) or order.exclusion(query) for query in down),
        why=_why(plan.why),
    )


def _why(found: str) -> str:
    return f"strict order of priority; {found}" if found else "strict order of priority"
