"""Which planner for which instance: the choice that `auto` makes, and says.

1. Reductions and frontiers settle it (chains, trees, small parts, a plain knapsack): proven, in milliseconds.
2. At most SUBSET_QUERIES queries are left: the dynamic programme, proven.
3. Sparse instances, where few partitions are shared a query: HiGHS proves most of them. A short local search
   hands it a start that it seldom improves and always needs for its cuts.
4. Dense instances (He et al. 2018): no bound is strong enough to prove anything in seconds, so all of the time
   goes to the local search, and the split bound says how far the plan may be off.
"""

from __future__ import annotations

from reprise.algorithms.bounds import split_bound
from reprise.algorithms.candidate_run import timed_candidates
from reprise.algorithms.exact import by_programme, by_structure, by_subsets, exact
from reprise.algorithms.local_search import local_search
from reprise.algorithms.problem import Deadline, Outcome, Problem
from reprise.algorithms.reduce import Reduced, reduce_problem

DENSE_PAIRS = 1_500
"""Query-partition pairs, after reductions, above which HiGHS spends seconds on its first relaxations."""
PAIRS_A_SECOND = 3_000
"""How many pairs more each second of the time limit allows."""
SEARCH_SHARE = 0.3
"""Share of the time for the local search where HiGHS follows."""


def ilp(problem: Problem, deadline: Deadline) -> Outcome:
    """Exact, started from as much of BestDensity as a share of the time allows."""
    return exact(problem, deadline, lambda small: timed_candidates(small, deadline)[0])


def auto(problem: Problem, deadline: Deadline) -> Outcome:
    """The best plan that the time allows, with the strongest bound at hand."""
    reduced = reduce_problem(problem)
    settled = by_structure(problem, reduced) or by_subsets(problem, reduced, deadline)
    if settled is not None:
        return settled
    small = reduced.problem
    count = len(small.masks)
    pairs = sum(mask.bit_count() for mask in small.masks)
    if pairs > DENSE_PAIRS + PAIRS_A_SECOND * deadline.left():
        bound = split_bound(small)
        found = local_search(small, deadline)
        why = f"{count} queries with {pairs} needs: too dense to prove; {found.note}"
        return _expanded(problem, reduced, Outcome(found.queries, bound, why), "local-search")
    found = local_search(small, deadline.part(SEARCH_SHARE))
    solved = by_programme(problem, reduced, deadline, lambda _: found.queries)
    why = f"{count} queries with {pairs} needs: {solved.note} after {found.note}"
    return Outcome(solved.queries, solved.bound, why, solved.algorithm)


def _expanded(problem: Problem, reduced: Reduced, outcome: Outcome, algorithm: str) -> Outcome:
    bound = None if outcome.bound is None else outcome.bound + problem.value_of(reduced.taken)
    return Outcome(reduced.expand(outcome.queries), bound, outcome.note, algorithm)
