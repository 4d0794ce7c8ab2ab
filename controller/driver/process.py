"""The driver's loop: take the desired state, run the next job, say how things stand.

Jobs run on the main thread; a publisher thread writes progress several times a second, so that a job that hangs on a frozen
node does not look like a dead driver, and cancels the job when one of its nodes is gone from ZooKeeper.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark import SparkContext

from controller import logs
from controller.coordination import paths
from controller.driver.channel import Channel, ChannelError
from controller.metrics.collect import serve
from controller.metrics.driver import DriverMetrics
from controller.metrics.errors import ServeError
from spark_jobs.chain import Chain, ChainError, configuration, executors, warm
from spark_jobs.checkpoints import CheckpointStore
from spark_jobs.command import Usage
from spark_jobs.engine import Engine, Sites
from spark_jobs.errors import CheckpointError
from spark_jobs.ledger import Ledger
from spark_jobs.punctuation import Punctuations
from spark_jobs.release import Release
from spark_jobs.standby import take_over
from spark_jobs.topology import StreamTopology, expand

log = logging.getLogger("reprise.driver")

PUBLISH_S = 0.3
STATS_S = 3.0
KEEPALIVE_S = 10.0
"""Spark ends Python workers that are idle for a minute; an empty job well before that keeps them."""


@dataclass(frozen=True, slots=True)
class DriverConfig:
    """What a driver process is told at its start."""

    zk: str
    root: str
    master: str
    sink: str
    checkpoints: str
    events: Path
    java_options: str
    driver_host: str
    python_path: str
    conf: Mapping[str, str] = field(default_factory=dict)
    """Spark properties of the place where it runs; they stand above those of the topology."""
    metrics_host: str = "127.0.0.1"
    metrics_port: int = 0
    """Where metrics are served; 0: nowhere."""


class Driver:
    """One Spark application with its engine."""

    def __init__(self, resource: StreamTopology, config: DriverConfig) -> None:
        self.resource, self.config = resource, config
        self.channel = Channel(config.zk, config.root)
        self.stop = threading.Event()
        self._cancelled = threading.Event()
        self._busy_nodes: frozenset[str] = frozenset()
        self._usable: Mapping[str, str] = {}
        self._problems: list[str] = []
        self._warming: set[str] = set()
        self._warm: set[str] = set()

    def run(self) -> None:
        """Until `stop`."""
        self.channel.open()
        self._context = self._spark()
        self._engine = self._make_engine()
        publisher = threading.Thread(target=self._publish_forever, daemon=True)
        publisher.start()
        self._metrics = DriverMetrics(self._engine, lambda: self.channel.session)
        end_metrics = self._serve_metrics()
        try:
            with self.config.events.open("a") as events:
                while not self.stop.is_set():
                    self._turn(events)
        finally:
            self.stop.set()
            publisher.join(5)
            end_metrics()
            self._context.stop()
            self.channel.close()

    def _serve_metrics(self) -> Callable[[], None]:
        """A topology without metrics is better than none: a port that is taken is logged, and seen by who scrapes."""
        try:
            if self.config.metrics_port:
                return serve(self.config.metrics_host, self.config.metrics_port, self._metrics.registry)
        except ServeError as error:
            log.error("problem %s", error)
        return lambda: None

    def _spark(self) -> SparkContext:
        memory = self.resource.spark.executor_memory_bytes // 2**20
        settings = {
            "spark.executor.memory": f"{memory}m",
            "spark.executor.extraJavaOptions": self.config.java_options,
            "spark.driver.host": self.config.driver_host,
            "spark.driver.bindAddress": self.config.driver_host,
            **self.resource.spark.conf,
            **self.config.conf,
        }
        if self.config.python_path:  # else it is the image's
            settings["spark.executorEnv.PYTHONPATH"] = self.config.python_path
        context = SparkContext(conf=configuration(self.config.master, self.resource.name, settings))
        context.setLogLevel("ERROR")
        return context

    def _make_engine(self) -> Engine:
        location, topology = self.config.checkpoints, expand(self.resource)
        store = CheckpointStore(location, self.resource.checkpoint.standby)
        take_over(store, self.resource.checkpoint.standby)
        engine = Engine(
            resource=self.resource,
            topology=topology,
            sites=Sites(self.config.sink, location),
            epoch=self.channel.next_epoch(),
            connect=lambda hosts: Chain(self._context, hosts),
            ledger=Ledger(location, self.resource, topology),
            release=Release(location, self.resource.batch_interval_s),
            store=store,
            punctuations=Punctuations(self.resource.checkpoint),
        )
        engine.punctuations.newest = max(store.positions(), default=0)
        log.info("driver started epoch=%d checkpoint=%d", engine.epoch, engine.punctuations.newest)
        return engine

    # -- the loop ------------------------------------------------------------------------------------------------------

    def _turn(self, events: Any) -> None:
        engine = self._engine
        self.channel.changed.clear()
        if self.channel.superseded:
            log.warning("superseded epoch=%d", engine.epoch)
            self.stop.set()
            return
        self._take_desired()
        living = self._look_around()
        self._busy_nodes = frozenset(engine.desired.assignment.values()) & frozenset(living)
        self._cancelled.clear()
        newest = engine.punctuations.newest
        ran = engine.tick(living, self._cancelled)
        self._busy_nodes = frozenset()
        if engine.punctuations.newest > newest:
            self._announce_checkpoint(engine.punctuations.newest)
        self._write_events(events)
        if engine.failures:
            self.channel.changed.wait(min(0.2 * engine.failures, 2.0))
        elif not ran or engine.idle:
            self.channel.changed.wait(self._pause(ran))

    def _pause(self, ran: bool) -> float:
        """Seconds until the next batch is due, or a keep-alive."""
        if not ran or self._engine.desired.paused or self.resource.batch_interval_s <= 0:
            return 0.5
        due = self._engine.release.at(self._engine.horizon + 1) - time.time()
        return max(0.01, min(due, KEEPALIVE_S)) if not self._engine.done else 0.5

    def _take_desired(self) -> None:
        try:
            desired = self.channel.read_desired()
        except ChannelError as error:
            self._say(str(error))
            return
        if desired.seq == self._engine.desired.seq or desired.driver != str(self._engine.epoch):
            return  # nothing new, or meant for an earlier driver: the coordinator will speak to this one
        logs.about(incident=desired.plan.rpartition("-p")[0], plan=desired.plan)
        try:
            self._engine.want(desired)
        except CheckpointError as error:
            self._say(f"checkpoint {desired.checkpoint} cannot be used: {error}")

    def _look_around(self) -> Mapping[str, str]:
        nodes = self.channel.read_nodes()
        registered = set(executors(self._context, self.config.driver_host))
        present = {key: record.host for key, record in nodes.items() if record.host in registered}
        for key, host in present.items():
            if key not in self._warming:
                self._warming.add(key)
                threading.Thread(target=self._warm_up, args=(key, host), daemon=True).start()
        self._usable = {key: host for key, host in present.items() if key in self._warm}
        return self._usable

    def _warm_up(self, key: str, host: str) -> None:
        """Make a new node ready beside the running chains; one that fails is tried again while it is there."""
        try:
            warm(self._context, host)
            self._warm.add(key)
            log.info("node ready node=%s host=%s", key, host)
        except ChainError as error:
            log.warning("node not ready node=%s reason=%s", key, error)
            self._warming.discard(key)
        self.channel.changed.set()

    def _say(self, problem: str) -> None:
        if problem not in self._problems[-20:]:
            log.error("problem %s", problem)
            self._problems.append(problem)

    def _announce_checkpoint(self, position: int) -> None:
        manifest = self._engine.store.manifest(position)
        size = sum(f.size for f in manifest.files.values())
        record = {
            "position": position,
            "time": time.time(),
            "bytes": size,
            "seconds": round(self._engine.figures.checkpoint_s, 3),
            "offsets": dict(manifest.offsets),
        }
        self.channel.publish(paths.checkpoint(position), record)
        self.channel.forget_checkpoints(self.resource.checkpoint.keep)

    def _write_events(self, events: Any) -> None:
        engine = self._engine
        written = [(query, batch, at, engine.release.at(batch)) for query, batch, at in engine.outputs]
        self._metrics.take(written)
        for query, batch, at, due in written:
            line = {"query": query, "batch": batch, "at": round(at, 4), "due": round(due, 4)}
            events.write(json.dumps(line) + "\n")
        if engine.outputs:
            engine.outputs.clear()
            try:
                events.flush()
            except OSError as error:  # the lines stay in the file's buffer, and go with the next
                self._say(f"events wait: {error}")
        for problem in engine.problems:
            self._say(problem)
        engine.problems.clear()

    # -- telling -------------------------------------------------------------------------------------------------------

    def _publish_forever(self) -> None:
        before: dict[str, Usage] = {}
        since = time.monotonic()
        while not self.stop.wait(PUBLISH_S):
            try:
                missing = self._busy_nodes - frozenset(self.channel.read_nodes())
                if missing and not self._cancelled.is_set():
                    log.warning("nodes gone during a job nodes=%s", ",".join(sorted(missing)))
                    self._cancelled.set()
                self.channel.publish_progress(self._progress())
                if time.monotonic() - since >= STATS_S:
                    usage, now = dict(self._engine.usage), time.monotonic()
                    self.channel.publish("stats", _rates(before, usage, now - since))
                    before, since = usage, now
            except Exception:
                log.exception("publishing failed")

    def _progress(self) -> dict[str, Any]:
        engine = self._engine
        return {
            "driver": str(engine.epoch),
            "seq": engine.desired.seq,
            "generation": engine.desired.generation,
            "nodes": sorted(self._usable),
            "positions": dict(engine.positions),
            "failed": dict(engine.failed),
            "horizon": engine.horizon,
            "punctuation": max(engine.punctuations.open, default=engine.punctuations.newest),
            "ended": engine.final is not None and engine.horizon >= engine.final,
            "done": engine.done,
            "checkpoint": engine.punctuations.newest,
            "bad_checkpoints": sorted(engine.bad_checkpoints),
            "gaps": sorted(engine.gaps),
            "stuck": engine.stuck,
            "buffers": {
                "memory": sum(m for m, _ in list(engine.buffers.values())),
                "disk": sum(d for _, d in list(engine.buffers.values())),
            },
            "jobs": engine.jobs,
            "problems": self._problems[-20:],
            "time": time.time(),
        }


def _rates(
    before: Mapping[str, Usage], now: Mapping[str, Usage], seconds: float
) -> dict[str, dict[str, float]]:
    """CPU in thousandths of a core and tuples a second of each partition; a host that began anew counts from zero."""
    rates = {}
    for partition, usage in now.items():
        old = before.get(partition, Usage(0.0, 0))
        if usage.cpu_s < old.cpu_s:
            old = Usage(0.0, 0)
        rates[partition] = {
            "cpu_milli": round((usage.cpu_s - old.cpu_s) / seconds * 1000, 3),
            "tuples_per_s": round((usage.tuples - old.tuples) / seconds, 1),
            "state_bytes": 0,
        }
    return rates
