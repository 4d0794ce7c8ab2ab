"""A topology in virtual time: nodes, a driver that behaves as the engine does, records with versions, and any
number of coordinators. It holds each of them to the invariants of docs/recovery.md while it runs."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from reprise.algorithms.failure import Failure
from reprise.scheduler import (
    AddPlan,
    CloseIncident,
    Decision,
    Desired,
    Incident,
    Node,
    Outcome,
    PartitionStats,
    PartitionView,
    PlanRecord,
    Poison,
    Policy,
    Progress,
    QueryView,
    Scope,
    Snapshot,
    Strategy,
    TopologyView,
    WriteDesired,
    WriteIncident,
    WritePoison,
    decide,
)
from reprise.scheduler.incident import Trigger, number_in
from reprise.scheduler.model import Leaving, SkipWish
from reprise.scheduler.steps import TakeSkip


def diamond(parallelism: int = 2, cpu: int = 100, deterministic: bool = True) -> TopologyView:
    """source -> left, right -> sink; one query a sink partition, the first worth most, and one partition
    `idle` that no query needs."""
    ks = range(parallelism)
    sources = tuple(f"source.{k}" for k in ks)
    lefts, rights = tuple(f"left.{k}" for k in ks), tuple(f"right.{k}" for k in ks)
    partitions = [PartitionView(s, cpu_milli=cpu) for s in sources]
    partitions += [PartitionView(p, upstream=sources, cpu_milli=cpu) for p in lefts]
    partitions += [PartitionView(f"right.{k}", upstream=(f"source.{k}",), cpu_milli=cpu) for k in ks]
    partitions += [
        PartitionView(f"sink.{k}", upstream=(*lefts, f"right.{k}"), feedback=(f"sink.{k}",), cpu_milli=cpu)
        for k in ks
    ]
    partitions += [PartitionView("idle.0", upstream=rights, cpu_milli=cpu)]
    queries = [
        QueryView(f"sink.{k}", parallelism - k, frozenset({*sources, *lefts, f"right.{k}", f"sink.{k}"}))
        for k in ks
    ]
    queries += [
        QueryView(f"right.{k}", 1, frozenset({f"source.{k}", f"right.{k}"})) for k in ks if k % 2 == 0
    ]
    return TopologyView("diamond", tuple(partitions), tuple(queries), deterministic)


@dataclass
class Driver:
    """What `reprise.spark_jobs.engine.engine.Engine` and `reprise.controller.driver` do, without the data."""

    epoch: str
    topology: TopologyView
    checkpoint: int = 0
    desired: Desired | None = None
    first_generation: int | None = None
    positions: dict[str, int] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    bad: set[int] = field(default_factory=set)
    not_kept: set[str] = field(default_factory=set)
    horizon: int = 0
    punctuation: int | None = None
    nodes: frozenset[str] = frozenset()
    standbys: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Partition -> node and position of its standby."""
    output_waits: frozenset[str] = frozenset()
    """Partitions whose output waits for their standbys, by the code that it runs."""
    obeyed: dict[str, str] = field(default_factory=dict)
    """Partition that has begun anew -> the wish for that."""
    held_since: dict[str, int] = field(default_factory=dict)
    """Partition at work -> batch behind which it still has all of its output."""

    def want(self, desired: Desired | None, world: World) -> None:
        if self.first_generation is None:
            self.first_generation = desired.generation if desired else -1
        known = self.desired or Desired(0, -1, 0, self.epoch)
        if desired is None or desired.seq == known.seq or desired.generation <= self.first_generation:
            return
        if desired.driver != self.epoch:
            return  # decided late, for the driver before this one
        rollback = desired.generation != known.generation
        names = [p.id for p in self.topology.partitions]
        back = {p for p in names if desired.origin(p).generation != known.origin(p).generation}
        if (rollback or desired.checkpoint != known.checkpoint) and desired.checkpoint in world.damaged:
            self.bad.add(desired.checkpoint)
            return
        world.check_survivors(self, desired, rollback)
        for p in back:
            for states in (self.positions, self.failed, self.held_since):
                states.pop(p, None)
            self.not_kept.discard(p)
            self.standbys.pop(p, None)
        if rollback:
            self.horizon, self.punctuation = desired.checkpoint, None
        for p in [p for p in self.positions if p not in desired.assignment]:
            self._lose(p, "not assigned")
            self.failed.pop(p, None)
        self.desired = desired
        installed = []
        for p, node in desired.assignment.items():
            if p not in back and known.assignment.get(p) != node and self.standbys.get(p, ("",))[0] == node:
                self._install(p, self.standbys.pop(p)[1])
                self.held_since[p] = self.checkpoint
                world.promoted.append(p)
                continue
            anew = p in back or known.assignment.get(p) != node
            if anew or (p not in self.positions and p not in self.failed):
                installed += self._begin(p, desired, world)
        for p in installed if not rollback else ():
            world.check_replayable(self, p)

    def _follow(self, world: World) -> None:
        assert self.desired is not None
        wanted = self.desired.standbys
        for p in [p for p, (n, _) in self.standbys.items() if wanted.get(p) != n or n not in world.nodes]:
            del self.standbys[p]
        for p, node in wanted.items():
            if p in self.positions and node in world.nodes:
                self.standbys[p] = (node, self.positions[p])

    def _begin(self, p: str, desired: Desired, world: World) -> list[str]:
        """Restored, and named then, or anew: nobody has to send that anything from before."""
        if p not in desired.anew or self.obeyed.get(p) == desired.anew[p]:
            self._install(p, desired.origin(p).position)
            return [p]
        self._install(p, self.horizon)
        self.obeyed[p] = desired.anew[p]
        world.skipped.append(p)
        return []

    def _install(self, p: str, position: int) -> None:
        self.positions[p] = self.held_since[p] = position
        self.failed.pop(p, None)

    def tick(self, world: World) -> None:
        self.nodes = frozenset(world.nodes)
        self.want(world.desired, world)
        if self.desired is None:
            return
        for p in [p for p in self.positions if self.desired.assignment[p] not in world.nodes]:
            self._lose(p, "node lost")
        if not self.positions:
            return
        if not self.desired.paused:
            everyone = len(self.positions) == len(self.topology.partitions)
            if self.desired.punctuate and everyone and self.punctuation is None:
                self.punctuation = self.horizon + 1
            self.horizon += 1
        for partition in self.topology.partitions:
            self._advance(partition, world)
        if self.punctuation is not None and all(
            self.positions.get(p.id, -1) >= self.punctuation for p in self.topology.partitions
        ):
            self.checkpoint, self.punctuation = self.punctuation, None
            world.checkpoints.add(self.checkpoint)
        self._drop_output(world)
        self._follow(world)

    def _drop_output(self, world: World) -> None:
        """What need not be kept any more goes; on a full node, more than that."""
        assert self.desired is not None
        if self.desired.retain and not world.full:
            return
        keeps = world.policy.scope is Scope.AUTO and not world.full
        for p, position in self.positions.items():
            self.held_since[p] = max(self.held_since[p], self.checkpoint) if keeps else position

    def _advance(self, partition: PartitionView, world: World) -> None:
        p = partition.id
        if p not in self.positions or p in self.not_kept:
            return
        reach = min((self.positions.get(u, -1) for u in partition.upstream), default=self.horizon)
        behind = p in self.obeyed and self.positions[p] >= world.poison_at.get(
            p, 0
        )  # it has begun anew there
        if p in world.poison_at and reach >= world.poison_at[p] and not behind:
            self._lose(p, f"poison: batch {world.poison_at[p]}")
        else:
            self.positions[p] = max(self.positions[p], reach)

    def _lose(self, p: str, why: str) -> None:
        self.positions.pop(p, None)
        self.held_since.pop(p, None)
        self.failed[p] = Failure.parse(why)

    def progress(self) -> Progress:
        d = self.desired
        return Progress(
            driver=self.epoch,
            seq=d.seq if d else 0,
            generation=d.generation if d else -1,
            nodes=self.nodes,
            positions=dict(self.positions),
            failed=dict(self.failed),
            horizon=self.horizon,
            checkpoint=self.checkpoint,
            bad_checkpoints=frozenset(self.bad),
            not_kept=frozenset(self.not_kept),
            kept_since=max(self.held_since.values(), default=0),
            standbys={p: k for p, (_, k) in self.standbys.items()},
            output_waits=self.output_waits,
        )


@dataclass
class World:
    topology: TopologyView
    policy: Policy
    now: float = 1000.0
    output_waits: frozenset[str] = frozenset()
    """What drivers that begin say of partitions whose output waits for their standbys."""
    nodes: dict[str, Node] = field(default_factory=dict)
    driver: Driver | None = None
    progress: Progress | None = None
    stats: dict[str, PartitionStats] = field(default_factory=dict)
    desired: Desired | None = None
    incident: Incident | None = None
    poison: Poison | None = None
    version: int = 0
    """Of all records of the coordinator at once."""
    checkpoints: set[int] = field(default_factory=set)
    damaged: set[int] = field(default_factory=set)
    poison_at: dict[str, int] = field(default_factory=dict)
    session: bool = True
    paused: bool = False
    may_drop: bool = False
    """Whether somebody may need output that is not kept: else that is a fault of the plan."""
    full: bool = False
    """Nodes have room for no more output than what is in flight."""
    plans: list[PlanRecord] = field(default_factory=list)
    closed: list[Incident] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    promoted: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    """Partitions that have begun anew."""
    wishes: dict[str, SkipWish] = field(default_factory=dict)
    epochs: int = 0
    incarnations: dict[str, int] = field(default_factory=dict)
    before_seq: int = 0
    """Of the desired state that the decision being committed was made on."""
    forgotten: bool = False
    """The desired state was lost: nobody knows where partitions run."""
    basis: dict[int, tuple[Decision, Progress | None]] = field(default_factory=dict)
    """The report that each decision was made on."""

    # -- faults ------------------------------------------------------------------------------------------------

    def add(self, name: str, cpu: int = 1000) -> str:
        self.incarnations[name] = self.incarnations.get(name, 0) + 1
        node = Node(name, self.incarnations[name], cpu)
        self.nodes[node.id] = node
        return node.id

    def kill(self, *names: str) -> None:
        for name in names:
            self.nodes.pop(f"{name}#{self.incarnations[name]}", None)

    def empty(self, *names: str, by: float | None = None) -> None:
        """Nodes are to be emptied, until a time if there is one."""
        for name in names:
            node = f"{name}#{self.incarnations[name]}"
            self.nodes[node] = replace(self.nodes[node], leaving=Leaving("drain", by))

    def keep(self, *names: str) -> None:
        """They may stay after all."""
        for name in names:
            node = f"{name}#{self.incarnations[name]}"
            self.nodes[node] = replace(self.nodes[node], leaving=None)

    def names(self) -> list[str]:
        return sorted(node.name for node in self.nodes.values())

    def start_driver(self) -> None:
        self.epochs += 1
        newest = max(self.checkpoints, default=0)
        self.driver = Driver(str(self.epochs), self.topology, newest, output_waits=self.output_waits)

    def lose_state(self, partition: str) -> None:
        if self.driver and partition in self.driver.positions:
            self.driver._lose(partition, "state lost with its host")

    # -- time ---------------------------------------------------------------------------------------------------

    def drive(self) -> None:
        if self.driver:
            self.driver.tick(self)
            self.progress = self.driver.progress()

    def snapshot(self) -> Snapshot:
        return Snapshot(
            now=self.now,
            topology=self.topology,
            session=self.session,
            nodes=tuple(self.nodes.values()),
            progress=self.progress,
            stats=dict(self.stats),
            checkpoints=frozenset(self.checkpoints),
            desired=self.desired,
            incident=self.incident,
            poison=self.poison,
            wishes=dict(self.wishes),
            paused=self.paused,
            closed=0 if self.desired else max((number_in(i.id) for i in self.closed), default=0),
        )

    def lose_desired(self) -> None:
        """One record is gone from ZooKeeper; the others stay, and the driver lives."""
        self.desired, self.forgotten = None, True
        self.version += 1

    def look(self) -> tuple[int, Decision]:
        """A coordinator reads and decides; what it does with that is up to it."""
        decision = decide(self.snapshot(), self.policy)
        self.basis[id(decision)] = (decision, self.progress)
        return self.version, decision

    def commit(self, version: int, decision: Decision) -> bool:
        """All of a decision or nothing; refused when any record has been rewritten since it was read."""
        if decision.outcome is not Outcome.ACT or version != self.version or not self.session:
            return False
        self.version += 1
        self.before_seq = self.snapshot().last_seq
        self.log.append(f"{self.now:.1f} {decision.rule}: {decision.reason}")
        for step in decision.steps:
            match step:
                case WriteDesired(desired):
                    self._check_desired(desired, decision)
                    self.desired = desired
                case WriteIncident(incident):
                    assert not any(incident.id == old.id for old in self.closed), "a closed incident reopened"
                    assert self.incident is None or self.incident.id == incident.id
                    self._check_incident(incident, decision)
                    self.incident = incident
                case TakeSkip(query):
                    del self.wishes[query]
                case CloseIncident(incident):
                    assert incident.closed_at is not None
                    assert not any(incident.id == old.id for old in self.closed), (
                        "its record is there already"
                    )
                    self.closed.append(incident)
                    self.incident = None
                case AddPlan(plan):
                    self._check_plan(plan)
                    self.plans.append(plan)
                case WritePoison(poison):
                    self.poison = poison
        return True

    def coordinate(self) -> Decision:
        version, decision = self.look()
        self.commit(version, decision)
        return decision

    def run(self, seconds: float, step: float = 0.3) -> None:
        end = self.now + seconds
        while self.now < end:
            self.now += step
            self.drive()
            self.coordinate()

    def started(self, nodes: int, checkpoint: bool = True) -> World:
        """Running on `nodes` nodes n1.., with a first checkpoint."""
        for k in range(nodes):
            self.add(f"n{k + 1}")
        self.start_driver()
        self.run(3.0)
        if checkpoint:
            assert self.checkpoints, self.log
        return self

    # -- what must hold -------------------------------------------------------------------------------------------

    def _check_desired(self, desired: Desired, decision: Decision) -> None:
        before = self.desired
        assert desired.seq == self.before_seq + 1
        if before:
            assert desired.generation in (before.generation, before.next_generation)
        for p, node in desired.assignment.items():
            if before is None or before.assignment.get(p) != node:
                assert node in self.nodes or decision.rule, f"{p} on {node}"
        poisoned = (
            set(self.poison.partitions) if self.poison and self.poison.driver == desired.driver else set()
        )
        assert poisoned.isdisjoint(desired.assignment), "poison is retried"

    def _check_incident(self, incident: Incident, decision: Decision) -> None:
        """Nothing is called restored on the word of a report that is older than what is desired."""
        verified = decision.rule == "restored"
        before = self.incident.queries if self.incident else {}
        restored = {
            q
            for q, t in incident.queries.items()
            if t.restored_at is not None and (q not in before or before[q].restored_at != t.restored_at)
        }
        if not verified and not restored:
            return
        _, progress = self.basis[id(decision)]
        assert progress is not None
        assert self.desired is not None
        assert progress.seq == self.before_seq, "an old report is believed"
        poisoned = set(self.poison.partitions) if self.poison else set()
        needed = {p for q in self.topology.queries if q.id in restored for p in q.partitions}
        if verified:
            needed |= {p.id for p in self.topology.partitions} - poisoned
        assert needed <= set(progress.positions)

    def _check_plan(self, plan: PlanRecord) -> None:
        costs = self._costs()
        for node, room in plan.free.items():
            used = sum(costs[p] for p, n in plan.added.items() if n == node)
            assert used <= room, f"C1: {node} gets {used}, had {room}"
        last = next((old for old in reversed(self.plans) if old.incident == plan.incident), None)
        if last is not None and not plan.rollback and not plan.added and not last.added:
            assert (last.free, last.candidates) != (plan.free, plan.candidates), "planned again for nothing"

    def _costs(self) -> dict[str, int]:
        declared = {p.id: max(1, p.cpu_milli) for p in self.topology.partitions}
        return {**declared, **(dict(self.incident.costs) if self.incident else {})}

    def check_survivors(self, driver: Driver, desired: Desired, rollback: bool) -> None:
        """O1 and E3, seen by the driver: what it runs on a living node stays there.  A rollback may take from its node what
        no query needs that has all of its partitions on living nodes."""
        stored = self.poison.partitions if self.poison else {}
        if self.forgotten:
            assert rollback, "what runs somewhere else goes on from there"
            self.forgotten = False
            return
        assignment = driver.desired.assignment if driver.desired else {}
        alive = {p for p in driver.positions if assignment[p] in self.nodes and p not in stored}
        if self.policy.strategy is Strategy.BLOCKING:
            return
        first = any(
            plan.trigger == Trigger.FIRST and self.incident and plan.incident == self.incident.id
            for plan in self.plans
        )
        for p in alive:
            if desired.assignment.get(p) == assignment[p]:
                continue
            if desired.moving is not None and p in desired.assignment:
                continue  # a planned move
            if self.nodes[assignment[p]].leaving and desired.assignment.get(p) == driver.desired.standbys.get(
                p
            ):  # type: ignore[union-attr]
                continue  # before its node goes, to its standby
            assert rollback or first, f"O1: {p} runs on {assignment[p]}"
            assert self.policy.strategy is not Strategy.OPERATOR_CENTRIC, f"O1: {p} survived"
            if len(desired.assignment) == len(self.topology.partitions):
                continue  # placed anew as a whole, as what was left fitted nowhere
            for query in self.topology.queries:
                whole = query.partitions <= alive
                assert not (whole and p in query.partitions), f"O1: {p} runs for {query.id}"

    def check_replayable(self, driver: Driver, partition: str) -> None:
        """What is restored without a rollback must find all output of its upstreams since the checkpoint, or says that it
        does not; that may be only where output was dropped for want of room, or was not kept before the incident."""
        desired = driver.desired
        assert desired is not None
        assert desired.retain, f"{partition} is installed without rollback and without buffers"
        partitions = {p.id: p for p in self.topology.partitions}
        for upstream in (*partitions[partition].upstream, *partitions[partition].feedback):
            source = not (partitions[upstream].upstream or partitions[upstream].feedback)
            since = driver.held_since.get(upstream, 0)
            if not source and since > desired.origin(partition).position:
                assert self.may_drop, f"{partition} reads {upstream}, which has its output since {since}"
                driver.not_kept.add(partition)

    def check_flags(self) -> None:
        d = self.desired
        if d is not None:
            assert not (d.retain and self.incident is None and d.moving is None), (
                "buffering without an incident"
            )

    def healthy(self) -> bool:
        """Everything that can be at work is, and nothing of a recovery is left."""
        if self.driver is None or self.desired is None or self.incident is not None or self.desired.retain:
            return False
        poisoned = (
            set(self.poison.partitions) if self.poison and self.poison.driver == self.driver.epoch else set()
        )
        return {p.id for p in self.topology.partitions} - poisoned <= set(self.driver.positions)


__all__ = ["Driver", "World", "diamond", "replace"]
