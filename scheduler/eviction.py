"""Survivors that no whole query needs give their room to queries that can run.

A query shows nothing while one of its partitions is lost, and its survivors take room under the caps of their nodes all the
same.  The first plan of an incident may place them on other nodes, or later, from the checkpoint: all that is lost begins
there, too.  No partition of a query that has all of its partitions is moved.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from reprise.scheduler.costs import free_capacity
from reprise.scheduler.model import Order, Policy
from reprise.scheduler.placement import spread
from reprise.scheduler.planning import Planned, plan_recovery
from reprise.scheduler.precomputed import Planner
from reprise.scheduler.view import View


@dataclass(frozen=True, slots=True)
class Placed:
    """A plan, what of the assignment stays beside it, and what people should know of those that do not stay."""

    planned: Planned
    held: Mapping[str, str]
    note: str = ""


def plan_first(view: View, costs: Mapping[str, int], planner: Planner, nodes: int) -> Placed:
    """The first plan of an incident, and any that rolls back: what is failed beside all survivors, if all of it fits; else
    what is best with the room of the survivors that no whole query needs.  `nodes`: how many there were before the failure.

    Of these the ones that the plan wants again stay on their nodes, if as much is restored with them there.  Nobody leaves
    a node where the rest would not fit beside the plan on as many nodes as before: the room would be filled in a way that
    leaves a large partition without a place, and the recovery without an end.
    """
    idle = blocked(view)
    movable = bool(idle) and view.policy.strategy.whole_queries
    beside = cache(lambda: _planned(view, costs, view.survivors, planner))
    if not movable or not (_cannot_fit(view, costs) or beside().planned.left_out):
        return beside()
    running = {p: n for p, n in view.survivors.items() if p not in idle}
    anew = _planned(view, costs, running, planner)
    best = anew.planned.plan.optimal and view.policy.order is Order.VALUE
    if not best and worth_of_plan(anew.planned, view.policy) < worth_of_plan(beside().planned, view.policy):
        return beside()  # a planner that does not promise the best
    wanted = idle & anew.planned.added.keys()
    staying = {p: n for p, n in view.survivors.items() if p not in idle or p in wanted}
    there = _planned(view, costs, staying, planner) if wanted else anew
    if worth_of_plan(there.planned, view.policy) < worth_of_plan(anew.planned, view.policy):
        there = anew
    return next((one for one in (there, anew) if rest_fits(view, costs, one, nodes)), None) or beside()


def _cannot_fit(view: View, costs: Mapping[str, int]) -> bool:
    """Whether what is failed and wanted by some query is more than all nodes have free, so that no plan is needed to know
    that one beside all survivors leaves queries out."""
    wanted = frozenset[str]().union(*(q.partitions for q in view.snapshot.topology.queries))
    lost = sum(costs[p] for p in wanted.intersection(view.failed))
    return lost > sum(free_capacity(view, costs, view.survivors).values())


def rest_fits(view: View, costs: Mapping[str, int], placed: Placed, nodes: int) -> bool:
    """Whether all that the plan leaves out finds a place beside it once as many nodes are there as before: the largest
    first, each where most is free."""
    there = {**placed.held, **placed.planned.added}
    left = [p for p in placed.planned.pending if p not in there]
    free = free_capacity(view, costs, there)
    usual = view.policy.cap_of(view.policy.node_cpu_milli)
    free |= {f"to come {k}": usual for k in range(nodes - len(view.usable))}
    return spread(sorted(left, key=lambda p: -costs[p]), costs, free) is not None


def blocked(view: View) -> frozenset[str]:
    """Survivors that no query needs which has all of its partitions."""
    survivors = view.survivors.keys()
    whole = [q.partitions for q in view.snapshot.topology.queries if q.partitions <= survivors]
    return frozenset(survivors).difference(*whole)


def rearranged(
    view: View, costs: Mapping[str, int], planned: Planned, nodes: int, planner: Planner
) -> Placed | None:
    """Everything placed anew, where `planned` leaves out what fits in sum and on no single node although as many nodes are
    there as before the failure: the recovery would have no end.  None where that is not so, or does not help either.

    This alone moves partitions that run: they go back to the checkpoint with all others.  A plan is made again only after
    a further loss, so there is one such plan after each.
    """
    if (
        not planned.left_out
        or len(view.usable) < nodes
        or not view.policy.strategy.whole_queries
        or view.poison
    ):
        return None
    everything = tuple(p.id for p in view.snapshot.topology.partitions)
    anew = plan_recovery(view, costs, {}, everything, planner)
    if set(anew.added) != set(everything):
        return None
    return Placed(anew, {}, "everything is placed anew: what was left fitted on no single node")


def _planned(view: View, costs: Mapping[str, int], held: Mapping[str, str], planner: Planner) -> Placed:
    evicted = view.survivors.keys() - held.keys()
    topology = view.snapshot.topology.partitions
    pending = [p.id for p in topology if p.id in view.failed or p.id in evicted]
    return Placed(plan_recovery(view, costs, held, pending, planner), held, _said(len(evicted)))


def _said(evicted: int) -> str:
    if evicted < 2:
        one = "1 partition on a living node, which no whole query needs, gives its room"
        return one if evicted else ""
    return f"{evicted} partitions on living nodes, which no whole query needs, give their room"


def worth_of_plan(planned: Planned, policy: Policy) -> tuple[int, ...]:
    """How good a plan is by the order of the policy; the greater the better."""
    worth = {c.query: c.priority for c in planned.candidates}
    chosen = sorted((worth[q] for q in planned.plan.queries), reverse=True)
    return tuple(chosen) if policy.order is Order.STRICT else (sum(chosen),)
