"""Which nodes partitions may be given to: those with a heartbeat and an executor, once they have been made ready."""

from __future__ import annotations

import threading
from typing import Any, cast

import pytest
from pyspark import SparkContext

from reprise.controller.driver import nodes as module
from reprise.controller.driver.channel import Channel
from reprise.controller.driver.node_starts import NodeStarts
from reprise.controller.driver.nodes import SparkNodes
from reprise.controller.simulated_world.memory_zookeeper import MemoryServer, MemorySession
from reprise.controller.zookeeper.node_record import NodeRecord, encode_node
from reprise.scheduler.node_start import StartPhase
from reprise.spark_jobs.engine.chain import ChainError
from reprise.spark_jobs.errors import VersionError
from tools.testbed.waiting import until

ROOT, LONG_S = "/reprise/test/nodes", 20.0


class Spark:
    """What is asked of a context's JVM: the hosts of the executors, the driver's own among them."""

    def __init__(self) -> None:
        self.hosts, self.stopped = ["here"], False
        self.port = 40001
        """Of executors: another one for those that have taken the place of others."""

    @property
    def _jsc(self) -> Spark:
        return self

    sc = getExecutorMemoryStatus = keys = lambda self: self

    def mkString(self, separator: str) -> str:
        return separator.join(f"{host}:{self.port}" for host in self.hosts)

    def isStopped(self) -> bool:
        if not self.hosts:
            raise ConnectionError("no JVM")
        return self.stopped


class Scene:
    """Nodes n1 and n2 have heartbeats, n1 an executor.  `answers`: what comes of each attempt to make a node ready."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        tree = MemoryServer()
        for name in ("n1", "n2"):
            tree.put(f"{ROOT}/nodes/{name}", encode_node(NodeRecord(name, f"host-{name}", 1, 17, 1000, 0.0)))
        self.channel = Channel("", ROOT, session=MemorySession(tree))
        self.spark = Spark()
        self.spark.hosts.append("host-n1")
        self.nodes = SparkNodes(cast(SparkContext, self.spark), "here", self.channel)
        self.go_on = threading.Event()
        self.answers: list[Exception | None] = [None, None, None]
        self.warmed: list[str] = []
        monkeypatch.setattr(module, "warm", self._warm)
        monkeypatch.setattr(module, "ANOTHER_VERSION_S", 0.0)

    def _warm(self, _: Any, host: str) -> tuple[float, float]:
        assert self.go_on.wait(LONG_S)
        self.warmed.append(host)
        if (answer := self.answers.pop(0)) is not None:
            raise answer
        return 41.25, 42.5

    def made_ready(self) -> None:
        """Whatever comes of it, the loop is woken to look."""
        self.go_on.set()
        assert self.channel.changed.wait(LONG_S)
        self.channel.changed.clear()
        self.go_on.clear()


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(monkeypatch)


def test_a_node_with_an_executor_is_usable_once_it_has_been_made_ready(scene: Scene) -> None:
    before = set(threading.enumerate())
    assert scene.nodes.usable() == scene.nodes.usable() == {}
    assert len(set(threading.enumerate()) - before) == 1, "one attempt at a time"
    scene.made_ready()
    assert scene.nodes.usable() == {"n1#1": "host-n1"}
    assert scene.warmed == ["host-n1"]


def test_when_each_phase_of_its_start_was_over_is_kept_and_its_being_ready_is_told(scene: Scene) -> None:
    now, told = iter([40.0, 50.0]), []
    scene.nodes.starts = NodeStarts(lambda: next(now, 51.0))
    scene.nodes.tell = lambda: told.append(dict(scene.nodes.usable()))
    scene.nodes.usable()
    scene.made_ready()
    assert told == [{"n1#1": "host-n1"}]
    assert scene.nodes.starts.told()["n1#1"].at == {
        StartPhase.EXECUTOR: 40.0,
        StartPhase.TASK: 41.25,
        StartPhase.HOST: 42.5,
    }


def test_a_node_whose_executor_is_gone_is_not_usable(scene: Scene) -> None:
    scene.nodes.usable()
    scene.made_ready()
    assert [scene.nodes.registered(f"host-{name}") for name in ("n1", "n2")] == [True, False]
    scene.spark.hosts.remove("host-n1")
    assert scene.nodes.usable() == {}
    assert not scene.nodes.registered("host-n1")


def test_the_next_executor_of_a_node_is_made_ready_too(scene: Scene) -> None:
    """It may have no partition host, and an exchange starts none.  It may have come between two looks."""
    scene.nodes.usable()
    scene.made_ready()
    scene.spark.port += 1
    assert scene.nodes.usable() == {}
    assert scene.nodes.registered("host-n1")
    scene.made_ready()
    assert scene.nodes.usable() == {"n1#1": "host-n1"}
    assert scene.warmed == ["host-n1"] * 2


def test_a_late_attempt_for_the_executor_before_makes_no_difference(scene: Scene) -> None:
    scene.nodes.usable()
    scene.spark.port += 1
    scene.nodes.usable()
    scene.go_on.set()
    until(lambda: len(scene.warmed) == 2, "both attempts")
    until(lambda: scene.nodes.usable() == {"n1#1": "host-n1"}, "the one that counts")
    scene.nodes._warm_up("n1#1", "host-n1", "host-n1:40001")
    assert scene.nodes.usable() == {"n1#1": "host-n1"}


def test_a_node_to_which_no_exchange_begins_is_made_ready_once_more(scene: Scene) -> None:
    scene.nodes.doubt({"n1#1"})
    scene.nodes.usable()
    scene.made_ready()
    scene.nodes.doubt({"n1#1", "n7#1"})
    assert scene.nodes.usable() == {}
    scene.made_ready()
    assert scene.nodes.usable() == {"n1#1": "host-n1"}
    assert scene.warmed == ["host-n1"] * 2


@pytest.mark.parametrize(
    ("error", "told"), [(ChainError("busy"), []), (VersionError("another version"), ["another version"])]
)
def test_a_node_that_cannot_be_made_ready_is_tried_again_and_another_version_is_said(
    scene: Scene, error: Exception, told: list[str]
) -> None:
    said: list[str] = []
    scene.nodes.say = said.append
    scene.answers.insert(0, error)
    scene.nodes.usable()
    scene.made_ready()
    assert scene.nodes.usable() == {}
    scene.made_ready()
    assert scene.nodes.usable() == {"n1#1": "host-n1"}
    assert (scene.warmed, said) == (["host-n1"] * 2, told)


def test_spark_is_alive_until_it_has_stopped_or_its_process_is_gone(scene: Scene) -> None:
    assert scene.nodes.alive()
    scene.spark.stopped = True
    assert not scene.nodes.alive()
    scene.spark.stopped, scene.spark.hosts = False, []
    assert not scene.nodes.alive()
