"""Schedules: run one, find what it breaks, and make it short."""

from __future__ import annotations

import contextlib
import logging
import random
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

from reprise.controller.simulated_world import faults as nemesis
from reprise.controller.simulated_world.checks import Checks, Violation
from reprise.controller.simulated_world.cluster import Cluster
from reprise.controller.simulated_world.core import World
from reprise.controller.simulated_world.faults import Fault
from reprise.controller.simulated_world.kinds import ARBITRARY, Drawing, draw_kinds
from reprise.controller.simulated_world.operators import Numbers
from reprise.controller.simulated_world.topology import modes_of, topology
from reprise.spark_jobs.errors import SpecError
from reprise.spark_jobs.topology import StreamTopology

FIRST_S, LAST_S = 0.5, 19.0
"""When faults happen: the stream of 40 batches takes about 20 s without any."""
HEALED_S, LIMIT_S = 32.0, 120.0
"""When everything is well again, and how long all may take from then."""
AFTER_S = 3.0
"""How long a run goes on when all is well, also where all output is there: what was stopped goes on then, and may write."""
OWN_CLOCKS = ", protocol: uncoordinated, log: checkpointed"
CHECKPOINTS = (
    "",
    ", localCopies: 0",
    ", keep: 1",
    ", protocol: uncoordinated, log: memory",
    OWN_CLOCKS,
    ", protocol: communication-induced, log: checkpointed",
)
EVENTUAL = (
    ", protocol: eventual, log: checkpointed, eventual: {extent: 8, replay: 12, spend: 10ms, every: 10ms}"
)
"""So little that slots are stored again all the time."""
VARIANTS: tuple[tuple[float, str, Any], ...] = (
    (0.37, "availability", "active-standby"),
    (0.45, "availability", "passive-standby"),
    (0.55, "availability", "upstream-backup"),
    (0.60, "availability", "amnesia"),
    (0.68, "order", "arrival"),
    (0.74, "checkpoint", ", state: paged"),
    (0.80, "recovery", ", bufferMemory: 1"),
)
"""What else differs, for the seeds whose draw is below these numbers, and not below the one before.  Half of those in the
order of arrival have snapshots by their own clocks, half of the others a cycle; with so little memory for output all of it
is on the node's disk.  Half of those with a way to be available have one for each operator."""
WAYS = ("checkpoint", "active-standby", "passive-standby", "upstream-backup", "amnesia")
MOST_DRAWN = 20
"""Mixtures of these that are drawn for a seed until one is allowed."""
CYCLES = 0.4
"""How many of those that have standbys or upstream backup have cycles."""
RECOVERIES = (
    "",
    ", scope: global",
    ", scope: ancestors",
    ", correlatedNodes: 1",
    ", strategy: blocking",
    ", strategy: operator-centric",
)
"""Ways to run the topology, of which half of the seeds have others than the first; what a topology refuses is not taken."""
RACKS = (2, 3)
"""Racks that four nodes are in, where these are failure domains: in each one or two."""
BY_RACK = {True: 0.5, False: 0.2}
"""In how many seeds they are, by whether any operator has standbys; each loses a rack then."""
EVERY = (None, 1, 3)
"""Batches between what passive standbys are sent; None: so many that a checkpoint, each six batches, always comes before."""
LITTLE_MEMORY, IN_PAGES, OF_OTHER_KINDS = 0.2, 0.4, 0.5
"""How many of the seeds with a way to be available have all output on the node's disk, states in pages where that is
allowed, and, of the others, operators of other kinds."""
DRAWN = 0.15
"""How many of the seeds without anything of all this have an arbitrary operator."""
BESIDES = {"live": 0.2, "full": 0.1, "chained": 0.25, "wishes": 0.4}
"""What else differs, each in so many of the seeds."""
LITTLE_ROOM = ", bufferMemory: 3000, bufferDisk: 3000"
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
    windowed: bool = False
    racks: int = 0
    """How many racks nodes are in, which are failure domains then; 0: in two, which are none."""
    every: int | None = None
    kinds: str = ""
    sink: str = ""
    source: str = ""
    live: bool = False
    exchange: str = "auto"

    @staticmethod
    def of(seed: int) -> Schedule:
        """The schedule of a seed."""
        return Schedule._of(seed).perhaps_by_rack().drawn_besides()

    @staticmethod
    def _of(seed: int) -> Schedule:
        faults = nemesis.draw(seed, FIRST_S, LAST_S)
        dice = random.Random(f"topology of {seed}")
        plain = Schedule(seed, faults, coordinators=1 + seed % 3 // 2, cpu=dice.choice(CPUS))
        states = random.Random(f"states of {seed}")
        if (kind := states.random()) < 0.25:
            made = replace(plain, checkpoint=EVENTUAL, recovery=states.choice(RECOVERIES))
            return made if made.allowed else replace(made, recovery="")
        for below, what, value in VARIANTS:
            if kind < below:
                if what == "order":
                    checkpoint = dice.choice(("", OWN_CLOCKS))
                    return plain.in_arrival(checkpoint, not checkpoint and dice.random() < 0.5)
                varied = replace(plain, **{what: value})
                return (
                    varied.mixed().perhaps_in_a_cycle().drawn_further() if what == "availability" else varied
                )
        if dice.random() < 0.5:
            return plain.arbitrary() if random.Random(f"kinds of {seed}").random() < DRAWN else plain
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

    def in_arrival(self, checkpoint: str = "", feedback: bool = False) -> Schedule:
        """The same faults with input in the order of its arrival; no checkpoint is damaged, as outputs would wait for a
        person."""
        return replace(self._undamaged(), order="arrival", checkpoint=checkpoint, feedback=feedback)

    def arbitrary(self) -> Schedule:
        """The same faults with an operator of which a replay differs; no checkpoint is damaged here either."""
        return replace(self._undamaged(), kinds=ARBITRARY)

    def _undamaged(self) -> Schedule:
        kept = tuple(fault for fault in self.faults if fault.kind != "state-torn")
        return replace(self.plain(), faults=kept)

    def drawn_further(self) -> Schedule:
        """The same, and what else may differ beside a way to be available: how often passive standbys are sent something,
        how much memory there is for output, how states are stored, and the kinds of operators."""
        dice, ways = random.Random(f"beside {self.seed}"), modes_of(self.availability)
        every, little, paged, kinds = dice.choice(EVERY), dice.random(), dice.random(), dice.random()
        made = replace(self, every=every if "passive-standby" in ways else None)
        if little < LITTLE_MEMORY:
            made = replace(made, recovery=", bufferMemory: 1")
        if paged < IN_PAGES and set(ways) <= {"passive-standby", "checkpoint"}:
            made = replace(made, checkpoint=", state: paged")
        elif kinds < OF_OTHER_KINDS:
            made = replace(made, kinds=draw_kinds(dice, ways))
        return made

    def mixed(self) -> Schedule:
        """The same, and for half of the seeds each operator is available in a way of its own, one of them in this one."""
        dice = random.Random(f"ways of {self.seed}")
        for _ in range(MOST_DRAWN if dice.random() < 0.5 else 0):
            ways = [dice.choice(WAYS) for _ in range(3)]
            ways[dice.randrange(3)] = self.availability
            made = replace(self, availability=",".join(ways))
            if len(set(ways)) > 1 and made.allowed:
                return made
        return self

    def perhaps_in_a_cycle(self) -> Schedule:
        """The same, or with cycles, where no batch is skipped; then what is the way of two operators is that of all, but not
        upstream backup, with which nobody reads itself."""
        if random.Random(f"cycle of {self.seed}").random() >= CYCLES or "amnesia" in self.availability:
            return self
        ways = self.availability
        every = ways if "," in ways or ways == "upstream-backup" else ",".join([ways] * 3)
        return replace(self, feedback=True, availability=every)

    def perhaps_by_rack(self) -> Schedule:
        """The same, or with racks as failure domains."""
        often = BY_RACK["standby" in self.availability]
        return self.by_rack() if random.Random(f"racks of {self.seed}").random() < often else self

    def drawn_besides(self) -> Schedule:
        """The same, or with a live source, with so little room for output that partitions wait, with messages that travel
        with the stages of jobs, or with people who ask that queries are skipped: each in a share of the seeds, where the
        topology allows it."""
        made = self
        for what, share in BESIDES.items():
            if random.Random(f"{what} of {self.seed}").random() >= share:
                continue
            if what == "live":
                tried = replace(made, live=True)
            elif what == "full":
                tried = replace(made, recovery=made.recovery + LITTLE_ROOM)
            elif what == "chained":
                tried = replace(made, exchange="chained")
            elif made.order == "aligned" and made.availability == "checkpoint" and not made.kinds:
                tried = replace(made, windowed=True)
            else:
                continue
            if tried.allowed:
                made = tried.with_wishes() if what == "wishes" else tried
        return made

    def by_rack(self) -> Schedule:
        """The same with racks as failure domains, of which one is lost, too, whatever else happens."""
        dice = random.Random(f"rack of {self.seed}")
        lost = nemesis.drawn(dice, "rack-dies", FIRST_S, LAST_S)
        faults = sorted((*self.faults, lost), key=lambda fault: fault.at)
        return replace(self, faults=tuple(faults), racks=dice.choice(RACKS))

    def with_wishes(self) -> Schedule:
        """The same, and after each loss of nodes somebody asks for a query to be skipped, some time later."""
        dice = random.Random(f"wishes of {self.seed}")
        wishes = [
            Fault(round(f.at + dice.uniform(0.2, 6.0), 2), "query-skipped", dice.randrange(60))
            for f in self.faults
            if f.kind in ("node-dies", "rack-dies", "executor-dies", "node-leaves")
        ]
        return replace(self, faults=tuple(sorted((*self.faults, *wishes), key=lambda fault: fault.at)))

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
            self.windowed,
            self.racks > 0,
            every=self.every,
            kinds=self.kinds,
            sink=self.sink,
            source=self.source,
            live=self.live,
            exchange=self.exchange,
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
    marks: tuple[str, ...] = ()
    """Files that mark batches, as those may lack rows."""
    twins: int = 0
    """How often a state was compared with the one that its partition, or its standby, had after the same batch."""
    acted: tuple[str, ...] = ()
    """Kinds of the faults that have done something: another may have found nothing to break."""


def run(schedule: Schedule) -> Outcome:
    """Run a schedule in a world of its own."""
    with _quiet():
        resource = schedule.resource
    Numbers.dice = random.Random(f"rows of {schedule.seed}")
    Drawing.dice = random.Random(f"draws of {schedule.seed}")
    with _quiet():
        world = World(schedule.seed)
        cluster = Cluster(world, resource, schedule.coordinators)
        checks = Checks(cluster)
        violation: Violation | None = None
        acted: list[str] = []
        try:
            for number in range(schedule.nodes):
                cluster.add(f"n{number + 1}", rack=number % (schedule.racks or 2))
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
    return Outcome(
        schedule,
        violation,
        world.now,
        world.events,
        tuple(world.told),
        tuple(sorted(checks.marks)),
        cluster.twins.compared,
        tuple(acted),
    )


def _happens(cluster: Cluster, fault: Fault, acted: list[str]) -> None:
    cluster.world.note(f"*** {fault.kind} {fault.which} {fault.seconds}")
    if (nemesis.KINDS.get(fault.kind) or nemesis.ASKED[fault.kind])(cluster, fault):
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
