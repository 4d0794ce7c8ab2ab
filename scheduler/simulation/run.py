"""A simulation of a recovery: the coordinator's own rules and planners, carried on from a snapshot in virtual time.

Nodes are lost and arrive as asked; every decision is `decide`'s, so the result is what the coordinator would do, not a
model of it.  Only the driver is modelled: it takes over each desired state at once, what is newly placed is at work
`restore_s` later, and what lags has caught up `catch_up_s` after that.  A standby is where its partition is as soon as it is
placed, and becomes the partition without any delay.  Pure: the snapshot is a value, and nothing that is
decided here leaves.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from reprise.scheduler import back
from reprise.scheduler.decide import decide
from reprise.scheduler.errors import SchedulerError
from reprise.scheduler.incident import Incident, Phase, PlanRecord
from reprise.scheduler.model import Desired, Node, Policy, Progress, QueryView, Snapshot
from reprise.scheduler.rules import ANSWER_S
from reprise.scheduler.steps import (
    AddPlan,
    CloseIncident,
    Decision,
    Outcome,
    RuleName,
    WriteDesired,
    WriteIncident,
    WritePoison,
)
from reprise.scheduler.view import look

ACK_S = 0.3
"""Until the driver has taken over a desired state."""
INSTANT_S = 0.01
"""After the moment for which a rule waits."""
MOST_DECISIONS = 50
"""At one moment; more would mean that rules undo each other."""
MOST_EVENTS = 20_000


class NothingRuns(SchedulerError):
    """There is no topology at work to carry on from."""


@dataclass(frozen=True, slots=True)
class Change:
    """Nodes are lost (by name), or so many arrive, ready to be used, `at` seconds from now."""

    at: float
    lose: tuple[str, ...] = ()
    arrive: int = 0


@dataclass(frozen=True, slots=True)
class Durations:
    """What takes time besides decisions, in seconds."""

    restore_s: float = 0.0
    catch_up_s: float = 0.0
    checkpoint_s: float = 1.0


class Happening(StrEnum):
    """What happens in a simulation beside decisions."""

    LOST = "lost"
    """Nodes are."""
    ARRIVED = "arrived"
    """Nodes have."""
    QUERIES_DOWN = "queries-down"
    QUERIES_BACK = "queries-back"


@dataclass(frozen=True, slots=True)
class SimulatedEvent:
    at: float
    """Seconds from the snapshot."""
    what: Happening | RuleName
    """The rule, where it is a decision."""
    detail: str
    queries: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """`placed[plan]`: queries all of whose partitions have a living place after that plan: those that come back with it,
    and those that were never lost."""

    events: tuple[SimulatedEvent, ...]
    plans: tuple[PlanRecord, ...]
    placed: Mapping[str, frozenset[str]]
    available: frozenset[str]
    """In the end."""
    waiting: Mapping[str, str]
    """The others, with the reason of the newest plan."""
    closed: tuple[Incident, ...] = ()
    """Incidents that came to their end."""
    last: Snapshot | None = None
    """How everything stands then."""


def run_simulation(
    snapshot: Snapshot, policy: Policy, changes: Sequence[Change], durations: Durations | None = None
) -> SimulationResult:
    """Run until nothing happens any more.  NothingRuns for a topology that has not started, and LookupError for a node that
    is not there when it is to be lost; else what `decide` raises."""
    if snapshot.desired is None or snapshot.progress is None or not snapshot.session:
        raise NothingRuns("nothing is at work that could be carried on from")
    world = _World(snapshot, policy, durations or Durations())
    for change in changes:
        world.at(change.at, lambda change=change: world.change(change))  # type: ignore[misc]
    world.at(0.0, world.take_over)
    world.run()
    return world.result()


@dataclass(slots=True)
class _World:
    snapshot: Snapshot
    policy: Policy
    durations: Durations
    start: float = field(init=False)
    available: frozenset[str] = field(init=False)
    events: list[SimulatedEvent] = field(default_factory=list)
    plans: list[PlanRecord] = field(default_factory=list)
    closed: list[Incident] = field(default_factory=list)
    placed: dict[str, frozenset[str]] = field(default_factory=dict)
    _queue: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    _count: int = 0
    _arrived: int = 0
    _awaited: set[float] = field(default_factory=set)
    _checkpoint_due: bool = False
    _began: dict[str, float] = field(default_factory=dict)
    """When a partition began at the checkpoint, the last time."""

    _taken: Desired = field(init=False)
    """What the driver has taken over last."""

    def __post_init__(self) -> None:
        self.start = self.snapshot.now
        self._taken = self._desired
        self.available = self._available()

    # -- time --------------------------------------------------------------------------------------------------------

    @property
    def now(self) -> float:
        return self.snapshot.now - self.start

    def at(self, moment: float, what: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._queue, (moment, self._count, what))

    def run(self) -> None:
        while self._queue and self._count < MOST_EVENTS:
            moment, _, what = heapq.heappop(self._queue)
            self.snapshot = replace(self.snapshot, now=self.start + max(moment, self.now))
            what()
            self._decide()
            self._note()
            self._wait()

    def _say(self, what: Happening | RuleName, detail: str, queries: Sequence[str] = ()) -> None:
        self.events.append(SimulatedEvent(self.now, what, detail, tuple(queries)))

    # -- the coordinator ---------------------------------------------------------------------------------------------

    def _decide(self) -> None:
        for _ in range(MOST_DECISIONS):
            decision = decide(self.snapshot, self.policy)
            if decision.outcome is not Outcome.ACT:
                return
            self._apply(decision)
            if decision.rule is not RuleName.OBSERVED:
                self._say(decision.rule, decision.reason)
        raise SchedulerError(f"the rules do not come to rest: {decision.rule}: {decision.reason}")

    def _apply(self, decision: Decision) -> None:
        for step in decision.steps:
            match step:
                case WriteDesired(desired):
                    self.snapshot = replace(self.snapshot, desired=desired)
                    self.at(self.now + ACK_S, self.take_over)
                case WriteIncident(incident):
                    self.snapshot = replace(self.snapshot, incident=incident)
                case CloseIncident(incident):
                    self.closed.append(incident)
                    self.snapshot = replace(self.snapshot, incident=None)
                case WritePoison(poison):
                    self.snapshot = replace(self.snapshot, poison=poison)
                case AddPlan(plan):
                    self.plans.append(plan)
        if decision.plan is not None:
            self.placed[decision.plan.id] = self._placed()

    def _wait(self) -> None:
        """Come back when a rule's time is over, and when a checkpoint that may be taken is complete."""
        incident = self.snapshot.incident
        if incident is None:
            return
        for times in incident.queries.values():
            if times.turning_since is not None:
                self._look_again(times.turning_since - self.start + back.HOLD_S)
        if incident.phase is Phase.SETTLING:
            moments = (incident.settle_until, incident.settle_until + ANSWER_S, incident.driver_until)
            for moment in moments:
                if moment is not None:
                    self._look_again(moment - self.start)
        if self._desired.punctuate and not self._checkpoint_due and self._all_up_to_date():
            self._checkpoint_due = True
            self.at(self.now + self.durations.checkpoint_s, self._checkpoint)

    def _look_again(self, after: float) -> None:
        moment = after + INSTANT_S
        if moment > self.now and moment not in self._awaited:
            self._awaited.add(moment)
            self.at(moment, lambda: None)

    # -- nodes and driver --------------------------------------------------------------------------------------------

    @property
    def _desired(self) -> Desired:
        assert self.snapshot.desired is not None
        return self.snapshot.desired

    @property
    def _progress(self) -> Progress:
        assert self.snapshot.progress is not None
        return self.snapshot.progress

    def change(self, change: Change) -> None:
        """Nodes go and come."""
        known = {node.name for node in self.snapshot.nodes}
        if missing := sorted(set(change.lose) - known):
            raise LookupError(f"no node {missing[0]!r} is alive; there are {', '.join(sorted(known))}")
        nodes = [node for node in self.snapshot.nodes if node.name not in change.lose]
        for _ in range(change.arrive):
            nodes.append(Node(self._new_name(known), 1, self.policy.node_cpu_milli))
        if change.lose:
            self._say(Happening.LOST, " ".join(change.lose))
        if change.arrive:
            self._say(Happening.ARRIVED, " ".join(node.id for node in nodes[-change.arrive :]))
        gone = {node.id for node in self.snapshot.nodes} - {node.id for node in nodes}
        new = {node.id for node in nodes[len(nodes) - change.arrive :]}
        assignment = self._desired.assignment
        positions = {p: n for p, n in self._progress.positions.items() if assignment.get(p) not in gone}
        standbys = {
            p: k for p, k in self._progress.standbys.items() if self._desired.standbys.get(p) not in gone
        }
        self._report(nodes=(self._progress.nodes - gone) | new, positions=positions, standbys=standbys)
        self.snapshot = replace(self.snapshot, nodes=tuple(nodes))

    def _new_name(self, known: Collection[str]) -> str:
        while True:
            self._arrived += 1
            if (name := f"arrival{self._arrived}") not in known:
                return name

    def take_over(self) -> None:
        """The driver takes over the newest desired state."""
        desired, before, progress = self._desired, self._taken, self._progress
        self._taken = desired
        alive = {node.id for node in self.snapshot.nodes}
        there = {
            p: progress.positions[p]
            for p, node in desired.assignment.items()
            if node in alive and before.assignment.get(p) == node and p in progress.positions
        }
        there |= {
            p: k
            for p, k in progress.standbys.items()
            if (node := before.standbys.get(p)) in alive and desired.assignment.get(p) == node
        }
        back = {p for p in there if desired.origin(p).generation != before.origin(p).generation}
        mine = there | {p: desired.origin(p).position for p in back}
        self._began.update(dict.fromkeys(back, self.now))
        at = {**progress.standbys, **mine}
        self._report(
            seq=desired.seq,
            generation=desired.generation,
            driver=desired.driver,
            positions=mine,
            failed=progress.poisoned,
            standbys={p: at[p] for p, node in desired.standbys.items() if node in alive and p in at},
        )
        missing = {p: node for p, node in desired.assignment.items() if node in alive and p not in mine}
        if missing:
            self.at(self.now + self.durations.restore_s, lambda: self._installed(missing))
        self.at(self.now + self.durations.catch_up_s, self._caught_up)

    def _installed(self, places: Mapping[str, str]) -> None:
        alive = {node.id for node in self.snapshot.nodes}
        now = self._desired.assignment
        there = {p for p, node in places.items() if node in alive and now.get(p) == node}
        new = {p: self._desired.origin(p).position for p in there - self._progress.positions.keys()}
        self._report(positions={**self._progress.positions, **new})
        self._began.update(dict.fromkeys(new, self.now))
        self.at(self.now + self.durations.catch_up_s, self._caught_up)

    def _caught_up(self) -> None:
        """All that have had their time, and whose input is there, are at the horizon; the others wait for it."""
        positions = dict(self._progress.positions)
        begun_by = self.now - self.durations.catch_up_s + INSTANT_S / 2
        for partition in self.snapshot.topology.partitions:
            done = self._began.get(partition.id, begun_by) <= begun_by
            if done and partition.id in positions and all(p in positions for p in partition.feedback):
                reach = min(
                    (positions.get(p, -1) for p in partition.upstream), default=self._progress.horizon
                )
                positions[partition.id] = max(positions[partition.id], reach)
        self._report(positions=positions)

    def _checkpoint(self) -> None:
        self._checkpoint_due = False
        if self._desired.punctuate and self._all_up_to_date():
            new = self._progress.horizon + 1
            kept = self._progress.kept_since
            if kept is not None and kept <= self._progress.checkpoint:  # what fitted so far fits from now on
                kept = new
            positions = dict.fromkeys(self._progress.positions, new)
            self._report(horizon=new, checkpoint=new, positions=positions, kept_since=kept)

    def _report(self, **changes: object) -> None:
        self.snapshot = replace(self.snapshot, progress=replace(self._progress, **changes))  # type: ignore[arg-type]

    # -- what is seen ------------------------------------------------------------------------------------------------

    def _all_up_to_date(self) -> bool:
        positions, horizon = self._progress.positions, self._progress.horizon
        return all(positions.get(p.id, -1) >= horizon for p in self.snapshot.topology.partitions)

    def _available(self) -> frozenset[str]:
        return frozenset(q.id for q in self.snapshot.topology.queries if self._is_available(q))

    def _is_available(self, query: QueryView) -> bool:
        """An output that is near stays near in this world, so it counts from then on, as the incident's record will."""
        positions, progress, incident = self._progress.positions, self._progress, self.snapshot.incident
        if not query.partitions <= positions.keys() or not query.partitions.isdisjoint(progress.failed):
            return False
        return incident is None or back.near(progress, incident, query.id)

    def _placed(self) -> frozenset[str]:
        alive = {node.id for node in self.snapshot.nodes}
        there = {p for p, node in self._desired.assignment.items() if node in alive}
        return frozenset(q.id for q in self.snapshot.topology.queries if q.partitions <= there)

    def _note(self) -> None:
        now = self._available()
        if down := sorted(self.available - now):
            self._say(Happening.QUERIES_DOWN, " ".join(down), down)
        if back := sorted(now - self.available):
            self._say(Happening.QUERIES_BACK, " ".join(back), back)
        self.available = now

    def result(self) -> SimulationResult:
        view = look(self.snapshot, self.policy)
        reasons = self.plans[-1].left_out if self.plans else {}
        waiting = {}
        for query in self.snapshot.topology.queries:
            if query.id not in self.available:
                own = view.poisoned(query) or reasons.get(query.id)
                waiting[query.id] = own or "its partitions are not at work"
        return SimulationResult(
            tuple(self.events),
            tuple(self.plans),
            self.placed,
            self.available,
            waiting,
            tuple(self.closed),
            self.snapshot,
        )
