"""What would have been otherwise: blocking recovery, and one more node.

The first plan of the incident says what was lost, what each piece needs and what was free; the later plans say which nodes
came when.  The planners are run on that again: as it was (the check of the model against the record), with everything back
at once when as many nodes as before are there (blocking), and with one more node from the first plan on.  Further losses
after the first plan are not replayed, and that is said.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from statistics import median

from reprise.algorithms import Instance, NodeCapacity
from reprise.algorithms.arrivals.arrivals import Arrival, Schedule, myopic
from reprise.algorithms.auto import auto
from reprise.algorithms.problem import Deadline, Problem, StepClock
from reprise.controller.analysis.postmortem.story import Story, instance_of
from reprise.scheduler.incident import Kind, PlanRecord

PLAN_WORK = 1.0
"""Budget of a planner, in the unit of StepClock: the answer does not depend on the machine."""


class Course(StrEnum):
    """What a curve shows; the words are those of the picture."""

    RECORDED = "recorded"
    REPLAYED = "replayed"
    BLOCKING = "blocking"
    ONE_MORE = "one more node"


@dataclass(frozen=True, slots=True)
class Curve:
    """One course of events.  `back[query]`: seconds after the detection; absent: not before the end of the record."""

    name: Course
    back: dict[str, float]
    lost_s: float
    """Seconds of the whole topology lost until the end of the record."""


@dataclass(frozen=True, slots=True)
class Counterfactuals:
    recorded: Curve
    replayed: Curve
    """The model on what happened: how far to trust the others."""
    blocking: Curve | None
    blocking_at: float | None
    """Seconds after the detection at which everything could have come back; None: not within the record."""
    one_more: Curve | None
    node_free: int | None
    """Milli-CPU of the additional node."""
    assumptions: tuple[str, ...]


def counterfactuals(story: Story) -> Counterfactuals | None:
    """What other strategies would have done; None for an incident without a plan: nothing was decided, so nothing could
    have been otherwise."""
    question = _question(story)
    if question is None:
        return None
    first, instance = question
    delay = _delay(story)
    replayed = _curve(story, Course.REPLAYED, first, _schedule(story, first, instance), delay)
    size = story.new_node_free
    one_more = None
    if size:
        nodes = (*instance.nodes, NodeCapacity("one-more", size))
        richer = replace(instance, nodes=nodes, capacity=instance.capacity + size)
        one_more = _curve(story, Course.ONE_MORE, first, _schedule(story, first, richer), delay)
    ready = _blocking_at(story, first, instance)
    at = None if ready is None or ready + delay > story.end else ready + delay
    return Counterfactuals(
        recorded=_recorded(story),
        replayed=replayed,
        blocking=_blocking(story, first, at),
        blocking_at=None if at is None else at - story.incident.opened_at,
        one_more=one_more,
        node_free=size or None,
        assumptions=_assumptions(story, first, delay, size),
    )


def blocking_loses(stories: Iterable[Story]) -> float | None:
    """Seconds of the whole topology that blocking recovery loses at least in the incidents of a run: it restores nothing
    before as many nodes as before are ready, and nothing is back before it is restored.  None where no incident was planned
    query by query; those that were not count as they were recorded."""
    lost, planned = 0.0, False
    for story in stories:
        question = _question(story)
        if question is None or story.incident.kind is Kind.BLOCKING:
            lost += story.lost_s
            continue
        planned, ready = True, _blocking_at(story, *question)
        curve = _blocking(story, question[0], story.end if ready is None else ready)
        assert curve is not None
        lost += curve.lost_s
    return lost if planned else None


def _question(story: Story) -> tuple[PlanRecord, Instance] | None:
    """The first plan, and what it answered; None where nothing was planned."""
    planned = [plan for plan in story.plans if plan.candidates]
    if not planned:
        return None
    # another coordinator may have made it, whose clock is behind that of the one that opened the incident
    first = replace(planned[0], time=max(planned[0].time, story.incident.opened_at))
    return first, instance_of(first, story.incident, story.topology, "the incident's records")


def _recorded(story: Story) -> Curve:
    opened = story.incident.opened_at
    back = {d.query: d.caught_up_at - opened for d in story.downtimes if d.caught_up_at is not None}
    return Curve(Course.RECORDED, back, story.lost_s)


def _best(problem: Problem) -> tuple[int, ...]:
    return auto(problem, Deadline(StepClock(), PLAN_WORK)).queries


def _schedule(story: Story, first: PlanRecord, instance: Instance) -> Schedule:
    arrivals = [Arrival(at - first.time, free) for at, _, free in story.arrivals if at >= first.time]
    horizon = max(story.end - first.time, 0.001)
    return myopic(instance, arrivals, horizon, _best)


def _curve(story: Story, name: Course, first: PlanRecord, schedule: Schedule, delay: float) -> Curve:
    start, span = first.time - story.incident.opened_at, story.end - story.incident.opened_at
    back: dict[str, float] = {}
    for stage in schedule.stages:
        at = start + stage.at + delay
        for query in stage.queries if at <= span else ():
            back.setdefault(query, at)
    return Curve(name, back, _lost(story, back, [c.query for c in first.candidates]))


def _blocking_at(story: Story, first: PlanRecord, instance: Instance) -> float | None:
    """When as many nodes were ready as before the failure, and all that failed had room."""
    nodes = dict(first.free)
    moments = [(first.time, list[tuple[str, int]]())]
    moments += [(at, [(node, free)]) for at, node, free in story.arrivals if at >= first.time]
    for at, new in moments:
        nodes |= dict(new)
        now = replace(
            instance,
            nodes=tuple(NodeCapacity(node, free) for node, free in nodes.items()),
            capacity=sum(nodes.values()),
        )
        if len(nodes) >= story.incident.nodes_before and _all_fit(now):
            return at
    return None


def _all_fit(instance: Instance) -> bool:
    schedule = myopic(instance, (), 1.0, _best)
    return len(schedule.stages[0].queries) == len(instance.queries)


def _blocking(story: Story, first: PlanRecord, at: float | None) -> Curve | None:
    """Everything stops at the first plan and comes back together, at `at` if within the record: the survivors are down as
    well."""
    if story.incident.kind is Kind.BLOCKING:
        return None
    opened = story.incident.opened_at
    every = list(story.priorities)
    back = {} if at is None else dict.fromkeys(every, at - opened)
    lost = {c.query for c in first.candidates}
    total = sum(story.priorities.values()) or 1
    seconds = 0.0
    for query, priority in story.priorities.items():
        begin = 0.0 if query in lost else first.time - opened
        end = min(back.get(query, story.end - opened), story.end - opened)
        seconds += priority * max(0.0, end - begin)
    return Curve(Course.BLOCKING, back, seconds / total)


def _lost(story: Story, back: dict[str, float], queries: Sequence[str]) -> float:
    span = story.end - story.incident.opened_at
    total = sum(story.priorities.values()) or 1
    return sum(story.priorities.get(q, 1) * min(back.get(q, span), span) for q in queries) / total


def _delay(story: Story) -> float:
    """Median seconds from the plan that chose a query to its catching up; 0 where no query came back."""
    found = []
    for entry in story.downtimes:
        chosen = [p.time for p in story.plans if entry.query in _chosen(p)]
        if entry.caught_up_at is not None and chosen:
            found.append(max(0.0, entry.caught_up_at - max(t for t in chosen)))
    return median(found) if found else 0.0


def _chosen(plan: PlanRecord) -> list[str]:
    queries = plan.plan.get("queries", [])
    return [str(query) for query in queries] if isinstance(queries, list) else []


def _assumptions(story: Story, first: PlanRecord, delay: float, size: int) -> tuple[str, ...]:
    found = [
        "partitions cost what they cost before the failure, as the incident's record says",
        f"from the plan that chooses a query until it has caught up it takes {delay:.1f} s, the median of this incident",
        "nodes are there when the first plan sees them that could use them; those that came when nothing was left to plan"
        + (" are taken from their heartbeats" if story.heartbeats else " are not on record and not counted"),
        "the seconds that survivors lose by rolling back are not counted, neither in the record nor in the others",
    ]
    if size:
        whose = (
            "as one that arrived" if story.planned_arrivals else "the most that one of the survivors had free"
        )
        found.append(f"one more node has {size} milli-CPU free ({whose}) and is there at the first plan")
    found.append(
        f"blocking recovery stops everything at the first plan and goes on when {story.incident.nodes_before} nodes are"
        " ready and everything fits"
    )
    later = [lost.node for lost in story.incident.lost if lost.time > first.time]
    if later:
        found.append(f"losses after the first plan are not replayed: {', '.join(later)}")
    return tuple(found)
