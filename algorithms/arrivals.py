"""Planning over a sequence of node arrivals.

What users feel is the area under priority-weighted available queries over time. The paper plans myopically:
at each arrival the best set for what is free now (section 4.4). A set that is best now can be a detour: its
partitions stay where they are, and a better set later may not contain them. Anticipatory planning chooses now
with expected arrivals in mind, and plans again at each arrival, so a forecast is only ever trusted for one
step.

Restored partitions stay restored, so a schedule is a chain of growing sets. Candidates for the chain are
rollouts that head for one stage's optimum: until that stage only queries inside the target are restored, the
most valuable first; afterwards the chain continues myopically. The myopic chain is one of them, and the best
area wins: on known arrivals the result is never worse than myopic.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from algorithms.model import Instance, PartitionCost
from algorithms.problem import Problem, compile_problem

Best = Callable[[Problem], tuple[int, ...]]
"""A planner for the sum problem: the query indices to restore."""

NOBODY_COMES = 1.0
"""Weight, in scenarios, of the one in which nothing arrives any more: what keeps a plan from waiting for a
promise."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """Capacity that becomes free at a time (seconds from the first plan)."""

    at: float
    free: int


@dataclass(frozen=True, slots=True)
class Stage:
    """What is decided at one moment: the queries that are available from `at` on, and the partitions
    restored."""

    at: float
    queries: tuple[str, ...]
    partitions: tuple[str, ...]
    value: int


@dataclass(frozen=True, slots=True)
class Schedule:
    """Stages in time order and the area under their values until the horizon (priority x seconds)."""

    stages: tuple[Stage, ...]
    area: float
    kind: str = field(default="myopic")


def restore_cost(instance: Instance, seconds: dict[str, float], weight: float) -> Instance:
    """Let the time to restore a partition (state bytes over bandwidth, backlog over speed) enter its cost:
    each second counts as `weight` units of capacity, rounded up. The capacity stays what it is, so plans stay
    feasible."""
    return replace(
        instance,
        partitions=tuple(
            PartitionCost(p.id, p.cost + -int(-seconds.get(p.id, 0.0) * weight // 1))
            for p in instance.partitions
        ),
    )


def myopic(instance: Instance, arrivals: Sequence[Arrival], horizon: float, best: Best) -> Schedule:
    """At each arrival the best set for the capacity there is: the paper's rule."""
    times, capacities = _timeline(instance, arrivals, horizon)
    problem = compile_problem(replace(instance, nodes=()))
    chain = _continue(problem, 0, capacities, best)
    return _schedule(problem, chain, times, horizon, "myopic")


def anticipatory(instance: Instance, arrivals: Sequence[Arrival], horizon: float, best: Best) -> Schedule:
    """The chain of greatest area among all rollouts, for arrivals that are known."""
    times, capacities = _timeline(instance, arrivals, horizon)
    problem = compile_problem(replace(instance, nodes=()))
    chains = _rollouts(problem, 0, capacities, best)
    schedules = [_schedule(problem, chain, times, horizon, kind) for kind, chain in chains]
    return max(schedules, key=lambda schedule: schedule.area)  # the first of equals: myopic


def replanned(
    instance: Instance,
    arrivals: Sequence[Arrival],
    horizon: float,
    best: Best,
    forecast: Callable[[float], Sequence[Sequence[Arrival]]],
) -> Schedule:
    """Anticipatory planning as it runs: at each real arrival the first step of the chain with the greatest
    mean area over the scenarios of `forecast(now)` (arrivals at absolute times) and over the one in which
    nobody comes."""
    times, capacities = _timeline(instance, arrivals, horizon)
    problem = compile_problem(replace(instance, nodes=()))
    covered, chain = 0, []
    for now, capacity in zip(times, capacities, strict=True):
        scenarios = [(1.0, list(future)) for future in forecast(now)]
        scenarios.append((NOBODY_COMES if scenarios else 1.0, []))
        covered = _first_step(problem, covered, (now, capacity, horizon), scenarios, best)
        chain.append(covered)
    return _schedule(problem, chain, times, horizon, "replanned")


def _first_step(
    problem: Problem,
    covered: int,
    moment: tuple[float, int, float],
    scenarios: list[tuple[float, list[Arrival]]],
    best: Best,
) -> int:
    """The next restored set: candidates from each scenario's rollouts, judged on all scenarios."""
    now, capacity, horizon = moment
    futures = []
    candidates: dict[int, None] = {}
    for weight, future in scenarios:
        later = [a for a in sorted(future, key=lambda a: a.at) if now < a.at < horizon]
        times, capacities = [now], [capacity]
        for arrival in later:
            times.append(arrival.at)
            capacities.append(capacities[-1] + arrival.free)
        futures.append((weight, times, capacities))
        for _, chain in _rollouts(problem, covered, capacities, best):
            candidates.setdefault(chain[0])

    def expected(step: int) -> float:
        total = 0.0
        for weight, times, capacities in futures:
            chains = [[step, *chain] for _, chain in _rollouts(problem, step, capacities[1:], best)] or [
                [step]
            ]
            total += weight * max(_area(problem, chain, times, horizon) for chain in chains)
        return total

    return max(candidates, key=expected)


def _rollouts(
    problem: Problem, covered: int, capacities: Sequence[int], best: Best
) -> list[tuple[str, list[int]]]:
    """(name, chain of restored masks): myopic, then heading for the optimum of each later stage."""
    if not capacities:
        return []
    found = [("myopic", _continue(problem, covered, capacities, best))]
    for target in range(1, len(capacities)):
        goal = covered | problem.union(_best_given(problem, covered, capacities[target], best))
        inside = [mask if mask & ~goal == 0 else None for mask in problem.masks]
        chain, at = [], covered
        for capacity in capacities[:target]:
            at |= problem.union(_best_given(problem, at, capacity, best, inside))
            chain.append(at)
        chain.append(goal)
        chain += _continue(problem, goal, capacities[target + 1 :], best)
        found.append((f"towards stage {target}", chain))
    return found


def _continue(problem: Problem, covered: int, capacities: Sequence[int], best: Best) -> list[int]:
    chain = []
    for capacity in capacities:
        covered |= problem.union(_best_given(problem, covered, capacity, best))
        chain.append(covered)
    return chain


def _best_given(
    problem: Problem, covered: int, capacity: int, best: Best, allowed: list[int | None] | None = None
) -> tuple[int, ...]:
    """The best queries to add where the partitions of `covered` are paid; only those with a mask in
    `allowed`."""
    masks = problem.masks if allowed is None else allowed
    open_queries = [q for q, mask in enumerate(masks) if mask is not None and mask & ~covered]
    rest = replace(
        problem,
        capacity=capacity - problem.cost_of(covered),
        query_ids=tuple(problem.query_ids[q] for q in open_queries),
        priority=tuple(problem.priority[q] for q in open_queries),
        masks=tuple(problem.masks[q] & ~covered for q in open_queries),
        sharers=_sharers(problem, covered, open_queries),
    )
    return tuple(open_queries[i] for i in best(rest))


def _sharers(problem: Problem, covered: int, queries: list[int]) -> tuple[tuple[int, ...], ...]:
    position = {q: i for i, q in enumerate(queries)}
    return tuple(
        () if covered >> k & 1 else tuple(position[q] for q in sharers if q in position)
        for k, sharers in enumerate(problem.sharers)
    )


def _timeline(
    instance: Instance, arrivals: Sequence[Arrival], horizon: float
) -> tuple[list[float], list[int]]:
    """Moments of decision and the capacity from each on; what arrives at one time counts as one arrival."""
    times, capacities = [0.0], [instance.capacity]
    for arrival in sorted(arrivals, key=lambda a: a.at):
        if arrival.at >= horizon:
            break
        if arrival.at <= times[-1]:
            capacities[-1] += arrival.free
        else:
            times.append(arrival.at)
            capacities.append(capacities[-1] + arrival.free)
    return times, capacities


def _area(problem: Problem, chain: Sequence[int], times: Sequence[float], horizon: float) -> float:
    ends = [*times[1:], horizon]
    return sum(
        problem.value_of(problem.closure(mask)) * (end - start)
        for mask, start, end in zip(chain, times, ends, strict=True)
    )


def _schedule(
    problem: Problem, chain: Sequence[int], times: Sequence[float], horizon: float, kind: str
) -> Schedule:
    stages = []
    for mask, at in zip(chain, times, strict=True):
        queries = problem.closure(mask)
        stages.append(
            Stage(
                at=at,
                queries=tuple(problem.query_ids[q] for q in queries),
                partitions=tuple(name for k, name in enumerate(problem.partition_ids) if mask >> k & 1),
                value=problem.value_of(queries),
            )
        )
    return Schedule(tuple(stages), _area(problem, chain, times, horizon), kind)
