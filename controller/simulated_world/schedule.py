"""Schedules: run one, find what it breaks, and make it short."""

from __future__ import annotations

import contextlib
import logging
import random
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace

from reprise.controller.simulated_world import faults as nemesis
from reprise.controller.simulated_world.checks import Checks, Violation
from reprise.controller.simulated_world.cluster import Cluster
from reprise.controller.simulated_world.core import World
from reprise.controller.simulated_world.faults import Fault
from reprise.controller.simulated_world.operators import Numbers
from reprise.controller.simulated_world.topology import topology
from reprise.spark_jobs.errors import SpecError
from reprise.spark_jobs.topology import StreamTopology

FIRST_S, LAST_S = 0.5, 19.0
"""When faults happen: the stream of 40 batches takes about 20 s without any."""
HEALED_S, LIMIT_S = 32.0, 120.0
"""When everything is well again, and how long all may take from then."""
AFTER_S = 3.0
"""How long a run goes on when all is well, also where all output is there: what was stopped goes on then, and may write."""
CHECKPOINTS = (
    "",
    ", localCopies: 0",
    ", keep: 1",
    ", protocol: uncoordinated, log: memory",
    ", protocol: uncoordinated, log: checkpointed",
    ", protocol: communication-induced, log: checkpointed",
)
EVENTUAL = (
    ", protocol: eventual, log: checkpointed, eventual: {extent: 8, replay: 12, spend: 10ms, every: 10ms}"
)
"""So little that slots are stored again all the time."""
AVAILABILITIES = (0.37, "active-standby"), (0.45, "passive-standby"), (0.55, "upstream-backup")
"""For the seeds whose draw is below these numbers, and not below the one before."""
ARRIVAL = 0.63
"""Those below this, and not below the last of these, take input in the order of its arrival."""
RECOVERIES = (
    "",
    ", scope: global",
    ", scope: ancestors",
    ", correlatedNodes: 1",
    ", strategy: blocking",
    ", strategy: operator-centric",
)
"""Ways to run the topology, of which half of the seeds have others than the first; what a topology refuses is not taken."""
CPUS = ("300m", "210m")
"""Of a node: with the first two of them hold everything, with the second it takes all four."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """Everything that a run follows from."""

    seed: int
    faults: tuple[Fault, ...]
    nodes: int = 4
    coordinators: int = 1
    batches: int = 40
    checkpoint: str = ""
    recovery: str = ""
    availability: str = "checkpoint"
    cpu: str = CPUS[0]
    feedback: bool = False
    order: str = "aligned"

    @staticmethod
    def of(seed: int) -> Schedule:
        """The schedule of a seed."""
        faults = nemesis.draw(seed, FIRST_S, LAST_S)
        dice = random.Random(f"topology of {seed}")
        plain = Schedule(seed, faults, coordinators=1 + seed % 3 // 2, cpu=dice.choice(CPUS))
        states = random.Random(f"states of {seed}")
        if (kind := states.random()) < 0.25:
            made = replace(plain, checkpoint=EVENTUAL, recovery=states.choice(RECOVERIES))
            return made if made.allowed else replace(made, recovery="")
        for below, availability in AVAILABILITIES:
            if kind < below:
                return replace(plain, availability=availability)
        if kind < ARRIVAL:
            return plain.in_arrival()
        if dice.random() < 0.5:
            return plain
        checkpoint, recovery = dice.choice(CHECKPOINTS), dice.choice(RECOVERIES)
        made = replace(
            plain,
            checkpoint=checkpoint,
            recovery=recovery,
            feedback="induced" in checkpoint or dice.random() < 0.3,
        )
        return made if made.allowed else plain

    def plain(self) -> Schedule:
        """The same faults on the topology as it is where nothing else is drawn."""
        return Schedule(self.seed, self.faults, self.nodes, self.coordinators, self.batches, cpu=self.cpu)

    def in_arrival(self) -> Schedule:
        """The same faults with input in the order of its arrival; no checkpoint is damaged, as outputs would wait for a
        person."""
        kept = tuple(fault for fault in self.faults if fault.kind != "state-torn")
        return replace(self.plain(), faults=kept, order="arrival")

    @property
    def resource(self) -> StreamTopology:
        """The topology that it runs.  SpecError: there is no such one."""
        return topology(
            self.batches,
            self.nodes - 1,
            self.checkpoint,
            self.recovery,
            self.availability,
            self.cpu,
            self.feedback,
            self.order,
        )

    @property
    def allowed(self) -> bool:
        """Whether the topology may be run as it says."""
        with _quiet():
            try:
                return bool(self.resource)
            except SpecError:
                return False

    def __str__(self) -> str:
        """Write it as it stands in a test."""
        lines = [f"    Fault({f.at}, {f.kind!r}, {f.which}, {f.seconds})," for f in self.faults]
        more = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("seed", "faults")}
        changed = "".join(f", {n}={v!r}" for n, v in more.items() if v != getattr(Schedule(0, ()), n))
        return "\n".join([f"Schedule({self.seed}, (", *lines, f"){changed})"])


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run went.  `told`: what has happened, a line each."""

    schedule: Schedule
    violation: Violation | None
    virtual_s: float
    events: int
    told: tuple[str, ...]
    acted: tuple[str, ...] = ()
    """Kinds of the faults that have done something: another may have found nothing to break."""


def run(schedule: Schedule) -> Outcome:
    """Run a schedule in a world of its own."""
    with _quiet():
        resource = schedule.resource
    Numbers.dice = random.Random(f"rows of {schedule.seed}")
    with _quiet():
        world = World(schedule.seed)
        cluster = Cluster(world, resource, schedule.coordinators)
        checks = Checks(cluster)
        violation: Violation | None = None
        acted: list[str] = []
        try:
            for number in range(schedule.nodes):
                cluster.add(f"n{number + 1}", rack=number % 2)
            for fault in schedule.faults:
                world.call(fault.at, lambda fault=fault: _happens(cluster, fault, acted))  # type: ignore[misc]
            over = max((fault.at + fault.seconds for fault in schedule.faults), default=0.0)
            world.run(min(over, HEALED_S) if schedule.faults else 0.0)
            nemesis.heal(cluster)
            world.run(world.now + AFTER_S)
            checks.finish(world.run(max(over, HEALED_S) + LIMIT_S, lambda: checks.done))
        except Violation as found:
            violation = found
        finally:
            checks.close()
            cluster.close()
    return Outcome(schedule, violation, world.now, world.events, tuple(world.told), tuple(acted))


def _happens(cluster: Cluster, fault: Fault, acted: list[str]) -> None:
    cluster.world.note(f"*** {fault.kind} {fault.which} {fault.seconds}")
    if nemesis.KINDS[fault.kind](cluster, fault):
        acted.append(fault.kind)


def shrink(outcome: Outcome) -> Outcome:
    """The same violation with fewer faults: one after the other is left out for as long as it stays."""
    assert outcome.violation is not None
    best, again = outcome, True
    while again:
        again = False
        for fault in reversed(best.schedule.faults):
            fewer = replace(best.schedule, faults=tuple(f for f in best.schedule.faults if f is not fault))
            tried = run(fewer)
            if tried.violation is not None and tried.violation.invariant == outcome.violation.invariant:
                best, again = tried, True
                break
    return best


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """The code's own log lines are not written, but those that nobody had foreseen."""
    log = logging.getLogger("reprise")
    before = log.level, log.propagate
    log.setLevel(logging.ERROR)
    log.propagate = False
    try:
        yield
    finally:
        log.setLevel(before[0])
        log.propagate = before[1]
