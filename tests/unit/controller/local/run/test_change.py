"""Queries come and go in a run on one machine: who is asked for what, in which order, and what stands in the way.  The
processes are names that say whether they live; ZooKeeper is one in memory."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pytest

from reprise.controller.local.report.layout import layout_of, write_atomically
from reprise.controller.local.run import change as module
from reprise.controller.local.run.change import QueryChanges
from reprise.controller.local.run.services import Service
from reprise.controller.simulated_world.memory_zookeeper import MemoryServer
from reprise.controller.zookeeper import paths
from reprise.controller.zookeeper.observation import Observation
from reprise.controller.zookeeper.session import ZooKeeperSession
from reprise.controller.zookeeper.topology_wish import TopologyWish, write_topology_wish
from reprise.scheduler.incident import Incident
from reprise.scheduler.model import Leaving, Node, Progress
from reprise.spark_jobs.errors import DamagedError
from reprise.spark_jobs.topology import StreamTopology, from_json, load_topology, override, to_json

ROOT = "/reprise/default/minimal"
WISH = f"{ROOT}/{paths.TOPOLOGY}"
FIRST = load_topology(Path(__file__).parents[5] / "examples" / "minimal.yaml", data=False)


def with_leaf(resource: StreamTopology) -> StreamTopology:
    document = json.loads(resource.document)
    count = next(one for one in document["spec"]["operators"] if one["name"] == "count")
    document["spec"]["operators"].append({**count, "name": "leaf"})
    return from_json(json.dumps(document))


OTHER = with_leaf(FIRST)


def nodes(count: int) -> dict[str, Node]:
    return {f"n{number}": Node(f"n{number}", 1, 1000) for number in range(count)}


@dataclass
class Process:
    name: str
    did: list[str]
    alive: bool = True

    def stop(self, _: float) -> None:
        self.alive = False
        self.did.append(f"stop {self.name}")

    def crash(self) -> None:
        self.alive = False
        self.did.append(f"crash {self.name}")

    def start(self) -> None:
        self.alive = True
        self.did.append(f"start {self.name}")


@dataclass
class Run:
    folder: Path
    server: MemoryServer = field(default_factory=MemoryServer)
    did: list[str] = field(default_factory=list)
    said: list[dict[str, Any]] = field(default_factory=list)
    now: float = 100.0
    seen: Observation = field(default_factory=lambda: Observation(0.0, connected=True, nodes=nodes(4)))

    def __post_init__(self) -> None:
        self.server.put(ROOT, b"")
        self.session = ZooKeeperSession(cast(Any, self.server.session()))
        self.processes = {name: Process(name, self.did) for name in ("coordinator", "driver")}
        services = cast("dict[str, Service]", self.processes)
        self.layout = layout_of(self.folder, FIRST)
        write_atomically(self.layout.topology, to_json(FIRST))
        self.changes = QueryChanges(
            self.session, ROOT, self.layout, services, self.said.append, lambda: self.now
        )
        for name in (paths.DESIRED, paths.PROGRESS, paths.SETTINGS, f"{paths.PLANS}/p1"):
            self.server.put(f"{ROOT}/{name}", b"{}")

    def ask(self, wanted: StreamTopology = OTHER) -> bool:
        return write_topology_wish(self.session, ROOT, TopologyWish("w", to_json(wanted)))

    def look(self, driver: str, drained: int | None = None, **more: Any) -> StreamTopology | None:
        self.seen = replace(self.seen, progress=Progress(driver, drained=drained, **more))
        return self.changes.look(FIRST, self.seen)

    @property
    def asked(self) -> str:
        return str(json.loads(self.server.records[f"{ROOT}/{paths.DRAIN}"][0])["driver"])

    @property
    def actions(self) -> list[str]:
        return [action["action"] for action in self.said]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr(module, "CheckpointStore", Whole)
    return Run(tmp_path)


class Whole:
    """A store whose checkpoints are whole."""

    def __init__(self, location: str, standby: Any) -> None: ...

    def verify(self, position: int) -> None: ...


class Damaged(Whole):
    def verify(self, position: int) -> None:
        raise DamagedError(f"{position} is damaged")


def test_the_driver_drains_and_both_begin_anew_with_the_other_topology(run: Run) -> None:
    assert run.look("1") is None
    assert run.actions == []
    assert run.ask()
    assert run.look("1") is None
    assert (run.asked, run.actions) == ("1", ["queries-change"])
    assert not run.ask(), "one at a time"
    run.look("2")
    assert run.asked == "2", "the first one died, and its successor is asked as well"
    assert not run.changes.under_way, "a driver that dies now is started again"
    run.now += 3
    run.look("2", 40)
    assert run.changes.under_way
    assert WISH not in run.server.records, "nobody takes it back any more"
    assert from_json(run.layout.topology.read_text()) == FIRST
    assert run.did == []
    run.processes["driver"].alive = False
    found = run.look("2", 40)
    assert found == OTHER
    assert run.did == ["stop coordinator", "stop driver", "start coordinator", "start driver"]
    assert from_json(run.layout.topology.read_text()) == OTHER
    left = {path.removeprefix(f"{ROOT}/") for path in run.server.records}
    assert not left & {paths.DESIRED, paths.PROGRESS, paths.SETTINGS}
    assert f"{paths.PLANS}/p1" in left, "what has happened stays"
    run.now += 7
    run.look("3", positions={"count.0": 40})
    assert run.actions[-1] == "queries-change", "no batch of its own yet"
    run.look("3", positions={"count.0": 41})
    last = run.said[-1]
    assert (last["action"], last["position"], last["drain_s"], last["paused_s"]) == (
        "queries-changed",
        40,
        3,
        7,
    )


def test_what_is_taken_back_before_the_stream_has_drained_changes_nothing(run: Run) -> None:
    run.ask()
    run.look("1")
    run.session.delete(WISH)
    run.look("1", 40)
    assert run.said[-1]["reason"] == "taken back"
    assert not run.changes.under_way, "the former driver is started again"
    assert run.did == []
    assert run.ask(), "and it can be asked for anew"
    run.look("1", 40)
    assert run.asked == "1"
    assert not run.changes.under_way, "the driver that has drained is gone, and says nothing of its successor"
    run.look("2")
    assert run.asked == "2"


@pytest.mark.parametrize("known", [True, False], ids=["seen", "opened since"])
def test_nodes_that_are_lost_behind_the_drain_are_brought_back_by_the_former_topology(
    run: Run, known: bool
) -> None:
    run.ask()
    run.look("1")
    run.look("1", 40)
    run.processes["driver"].alive = False
    run.server.put(f"{ROOT}/{paths.INCIDENT}", b"{}")
    if known:
        run.seen = replace(run.seen, incident=cast(Incident, object()))
        assert run.look("1", 40) is None
        assert run.changes.under_way, "it may end by itself"
        run.now += module.CLOSES_S + 1
    assert run.look("1", 40) is None
    assert run.said[-1]["reason"] == module.LOST
    assert not run.changes.under_way
    assert run.processes["coordinator"].alive
    assert f"{ROOT}/{paths.DESIRED}" in run.server.records
    assert from_json(run.layout.topology.read_text()) == FIRST


def test_behind_a_checkpoint_that_is_damaged_the_former_topology_goes_on(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CheckpointStore", Damaged)
    run.ask()
    run.look("1")
    run.look("1", 40)
    run.processes["driver"].alive = False
    assert run.look("1", 40) is None
    assert "40 is damaged" in run.said[-1]["reason"]
    assert run.processes["coordinator"].alive
    assert f"{ROOT}/{paths.DESIRED}" in run.server.records


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        (override(FIRST, {"operators[count].output.priority": 3}), "no query comes or goes"),
        (override(OTHER, {"nodes.count": 9}), "spec.nodes.count"),
        (override(OTHER, {"batch.order": "arrival"}), "spec.batch.order"),
    ],
)
def test_more_than_queries_is_refused_here_as_well(run: Run, wanted: StreamTopology, reason: str) -> None:
    run.ask(wanted)
    run.look("1")
    assert run.actions == ["queries-refused"]
    assert reason in run.said[0]["reason"]
    assert f"{ROOT}/{paths.DRAIN}" not in run.server.records
    assert WISH not in run.server.records


def test_while_zookeeper_is_away_nothing_happens(run: Run) -> None:
    run.ask()
    run.seen = replace(run.seen, connected=False)
    run.look("1")
    assert run.said == []


def test_with_fewer_nodes_than_a_topology_begins_with_the_former_queries_go_on(run: Run) -> None:
    """It would wait for a node, and all queries with it."""
    wanted = OTHER.nodes.count
    empties = replace(nodes(1)["n0"], leaving=Leaving("reprise drain"))
    run.seen = replace(run.seen, nodes={**nodes(wanted), "n0": empties})
    run.ask()
    run.look("1")
    assert run.actions == ["queries-refused"]
    assert f"{wanted - 1} of {wanted} nodes are there" in run.said[0]["reason"]
    run.seen = replace(run.seen, nodes=nodes(wanted))
    assert run.ask()
    run.look("1")
    run.look("1", 40)
    run.processes["driver"].alive = False
    run.seen = replace(run.seen, nodes=nodes(wanted - 1))
    assert run.look("1", 40) is None
    assert "nodes are there" in run.said[-1]["reason"]
    assert run.processes["coordinator"].alive
    assert f"{ROOT}/{paths.DESIRED}" in run.server.records


def test_what_is_no_wish_is_refused_and_removed(run: Run) -> None:
    run.server.put(WISH, b"[]")
    run.look("1")
    assert run.actions == ["queries-refused"]
    assert WISH not in run.server.records


def test_a_driver_that_has_drained_and_does_not_end_is_ended(run: Run) -> None:
    run.ask()
    run.look("1")
    run.look("1", 40)
    run.now += module.ENDS_S - 1
    assert run.look("1", 40) is None
    assert run.did == []
    run.now += 2
    assert run.look("1", 40) == OTHER
    assert run.did[0] == "crash driver"


def test_the_next_change_waits_until_batches_go_on_behind_the_one_before(run: Run) -> None:
    """Whoever has asked for that one hears of it."""
    run.ask()
    run.look("1")
    run.look("1", 40)
    run.processes["driver"].alive = False
    run.look("1", 40)
    assert run.ask(FIRST)
    run.look("2", positions={"count.0": 40})
    assert run.asked == "1"
    run.look("2", positions={"count.0": 41})
    assert run.actions == ["queries-change", "queries-changed", "queries-refused"], (
        "the same look takes the next one"
    )
