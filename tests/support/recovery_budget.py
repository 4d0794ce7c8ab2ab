"""Whether what was lost came back as fast as the parts of its recovery say: the check of tests that break a real run.

A query is judged from the moment when nothing from outside was missing any more (its last loss; the start of the last node
that its plan gives it something on; the return of what decides, where a test took that away too) until all that it needs is
at work again.  The budget is made of what the same run has recorded of each part, so a busy machine has a larger one:

- detection: the timeout of sessions, as the driver was told it; only where it is known when the nodes died,
- settling: until the moment that the incident names,
- planning: what the planner says that it took, and two looks of the coordinator,
- installing: the middle one of all installations that the driver has timed,
- loading and replaying: what is stored and what was applied since, at measured rates, of the node with the most to do.

So what is asserted is that a recovery consists of its parts: a decision that comes late, a report that nobody believes, and
a plan that is made twice are in no part.  Not judged: a first start, a query that never came back (other tests say so), and
a new driver whose nodes nobody has watched come to it.  Catching up with what came meanwhile is not in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from reprise.controller.coordinator.coordinator import TICK_S
from reprise.controller.status.query_state import RunState
from reprise.controller.status.recovery_time import overhead_of, partition_recoveries
from reprise.controller.zookeeper.observation import Observation
from reprise.scheduler.incident import EventName, Incident, Kind, PlanRecord, QueryTimeline
from reprise.scheduler.node_start import StartPhase

FACTOR = 5.0
"""A recovery may take so many times its budget."""
LOOKS = 2
"""Of the coordinator: one that sees what has changed, and one that carries out what was decided."""
SETBACKS = frozenset({
    EventName.OPENED, EventName.NODE_LOST, EventName.QUERIES_LOST, EventName.TAKEN_OFF, EventName.STOPPED,
    EventName.DRIVER_STARTED, EventName.CHECKPOINT_DAMAGED, EventName.BUFFERS_DROPPED,
})  # fmt: skip
"""After these a recovery begins anew."""
DEADLY = ("kill", "freeze")
"""Actions of a run after which a node's heartbeat stops."""


@dataclass(slots=True)
class Circumstances:
    """What came from outside, and is in no record of an incident.  Times are unix seconds."""

    deaths: Sequence[float] = ()
    """When nodes were killed or frozen."""
    whole: Sequence[float] = ()
    """Since when all that decides and carries out was there again, each time that it was not."""
    usable: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """`node#incarnation` -> when a driver began to report it as usable."""


@dataclass(slots=True)
class Watch:
    """Sees a run several times a second, and hands on what it sees: `Circumstances`, and the last look at the records."""

    then: Callable[[RunState, list[dict[str, Any]]], None] = lambda _state, _actions: None
    seen: Observation | None = None
    whole: list[float] = field(default_factory=list)
    usable: dict[str, list[float]] = field(default_factory=dict)
    _was_whole: bool = True
    _reported: frozenset[str] = frozenset()

    def __call__(self, state: RunState, actions: list[dict[str, Any]]) -> None:
        self.look(state.observation)
        self.then(state, actions)

    def look(self, seen: Observation) -> None:
        """One look at the records."""
        now_whole = seen.connected and seen.led and not seen.undecided and not seen.waits and not seen.paused
        if now_whole and not self._was_whole:
            self.whole.append(seen.time)
        self._was_whole = now_whole
        if not seen.connected:
            return
        self.seen = seen
        current = seen.progress is not None and (
            seen.desired is None or seen.desired.driver == seen.progress.driver
        )
        reported = seen.progress.nodes if current and seen.progress is not None else frozenset()
        for node in reported - self._reported:
            self.usable.setdefault(node, []).append(seen.time)
        self._reported = reported

    def circumstances(self, actions: Iterable[Mapping[str, Any]]) -> Circumstances:
        """With the actions of the run's record."""
        deaths = [
            float(action["time"]) for action in actions if action["action"] in DEADLY and action.get("nodes")
        ]
        return Circumstances(deaths, self.whole, self.usable)


@dataclass(frozen=True, slots=True)
class Recovery:
    """Of one query from one incident."""

    incident: str
    query: str
    took_s: float
    parts: Mapping[str, float]
    """Seconds of the budget, by part."""

    @property
    def budget_s(self) -> float:
        """What its parts add up to."""
        return sum(self.parts.values())

    @property
    def in_time(self) -> bool:
        """Whether it took no longer than it may."""
        return self.took_s <= FACTOR * self.budget_s

    def __str__(self) -> str:
        parts = ", ".join(f"{name} {seconds:.2f}" for name, seconds in self.parts.items())
        return (
            f"{self.incident}: {self.query} took {self.took_s:.2f} s, {self.took_s / self.budget_s:.1f} times its budget of"
            f" {self.budget_s:.2f} s ({parts})"
        )


def recoveries(seen: Observation, around: Circumstances) -> list[Recovery]:
    """All that can be judged, of each incident that is on record."""
    judged = []
    for incident in seen.incidents:
        if incident.kind is not Kind.START:
            found = (_recovery(seen, incident, q, times, around) for q, times in incident.queries.items())
            judged += [one for one in found if one is not None]
    return judged


def assert_in_time(seen: Observation, around: Circumstances) -> list[Recovery]:
    """No query took more than `FACTOR` times its budget; what was judged."""
    judged = recoveries(seen, around)
    late = [str(one) for one in sorted(judged, key=lambda one: -one.took_s) if not one.in_time]
    assert not late, f"{len(late)} of {len(judged)} recoveries are late: {'; '.join(late[:5])}"
    return judged


def _recovery(
    seen: Observation, incident: Incident, query: str, times: QueryTimeline, around: Circumstances
) -> Recovery | None:
    back = times.restored_at
    if back is None:
        return None
    setback = max(
        [times.lost_at, *(e.time for e in incident.events if e.name in SETBACKS and e.time <= back)]
    )
    plan = _plan_of(seen.plans_of(incident), query, setback, back)
    arrived = _arrivals(incident, plan, around) if plan is not None else []
    if _by_a_new_driver(incident, back) and not arrived:
        return None
    since = max([setback, *(at for at in around.whole if at <= back), *arrived])
    detection = {}
    died = max((at for at in around.deaths if at <= incident.opened_at), default=None)
    took = back - since
    if died is not None and since == incident.opened_at and _first_since(seen, incident, died):
        detection = {"detection": overhead_of(seen).detection_s}
        took = back - died
    return Recovery(incident.id, query, took, {**detection, **_parts(seen, incident, plan, since)})


def _plan_of(plans: Iterable[PlanRecord], query: str, setback: float, back: float) -> PlanRecord | None:
    """The first one after its last setback that does not leave it out.  None where it came back by none: a standby was
    promoted, or it was no loss."""
    able = (p for p in plans if setback <= p.time <= back and query not in p.left_out)
    return min(able, key=lambda plan: plan.time, default=None)


def _arrivals(incident: Incident, plan: PlanRecord, around: Circumstances) -> list[float]:
    """When the nodes on which the plan puts something could be used, as far as that is known."""
    nodes = frozenset(plan.added.values())
    ready = [incident.starts[n].at.get(StartPhase.READY) for n in nodes if n in incident.starts]
    watched = [at for n in nodes for at in around.usable.get(n, ())]
    opened = incident.opened_at
    return [at for at in (*ready, *watched) if at is not None and opened <= at <= plan.time]


def _by_a_new_driver(incident: Incident, back: float) -> bool:
    """Whether all that was restored until then came to nodes that a new driver had to find first."""
    started = (e.name is EventName.DRIVER_STARTED and e.time <= back for e in incident.events)
    return incident.kind is Kind.DRIVER or any(started)


def _first_since(seen: Observation, incident: Incident, died: float) -> bool:
    """Whether no other incident was opened, or still open, between that death and this one: it is about it."""
    others = (one for one in seen.incidents if one.opened_at < incident.opened_at)
    return all(one.closed_at is not None and one.closed_at <= died for one in others)


def _parts(seen: Observation, incident: Incident, plan: PlanRecord | None, since: float) -> dict[str, float]:
    overhead = overhead_of(seen)
    parts = {
        "settling": max(0.0, incident.settle_until - since),
        "planning": LOOKS * TICK_S + (plan.seconds if plan is not None else 0.0),
        "installing": overhead.install_s,
    }
    if plan is None:
        return parts
    # what a plan adds goes on at no standby
    work = partition_recoveries(plan.added, seen, {}, 0.0)
    nodes: dict[str, list[str]] = {}
    for partition in work:
        nodes.setdefault(plan.added[partition], []).append(partition)
    loads = [(sum(work[p].load_s for p in own), sum(work[p].replay_s for p in own)) for own in nodes.values()]
    load_s, replay_s = max(loads, key=sum, default=(0.0, 0.0))
    return {**parts, "loading": load_s, "replaying": replay_s}
