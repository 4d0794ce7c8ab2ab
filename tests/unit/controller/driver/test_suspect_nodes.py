"""A node whose agent has lost its session keeps its place while the driver hears its executor; one that is dead does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from reprise.controller.simulated_world.memory_zookeeper import MemoryServer
from reprise.controller.zookeeper.node_record import NodeRecord, absence_counts_after_s, encode_node
from reprise.spark_jobs.topology import load_text
from tests.support.local_driver import ROOT, LocalDriver, world_of
from tests.unit.spark_jobs.engine.test_recovery import DIAMOND

LIMIT_S = absence_counts_after_s()


class Scene:
    """Nodes `a` and `b`, with agents; the driver's clocks are one."""

    def __init__(self, folder: Path) -> None:
        self.now = 100.0
        self.driver = LocalDriver(world_of(load_text(DIAMOND), folder), MemoryServer())
        self.driver.channel._clock = self.driver.loop._clock = lambda: self.now
        for node in "ab":
            self.register(node)
        assert self.nodes() == ["a#1", "b#1"]

    def register(self, node: str, incarnation: int = 1) -> None:
        record = NodeRecord(node, node, incarnation, 1, 1000, 0.0)
        self.driver.tree.put(f"{ROOT}/nodes/{node}", encode_node(record))

    def silence(self, node: str) -> None:
        """Its session has expired."""
        self.driver.tree.remove(f"{ROOT}/nodes/{node}")

    def nodes(self) -> list[str]:
        return sorted(self.driver.channel.read_nodes())


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_a_node_that_is_heard_stands_until_its_agent_is_back(scene: Scene) -> None:
    scene.silence("b")
    assert scene.nodes() == ["a#1", "b#1"]
    scene.now += LIMIT_S - 0.1
    assert scene.nodes() == ["a#1", "b#1"]
    scene.register("b")
    scene.now += LIMIT_S
    assert scene.nodes() == ["a#1", "b#1"]
    scene.silence("b")  # counted anew
    assert scene.nodes() == ["a#1", "b#1"]


def test_spark_is_asked_for_it_also_while_no_job_runs_and_no_longer_once_that_is_decided(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What `hears` rests on is what Spark has said last."""
    usable, asked = scene.driver.cluster.usable, []
    monkeypatch.setattr(scene.driver.cluster, "usable", lambda: asked.append(True) or usable())

    def looks() -> int:
        asked.clear()
        ends = iter([False, False, True])
        monkeypatch.setattr(scene.driver.stop, "wait", lambda _=None: next(ends))
        scene.driver.loop._look_forever()
        return len(asked)

    scene.driver.loop._ready = frozenset({"a#1", "b#1"})
    assert looks() == 0
    scene.silence("b")
    assert looks() == 2
    scene.now += LIMIT_S
    assert scene.nodes() == ["a#1"]
    assert looks() == 0


def test_it_does_not_stand_for_ever(scene: Scene) -> None:
    scene.silence("b")
    assert scene.nodes() == ["a#1", "b#1"]
    scene.driver.channel.changed.clear()
    scene.now += LIMIT_S
    assert scene.nodes() == ["a#1"]
    assert scene.driver.channel.changed.is_set()


def test_a_node_whose_executor_is_gone_is_gone_at_once(scene: Scene) -> None:
    scene.driver.world.nodes.lose("b")
    scene.silence("b")
    assert scene.nodes() == ["a#1"]


def test_a_node_that_comes_as_another_incarnation_is_gone_at_once(scene: Scene) -> None:
    scene.silence("b")
    scene.register("b", incarnation=2)
    assert scene.nodes() == ["a#1", "b#2"]


def test_a_machine_that_keeps_a_job_waiting_is_lost_when_its_heartbeat_goes(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As fast as without any of this: the job is cancelled and the report says that the node is not there."""
    driver = scene.driver
    driver.want(1, 0, driver.world.spread("a#1", "b#1"))
    monkeypatch.setattr(
        driver.cluster, "usable", lambda: {key: key.partition("#")[0] for key in driver.channel.read_nodes()}
    )
    reports: list[list[str]] = []
    cancelled: list[bool] = []

    def hangs(_living: object, stop: object) -> bool:
        driver.engine.progress = type(driver.engine.progress)(nodes=("a#1", "b#1"))
        driver.engine.connection.nodes = ("a#1", "b#1")
        scene.now += 3.0  # its session has expired by then
        scene.silence("b")
        driver.loop.publish()
        reports.append(driver.record()["nodes"])
        cancelled.append(driver.loop._job.cancelled.is_set())
        return True

    monkeypatch.setattr(type(driver.engine), "tick", lambda _, living, stop: hangs(living, stop))
    monkeypatch.setattr(driver.channel.changed, "wait", lambda _=None: True)
    driver.turn()
    assert (reports, cancelled) == ([["a#1"]], [True])
