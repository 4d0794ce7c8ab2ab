"""Upper bounds on the value of any plan, each a proof that needs no solver.

Split the cost of each partition among the queries that share it. A plan pays at least the parts of its
queries, so sum over chosen queries of their parts <= R, and the fractional knapsack over (priority, parts)
bounds every plan.
"""

from __future__ import annotations

from algorithms.problem import Problem, shares


def share_bound(problem: Problem) -> int:
    """The bound with equal parts, c_k / f_k: the weights of Definition 3. Shares are rounded down, so it
    stays valid."""
    scale, share = shares(problem)
    weights = [sum(share[k] for k in problem.members(query)) for query in range(len(problem.masks))]
    fitting = [
        q for q, mask in enumerate(problem.masks) if problem.cost_of(mask) <= problem.capacity
    ]  # a query dearer than the capacity is in no plan
    order = sorted(fitting, key=lambda q: (weights[q] / problem.priority[q], q))
    room, value = problem.capacity * scale, 0
    for query in order:
        if weights[query] > room:
            # floor of an exact quotient: values are whole, so the bound may be
            return value + problem.priority[query] * room // weights[query]
        room -= weights[query]
        value += problem.priority[query]
    return value
