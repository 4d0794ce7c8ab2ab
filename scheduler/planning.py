"""Makes a plan with its reasons of failed partitions and free nodes.

The planner is asked about the queries that can come back: their failed partitions cost, what is assigned is
there already. Partitions that no such query needs (an operator that nobody reads, or one that only queries
with poison need) are restored once no query waits for the room; without them no global checkpoint would ever
be complete.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from reprise.algorithms import Exclusion, FailedQuery, Instance, NodeCapacity, PartitionCost, Plan
from reprise.algorithms.registry import OPERATOR_CENTRIC
from reprise.scheduler.costs import free_capacity
from reprise.scheduler.incident import Candidate
from reprise.scheduler.missing import Missing
from reprise.scheduler.model import Strategy
from reprise.scheduler.placement import fill
from reprise.scheduler.precomputed import Planner, Question
from reprise.scheduler.view import View


@dataclass(frozen=True, slots=True)
class Planned:
    """The answer: `added` places what is restored now, `left_out` says why for each query that stays down."""

    free: Mapping[str, int]
    candidates: tuple[Candidate, ...]
    plan: Plan
    added: Mapping[str, str]
    left_out: Mapping[str, str]
    needed: int
    """Milli-CPU of all that is pending."""
    pending: tuple[str, ...]
    """The partitions that wait for a place, in topological order: those that failed, and survivors that gave up theirs."""

    @property
    def outvalued(self) -> str:
        """Said of a plan that lets a query wait which is worth more than any that it brings back: that is what the greatest
        sum may take, and surprises whoever expects the most valuable one first.  Empty where nothing of the kind happened,
        as in strict order."""
        worth = {c.query: c.priority for c in self.candidates}
        waits = [e.query for e in self.plan.excluded if e.code == "outbid" and e.query in worth]
        most = max(waits, key=lambda q: (worth[q], q), default=None)
        chosen = [worth[q] for q in self.plan.queries]
        if most is None or not chosen or worth[most] <= max(chosen):
            return ""
        return (
            f"{most} (priority {worth[most]}) waits while {len(chosen)} queries of lower priority, worth {sum(chosen)} "
            "together, come back: plans maximise the summed priority; `recovery.order: strict` brings the most valuable one"
            " first"
        )


def plan_recovery(
    view: View, costs: Mapping[str, int], held: Mapping[str, str], pending: Iterable[str], planner: Planner
) -> Planned:
    """The best choice among `pending` partitions for what the usable nodes have free beside `held`."""
    wanted = tuple(pending)
    free = free_capacity(view, costs, held)
    queries, left_out = _candidates(view, costs, held, frozenset(wanted))
    candidates = tuple(
        Candidate(q.id, q.priority, sum(map(costs.__getitem__, q.partitions))) for q in queries
    )
    policy = view.policy
    instance = _instance(view, costs, free, wanted, queries)
    answer = planner.plan(Question(instance, policy.order, _algorithm(view), policy.time_limit_s))
    added = dict(answer.placement or {})
    left_over = free_capacity(view, costs, {**held, **added})
    left_out |= {e.query: _reason(e, costs, left_over) for e in answer.excluded}
    if len(answer.queries) == len(candidates):
        added |= fill([p for p in wanted if p not in added], costs, left_over)
    return Planned(free, candidates, answer, added, left_out, sum(costs[p] for p in wanted), wanted)


def _reason(exclusion: Exclusion, costs: Mapping[str, int], left_over: Mapping[str, int]) -> str:
    """Why a query stays down.  Where the sum would do and the nodes do not, it waits for room on one node."""
    if exclusion.code != "packing" or not exclusion.missing or not left_over:
        return exclusion.reason
    largest = max(exclusion.missing, key=lambda p: (costs[p], p))
    most = max(left_over, key=lambda n: (left_over[n], n))
    return (
        f"{exclusion.reason}: its largest partition {largest} needs {costs[largest]}, and the most that one node has left "
        f"is {left_over[most]} ({most}); running partitions are not moved, so it waits for another node"
    )


def _algorithm(view: View) -> str:
    operator_centric = view.policy.strategy is Strategy.OPERATOR_CENTRIC
    return OPERATOR_CENTRIC if operator_centric else view.policy.algorithm


def _candidates(
    view: View, costs: Mapping[str, int], held: Mapping[str, str], wanted: frozenset[str]
) -> tuple[tuple[FailedQuery, ...], dict[str, str]]:
    found: list[FailedQuery] = []
    left_out: dict[str, str] = {}
    order = {p.id: k for k, p in enumerate(view.snapshot.topology.partitions)}
    greatest = max(
        view.policy.cap_of(cpu)
        for cpu in (view.policy.node_cpu_milli, *(n.cpu_milli for n in view.alive.values()))
    )
    down = order.keys() - held.keys()
    stray, oversized = down - wanted, {p for p in down if costs[p] > greatest}
    missing_of = Missing(order, down)
    for query in view.snapshot.topology.queries:
        missing = missing_of(query.partitions)
        if not missing:
            continue
        poison = view.poisoned(query)
        if poison is not None:
            left_out[query.id] = poison
        elif oversized and (large := next((p for p in missing if p in oversized), None)) is not None:
            left_out[query.id] = (
                f"partition {large} needs {costs[large]} milli-CPU and a node has at most {greatest} under the cap: "
                "it fits on no node"
            )
        elif stray and (first := next((p for p in missing if p in stray), None)) is not None:
            left_out[query.id] = f"{first} was lost a moment ago and its node has not let go of it yet"
        else:
            found.append(FailedQuery(query.id, query.priority, missing))
    return tuple(found), left_out


def _instance(
    view: View,
    costs: Mapping[str, int],
    free: Mapping[str, int],
    wanted: tuple[str, ...],
    queries: tuple[FailedQuery, ...],
) -> Instance:
    edges: list[tuple[str, str]] = []
    if _algorithm(view) == OPERATOR_CENTRIC:  # nobody else asks for them, and there may be millions
        names = frozenset(wanted)
        mine = [p for p in view.snapshot.topology.partitions if p.id in names]
        edges = [(up, p.id) for p in mine for up in p.upstream if up in names]
    return Instance(
        capacity=sum(free.values()),
        partitions=tuple(PartitionCost(p, costs[p]) for p in wanted),
        queries=queries,
        nodes=tuple(NodeCapacity(node, room) for node, room in free.items()),
        edges=tuple(edges),
    )
