"""The driver process: connects to ZooKeeper, starts Spark and the engine, and gives them to the loop."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pyspark import SparkContext

from reprise.controller.agent.announcing import announce
from reprise.controller.driver.adopting import go_on_with_what_lives
from reprise.controller.driver.channel import Channel
from reprise.controller.driver.loop import Cluster, Loop
from reprise.controller.driver.nodes import SparkNodes
from reprise.controller.driver.output_events import OutputEvents
from reprise.controller.driver.savepoints import SavepointTurns
from reprise.controller.observability.metrics.collect import serve
from reprise.controller.observability.metrics.driver import DriverMetrics
from reprise.controller.observability.metrics.errors import ServeError
from reprise.controller.zookeeper.session import ZooKeeperSession
from reprise.spark_jobs.engine.arrival import require_even
from reprise.spark_jobs.engine.chain import configuration
from reprise.spark_jobs.engine.continuous import Connector
from reprise.spark_jobs.engine.engine import Engine
from reprise.spark_jobs.engine.engine_spec import Sites
from reprise.spark_jobs.engine.jobs import Jobs
from reprise.spark_jobs.engine.punctuation import Punctuations
from reprise.spark_jobs.engine.savepoints import SavepointTaker
from reprise.spark_jobs.errors import StoreError, SupersededError
from reprise.spark_jobs.node.outliving import digest
from reprise.spark_jobs.node.spare import STREAM
from reprise.spark_jobs.platform import PLATFORM, Platform
from reprise.spark_jobs.state.checkpoints import CheckpointStore
from reprise.spark_jobs.state.epochs import Fence, claim_epoch, new_token
from reprise.spark_jobs.state.graphs import Graphs
from reprise.spark_jobs.state.ledger import Ledger
from reprise.spark_jobs.state.release import Release
from reprise.spark_jobs.state.revision import Revisions, former_revision_of, revision_of
from reprise.spark_jobs.state.start_from import begin_stream
from reprise.spark_jobs.state.state_versions import require_readable_states
from reprise.spark_jobs.topology import StreamTopology, expand

log = logging.getLogger("reprise.driver")
FIRST_PAUSE_S, LAST_PAUSE_S = 0.2, 10.0
"""Between two attempts to begin while the checkpoint store is away."""


@dataclass(frozen=True, slots=True)
class DriverConfig:
    """What a driver process is told at its start."""

    zk: str
    root: str
    master: str
    sink: str
    checkpoints: str
    events: Path | None
    """File that gets a line for each output batch; None: there is none."""
    java_options: str
    driver_host: str
    python_path: str
    conf: Mapping[str, str] = field(default_factory=dict)
    """Spark properties of the place where it runs; they stand above those of the topology."""
    image: str = ""
    """Name of the image that it runs; empty where there is none."""
    metrics_host: str = "127.0.0.1"
    metrics_port: int = 0
    """Where metrics are served; 0: nowhere."""
    adopts: bool = False
    """Whether nodes outlive a driver here, so that `recovery.driverGrace` means something."""


class Driver:
    """One Spark application with its engine."""

    def __init__(
        self,
        resource: StreamTopology,
        config: DriverConfig,
        platform: Platform = PLATFORM,
        session: ZooKeeperSession | None = None,
    ) -> None:
        self.resource, self.config, self.platform = resource, config, platform
        self.channel = Channel(config.zk, config.root, session=session, platform=platform, resource=resource)
        self.stop = platform.event()
        self._number, self._token = 0, new_token()
        """What ZooKeeper has given this driver, 0: nothing yet; and by what it knows its own claim when it tries again."""
        self._fence: Fence | None = None
        self._said: list[str] = []
        """What a person should know of its beginning, also where it takes several attempts."""
        self.superseded = ""
        """Why it has ended, where a later driver has begun."""

    def run(self) -> None:
        """Run until `stop`."""
        with contextlib.ExitStack() as ends:
            self.channel.open()
            ends.callback(self.channel.close)
            if (started := self._started()) is None:
                return
            engine, revisions = started
            nodes = self._application(engine, ends)
            metrics = DriverMetrics(engine, lambda: self.channel.session)
            ends.callback(self._serve_metrics(metrics))
            events = OutputEvents(self.config.events)
            ends.callback(events.close)
            if self.config.adopts:
                go_on_with_what_lives(engine, self.channel, nodes, self.stop, self.platform)
            assert self._fence is not None
            savepoints = SavepointTurns(SavepointTaker(engine, self._fence, self.platform), self.channel)
            loop = Loop(
                engine, self.channel, nodes, metrics, events, revisions, self.stop, platform=self.platform,
                savepoints=savepoints,
            )  # fmt: skip
            loop.run()
            self.superseded = loop.superseded

    def _application(self, engine: Engine, ends: contextlib.ExitStack) -> Cluster:
        """Start Spark, which ends with `ends`; the nodes that it can run jobs on."""
        context = self._spark(self._outliving(engine))
        ends.callback(context.stop)
        ends.callback(announce(context, self.config.root))
        why = "spark.exchange is 'chained'" if self.resource.spark.exchange == "chained" else ""
        self._connector = Connector(context, why, engine.epoch, self.channel.changed.set)
        return SparkNodes(context, self.config.driver_host, self.channel)

    def _serve_metrics(self, metrics: DriverMetrics) -> Callable[[], None]:
        """A topology without metrics is better than none: a port that is taken is logged, and seen by who scrapes."""
        try:
            if self.config.metrics_port:
                return serve(self.config.metrics_host, self.config.metrics_port, metrics.registry)
        except ServeError as error:
            log.error("event=problem reason=%r", str(error))
        return lambda: None

    def _outliving(self, engine: Engine) -> dict[str, str]:
        """What executors are told where hosts outlive them."""
        if self.resource.recovery.driver_grace_s <= 0:
            return {}
        if not self.config.adopts:
            log.warning("event=driver-grace-not-used reason='executors end with their driver here'")
            return {}
        sites = engine.sites.sink, engine.sites.checkpoints
        return {f"spark.executorEnv.{STREAM}": digest(self.resource.document, *sites, engine.ledger.stream)}

    def _spark(self, outliving: Mapping[str, str]) -> SparkContext:
        memory = self.resource.spark.executor_memory_bytes // 2**20
        settings = {
            "spark.executor.memory": f"{memory}m",
            "spark.executor.extraJavaOptions": self.config.java_options,
            "spark.driver.host": self.config.driver_host,
            "spark.driver.bindAddress": self.config.driver_host,
            **self.resource.spark.conf,
            **self.config.conf,
        }
        settings.update(outliving)
        if self.config.python_path:  # else it is the image's
            settings["spark.executorEnv.PYTHONPATH"] = self.config.python_path
        context = SparkContext(conf=configuration(self.config.master, self.resource.name, settings))
        context.setLogLevel("ERROR")
        return context

    def _connect(self, hosts: Sequence[str]) -> Jobs:
        return self._connector.connect(hosts)

    def _started(self) -> tuple[Engine, Revisions] | None:
        """The engine, once the checkpoint store can be used; None when told to stop first, or a later driver has begun.  A
        driver that ended because the store is away would be started again at once, and given up after a few times."""
        pause_s, said = FIRST_PAUSE_S, ""
        while not self.stop.is_set():
            try:
                found = self._make_engine()
                self.channel.waits_for("")
                return found
            except StoreError as error:
                if str(error) != said:
                    said = str(error)
                    log.error("event=problem reason=%r", f"the driver waits for its checkpoint store: {said}")
                self.channel.waits_for(f"the driver waits for its checkpoint store: {said}")
            except SupersededError as error:
                log.warning("event=superseded reason=%r", str(error))
                self.superseded = str(error)
                return None
            self.stop.wait(pause_s)
            pause_s = min(pause_s * 2, LAST_PAUSE_S)
        return None

    def _claim(self, least: int) -> int:
        """A number for a claim.  SupersededError: a later driver has begun while this one waited; it stays the newest."""
        if self.channel.superseded:
            raise SupersededError("a later driver has begun while this one waited for its checkpoint store")
        if self._number < least:
            self._number = self.channel.next_epoch(least)
        return self._number

    def _make_engine(self) -> tuple[Engine, Revisions]:
        """Before Spark, which takes seconds: what cannot be used is said at once.  StoreError: to be tried again."""
        if not self._number:  # first of all: by it a driver that comes meanwhile is known as a later one
            self._number = self.channel.next_epoch()
        location, topology = self.config.checkpoints, expand(self.resource)
        store = CheckpointStore(location, self.resource.checkpoint.standby)
        begin_stream(store, self.resource, self.platform.wall)
        fence = self._fence = self._fence or claim_epoch(location, self._claim, self._token)
        newest = store.begin(fence)
        require_readable_states(self.resource, store, newest)
        ledger = Ledger(location, self.resource, topology, fence, self.platform)
        # before this revision is on record, and with it who made which batches: the next attempt finds its own
        ledger.require(newest)
        of = self.resource, self.config.image
        revisions = Revisions(location, revision_of(*of), fence, former_revision_of(*of))
        drained = revisions.released_nothing_after(newest, ledger.released)
        later = Graphs(store, fence).begin(self.resource, newest, drained)
        engine = Engine(
            resource=self.resource,
            topology=topology,
            sites=Sites(self.config.sink, location),
            epoch=fence.epoch,
            connect=self._connect,
            ledger=ledger,
            release=Release(
                location,
                self.resource.batch_interval_s,
                wall=self.platform.wall,
                elapsed=self.platform.elapsed,
                epoch=fence.epoch,
            ),
            store=store,
            punctuations=Punctuations(self.resource.checkpoint),
            clock=self.platform.elapsed,
            later=later,
        )
        require_even(self.resource, store, newest)
        replay = self.resource.upgrade == "replay"
        said = revisions.begin(newest, ledger.released, replay, store.of_many_ages)
        self._said += [said] if said else []
        engine.releases = revisions.releases
        engine.begin(newest)
        engine.problems += self._said
        log.info("event=driver-started epoch=%d checkpoint=%d", engine.epoch, engine.punctuations.newest)
        return engine, revisions
