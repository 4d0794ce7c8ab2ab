"""The nodes that Spark can run tasks on: registered executors, alive in ZooKeeper, made ready beside the jobs."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping
from typing import Any

from pyspark import SparkContext

from reprise.controller.driver.channel import Channel
from reprise.controller.driver.node_starts import NodeStarts
from reprise.scheduler.node_start import StartPhase
from reprise.spark_jobs.engine.chain import ChainError, executors, warm
from reprise.spark_jobs.errors import VersionError

log = logging.getLogger("reprise.driver")
ANOTHER_VERSION_S = 10.0
"""Between two looks at a node whose executor is of another version."""


class SparkNodes:
    """The nodes of one Spark application."""

    def __init__(self, context: SparkContext, driver_host: str, channel: Channel) -> None:
        self._context, self._driver_host, self._channel = context, driver_host, channel
        self._warming: dict[str, str] = {}
        """Node -> its executor, for which it is made ready, or was: the next one may have no partition host yet."""
        self._warm: dict[str, str] = {}
        self._registered: Mapping[str, str] = {}
        """Host -> executor."""
        self._looking = threading.Lock()
        """Whoever runs jobs and whoever looks beside them ask at the same time."""
        self.say: Callable[[str], None] = log.error
        """Where it is told what keeps a node away for good; the driver's loop reports it."""
        self.tell: Callable[[], None] = lambda: None
        """Called when a node has become ready; the driver's loop reports that."""
        self.starts = NodeStarts()

    def usable(self) -> Mapping[str, str]:
        """Nodes that are ready for partitions: "node#incarnation" -> host; from any thread."""
        with self._looking:
            return self._look()

    def _look(self) -> Mapping[str, str]:
        nodes = self._channel.read_nodes()
        self._registered = executors(self._context, self._driver_host)
        present = {key: record.host for key, record in nodes.items() if record.host in self._registered}
        for key, host in present.items():
            executor = self._registered[host]
            if self._warming.get(key) != executor:
                self._warming[key] = executor
                self.starts.saw(key, StartPhase.EXECUTOR)
                threading.Thread(target=self._warm_up, args=(key, host, executor), daemon=True).start()
        return {key: host for key, host in present.items() if self._warm.get(key) == self._registered[host]}

    def doubt(self, nodes: Collection[str]) -> None:
        """Make these ready once more, as their partition hosts may be gone."""
        with self._looking:
            for key in nodes & self._warm.keys():
                del self._warm[key]
                self._warming.pop(key, None)

    def registered(self, host: str) -> bool:
        """Whether Spark had an executor there when it was asked last; it drops one as soon as its process is gone."""
        return host in self._registered

    def alive(self) -> bool:
        """Whether Spark still answers and has not stopped by itself."""
        try:
            java: Any = self._context._jsc
            return not java.sc().isStopped()
        except Exception:  # the JVM is gone, in whichever way py4j says so
            return False

    def _warm_up(self, key: str, host: str, executor: str) -> None:
        """Make a new node ready beside the running chains; one that fails is tried again while it is there."""
        try:
            began, met = warm(self._context, host)
            self.starts.saw_all(key, {StartPhase.TASK: began, StartPhase.HOST: met})
            with self._looking:
                if self._warming.get(key) == executor:  # else another one has taken its place meanwhile
                    self._warm[key] = executor
            log.info("event=node-ready node=%s host=%s", key, host)
            self.tell()
        except ChainError as error:
            log.warning("event=node-not-ready node=%s reason=%r", key, str(error))
            self._not_warm(key, executor)
        except VersionError as error:
            self.say(str(error))
            threading.Event().wait(ANOTHER_VERSION_S)
            self._not_warm(key, executor)
        self._channel.changed.set()

    def _not_warm(self, key: str, executor: str) -> None:
        with self._looking:
            if self._warming.get(key) == executor:
                del self._warming[key]
