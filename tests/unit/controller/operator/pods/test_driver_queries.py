"""Queries come or go with a changed spec: nothing but a drained stream without an incident leads to another graph."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import yaml

from reprise.algorithms.failure import Failure
from reprise.controller.operator.pods.drain import PATIENCE_S
from reprise.controller.zookeeper.errors import StaleError
from reprise.controller.zookeeper.observation import Observation
from reprise.controller.zookeeper.process_records import Spec
from reprise.scheduler.incident import Incident, Kind, Phase
from reprise.scheduler.model import Node
from reprise.spark_jobs.topology import StreamTopology
from tests.unit.controller.operator.pods.test_driver_corrected import Scene
from tests.unit.controller.operator.pods.test_keepers import (
    EXAMPLE,
    SETTINGS,
    Clock,
    clock,
    driver_of,
    reports,
    seen,
    topology,
)

__all__ = ["clock"]
LEAF = {"name": "leaf", "class": "reprise.operators:Map", "inputs": [{"from": "count", "forward": True}], "parallelism": 2,
        "output": {"priority": 3}}  # fmt: skip
NODES = {f"{name}#1": Node(name, 1, 100) for name in ("e1", "e2", "e3")}
OPEN = Incident("inc-1", Kind.CORRELATED, Phase.SETTLING, 1.0, 30, 1, 3, 2.0)


def with_leaf(**more: Any) -> StreamTopology:
    operators = yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))["spec"]["operators"]
    return topology(operators=[*operators, LEAF], **more)


def sees(nodes: int = 3, incident: Incident | None = None, **progress: Any) -> Observation:
    """A look at a topology whose driver has the epoch 1."""
    there = dict(list(NODES.items())[:nodes])
    return replace(seen("1", **progress), nodes=there, incident=incident)


@pytest.fixture
def scene(clock: Clock) -> Scene:
    """A topology whose driver was started without the leaf, runs, and has reported."""
    found = Scene(clock, sees())
    found.look(topology())
    reports(found.one, driver_of(topology()))
    clock.now += 60.0
    return found


def started(scene: Scene) -> list[str]:
    """The operators of the spec on record, which is what the newest driver was started with."""
    assert scene.book.started_with is not None
    return [one.name for one in scene.book.started_with.operators]


@pytest.mark.parametrize("upgrade", ["drain", "replay"])
def test_the_driver_is_asked_to_drain_whatever_upgrade_says(scene: Scene, upgrade: str) -> None:
    wanted = with_leaf(upgrade=upgrade)
    scene.look(wanted, "Running")
    assert scene.there, "a driver that makes batches again cannot begin a query among them"
    assert scene.book.drivers == ["1"]
    assert scene.one.outdated
    assert "the last checkpoint" in scene.one.problem
    scene.clock.now += PATIENCE_S + 1.0
    scene.look(wanted, "Running")
    assert "replay" not in scene.one.problem
    assert "replay" not in scene.said("DrainWaits")
    scene.book.now = sees(drained=40)
    scene.look(wanted, "Succeeded")
    assert scene.one.outdated, "between two drivers the changed spec is not in effect"
    scene.look(wanted)
    assert started(scene) == ["parser", "count", "leaf"]
    assert scene.said("QueriesChanged") == "at the checkpoint where the stream has drained: leaf begins"


@pytest.mark.parametrize("upgrade", ["drain", "replay"])
def test_a_driver_that_dies_before_it_has_drained_is_followed_by_one_without_the_query(
    scene: Scene, upgrade: str
) -> None:
    wanted = with_leaf(upgrade=upgrade)
    scene.look(wanted, "Running")
    scene.look(wanted, "Failed")
    assert "upgrade" not in scene.one.problem
    scene.clock.now += 60.0
    scene.look(wanted)
    assert started(scene) == ["parser", "count"]
    assert "before it had drained" in scene.said("FormerSpecStarted")
    assert not scene.said("QueriesChanged")


def test_nodes_that_were_lost_before_the_stream_had_drained_are_brought_back_first(scene: Scene) -> None:
    """They are in an incident by the partitions of the former graph."""
    wanted = with_leaf()
    scene.look(wanted, "Running")
    scene.book.now = sees(incident=OPEN, drained=40)
    scene.look(wanted, "Succeeded")
    scene.look(wanted)
    assert started(scene) == ["parser", "count"]
    assert "when the incident is closed" in scene.said("FormerSpecStarted")


def test_an_incident_that_opens_at_the_last_moment_is_found_by_the_step_itself(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = with_leaf()
    scene.look(wanted, "Running")
    scene.book.now = sees(drained=40)
    scene.look(wanted, "Succeeded")
    with monkeypatch.context() as late:

        def refused(_spec: Spec) -> None:
            raise StaleError("queries do not come or go now: an incident is open")

        late.setattr(scene.book, "started", refused)
        scene.look(wanted)
    assert not scene.there
    assert "an incident is open" in scene.one.problem
    assert not scene.said("QueriesChanged")
    scene.look(wanted)
    assert started(scene) == ["parser", "count", "leaf"]


def test_with_fewer_nodes_than_a_topology_begins_with_nobody_is_asked(scene: Scene) -> None:
    scene.book.now = sees(nodes=2)
    wanted = with_leaf(nodes={"count": 4, "cpu": "500m"})
    scene.look(wanted, "Running")
    assert scene.book.drivers == []
    assert "2 of 3 are" in scene.one.problem
    scene.book.now = sees(nodes=3)
    scene.look(wanted, "Running")
    assert scene.book.drivers == ["1"], "those that the changed spec wants besides come with its driver"


def test_a_partition_that_is_set_aside_names_the_only_way_out(scene: Scene) -> None:
    scene.book.now = sees(failed={"count.0": Failure.parse("poison: operator count")})
    scene.look(with_leaf(), "Running")
    assert "count.0 is set aside; `reprise skip`" in scene.one.problem


@pytest.mark.parametrize("phase", ["Running", "Failed"])
def test_in_an_incident_queries_wait_for_its_end(scene: Scene, phase: str) -> None:
    for wanted in (with_leaf(), with_leaf(upgrade="replay")):
        scene.look(wanted, "Running", recovering=True)
        assert scene.there
        assert scene.book.drivers == []
    assert "replay" not in scene.said("SpecChangePostponed")


def test_a_query_whose_driver_cannot_start_is_taken_back(scene: Scene) -> None:
    """Its class is in no module of the image: nothing was released since the stream has drained."""
    scene.book.now = sees(drained=40)
    scene.look(with_leaf(), "Succeeded")
    scene.look(with_leaf())
    scene.book.now = Observation(0.0, connected=True)  # its records begin anew
    scene.look(with_leaf(), "Failed", uid="pod-2")
    scene.clock.now += 60.0
    scene.look(topology())
    assert started(scene) == ["parser", "count"]
    assert scene.book.spec == Spec(topology().document, SETTINGS.image)
    assert "leaf ends" in scene.said("QueriesChanged")
