"""The annotation `reprise.dev/skip`, by the operator's own classes, with the topology's records in a ZooKeeper in memory."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from reprise.controller.crd.convert import SKIP, skips_annotation
from reprise.controller.operator.loop.topology import TopologyController
from reprise.controller.operator.pods.cluster_view import ClusterView
from reprise.controller.operator.status.topology_state import TopologyState
from reprise.controller.simulated_world.memory_zookeeper import MemoryServer
from reprise.controller.zookeeper import paths
from reprise.controller.zookeeper.session import ZooKeeperSession
from reprise.controller.zookeeper.skip_wishes import encode_skip
from reprise.scheduler.model import Desired, SkipWish
from reprise.scheduler.wishes import annotated
from tests.unit.controller.operator.loop.test_topology import Scene

QUERY = "count.0"


class MemoryScene(Scene):
    """The same with ZooKeeper in here."""

    def __init__(self) -> None:
        self.memory = MemoryServer()
        super().__init__(SimpleNamespace(hosts="-"), "skip")  # type: ignore[arg-type]

    def connect(self) -> ZooKeeperSession:
        return ZooKeeperSession(self.memory.session())  # type: ignore[arg-type]

    def view(self) -> ClusterView:
        return ClusterView(dict(self.pods), None, **self.switches)

    def annotate(self, uid: str = "uid-skip", wish: str = "1", query: str = QUERY) -> str:
        """As `kubectl reprise skip` does it; the id of the wish."""
        value = skips_annotation({query: SkipWish(f"{uid}.{wish}")})
        meta = {**self.body["metadata"], "annotations": {SKIP: value}}
        self.body = {**self.body, "metadata": meta}
        return f"{uid}.{wish}"

    def set_aside(self, one: TopologyController) -> None:
        """The code of the query has raised, and the incident is over."""
        self.raised = {QUERY: "poison: batch 3: ValueError"}
        self.until(lambda: QUERY not in self.now().assignment, "set aside", one)
        for _ in range(3):
            self.step(one)

    def now(self) -> Desired:
        found = self.desired()
        assert found is not None
        return found


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> MemoryScene:
    monkeypatch.setattr("reprise.controller.operator.status.reporter.PUBLISH_S", 0.0)
    return MemoryScene()


def test_it_is_taken_to_the_coordinator_and_what_was_set_aside_begins_anew(scene: MemoryScene) -> None:
    one = scene.running()
    scene.set_aside(one)
    wish = scene.annotate()
    scene.step(one)
    assert (scene.now().anew, scene.now().skips) == ({QUERY: wish}, {annotated(QUERY): wish})
    scene.until(lambda: QUERY in scene.now().assignment, "placed", one)
    scene.until(lambda: not scene.raised and scene.now().anew == {}, "at work again", one)


def test_it_is_taken_once_though_it_stays_and_operators_come_and_go(scene: MemoryScene) -> None:
    one = scene.running()
    scene.set_aside(one)
    wish = scene.annotate()
    scene.until(lambda: scene.now().anew, "taken", one)
    scene.until(lambda: not scene.raised and scene.now().anew == {}, "at work again", one)
    scene.set_aside(one)
    one.end()
    later = scene.operator(scene.connect())
    for _ in range(5):
        scene.step(later)
        assert scene.now().anew == {}, "somebody has asked once"
    assert scene.now().skips == {annotated(QUERY): wish}
    assert QUERY not in scene.now().assignment
    again = scene.annotate(wish="2")
    scene.until(lambda: scene.now().anew == {QUERY: again}, "asked once more", later)


def test_a_glance_at_a_quiet_topology_sees_that_it_has_come(
    scene: MemoryScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TopologyState, "busy", False)  # else it is, as there is no driver's pod
    one = scene.running()
    scene.until(lambda: one.quiet and one.poll(scene.body, scene.view()) is not None, "quiet", one)
    scene.annotate()
    assert one.poll(scene.body, scene.view()) is None, "everything is looked at"
    scene.until(lambda: one.quiet and scene.now().skips, "taken", one)
    scene.until(lambda: one.poll(scene.body, scene.view()) is not None, "it is no news any more", one)
    assert scene.now().anew == {}, "all of it is at work"


@pytest.mark.parametrize("value", ["count.0", "count.0=other-uid.1", "count.0=uid-skip", "=uid-skip.1", ",,"])
def test_what_was_not_written_for_this_object_asks_for_nothing(scene: MemoryScene, value: str) -> None:
    one = scene.running()
    scene.set_aside(one)
    scene.body = {**scene.body, "metadata": {**scene.body["metadata"], "annotations": {SKIP: value}}}
    for _ in range(4):
        scene.step(one)
    assert (scene.now().anew, scene.now().skips) == ({}, {})


def test_one_that_is_older_than_the_records_is_void(scene: MemoryScene) -> None:
    """The object was annotated months ago; its records are made anew, as after the loss of ZooKeeper."""
    wish = scene.annotate()
    one = scene.operator()
    scene.client.ensure_path(f"{scene.root}/{paths.SKIPS}")
    scene.client.create(f"{scene.root}/{paths.SKIPS}/{QUERY}", encode_skip(SkipWish("z1")))
    scene.add("e1", "e2", "e3")
    scene.until(lambda: scene.desired() is not None, "started", one)
    assert scene.now().skips == {annotated(QUERY): wish, QUERY: "z1"}
    assert scene.client.get_children(f"{scene.root}/{paths.SKIPS}") == []
    scene.set_aside(one)
    assert scene.now().anew == {}


def test_the_page_says_what_is_asked_for_until_it_is_carried_out(scene: MemoryScene) -> None:
    one = scene.running()
    scene.set_aside(one)
    wish = scene.annotate()
    scene.step(one)
    seen: Any = one.state.observation
    assert seen.wishes == {annotated(QUERY): SkipWish(wish)}
    assert seen.desired.skips == {annotated(QUERY): wish}
