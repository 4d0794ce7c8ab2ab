"""The optimum: reductions first, frontiers where the structure allows, integer programming for the rest.

PuLP writes the model, HiGHS solves it in process:

    max sum p_q x_q   with x_q <= y_k for each partition k of query q,  sum c_k y_k <= R,  x binary, y in [0,
    1]

y needs no integrality: once x is integral the least y is. HiGHS computes in floats, so its answer is rounded
to queries, checked in integers, and its bound is rounded down to a whole priority with a tolerance on the
safe side.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import highspy
import pulp

from reprise.algorithms.dp import dp
from reprise.algorithms.problem import Deadline, Outcome, Problem, bits
from reprise.algorithms.reduce import Reduced, components, reduce_problem
from reprise.algorithms.structure import frontier_of

NODES_A_SECOND = 500
"""Nodes that stand for a second where no clock was injected."""

Warm = Callable[[Problem], tuple[int, ...]]
"""A heuristic that answers the reduced problem."""

SUBSET_QUERIES = 18
"""Up to here comparing all subsets (20 ms) is several times faster than the integer programme."""

BOUND_SLACK = 1e-6
"""HiGHS' own feasibility tolerance: a bound of 41.9999999 means 42."""


def exact(problem: Problem, deadline: Deadline, warm: Warm) -> Outcome:
    """The best queries found by the deadline with a bound on the value; `warm` supplies a start for HiGHS."""
    reduced = reduce_problem(problem)
    return (
        by_structure(problem, reduced)
        or by_subsets(problem, reduced, deadline)
        or by_programme(problem, reduced, deadline, warm)
    )


def by_structure(problem: Problem, reduced: Reduced) -> Outcome | None:
    """The optimum by reductions and frontiers alone, or None where they do not settle it."""
    small = reduced.problem
    sure = problem.value_of(reduced.taken)
    if not small.masks:
        return Outcome(
            reduced.taken,
            sure,
            "decided without a search: no two queries compete for the capacity",
            "reductions",
        )
    frontier = frontier_of(small)
    if frontier is None:
        return None
    parts = len(components(small))
    note = "exact by its structure" + (
        f": {parts} parts that share nothing, each solved alone" if parts > 1 else ""
    )

    def answer(capacity: int) -> Outcome:
        found = tuple(frontier.queries(frontier.best(capacity)))
        return Outcome(reduced.expand(found), sure + small.value_of(found), note, "frontier", with_less)

    def with_less(capacity: int) -> Outcome | None:
        same = max(small.costs_alone()) <= capacity and frontier.holds(capacity)  # else reductions go further
        return answer(capacity) if same else None

    return answer(small.capacity)


def by_subsets(problem: Problem, reduced: Reduced, deadline: Deadline) -> Outcome | None:
    """The optimum by comparing all sets of queries, or None where they are too many for that to be quick."""
    small = reduced.problem
    if len(small.masks) > SUBSET_QUERIES:
        return None
    found = dp(small, deadline)
    return Outcome(
        reduced.expand(found.queries), problem.value_of(reduced.expand(found.queries)), found.note, "dp"
    )


def by_programme(problem: Problem, reduced: Reduced, deadline: Deadline, warm: Warm) -> Outcome:
    """HiGHS on the reduced problem; PuLP writes it."""
    solved = _solve(reduced.problem, deadline, warm(reduced.problem))
    bound = None if solved.bound is None else problem.value_of(reduced.taken) + solved.bound
    return Outcome(reduced.expand(solved.queries), bound, solved.note, "ilp")


def _solve(problem: Problem, deadline: Deadline, warm: tuple[int, ...]) -> Outcome:
    model, chosen = _model(problem)
    highs = highs_for(model, deadline)
    if warm:
        _start_from(highs, problem, chosen, model, warm)
    highs.run()
    info = highs.getInfo()
    values = highs.getSolution().col_value
    found = tuple(q for q, variable in enumerate(chosen) if values and values[variable.index] > 0.5)
    if problem.cost_of(problem.union(found)) > problem.capacity:
        found = ()  # a rounding of the solver's; the caller keeps its warm start
    found = problem.closure(problem.union(found))
    if problem.value_of(found) < problem.value_of(warm):
        found = warm
    dual = -info.mip_dual_bound
    top = sum(problem.priority)
    bound = min(top, math.floor(dual + BOUND_SLACK * max(1.0, abs(dual)))) if math.isfinite(dual) else top
    return Outcome(found, max(bound, problem.value_of(found)), f"HiGHS, {info.mip_node_count} nodes")


def highs_for(model: pulp.LpProblem, deadline: Deadline) -> highspy.Highs:
    """HiGHS with the model, to be ended by the deadline; where that counts looks, by nodes of its tree, so that
    the answer is the same on every machine."""
    limit = {} if deadline.virtual else {"timeLimit": max(0.01, deadline.left())}
    solver = pulp.HiGHS(msg=False, threads=1, gapRel=0.0, **limit)
    solver.createAndConfigureSolver(model)
    solver.buildSolverModel(model)
    highs: highspy.Highs = model.solverModel
    if deadline.virtual:
        highs.setOptionValue("mip_max_nodes", 1 + int(deadline.left() * NODES_A_SECOND))
    return highs


def _model(problem: Problem) -> tuple[pulp.LpProblem, list[pulp.LpVariable]]:
    model = pulp.LpProblem("recovery", pulp.LpMaximize)
    chosen = [model.add_variable(f"x{q}", 0, 1, pulp.LpInteger) for q in range(len(problem.masks))]
    restored = [model.add_variable(f"y{k}", 0, 1) for k in range(len(problem.cost))]
    model.setObjective(pulp.LpAffineExpression(zip(chosen, problem.priority, strict=True)))
    spent = pulp.LpAffineExpression(zip(restored, problem.cost, strict=True))
    model.addConstraint(spent <= problem.capacity)
    for query, variable in enumerate(chosen):
        left, inside = _implied(problem, query)
        for other in inside:
            model.addConstraint(pulp.LpAffineExpression([(variable, 1), (chosen[other], -1)]) <= 0)
        for k in bits(left):
            model.addConstraint(pulp.LpAffineExpression([(variable, 1), (restored[k], -1)]) <= 0)
    return model, chosen


def _implied(problem: Problem, query: int) -> tuple[int, list[int]]:
    """Dominance: a query whose partitions are among this one's comes with it for nothing, so x_q <= x_other
    holds and stands for the rows of all partitions of the other. Returns the partitions that still need a
    row, and the others."""
    left, inside = problem.masks[query], []
    by_size = sorted(enumerate(problem.masks), key=lambda entry: (-entry[1].bit_count(), entry[0]))
    for other, mask in by_size:
        if other != query and mask & ~problem.masks[query] == 0 and mask & left:
            inside.append(other)
            left &= ~mask
    return left, inside


def _start_from(
    highs: highspy.Highs,
    problem: Problem,
    chosen: list[pulp.LpVariable],
    model: pulp.LpProblem,
    warm: tuple[int, ...],
) -> None:
    covered = problem.union(warm)
    values = [0.0] * highs.getNumCol()
    for query in warm:
        values[chosen[query].index] = 1.0
    for variable in model.variables():
        if variable.name.startswith("y") and covered >> int(variable.name[1:]) & 1:
            values[variable.index] = 1.0
    solution = highspy.HighsSolution()
    solution.col_value = values
    highs.setSolution(solution)
