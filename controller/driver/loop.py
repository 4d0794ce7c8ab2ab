"""The driver's loop: take the desired state, run the next job, say how things stand.

Jobs run on the thread that calls `run`; a publisher thread writes progress at least every 2 s, so that a job that hangs
on a frozen node does not look like a dead driver, and cancels the job when one of its nodes is gone from ZooKeeper.

What ends the loop: a request (`stop`), a later driver, a Spark that is gone, and a defect.  A driver that ends takes every
partition's state with it.  So the loop reports a store that is away or a full disk as a problem, and tries again without an
end.  Any other exception may be a state of this process that no turn mends: after `FAILED_TURNS` in a row the driver ends,
and its successor begins from the records.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from reprise.controller import logs
from reprise.controller.driver.channel import Channel
from reprise.controller.driver.node_starts import NodeStarts
from reprise.controller.driver.output_events import OutputEvents
from reprise.controller.driver.report import InputRates, progress_of, stats_of, wanted
from reprise.controller.driver.savepoints import SavepointTurns
from reprise.controller.observability.metrics.driver import DriverMetrics
from reprise.controller.zookeeper import paths
from reprise.controller.zookeeper.errors import RecordError
from reprise.controller.zookeeper.node_record import SESSION_S, NodeRecord
from reprise.controller.zookeeper.records import CheckpointRecord, encode_checkpoint, encode_stats
from reprise.scheduler.model import Progress, of_standby
from reprise.scheduler.node_start import StartPhase
from reprise.spark_jobs.engine.chain import CANCEL_S
from reprise.spark_jobs.engine.engine import Engine
from reprise.spark_jobs.engine.settings import resource_in_effect, take_settings
from reprise.spark_jobs.errors import CheckpointError, NotYetError, StoreError, SupersededError
from reprise.spark_jobs.node.command import Usage
from reprise.spark_jobs.platform import PLATFORM, Platform
from reprise.spark_jobs.state.revision import Revisions
from reprise.spark_jobs.topology import StreamTopology
from reprise.spark_jobs.topology.changes import Settings, revision_of_settings, settings_of

log = logging.getLogger("reprise.driver")

PUBLISH_S = 0.3
LOOK_S = 0.3
"""Between two looks for nodes that have become ready, beside the job that runs: a plan for them is made meanwhile."""
STATS_S = 3.0
KEEPALIVE_S = 10.0
"""The longest time without a job or a round.  Jobs keep Spark's Python workers, which end after an idle minute."""
SOON_S = 0.05
WAITS_S = 600.0
"""What a turn may spend outside of its job: in requests to stores and brokers, whose clients give up by themselves.  Those
of object stores try a request about five times for a minute each, and a turn may make one such request in vain."""
FAILED_TURNS = 20
"""A driver ends when so many turns in a row have raised what is not foreseen: after about half a minute."""
SHOWN = 20
"""Problems that a report carries; one that is among them is not reported again."""


class Cluster(Protocol):
    """What the loop needs of Spark."""

    say: Callable[[str], None]
    """Where it tells a person what keeps a node away."""
    tell: Callable[[], None]
    """Called when a node has become usable."""
    starts: NodeStarts
    """What was seen of the starts of nodes."""

    def usable(self) -> Mapping[str, str]:
        """Nodes that can take partitions now: "node#incarnation" -> host."""

    def registered(self, host: str) -> bool:
        """Whether there is an executor at this address."""

    def doubt(self, nodes: Collection[str]) -> None:
        """No exchange to these has begun: to be made ready once more before they are usable."""

    def alive(self) -> bool:
        """Whether jobs can be run at all."""


@dataclass(frozen=True, slots=True)
class _Job:
    """What the publisher must know of the job that runs."""

    nodes: frozenset[str] = frozenset()
    cancelled: threading.Event = field(default_factory=threading.Event)
    began: float = 0.0


class Loop:
    """One driver's life, from the moment at which Spark and the engine are there."""

    def __init__(
        self, engine: Engine, channel: Channel, cluster: Cluster, metrics: DriverMetrics, events: OutputEvents,
        revisions: Revisions, stop: threading.Event, clock: Callable[[], float] | None = None,
        platform: Platform = PLATFORM, savepoints: SavepointTurns | None = None,
    ) -> None:  # fmt: skip
        self._platform = platform
        self.engine, self.channel, self.cluster = engine, channel, cluster
        self.metrics, self.events, self.stop = metrics, events, stop
        self.revisions, self.savepoints = revisions, savepoints
        self._clock, self._job = clock or platform.elapsed, _Job()
        channel.hears = self.hears
        cluster.say, cluster.tell = self.say, self._look
        self.superseded = ""
        """Why this driver says nothing more: a later one has begun; empty while none has."""
        self._problems: list[str] = []
        self._used = dict(engine.usage)
        """What partitions have used under a driver before this one."""
        self._announced = engine.punctuations.newest
        self._turns = 0
        """Begun so far."""
        self._raised = 0
        """Turns in a row that raised something."""
        self._unforeseen = 0
        """Of these, the ones that raised what does not pass."""
        self._boundary: int | None = None
        """The checkpoint at which the stream has stopped; from then on this driver only says so, and ends."""
        self._drained: int | None = None
        """The same, once the store says so: nobody may hear of it before, as other code would be started and refused."""
        self._settings: Settings | None = None
        """What was heard last of the topology's settings."""
        self._follows = _name_of(resource_in_effect(engine))
        """Which settings the engine follows."""
        self._ready: frozenset[str] = frozenset()
        """Nodes that can take partitions, as they were seen last."""
        self._publishing = platform.lock()
        """Progress is taken and written by one thread at a time, so that no older report comes after a later one."""

    def run(self) -> None:
        """Run until `stop`.  Raises what a turn has raised where Spark is gone, or after `FAILED_TURNS`."""
        forever = {"publishing": self._publish_forever, "looking": self._look_forever}
        beside = [self._platform.begin(run, name) for name, run in forever.items()]
        try:
            while not self.stop.is_set():
                self._guarded_turn()
        finally:
            self.stop.set()
            for thread in beside:
                thread.join(5)

    def _guarded_turn(self) -> None:
        try:
            self.turn()
            self._raised = self._unforeseen = 0
        except SupersededError as error:
            self._superseded(str(error))
        except Exception as error:
            if not self.cluster.alive():
                raise
            self._raised += 1
            self._unforeseen += not isinstance(error, (StoreError, OSError))
            log.exception("event=turn-failed times=%d", self._raised)
            self.say(f"the driver's turn failed: {type(error).__name__}: {error}")
            if self._unforeseen >= FAILED_TURNS:
                raise
            self.stop.wait(min(0.2 * self._raised, 2.0))

    @property
    def turn_limit_s(self) -> float:
        """Within so many seconds a loop that is not hung begins its next turn: a job that takes longer than the engine's
        patience is cancelled, which is waited for."""
        return self.engine.patience_s + CANCEL_S + WAITS_S

    def turn(self) -> None:
        """One step: at most one job."""
        engine = self.engine
        self._turns += 1
        self.channel.changed.clear()
        if self.channel.superseded:
            self._superseded("a later driver has taken its epoch")
            return
        if self._boundary is not None:
            self._end_drained(self._boundary)
            return
        self._take_settings()
        self._take_desired()
        engine.drain.asked = engine.drain.asked or self.channel.read_drain()
        if engine.drain.asked and self.revisions.nothing_after == engine.punctuations.newest:
            self._boundary = engine.punctuations.newest
            return
        living = self.cluster.usable()
        self._see(living)
        reached = engine.connection.nodes
        job = self._job = _Job(frozenset(living), began=self._clock())
        try:
            ran = engine.tick(living, job.cancelled)
        finally:
            self._job = _Job()
            self._say_all()
        if engine.connection.nodes != reached and self._see(self.cluster.usable()):  # plans wait for them
            self.publish()
        doubted = engine.connection.doubted.difference(
            engine.connection.nodes, engine.desired.assignment.values()
        )
        self.cluster.doubt(doubted)
        engine.connection.doubted.clear()
        self._note_work()
        self._announce_checkpoint()
        if self.savepoints is not None:
            self.savepoints.turn()
        self._write_events()
        if engine.drained is not None and self._announced == engine.drained:
            self._boundary = engine.drained
            self._end_drained(self._boundary)
        elif engine.failures:
            self.channel.changed.wait(min(0.2 * engine.failures, 2.0))
        elif (pause_s := self._pause(ran)) > 0:
            self.channel.changed.wait(pause_s)

    def _note_work(self) -> None:
        """Nodes that have partitions at work, by the reports of the job that has ended."""
        told, desired = self.engine.progress, self.engine.desired
        if told.seq == desired.seq:
            self.cluster.starts.working(
                {desired.assignment[p] for p in told.positions if p in desired.assignment}
            )

    def _end_drained(self, position: int) -> None:
        """Nothing was released after this checkpoint: a driver with other code may go on from here.  What fails is tried
        again with the next turn, and nothing else is done any more: the mark may be in the store though that has failed."""
        if self._drained is None:
            self.revisions.drained(position)
            self._drained = position
        if self.publish():
            log.info("event=drained position=%d", position)
            self.stop.set()
        else:
            self.channel.changed.wait(0.5)

    def _superseded(self, reason: str) -> None:
        """A later driver has begun: this one says nothing more and ends."""
        log.warning("event=superseded epoch=%d reason=%r", self.engine.epoch, reason)
        self.superseded = reason
        self.channel.silence()
        self.stop.set()

    def _pause(self, ran: bool) -> float:
        """Seconds until hosts need another job: at once, when the next batch is due, or to hear how they are."""
        engine, idle, steady = self.engine, self.engine.idle, self.engine.steady
        clocked = not engine.desired.paused and engine.release.interval_s > 0
        if not ran or (idle and not clocked):
            return SOON_S if self.savepoints is not None and self.savepoints.busy else 0.5
        if not (idle or steady):
            return SOON_S if engine.connection.link else 0.0
        if engine.done:
            return 0.5
        pause_s = max(engine.rests_s, SOON_S) if steady else 0.01
        return max(pause_s, min(engine.next_release_s, KEEPALIVE_S) if idle else 0.0)

    def _take_settings(self) -> None:
        """Before what is desired, which may rest on them."""
        try:
            settings = self.channel.read_settings()
        except RecordError as error:
            self.say(str(error))
            return
        if settings is None or settings == self._settings:
            return
        self._settings = settings
        if take_settings(self.engine, settings):
            self._follows = _name_of(resource_in_effect(self.engine))
            log.info("event=settings revision=%s", self._follows)

    def _take_desired(self) -> None:
        try:
            desired = self.channel.read_desired()
        except RecordError as error:
            self.say(str(error))
            return
        if (
            desired is None
            or desired.seq == self.engine.desired.seq
            or desired.driver != str(self.engine.epoch)
        ):
            return  # nothing new, or meant for an earlier driver: the coordinator will speak to this one
        plan = desired.plan or ""
        logs.about(incident=plan.rpartition("-p")[0], plan=plan)
        try:
            self.engine.want(wanted(desired))
        except CheckpointError as error:
            self.say(f"checkpoint {desired.checkpoint} cannot be used: {error}")
        except NotYetError as error:  # asked again with the next turn
            log.info("event=desired-waits seq=%d reason=%r", desired.seq, str(error))

    def say(self, problem: str) -> None:
        """Report a problem, once while it is among the newest."""
        if problem not in self._problems[-SHOWN:]:
            log.error("event=problem reason=%r", problem)
            self._problems.append(problem)
            del self._problems[:-SHOWN]

    def _say_all(self) -> None:
        for problem in self.engine.problems:
            self.say(problem)
        self.engine.problems.clear()

    # -- telling -------------------------------------------------------------------------------------------------------

    def _announce_checkpoint(self) -> None:
        """Say in ZooKeeper that the newest checkpoint is complete; tried with each turn until it is said."""
        position = self.engine.punctuations.newest
        self._announced = min(self._announced, position)  # it has gone back to before a damaged one
        if position == self._announced:
            return
        try:
            manifest = self.engine.restore_point.manifest(position)
        except SupersededError:
            raise
        except Exception as error:
            self.say(f"a complete checkpoint is not announced yet: {type(error).__name__}: {error}")
            return
        record = CheckpointRecord(
            position=position,
            time=self._platform.wall(),
            size_bytes=manifest.state_bytes,
            seconds=round(self.engine.figures.checkpoint_s, 3),
            offsets=dict(manifest.offsets),
            lines={p: s.position for p, s in manifest.snapshots.items() if s.position != position},
        )
        if self.channel.publish(paths.checkpoint(position), encode_checkpoint(record)):
            self._announced = position
            self.channel.forget_checkpoints(resource_in_effect(self.engine).checkpoint.keep)

    def _write_events(self) -> None:
        engine = self.engine
        written = [(query, batch, at, engine.release.at(batch)) for query, batch, at in engine.outputs]
        engine.outputs.clear()
        self.metrics.take(written)
        try:
            self.events.write(written)
        except OSError as error:
            self.say(f"{self.events.path}: events wait: {error.strerror or error}")

    def _publish_forever(self) -> None:
        before = self._used
        since = self._platform.elapsed()
        rates = InputRates.over_batches(self.engine.resource.batch_interval_s, before, since)
        while not self.stop.wait(PUBLISH_S):
            try:
                self.publish()
                if self._platform.elapsed() - since >= STATS_S:
                    usage, now = {**self.engine.usage, **self._standby_usage()}, self._platform.elapsed()
                    works = self.engine.figures.times.works()
                    sizes, rows_s = dict(self.engine.state_bytes), rates.at(usage, now)
                    stats = stats_of(before, usage, now - since, sizes, works, rows_s)
                    self.channel.publish(paths.STATS, encode_stats(stats))
                    before, since = usage, now
            except Exception:
                log.exception("event=publishing-failed")

    def _standby_usage(self) -> dict[str, Usage]:
        """Under names of their own: what passive standbys take is no load of their partitions."""
        return {of_standby(p): usage for p, usage in self.engine.standbys.usage.items()}

    def _look_forever(self) -> None:
        """Runs in a thread of its own, as Spark may keep whoever asks waiting, and progress must be told meanwhile."""
        while not self.stop.wait(LOOK_S):
            try:
                joining = self.channel.read_nodes().keys() - self._ready
                if joining or self._job.nodes or self.channel.doubtful:
                    self._see(self.cluster.usable())
                    self._cancel_what_cannot_end()
            except Exception:
                log.exception("event=looking-for-nodes-failed")

    def _see(self, living: Collection[str]) -> frozenset[str]:
        """Take note of the nodes that can be used; those that could not before.  From any thread."""
        ready = self.engine.usable(living)
        new, self._ready = ready - self._ready, ready
        for node in new:
            self.cluster.starts.saw(node, StartPhase.READY)
        return new

    def _look(self) -> None:
        """A node has become usable: say so at once, as a plan waits for it; from any thread."""
        try:
            self._see(self.cluster.usable())
            self.publish()
        except Exception:
            log.exception("event=looking-for-nodes-failed")

    def publish(self) -> bool:
        """Say how things stand, and end a job that waits for a node that is gone; from any thread."""
        missing = self._cancel_what_cannot_end()
        with self._publishing:
            return self.channel.publish_progress(self.progress(missing))

    def _cancel_what_cannot_end(self) -> frozenset[str]:
        """Cancel the job that runs where nodes of it are gone, by heartbeats or by Spark; which ones.  Of nodes that are
        lost together the first is known a moment before the others, and the next job begins with these."""
        job, nodes = self._job, self.channel.read_nodes()
        here = {key for key, node in nodes.items() if self.cluster.registered(node.host)}
        # an exchange has more nodes than those with partitions, and all of them answer
        missing = job.nodes.intersection(self.engine.connection.nodes) - here
        if missing and not job.cancelled.is_set():
            log.warning("event=nodes-gone-during-a-job nodes=%s", ",".join(sorted(missing)))
            job.cancelled.set()
        return missing

    def hears(self, node: NodeRecord) -> bool:
        """Whether a node without heartbeat works: its executor is registered, and the job that runs has not waited for
        longer than the agent's session lasts.  A job waits for all of its nodes, so a machine that is lost keeps it
        waiting for at least as long as it takes until its heartbeat goes."""
        job = self._job
        waited_s = self._clock() - job.began if job.nodes else 0.0
        return self.cluster.registered(node.host) and waited_s < node.session_s

    def progress(self, without: frozenset[str] = frozenset()) -> Progress:
        """The report: the engine's own, and what this process adds; `without` nodes that are gone since."""
        problems = self._problems[-SHOWN:]
        told = self.engine.progress
        # what is due goes back with a rollback, before the engine has told of it
        nodes = (frozenset(told.nodes) | self._ready) - without
        progress = replace(
            told,
            due=max(told.horizon, self.engine.due),
            drained=self._drained,
            nodes=tuple(sorted(nodes)),
        )
        report = progress_of(
            self.engine.epoch, progress, problems, self._platform.wall(), self._turns, self.turn_limit_s
        )
        longest = max((node.session_s for node in self.channel.nodes.values()), default=SESSION_S)
        self.engine.figures.times.detection_s = longest
        return replace(report, starts=self.cluster.starts.told(), settings=self._follows)


def _name_of(resource: StreamTopology) -> str:
    return revision_of_settings(settings_of(resource))
