"""One call from an instance to an explained plan, and the registry of planners behind it.

A planner answers the sum problem. What is common to all happens here: the packing onto nodes, the choice of
what to give up where the pieces do not fit, the bound, the explanation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from reprise.algorithms import compiled
from reprise.algorithms.auto import auto, ilp
from reprise.algorithms.bounds import split_bound
from reprise.algorithms.dp import dp
from reprise.algorithms.errors import UnknownAlgorithm
from reprise.algorithms.exact import SUBSET_QUERIES
from reprise.algorithms.exact_nodes import improve_on_nodes, worth_it
from reprise.algorithms.explain import choices, exclusions
from reprise.algorithms.fit import Fitted, fit_nodes
from reprise.algorithms.local_search import best_density, local_search
from reprise.algorithms.model import Instance, Plan
from reprise.algorithms.operator_centric import restore_in_topological_order
from reprise.algorithms.parse import validate
from reprise.algorithms.problem import Deadline, Outcome, Problem, StepClock, compile_problem

Planner = Callable[[Problem, Deadline], Outcome]


PLANNERS: dict[str, Planner] = {
    "auto": auto,
    "best-density": best_density,
    "dp": dp,
    "ilp": ilp,
    "local-search": local_search,
}
OPERATOR_CENTRIC = "operator-centric"
ALGORITHMS = (*PLANNERS, OPERATOR_CENTRIC)
SEARCHING = ("auto", "best-density", "ilp")
"""Planners that use kernels where there are more queries than all sets of them can be compared; the local search
always does."""
EXACT_ON_NODES = ("auto", "ilp")
"""Planners that, where packing costs value, go on to the exact problem with nodes."""


def solve(
    instance: Instance,
    algorithm: str = "auto",
    time_limit: float = 1.0,
    clock: Callable[[], float] | None = None,
) -> Plan:
    """Plan `instance` with `algorithm` (one of ALGORITHMS) within about `time_limit` seconds of `clock`.

    `clock` returns monotonic seconds. Without one a StepClock counts work instead, and `Plan.seconds` is 0.
    Kernels that nobody loaded yet (`reprise.algorithms.compiled`) are loaded first; that is no part of the limit.
    Raises InstanceError, UnknownAlgorithm, TooLarge.
    """
    if algorithm not in ALGORITHMS:
        raise UnknownAlgorithm(f"no planner {algorithm!r}; there are {', '.join(sorted(ALGORITHMS))}")
    validate(instance)
    if algorithm == "local-search" or (algorithm in SEARCHING and len(instance.queries) > SUBSET_QUERIES):
        compiled.ready(wait=clock is None)
    deadline = Deadline(clock or StepClock(), time_limit)
    problem = compile_problem(instance)
    if algorithm == OPERATOR_CENTRIC:
        plan = _plan_partitions(instance, problem)
    else:
        outcome = PLANNERS[algorithm](problem, deadline)
        plan = _plan_queries(instance, problem, (algorithm, outcome), deadline)
    return replace(plan, seconds=deadline.spent() if clock else 0.0)


def _plan_queries(
    instance: Instance, problem: Problem, planner: tuple[str, Outcome], deadline: Deadline
) -> Plan:
    algorithm, outcome = planner
    nodes = sorted(instance.nodes, key=lambda node: node.id)
    free = tuple(node.free for node in nodes)
    fitted = fit_nodes(problem, outcome.queries, free)
    best_sum = problem.value_of(outcome.queries)
    if problem.value_of(fitted.queries) < best_sum and algorithm in EXACT_ON_NODES:
        fitted, outcome = _decide_on_nodes(problem, (fitted, outcome), free, (algorithm, deadline))
    value = problem.value_of(fitted.queries)
    restored = problem.union(fitted.queries)
    bound = split_bound(problem) if outcome.bound is None else outcome.bound
    placement = None
    if nodes:
        names = problem.partition_ids
        placement = {names[k]: nodes[node].id for k, node in sorted(fitted.placement.items())}
    order = choices(problem, fitted.queries)
    return Plan(
        algorithm=outcome.algorithm or algorithm,
        value=value,
        cost=problem.cost_of(restored),
        queries=tuple(choice.query for choice in order),
        partitions=tuple(name for choice in order for name in choice.restores),
        placement=placement,
        bound=bound,
        optimal=value >= bound,
        seconds=0.0,
        excluded=exclusions(problem, fitted.queries, restored, fitted.given_up),
        chosen=order,
        why=outcome.note,
        packing_loss=max(0, best_sum - value),
        scale=instance.scale,
    )


def _decide_on_nodes(
    problem: Problem,
    found: tuple[Fitted, Outcome],
    free: tuple[int, ...],
    how: tuple[str, Deadline],
) -> tuple[Fitted, Outcome]:
    """A better plan or a tighter bound: first from the sum problem with the room that can be filled at all, which
    settles most plans, then from the exact problem with nodes."""
    (fitted, outcome), (algorithm, deadline) = found, how
    tight = fitted.tight
    if tight is not None and tight.capacity < problem.capacity and worth_it(problem, free, deadline):
        again = outcome.with_less(tight.capacity) or PLANNERS[algorithm](tight, deadline)
        repacked = fit_nodes(problem, again.queries, free)
        if problem.value_of(repacked.queries) > problem.value_of(fitted.queries):
            fitted, outcome = repacked, replace(again, bound=outcome.bound)
        if again.bound is not None and (outcome.bound is None or again.bound < outcome.bound):
            outcome = replace(outcome, bound=max(again.bound, problem.value_of(fitted.queries)))
    if outcome.bound == problem.value_of(fitted.queries):
        return fitted, outcome
    return improve_on_nodes(problem, fitted, outcome, free, deadline)


def _plan_partitions(instance: Instance, problem: Problem) -> Plan:
    restored, placement = restore_in_topological_order(instance)
    cost = {partition.id: partition.cost for partition in instance.partitions}
    index = {name: k for k, name in enumerate(problem.partition_ids)}
    mask = sum(1 << index[name] for name in restored if name in index)
    complete = problem.closure(mask)
    value, bound = problem.value_of(complete), split_bound(problem)
    order = choices(problem, complete)
    return Plan(
        algorithm=OPERATOR_CENTRIC,
        value=value,
        cost=sum(cost[name] for name in restored),
        queries=tuple(choice.query for choice in order),
        partitions=restored,
        placement=placement if instance.nodes else None,
        bound=bound,
        optimal=value >= bound,
        seconds=0.0,
        excluded=exclusions(problem, complete, mask),
        chosen=order,
        why="cheapest partition first, in topological order",
        scale=instance.scale,
    )
