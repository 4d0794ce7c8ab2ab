"""Partition hosts in one process: the engine's logic without Spark, with nodes that can be lost at any stage."""

from __future__ import annotations

import itertools
import random
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from weakref import WeakSet

from reprise.algorithms.positions import Origin
from reprise.spark_jobs.engine.chain import ChainError
from reprise.spark_jobs.engine.engine import Engine
from reprise.spark_jobs.engine.engine_spec import EngineSpec, Sites
from reprise.spark_jobs.engine.punctuation import Punctuations
from reprise.spark_jobs.node.command import Command, Order, Report
from reprise.spark_jobs.node.host import Host
from reprise.spark_jobs.platform import Platform
from reprise.spark_jobs.state.checkpoints import CheckpointStore
from reprise.spark_jobs.state.epochs import claim_epoch
from reprise.spark_jobs.state.graphs import Graphs
from reprise.spark_jobs.state.ledger import Ledger
from reprise.spark_jobs.state.release import Release
from reprise.spark_jobs.state.revision import Revisions, revision_of
from reprise.spark_jobs.state.start_from import begin_stream
from reprise.spark_jobs.topology import StreamTopology, expand
from tools.testbed.prepared import WatchedQueue, let_all_be_stored, let_all_come

MANY = 2000
PATIENCE_S = 300.0
"""Jobs that have nothing to do take next to no time, and a busy machine may let no other thread run meanwhile."""
BETWEEN_JOBS_S = 0.01
"""Pause between two jobs that read from real brokers: jobs that wait for a broker would keep its processor busy."""

_STARTED: list[Host] = []
"""Hosts that were started, the lost ones among them: each has threads that wait for work."""


def close_hosts() -> None:
    """End the threads of all hosts that were started, as nobody uses these any more."""
    while _STARTED:
        _STARTED.pop().close(wait=False)


class StandingClock:
    """Seconds that stand still within a job: what a host may do in a stage does not depend on how busy the machine is.

    Each reading takes `READING_S` all the same, so that what is measured within a job is not nothing."""

    READING_S = 1e-6

    def __init__(self) -> None:
        self._stands: float | None = None

    def __call__(self) -> float:
        if self._stands is None:
            return time.monotonic()
        self._stands += self.READING_S
        return self._stands

    @contextmanager
    def standing(self) -> Iterator[None]:
        self._stands = self()
        try:
            yield
        finally:
            self._stands = None


class LocalNodes:
    """Hosts by node; `interrupt(job, stage, slot)` may raise ChainError to lose a job half-way."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.hosts: dict[str, Host] = {}
        self.interrupt: Callable[[int, int, int], None] = lambda *_: None
        self.patient = True
        """Whether what partitions begin with is there before the stage that follows the order to install them, and
        whether what a job has frozen is stored before the next job."""
        self.brokers = False
        """Whether sources read from real brokers: they wait within a job, up to a limit on the clock, which then runs."""
        self.clock = StandingClock()
        self._platform = Platform(elapsed=self.clock, queue=self._queue)
        self._queues = WeakSet[WatchedQueue]()
        self._held = False

    def _queue(self) -> WatchedQueue:
        self._queues.add(queue := WatchedQueue(self._held))
        return queue

    @contextmanager
    def storing_later(self) -> Iterator[None]:
        """Nothing that a job freezes is stored within the job: how soon that comes depends on how busy the machine is."""
        self._hold(self.patient)
        try:
            yield
        finally:
            self._hold(False)

    def _hold(self, held: bool) -> None:
        self._held = held
        for queue in list(self._queues):
            queue.hold(held)

    def start(self, *nodes: str) -> None:
        for node in nodes:
            self.hosts[node] = Host(
                f"host-{node}-{time.monotonic_ns()}",
                Path(tempfile.mkdtemp(dir=self.folder)),
                platform=self._platform,
            )
            _STARTED.append(self.hosts[node])

    def lose(self, *nodes: str) -> None:
        for node in nodes:
            del self.hosts[node]

    def living(self) -> Mapping[str, str]:
        return {n: n for n in self.hosts}

    def connect(self, hosts: Sequence[str]) -> LocalJobs:
        return LocalJobs(self, hosts)


class LocalJobs:
    def __init__(self, nodes: LocalNodes, hosts: Sequence[str]) -> None:
        self.nodes, self.hosts = nodes, hosts

    link = 0
    why_chained = link_key = ended = ""
    stands = True

    def close(self) -> None:
        """It holds nothing."""

    def run(
        self, job: Order, orders: Sequence[bytes], stages: int, cancelled: threading.Event, patience_s: float
    ) -> list[Report]:
        try:
            standing = nullcontext() if self.nodes.brokers else self.nodes.clock.standing()
            with standing, self.nodes.storing_later():
                return self._stages(job, orders, stages)
        finally:
            if self.nodes.patient:
                for host in [self.nodes.hosts[name] for name in self.hosts if name in self.nodes.hosts]:
                    let_all_be_stored(host)

    def _stages(self, job: Order, orders: Sequence[bytes], stages: int) -> list[Report]:
        inboxes: list[list[bytes]] = [[] for _ in orders]
        reports = []
        for stage in range(stages):
            outgoing: list[list[bytes]] = [[] for _ in orders]
            for slot, order in enumerate(orders):
                self.nodes.interrupt(job[1], stage, slot)
                host = self.nodes.hosts.get(self.hosts[slot])
                if host is None:
                    raise ChainError(f"{self.hosts[slot]} is gone")
                if stage == 0:
                    self._begin(self.hosts[slot], host.orders.read(order))
                    if self.nodes.patient:
                        let_all_come(host)
                bundles, report = host.stage(job, stage, inboxes[slot], stage == stages - 1)
                for target, bundle in bundles:
                    outgoing[target].append(bundle)
                if report is not None:
                    reports.append(Report.decode(report.encode()))
            inboxes = outgoing
        return reports

    def _begin(self, node: str, command: Command) -> None:
        self.nodes.hosts[node].begin(command)


def past(batch: int) -> Callable[[Engine], bool]:
    """Whether everything that is at work has come to a batch, for `World.run`."""
    return lambda e: min(e.positions.values(), default=0) >= batch


def tick(world: World, times: int = 1) -> None:
    """So many jobs."""
    for _ in range(times):
        world.engine.tick(world.nodes.living(), threading.Event())


def tick_with_cuts(world: World, rng: random.Random, times: int) -> None:
    """So many jobs, some of which end in one task."""
    for _ in range(times):
        chance, at = rng.random() < 0.3, (rng.randrange(3), rng.randrange(4))

        def fail(_job: int, stage: int, slot: int, chance: bool = chance, at: tuple[int, int] = at) -> None:
            if chance and (stage, slot) == at:
                raise ChainError("cut")

        world.nodes.interrupt = fail
        tick(world)
    world.nodes.interrupt = lambda *_: None


class World:
    """An engine on local nodes with its folders."""

    def __init__(self, resource: StreamTopology, folder: Path, name: str, brokers: bool = False) -> None:
        """`brokers`: whether sources read from real ones."""
        self.resource, self.topology = resource, expand(resource)
        self.sink, self.checkpoints = folder / name / "sink", folder / name / "checkpoints"
        self.checkpoints.mkdir(parents=True)
        self.nodes = LocalNodes(self.checkpoints)
        self.nodes.brokers = brokers
        self.epochs = 0
        self.engine = self.driver()

    def driver(self, propose: Callable[[int], int] | None = None) -> Engine:
        """A new driver, as after a restart; `propose`: ZooKeeper's counter, which is a good one unless it is given."""
        location = str(self.checkpoints)
        store = CheckpointStore(location, self.resource.checkpoint.standby)
        begin_stream(store, self.resource)
        fence = self.fence = claim_epoch(location, propose or self._next_epoch)
        newest = store.begin(fence)
        ledger = Ledger(location, self.resource, self.topology, fence)
        revisions = Revisions(location, revision_of(self.resource), fence)
        drained = revisions.released_nothing_after(newest, ledger.released)
        self.engine = Engine(
            resource=self.resource,
            topology=self.topology,
            sites=Sites(str(self.sink), location),
            epoch=fence.epoch,
            connect=self.nodes.connect,
            ledger=ledger,
            release=Release(location, 0.0, epoch=fence.epoch),
            store=store,
            punctuations=Punctuations(self.resource.checkpoint),
            later=Graphs(store, fence).begin(self.resource, newest, drained),
        )
        self.engine.punctuations.newest = newest
        return self.engine

    def _next_epoch(self, least: int) -> int:
        self.epochs = max(least, self.epochs + 1)
        return self.epochs

    def spread(self, *nodes: str, only: Sequence[str] | None = None) -> dict[str, str]:
        """Partitions dealt out over nodes."""
        chosen = self.topology.order if only is None else only
        return {p: nodes[i % len(nodes)] for i, p in enumerate(chosen)}

    def want(
        self,
        generation: int,
        checkpoint: int,
        assignment: Mapping[str, str],
        retain: bool = False,
        lines: Mapping[str, Origin] | None = None,
        after: int | None = None,
        standbys: Mapping[str, str] | None = None,
        anew: Mapping[str, str] | None = None,
    ) -> None:
        """`after`: a checkpoint behind this batch is wanted, for a move."""
        complete = len(assignment) == len(self.topology.partitions)
        seq = self.engine.desired.seq + 1
        spec = EngineSpec(seq, generation, checkpoint, assignment, retain, complete, lines=lines or {})
        self.engine.want(replace(spec, checkpoint_after=after, standbys=standbys or {}, anew=anew or {}))

    def run(self, until: Callable[[Engine], bool], limit: int | None = None) -> None:
        """Job after job; fails after `limit` of them.  Without one it fails after `MANY`, but not before the threads that
        read and store have had `PATIENCE_S`."""
        ends = time.monotonic() + (PATIENCE_S if limit is None else 0.0)
        for number in itertools.count():
            if until(self.engine):
                return
            if number >= (MANY if limit is None else limit) and time.monotonic() > ends:
                break
            if self.nodes.brokers:
                time.sleep(BETWEEN_JOBS_S)
            self.engine.tick(self.nodes.living(), threading.Event())
        raise AssertionError(
            f"not reached: {self.engine.positions} {self.engine.failed} {self.engine.problems[-3:]}"
        )

    def forget(self) -> None:
        """What this driver has written and what these nodes have kept is only in the store, as after all were replaced."""
        self.engine.restore_point._own.clear()
        for host in self.nodes.hosts.values():
            host._copies.allow(0)

    def output(self) -> dict[str, bytes]:
        """Every sink file's bytes by relative path."""
        return {str(p.relative_to(self.sink)): p.read_bytes() for p in self.sink.rglob("*") if p.is_file()}
