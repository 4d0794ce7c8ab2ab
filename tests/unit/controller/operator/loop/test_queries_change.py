"""Queries come and go in a topology on Kubernetes, by the operator's own classes, with its records in a ZooKeeper in memory:
the stream drains and goes on with the other graph, whoever is killed at whichever step.

The driver is a model that keeps to what a real one does: it goes on behind the newest checkpoint, drains when it is asked,
and ends with success then; and the store of checkpoints is a model that refuses what the real one refuses.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from reprise.controller.kubernetes.pods import pod_view
from reprise.controller.operator.loop.topology import TopologyController
from reprise.controller.operator.pods.cluster_view import ClusterView
from reprise.controller.zookeeper import paths
from reprise.controller.zookeeper.process_records import parse_drain, parse_spec
from reprise.controller.zookeeper.znode import unpack
from reprise.spark_jobs.topology import expand, from_json
from tests.unit.controller.operator.loop.test_skip_annotation import MemoryScene

LEAF = {"name": "leaf", "class": "reprise.operators:Map", "inputs": [{"from": "count", "forward": True}], "parallelism": 2,
        "output": {"priority": 3}}  # fmt: skip
NODES = 3


@dataclass
class Store:
    """What is kept of a stream beside the records in ZooKeeper."""

    checkpoint: int = 0
    released: int = 0
    """The last batch that may have been shown."""
    graph: tuple[str, ...] = ()
    begins: list[tuple[int, tuple[str, ...]]] = field(default_factory=list)
    """Behind which batch which operators began."""

    def begin(self, operators: tuple[str, ...]) -> None:
        """A driver with these operators goes on behind the newest checkpoint."""
        if operators != self.graph:
            assert self.released == self.checkpoint, "batches that were shown would be made by another graph"
            self.graph = operators
            self.begins.append((self.checkpoint, operators))
        self.released = max(self.released, self.checkpoint)


class World(MemoryScene):
    """A driver's pod as the operator has made it, with its executors."""

    def __init__(self) -> None:
        super().__init__()
        self.store = Store()
        self.body = json.loads(json.dumps(self.body))
        self.body["spec"]["nodes"]["count"] = NODES
        self.first = list(self.body["spec"]["operators"])
        self.phase, self.epoch, self.horizon = "", 0, 0
        self.every: list[str] = []
        self.drained: int | None = None
        self.uid = 0
        self.config: dict[str, Any] = {}
        self.idle = False
        """The driver does nothing, as when its first job takes long."""

    # -- the driver and its executors --------------------------------------------------------------------------------------

    @property
    def made(self) -> dict[str, Any] | None:
        """The driver's pod."""
        return self.api.objects.get(
            f"/api/v1/namespaces/{self.body['metadata']['namespace']}/pods/minimal-driver"
        )

    def view(self) -> ClusterView:
        pods = dict(self.pods)
        if (made := self.made) is not None and self.phase:
            pods["minimal-driver"] = pod_view({**made, "status": {"phase": self.phase}})
        return ClusterView(pods, None)

    def step(self, *operators: TopologyController) -> None:
        for one in operators:
            view = self.view()
            one.decide(self.body, view)
            one.reconcile(view)
        self.check()
        self.drive()

    def drive(self) -> None:
        made = self.made
        if made is None:
            if self.phase:
                self.end("")
            return
        if made["metadata"].get("uid") != f"d{self.uid}":
            self.begin(made)
        elif self.phase == "Running" and not self.idle:
            self.go_on()

    def begin(self, made: dict[str, Any]) -> None:
        self.end("")
        self.uid += 1
        made["metadata"]["uid"] = f"d{self.uid}"
        made["spec"]["nodeName"] = "m1"
        self.config = next(b for v, p, b in reversed(self.api.calls) if "/configmaps/" in p)["data"]
        resource = from_json(self.config["topology.json"])
        self.store.begin(tuple(one.name for one in resource.operators))
        self.every = sorted(expand(resource).partitions)
        self.phase, self.epoch, self.horizon, self.drained = (
            "Running",
            self.epoch + 1,
            self.store.checkpoint,
            None,
        )
        self.add(*(f"e{self.epoch}-{k}" for k in range(NODES)))

    def end(self, phase: str) -> None:
        """Its executors end with it."""
        self.phase = phase
        for pod in list(self.pods):
            if self.client.exists(f"{self.root}/nodes/{pod}") is not None:
                self.kill(pod)
            else:
                del self.pods[pod]

    def go_on(self) -> None:
        if self.drained is not None:
            self.end("Succeeded")
            return
        nodes = {
            f"{pod}#1" for pod in self.pods if self.client.exists(f"{self.root}/nodes/{pod}") is not None
        }
        desired = self.desired()
        mine = desired is not None and desired.driver == str(self.epoch)
        report: dict[str, Any] = {"driver": str(self.epoch), "nodes": sorted(nodes), "horizon": self.horizon,
                                  "checkpoint": self.store.checkpoint}  # fmt: skip
        if desired is not None and mine:
            placed = [p for p in self.every if desired.assignment.get(p) in nodes]
            whole = len(placed) == len(self.every) and desired.punctuate
            if self.asked() and whole:
                self.store.checkpoint = self.drained = self.horizon
            else:
                self.horizon += 1
                self.store.released = self.horizon
                if whole and self.horizon % 4 == 0:
                    self.store.checkpoint = self.horizon
            report |= {
                "seq": desired.seq, "generation": desired.generation, "horizon": self.horizon,
                "positions": dict.fromkeys(placed, self.horizon), "checkpoint": self.store.checkpoint,
                "failed": {p: "lost" for p in self.every if p not in placed},
            }  # fmt: skip
            if self.drained is not None:
                report["drained"] = self.drained
            if self.store.checkpoint:
                self.client.ensure_path(f"{self.root}/{paths.checkpoint(self.store.checkpoint)}")
        self.client.ensure_path(f"{self.root}/progress")
        self.client.set(f"{self.root}/progress", json.dumps(report).encode())

    def asked(self) -> bool:
        path = f"{self.root}/{paths.DRAIN}"
        return self.client.exists(path) is not None and parse_drain(self.client.get(path)[0]) == str(
            self.epoch
        )

    # -- what people do, and see -------------------------------------------------------------------------------------------

    def apply(self, *operators: dict[str, Any], **spec: Any) -> None:
        """As `kubectl apply` of the resource with these operators besides parser and count."""
        meta = {**self.body["metadata"], "generation": self.body["metadata"]["generation"] + 1}
        written = [b for v, p, b in self.api.calls if v == "apply" and p.endswith("minimal/status")]
        self.body = {**self.body, "metadata": meta, "status": written[-1]["status"],
                     "spec": {**self.body["spec"], "operators": [*self.first, *operators], **spec}}  # fmt: skip

    def on_record(self) -> tuple[str, ...]:
        """The operators of the spec that the last driver was started with."""
        raw = self.client.get(f"{self.root}/{paths.SPEC}")[0]
        resource = from_json(parse_spec(unpack(raw), paths.SPEC).document)
        return tuple(one.name for one in resource.operators)

    def check(self) -> None:
        """What is placed are partitions of the graph on record; and nobody is told that what is wanted is in effect where
        another graph is."""
        desired = self.desired()
        if desired is not None and desired.assignment:
            placed = {partition.rpartition(".")[0] for partition in desired.assignment}
            assert placed <= {*self.on_record(), "tweets"}, (placed, self.on_record())
        wanted = tuple(one["name"] for one in self.body["spec"]["operators"])
        told = self.conditions()
        if desired is not None and self.on_record() != wanted and "Reconciling" in told:
            assert told["Reconciling"][0] != "False" or told["Stalled"][0] == "True", told

    def message(self, kind: str) -> str:
        written = [b for v, p, b in self.api.calls if v == "apply" and p.endswith("minimal/status")]
        return next(str(c["message"]) for c in written[-1]["status"]["conditions"] if c["type"] == kind)

    def at_work(self) -> TopologyController:
        one = self.operator(self.connect())
        self.until(lambda: self.ready() and self.store.checkpoint > 4, "at work", one)
        return one

    def ready(self) -> bool:
        return (
            self.conditions().get("Ready", ("",))[0] == "True"
            and self.conditions()["Reconciling"][0] == "False"
        )

    def goes_on_with(self, *names: str) -> bool:
        """Whether the newest driver has these operators, and every query is available."""
        return self.store.graph == names and self.on_record() == names and self.ready()


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr("reprise.controller.operator.status.reporter.PUBLISH_S", 0.0)
    monkeypatch.setattr("reprise.controller.operator.pods.driver.LONGEST_PAUSE_S", 0.1)
    return World()


def test_a_query_comes_behind_the_drain_and_goes_behind_another(world: World) -> None:
    one = world.at_work()
    world.apply(LEAF)
    said: list[str] = []
    while not world.goes_on_with("parser", "count", "leaf"):
        world.until(lambda: True, "", one)
        world.step(one)
        if world.conditions()["Reconciling"][0] == "True" and world.message("Reconciling") not in said:
            said.append(world.message("Reconciling"))
    [(_, _), (behind, _)] = world.store.begins
    assert behind > 4
    assert world.store.begins[1] == (behind, ("parser", "count", "leaf"))
    assert any("the driver drains: the last checkpoint" in text for text in said), said
    assert all(said), "what is waited for is said all the time"
    assert {"DrainAsked", "QueriesChanged"} <= world.reasons()
    assert world.closed() == 0, "the end of the executors is no incident"
    assert not world.client.exists(f"{world.root}/{paths.INCIDENT}")
    world.apply()
    world.until(lambda: world.goes_on_with("parser", "count"), "it goes", one)
    assert world.store.begins[2][0] > behind


def steps_of(kind: str, when: Callable[[World], bool]) -> Any:
    return pytest.param(when, id=kind)


MOMENTS = [
    steps_of("applied", lambda w: True),
    steps_of("asked", lambda w: w.asked()),
    steps_of("drained", lambda w: w.drained is not None),
    steps_of("ended", lambda w: w.phase == "Succeeded"),
    steps_of("gone", lambda w: w.made is None),
    steps_of("on-record", lambda w: "leaf" in w.on_record()),
    steps_of("begun", lambda w: "leaf" in w.store.graph),
    steps_of("placed", lambda w: "leaf" in w.store.graph and w.desired() is not None),
]


@pytest.mark.parametrize("when", MOMENTS)
@pytest.mark.parametrize("who", ["operator", "driver", "both"])
def test_whoever_dies_at_a_step_it_is_carried_out(
    world: World, who: str, when: Callable[[World], bool]
) -> None:
    one = world.at_work()
    world.apply(LEAF)
    world.until(lambda: when(world), "the moment", one)
    if who != "operator" and world.phase == "Running":
        world.end("Failed")
    if who != "driver":
        one._client.close()
        one = world.operator(world.connect())
    world.until(lambda: world.goes_on_with("parser", "count", "leaf"), "the query comes", one)
    assert len(world.store.begins) == 2


def test_an_operator_that_dies_between_the_record_and_the_pod_leaves_no_trace(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = world.at_work()
    world.apply(LEAF)
    world.until(lambda: world.phase == "Succeeded", "drained", one)
    with monkeypatch.context() as dies:

        def killed(*_: Any) -> None:
            raise KeyboardInterrupt

        dies.setattr(world.api, "create", killed)
        with pytest.raises(KeyboardInterrupt):
            world.until(lambda: False, "", one)
    assert "leaf" in world.on_record()
    assert world.desired() is None
    one._client.close()
    world.until(
        lambda: world.goes_on_with("parser", "count", "leaf"), "goes on", world.operator(world.connect())
    )


@pytest.mark.wide
@pytest.mark.parametrize("restarted", [False, True])
def test_what_is_applied_between_two_drivers_is_not_said_to_be_in_effect(
    world: World, monkeypatch: pytest.MonkeyPatch, restarted: bool
) -> None:
    """The former driver has ended, and the next pod is made after a pause."""
    keeper = "reprise.controller.operator.pods.driver"
    monkeypatch.setattr(f"{keeper}.LONGEST_PAUSE_S", 1.0)
    one = world.at_work()
    with monkeypatch.context() as held:
        if (
            restarted
        ):  # the pod has gone while no operator was there, and the one that comes may not make another one
            held.setattr(f"{keeper}.DriverKeeper._without_user", lambda *_: "held up")
        world.end("Failed")
        world.until(lambda: world.made is None, "it is gone", one)
        world.apply(LEAF)
        if restarted:
            one._client.close()
            one = world.operator(world.connect())
        world.step(one)
        assert world.made is None
        assert world.conditions()["Reconciling"] == ("True", "SpecPending")
    world.until(lambda: world.goes_on_with("parser", "count", "leaf"), "the query comes", one)


def test_it_is_taken_back_while_the_stream_drains(world: World) -> None:
    one = world.at_work()
    world.apply(LEAF)
    world.until(lambda: world.drained is not None, "drained", one)
    world.apply()
    world.until(lambda: world.phase == "Running" and world.drained is None, "another driver", one)
    world.until(lambda: world.goes_on_with("parser", "count"), "the former queries go on", one)
    assert len(world.store.begins) == 1


def test_nodes_that_are_lost_while_it_drains_are_brought_back_first(world: World) -> None:
    one = world.at_work()
    world.idle = True
    world.apply(LEAF)
    world.until(lambda: "DrainAsked" in world.reasons(), "asked", one)
    assert (world.phase, world.drained) == ("Running", None)
    world.kill(next(iter(world.pods)))
    world.until(lambda: world.conditions()["Recovering"][0] == "True", "an incident", one)
    world.idle = False
    world.add("late")
    world.until(lambda: world.goes_on_with("parser", "count", "leaf"), "the query comes", one)
    assert len(world.store.begins) == 2


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"operators": "reads"}, "spec.operators[count].inputs: change"),
        (
            {"checkpoint": {"protocol": "uncoordinated", "log": "memory", "everyBatches": 4}},
            "spec.checkpoint.protocol",
        ),
        ({"batch": {"interval": "1s", "order": "arrival"}}, "spec.batch.order"),
    ],
)
def test_what_no_running_stream_takes_is_stalled_and_the_former_goes_on(
    world: World, spec: dict[str, Any], field: str, restarted: bool
) -> None:
    one = world.at_work()
    world.apply(**{"recovery": {"cpuCap": 61}})
    world.until(lambda: world.client.exists(f"{world.root}/{paths.SETTINGS}") is not None, "told", one)
    told = world.client.get(f"{world.root}/{paths.SETTINGS}")[0]
    if spec.get("operators"):
        moved = {**world.body["spec"]["operators"][1], "inputs": [{"from": "tweets", "by": ["user"]}]}
        world.apply(recovery={})
        world.body["spec"]["operators"][1] = moved
    else:
        world.apply(LEAF, recovery={}, **spec)
    if restarted:
        one._client.close()
        one = world.operator(world.connect())
    world.until(lambda: world.conditions()["Stalled"] == ("True", "SpecRefused"), "it is refused", one)
    assert field in world.message("Stalled")
    assert world.conditions()["Valid"] == ("False", "SpecRefused")
    horizon = world.horizon
    world.until(lambda: world.horizon > horizon + 5 and world.ready(), "the former goes on", one)
    assert world.uid == 1, "with the driver that it had"
    assert world.client.get(f"{world.root}/{paths.SETTINGS}")[0] == told, "and the settings that it had"
    world.apply(LEAF, checkpoint={"everyBatches": 4}, batch={"interval": "1s"})
    world.until(lambda: world.goes_on_with("parser", "count", "leaf"), "corrected", one)
    assert world.conditions()["Stalled"][0] == "False"
