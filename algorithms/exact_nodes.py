"""The exact problem with nodes, for instances where packing the plan for the sum lost value.

    max sum p_q x_q,  x_q <= sum_n y_kn for each partition k of q,  sum_n y_kn <= 1,  sum_k c_k y_kn <= free_n

It decides queries and places at once. Nodes with equal room make it symmetric, so it is kept to small
instances; on larger ones the repaired plan and the bound of the sum stand.
"""

from __future__ import annotations

import math
from dataclasses import replace

import pulp

from reprise.algorithms.exact import BOUND_SLACK, highs_for
from reprise.algorithms.fit import Fitted, given_up
from reprise.algorithms.problem import Deadline, Outcome, Problem

MAX_PLACES = 1_500
"""Partitions times nodes that HiGHS gets; a few seconds at most, and the deadline ends it earlier."""
MIN_TIME = 0.02
"""Seconds left below which there is no point in starting."""


def worth_it(problem: Problem, free: tuple[int, ...], deadline: Deadline) -> bool:
    """Whether the instance is small enough and there is time to decide it with its nodes."""
    return len(problem.cost) * len(free) <= MAX_PLACES and deadline.left() >= MIN_TIME


def improve_on_nodes(
    problem: Problem, fitted: Fitted, outcome: Outcome, free: tuple[int, ...], deadline: Deadline
) -> tuple[Fitted, Outcome]:
    """A better plan on the nodes and a tighter bound than the sum's, where there is time for either."""
    if not worth_it(problem, free, deadline):
        return fitted, outcome
    model, chosen, places = _model(problem, free)
    highs = highs_for(model, deadline)
    highs.run()
    values = highs.getSolution().col_value
    dual = -highs.getInfo().mip_dual_bound
    if math.isfinite(dual):
        limit = math.floor(dual + BOUND_SLACK * max(1.0, abs(dual)))
        bound = limit if outcome.bound is None else min(limit, outcome.bound)
        outcome = replace(outcome, bound=max(bound, problem.value_of(fitted.queries)))
    if not values:
        return fitted, outcome
    queries = tuple(q for q, variable in enumerate(chosen) if values[variable.index] > 0.5)
    needed = problem.union(queries)
    placement = {k: n for (k, n), y in places.items() if needed >> k & 1 and values[y.index] > 0.5}
    better = problem.value_of(queries) > problem.value_of(fitted.queries)
    if better and _feasible(problem, needed, placement, free):
        note = f"{outcome.note}; then HiGHS on queries and places together"
        bound = None if outcome.bound is None else max(outcome.bound, problem.value_of(queries))
        return Fitted(queries, placement, given_up(problem, queries)), replace(
            outcome, note=note, bound=bound
        )
    return fitted, outcome


def _model(
    problem: Problem, free: tuple[int, ...]
) -> tuple[pulp.LpProblem, list[pulp.LpVariable], dict[tuple[int, int], pulp.LpVariable]]:
    model = pulp.LpProblem("placement", pulp.LpMaximize)
    chosen = [model.add_variable(f"x{q}", 0, 1, pulp.LpInteger) for q in range(len(problem.masks))]
    places = {
        (k, n): model.add_variable(f"y{k}_{n}", 0, 1, pulp.LpInteger)
        for k in range(len(problem.cost))
        for n in range(len(free))
        if problem.cost[k] <= free[n]
    }
    model.setObjective(pulp.LpAffineExpression(zip(chosen, problem.priority, strict=True)))
    total = []
    for k, cost in enumerate(problem.cost):
        mine = [places[k, n] for n in range(len(free)) if (k, n) in places]
        total += [(y, cost) for y in mine]
        model.addConstraint(pulp.LpAffineExpression([(y, 1) for y in mine]) <= 1)
        for q in problem.sharers[k]:
            model.addConstraint(pulp.LpAffineExpression([(chosen[q], 1), *((y, -1) for y in mine)]) <= 0)
    for n, room in enumerate(free):
        load = [(places[k, n], cost) for k, cost in enumerate(problem.cost) if (k, n) in places]
        model.addConstraint(pulp.LpAffineExpression(load) <= room)
    model.addConstraint(pulp.LpAffineExpression(total) <= problem.capacity)
    return model, chosen, places


def _feasible(problem: Problem, needed: int, placement: dict[int, int], free: tuple[int, ...]) -> bool:
    """The solver's floats, checked in integers."""
    room = list(free)
    for k, node in placement.items():
        room[node] -= problem.cost[k]
    placed = sum(1 << k for k in placement)
    return placed == needed and min(room, default=0) >= 0 and problem.cost_of(needed) <= problem.capacity
