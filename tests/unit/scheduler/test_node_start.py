"""How long each phase of a node's start took, and what an open incident keeps of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from reprise.scheduler import Incident, Kind, Phase, Policy, node_start
from reprise.scheduler import observe as module
from reprise.scheduler.incident import EventName
from reprise.scheduler.node_start import LATER, NodeStart, StartPhase, eldest_first
from reprise.scheduler.observe import observe
from reprise.scheduler.view import look
from tests.support.recovery_simulator import World, diamond


def test_seconds_count_from_the_request_and_what_is_not_known_is_absent() -> None:
    start = NodeStart({StartPhase.HOST: 14.5, StartPhase.REQUESTED: 10.0, StartPhase.AGENT: 9.5})
    assert list(start.seconds.items()) == [(StartPhase.AGENT, 0.0), (StartPhase.HOST, 4.5)]
    assert NodeStart({StartPhase.HOST: 14.5}).seconds == {}
    assert StartPhase.REQUESTED not in LATER and len(LATER) == len(StartPhase) - 1


def test_what_was_said_first_stands() -> None:
    start = NodeStart({StartPhase.EXECUTOR: 1.0})
    assert start.known({StartPhase.EXECUTOR: 2.0}) is start
    assert start.known({StartPhase.EXECUTOR: 2.0, StartPhase.TASK: 3.0}).at == {
        StartPhase.EXECUTOR: 1.0,
        StartPhase.TASK: 3.0,
    }


def test_they_are_named_in_the_order_in_which_they_began() -> None:
    starts = {"a": NodeStart({StartPhase.AGENT: 2.0}), "b": NodeStart({StartPhase.REQUESTED: 1.0})}
    assert [node for node, _ in eldest_first(starts)] == ["b", "a"]


class Scene:
    """An incident that opened 9 s ago; all nodes of the world host partitions."""

    def __init__(self) -> None:
        self.w = World(diamond(3, 50), Policy(nodes_wanted=4)).started(4)
        self.opened = self.w.now - 9.0
        self.incident = Incident("inc-000002", Kind.CORRELATED, Phase.RECOVERING, self.opened, 0, 1, 4, 0.0)
        self.snapshot = self.w.snapshot()

    def observed(
        self, said: Mapping[str, NodeStart], told: Mapping[str, NodeStart] | None = None
    ) -> Incident:
        """`said` by agents of nodes, `told` by the driver."""
        nodes = tuple(replace(n, start=said.get(n.name, n.start)) for n in self.snapshot.nodes)
        assert self.snapshot.progress is not None
        progress = replace(self.snapshot.progress, starts=told or {})
        self.incident = observe(
            look(replace(self.snapshot, nodes=nodes, progress=progress), self.w.policy), self.incident
        )
        return self.incident


def test_nodes_that_came_since_it_was_opened_are_kept_with_all_that_becomes_known() -> None:
    scene = Scene()
    early = NodeStart({StartPhase.HEARTBEAT: scene.opened - 0.1})
    late = NodeStart({StartPhase.REQUESTED: scene.opened - 3, StartPhase.HEARTBEAT: scene.opened + 1})
    said, ready = {"n1": early, "n2": late}, NodeStart({StartPhase.READY: scene.opened + 4})
    assert scene.observed(said).starts == {"n2#1": late}
    both = NodeStart({**late.at, **ready.at})
    assert scene.observed(said, {"n1#1": ready, "n2#1": ready, "n3#1": ready}).starts == {"n2#1": both}
    scene.incident = scene.incident.log(scene.opened + 5, EventName.PLAN, "p1")
    assert scene.observed(said).starts["n2#1"].at == {**both.at, StartPhase.PLANNED: scene.opened + 5}
    scene.incident = scene.incident.log(scene.opened + 7, EventName.PLAN, "p2")
    before = scene.incident
    assert scene.observed(said) == before, "a later plan is not the first"


def test_a_plan_that_gives_it_nothing_is_not_its_plan() -> None:
    scene = Scene()
    assert scene.snapshot.desired is not None
    assignment = dict.fromkeys(scene.snapshot.desired.assignment, "n1#1")
    scene.snapshot = replace(scene.snapshot, desired=replace(scene.snapshot.desired, assignment=assignment))
    scene.incident = scene.incident.log(scene.opened + 5, EventName.PLAN, "p1")
    came = NodeStart({StartPhase.HEARTBEAT: scene.opened + 1})
    starts = scene.observed({"n1": came, "n2": came}).starts
    assert StartPhase.PLANNED in starts["n1#1"].at and StartPhase.PLANNED not in starts["n2#1"].at


def test_a_node_that_is_gone_again_stays_on_record() -> None:
    scene = Scene()
    came = NodeStart({StartPhase.HEARTBEAT: scene.opened + 1})
    scene.observed({"n2": came})
    scene.snapshot = replace(scene.snapshot, nodes=scene.snapshot.nodes[:1])
    assert scene.observed({}).starts == {"n2#1": came}


def test_a_record_keeps_the_first_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_STARTS", 2)
    scene = Scene()
    came = NodeStart({StartPhase.HEARTBEAT: scene.opened + 1})
    assert scene.observed(dict.fromkeys(("n1", "n2", "n3", "n4"), came)).starts.keys() == {"n1#1", "n2#1"}
    assert node_start.MAX_STARTS >= 100
