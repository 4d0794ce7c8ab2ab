"""Planning over a sequence of node arrivals.

What users feel is the area under priority-weighted available queries over time. Su and Zhou plan myopically:
at each arrival the best set for what is free now (section 4.4). A set that is best now can be a detour: its
partitions stay where they are, and a better set later may not contain them. Anticipatory planning chooses now
with expected arrivals in mind, and plans again at each arrival, so a forecast is only ever trusted for one
step.

Restored partitions stay restored, so a schedule is a chain of growing sets. Candidates for the chain are
rollouts that head for one stage's optimum: until that stage only queries inside the target are restored, the
most valuable first; afterwards the chain continues myopically. The myopic chain is one of them, and the best
area wins: on known arrivals the result is never worse than myopic.

Where the instance has nodes, each arrival is one more node and every stage is a packing: partitions are
indivisible and stay on the node that they were restored on. `seconds` says how long partitions take to be
restored (state bytes over bandwidth, backlog over speed): a query counts only from when its last one is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from reprise.algorithms.arrivals.rollouts import Best, Capacity, Field, Restored
from reprise.algorithms.errors import InstanceError
from reprise.algorithms.model import Instance
from reprise.algorithms.problem import bits, compile_problem

NOBODY_COMES = 1.0
"""Weight, in scenarios, of the one in which nothing arrives any more: what keeps a plan from waiting for a
promise."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """Capacity that becomes free at a time (seconds from the first plan); one node, where nodes matter."""

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
    placement: Mapping[str, str] = field(default_factory=dict)
    """Node of each restored partition, where the instance has nodes; the n-th arrival is `arrival n`."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """Stages in time order and the area under their values until the horizon (priority x seconds)."""

    stages: tuple[Stage, ...]
    area: float
    kind: str = field(default="myopic")


Seconds = Mapping[str, float]
"""How long each partition takes to be restored; those not named take no time."""


def myopic(
    instance: Instance,
    arrivals: Sequence[Arrival],
    horizon: float,
    best: Best,
    seconds: Seconds | None = None,
) -> Schedule:
    """Choose at each arrival the best set for the capacity there is: the rule of Su and Zhou."""
    field_, times, capacities = _set_up(instance, arrivals, horizon, best, seconds)
    return _schedule(field_, instance, field_.follow(Restored(), capacities), times, "myopic")


def anticipatory(
    instance: Instance,
    arrivals: Sequence[Arrival],
    horizon: float,
    best: Best,
    seconds: Seconds | None = None,
) -> Schedule:
    """The chain of greatest area among all rollouts, for arrivals that are known."""
    field_, times, capacities = _set_up(instance, arrivals, horizon, best, seconds)
    chains = field_.rollouts(Restored(), capacities)
    schedules = [_schedule(field_, instance, chain, times, kind) for kind, chain in chains]
    return max(schedules, key=lambda schedule: schedule.area)  # the first of equals: myopic


def replanned(
    instance: Instance,
    arrivals: Sequence[Arrival],
    horizon: float,
    best: Best,
    forecast: Callable[[float], Sequence[Sequence[Arrival]]],
    seconds: Seconds | None = None,
) -> Schedule:
    """Anticipatory planning as it runs: at each real arrival the first step of the chain with the greatest
    mean area over the scenarios of `forecast(now)` (arrivals at absolute times) and over the one in which
    nobody comes."""
    field_, times, capacities = _set_up(instance, arrivals, horizon, best, seconds)
    at, chain = Restored(), []
    for now, capacity in zip(times, capacities, strict=True):
        scenarios = [(1.0, list(future)) for future in forecast(now)]
        scenarios.append((NOBODY_COMES if scenarios else 1.0, []))
        at = _first_step(field_, at, now, capacity, scenarios)
        chain.append(at)
    return _schedule(field_, instance, chain, times, "replanned")


def _first_step(
    field_: Field, at: Restored, now: float, capacity: Capacity, scenarios: list[tuple[float, list[Arrival]]]
) -> Restored:
    """The next link: candidates from each scenario's rollouts, judged on all scenarios."""
    futures = []
    candidates: dict[int, Restored] = {}
    for weight, future in scenarios:
        later = [a for a in sorted(future, key=lambda a: a.at) if now < a.at < field_.horizon]
        times, capacities = _stages(now, capacity, later)
        futures.append((weight, times, capacities))
        for _, chain in field_.rollouts(at, capacities):
            candidates.setdefault(chain[0].covered, chain[0])

    def expected(step: Restored) -> float:
        total = 0.0
        for weight, times, capacities in futures:
            rollouts = field_.rollouts(step, capacities[1:]) or [("", [])]
            total += weight * max(field_.area([step, *chain], times, at.covered) for _, chain in rollouts)
        return total

    return max(candidates.values(), key=expected)


def _set_up(
    instance: Instance, arrivals: Sequence[Arrival], horizon: float, best: Best, seconds: Seconds | None
) -> tuple[Field, list[float], list[Capacity]]:
    """What chains are judged in, the moments of decision, and the capacity from each of them on."""
    times, capacities = _timeline(instance, arrivals, horizon)
    return _field(instance, horizon, best, seconds), times, capacities


def _field(instance: Instance, horizon: float, best: Best, seconds: Seconds | None) -> Field:
    problem = compile_problem(replace(instance, nodes=()))
    known = seconds or {}
    for name, value in known.items():
        if not 0.0 <= value < float("inf"):
            raise InstanceError(f"seconds[{name!r}]", f"must be finite and not negative, not {value}")
    return Field(problem, best, tuple(float(known.get(name, 0.0)) for name in problem.partition_ids), horizon)


def _timeline(
    instance: Instance, arrivals: Sequence[Arrival], horizon: float
) -> tuple[list[float], list[Capacity]]:
    """Moments of decision and what there is from each on; what arrives at one time counts as one arrival."""
    nodes = tuple(node.free for node in sorted(instance.nodes, key=lambda node: node.id))
    before = sorted((a for a in arrivals if a.at < horizon), key=lambda a: a.at)
    return _stages(0.0, (instance.budget(), nodes), before)


def _stages(now: float, capacity: Capacity, later: Sequence[Arrival]) -> tuple[list[float], list[Capacity]]:
    """The stages from `now` on, one a time at which something arrives; nodes grow in the order of arrival."""
    times, capacities = [now], [capacity]
    for arrival in later:
        total, nodes = capacities[-1]
        grown = (total + arrival.free, (*nodes, arrival.free) if nodes else ())
        if arrival.at <= times[-1]:
            capacities[-1] = grown
        else:
            times.append(arrival.at)
            capacities.append(grown)
    return times, capacities


def _schedule(
    field_: Field, instance: Instance, chain: Sequence[Restored], times: Sequence[float], kind: str
) -> Schedule:
    problem, stages = field_.problem, []
    first = [node.id for node in sorted(instance.nodes, key=lambda node: node.id)]

    def node_name(node: int) -> str:
        return first[node] if node < len(first) else f"arrival {node - len(first) + 1}"

    for link, at in zip(chain, times, strict=True):
        queries = problem.closure(link.covered)
        names = problem.partition_ids
        stages.append(
            Stage(
                at=at,
                queries=tuple(problem.query_ids[q] for q in queries),
                partitions=tuple(names[k] for k in bits(link.covered)),
                value=problem.value_of(queries),
                placement={names[k]: node_name(node) for k, node in sorted(link.placement.items())},
            )
        )
    return Schedule(tuple(stages), field_.area(chain, times), kind)
