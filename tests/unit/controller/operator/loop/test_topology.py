"""One topology's controller with its records in a real ZooKeeper: what people are told, in each mode and at each step.

The driver is a function that does what the desired state asks for; the API server remembers what it was told.
"""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from reprise.controller.kubernetes.pods import PodView
from reprise.controller.local.cluster.zookeeper import ZooKeeperServer
from reprise.controller.operator.loop.decider import Decider
from reprise.controller.operator.loop.topology import TopologyController
from reprise.controller.operator.pods import manifests
from reprise.controller.operator.pods.actor import Actor
from reprise.controller.operator.pods.cluster_view import ClusterView
from reprise.controller.operator.records import Records
from reprise.controller.operator.settings import OperatorSettings
from reprise.controller.zookeeper import membership
from reprise.controller.zookeeper.client import make_client
from reprise.controller.zookeeper.node_record import NodeRecord, encode_node
from reprise.controller.zookeeper.records import parse_desired
from reprise.controller.zookeeper.session import ZooKeeperSession
from reprise.scheduler.model import Desired
from tests.support.fake_api import FakeApi
from tests.support.zookeeper import server_fixture

pytestmark = pytest.mark.slow
EXAMPLE = Path(__file__).parents[5] / "examples" / "minimal.yaml"
WAIT_S = 60.0


class Scene:
    """A topology with its nodes, its driver, and as many operators as a test makes."""

    def __init__(self, server: ZooKeeperServer, namespace: str) -> None:
        self.server, self.api = server, FakeApi()
        self.settings = OperatorSettings(
            namespace="ops", identity="op-1", zk=server.hosts, image="i", session_s=0.1, settle_s=0.1
        )
        self.clients: list[ZooKeeperSession] = []
        self.client = self.connect()
        self.body: dict[str, Any] = yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))
        self.body["metadata"] |= {"namespace": namespace, "uid": f"uid-{namespace}", "generation": 1}
        self.root = f"/reprise/{namespace}/minimal"
        self.switches: dict[str, bool] = {}
        self.pods: dict[str, PodView] = {}
        self._stood: dict[str, Any] = {}
        self.frozen = False
        """The driver's process is stopped: it says nothing, and its pod is Running."""
        self.raised: dict[str, str] = {}
        """Partitions whose code has raised, and does until they begin anew -> what."""

    def connect(self) -> ZooKeeperSession:
        client = make_client(self.server.hosts, 60.0)
        client.start(timeout=300)
        self.clients.append(client)
        return client

    def operator(self, client: ZooKeeperSession | None = None) -> TopologyController:
        return TopologyController(self.api, client or self.client, self.settings, self.body, lambda: None)  # type: ignore[arg-type]

    def add(self, *pods: str) -> None:
        """Executors that have registered."""
        self.client.ensure_path(f"{self.root}/nodes")
        self.client.ensure_path(f"{self.root}/{membership.FOLDER}")
        for pod in pods:
            self.client.create(membership.path_of(self.root, pod), membership.joined())
            record = NodeRecord(pod, "127.0.0.1", 1, 1, 100, time.time())
            self.client.create(f"{self.root}/nodes/{pod}", encode_node(record), ephemeral=True)
            namespace = self.body["metadata"]["namespace"]
            self.pods[pod] = PodView(pod, namespace, "minimal", "executor", f"uid-{pod}", "m1", "Running")

    def kill(self, *pods: str) -> None:
        for pod in pods:
            self.client.delete(f"{self.root}/nodes/{pod}")
            del self.pods[pod]

    def step(self, *operators: TopologyController) -> None:
        """One look of each, and the driver's answer."""
        view = ClusterView(dict(self.pods), None, **self.switches)
        for one in operators:
            one.decide(self.body, view)
            one.reconcile(view)
        self.drive()

    def until(self, condition: Callable[[], object], what: str, *operators: TopologyController) -> None:
        deadline = time.monotonic() + WAIT_S
        while not condition():
            assert time.monotonic() < deadline, (what, self.conditions(), self.reasons())
            self.step(*operators)

    def desired(self) -> Desired | None:
        path = f"{self.root}/desired"
        return parse_desired(self.client.get(path)[0]) if self.client.exists(path) else None

    def drive(self) -> None:
        """Everything that is placed on a living node is at the horizon; a checkpoint is complete when all are."""
        if self.frozen or not self.client.exists(f"{self.root}/nodes"):
            return
        nodes = {f"{pod}#1" for pod in self.client.get_children(f"{self.root}/nodes")}
        desired, every = self.desired(), ["tweets.0", "parser.0", "count.0", "count.1"]
        report: dict[str, Any] = {"driver": "1", "nodes": sorted(nodes)}
        if desired is not None:
            placed = [p for p in every if desired.assignment.get(p) in nodes]
            self.raised = {
                p: why for p, why in self.raised.items() if p not in desired.anew or p not in placed
            }
            placed = [p for p in placed if p not in self.raised]
            horizon = int(self._stood.get("horizon", 0)) + 1
            report |= {
                "seq": desired.seq, "generation": desired.generation, "horizon": horizon,
                "positions": dict.fromkeys(placed, horizon), "checkpoint": self._stood.get("checkpoint", 0),
                "failed": {p: self.raised.get(p, "lost") for p in every if p not in placed},
            }  # fmt: skip
            if len(placed) == len(every) and desired.punctuate:
                report["checkpoint"] = horizon
                self.client.ensure_path(f"{self.root}/checkpoints/{horizon}")
        self._stood = report
        self.client.ensure_path(f"{self.root}/progress")
        self.client.set(f"{self.root}/progress", json.dumps(report).encode())

    def conditions(self) -> dict[str, tuple[str, str]]:
        written = [b for v, p, b in self.api.calls if v == "apply" and p.endswith("minimal/status")]
        found = written[-1]["status"]["conditions"] if written else []
        return {c["type"]: (c["status"], c["reason"]) for c in found}

    def message(self, kind: str) -> str:
        """Of a condition."""
        written = [b for v, p, b in self.api.calls if v == "apply" and p.endswith("minimal/status")]
        return next(c["message"] for c in written[-1]["status"]["conditions"] if c["type"] == kind)

    def closed(self) -> int:
        """Incidents that are over."""
        return len(self.client.get_children(f"{self.root}/incidents"))

    def reasons(self) -> set[str]:
        """Of the Events so far."""
        return {b["reason"] for _, p, b in self.api.calls if "/events/" in p}

    def running(self) -> TopologyController:
        """An operator whose topology runs on three nodes, with nothing open."""
        one = self.operator()
        self.add("e1", "e2", "e3")
        self.until(lambda: self.conditions().get("Ready") == ("True", "AllQueriesAvailable"), "ready", one)
        self.until(lambda: self.conditions()["Recovering"][0] == "False", "nothing open", one)
        return one


server = pytest.fixture(scope="module")(server_fixture)


@pytest.fixture
def scene(
    server: ZooKeeperServer, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Scene]:
    monkeypatch.setattr("reprise.controller.operator.status.reporter.PUBLISH_S", 0.0)
    monkeypatch.setattr("reprise.controller.operator.status.approval.ASK_S", 0.0)
    found = Scene(server, re.sub("[^a-z0-9]+", "-", request.node.name.lower())[-50:].strip("-"))
    yield found
    for client in found.clients:
        client.close()


def test_a_burst_is_recovered_and_told(scene: Scene) -> None:
    one = scene.running()
    scene.kill("e1", "e2")
    scene.until(lambda: scene.conditions()["Recovering"][0] == "True", "an incident", one)
    scene.add("e4", "e5")
    scene.until(lambda: scene.conditions()["Recovering"][0] == "False", "it is closed", one)
    assert scene.conditions()["Ready"][0] == "True"
    assert {"NodeLost", "PlanMade"} <= scene.reasons()
    assert {"e1", "e2"}.isdisjoint({n.partition("#")[0] for n in scene.desired().assignment.values()})  # type: ignore[union-attr]


@pytest.mark.parametrize("how", ["failed", "deleted"])
def test_a_loss_that_kubernetes_sees_first_is_decided_in_the_same_look(scene: Scene, how: str) -> None:
    """The heartbeat of the pod is still there: the kubelet has seen the pod end, or its object is gone."""
    one = scene.running()
    pod, seq = scene.pods["e1"], scene.desired().seq  # type: ignore[union-attr]
    scene.pods["e1"] = replace(pod, phase="Failed")
    if how == "deleted":
        del scene.pods["e1"]
    assert scene.client.exists(f"{scene.root}/nodes/e1")
    written = len(scene.api.calls)
    decision = one.decide(scene.body, ClusterView(dict(scene.pods), None))
    assert decision is not None
    assert decision.incident is not None, "one look sees the loss, fences the pod and opens the incident"
    assert [lost.node for lost in decision.incident.lost] == ["e1#1"]
    assert not scene.client.exists(f"{scene.root}/nodes/e1")
    assert scene.desired().seq > seq  # type: ignore[union-attr]
    assert [verb for verb, _, _ in scene.api.calls[written:]] == [], (
        "a decision waits for no write to the API server"
    )


def test_a_look_reads_each_record_once(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a topology in an incident: what is decided, done and shown rests on one reading."""
    one = scene.running()
    scene.kill("e1", "e2")
    scene.until(lambda: scene.conditions()["Recovering"][0] == "True", "an incident", one)
    view, asked = ClusterView(dict(scene.pods), None), Counter[str]()
    one.decide(scene.body, view)
    one.reconcile(view)

    def counted(method: str) -> Callable[..., Any]:
        real = getattr(scene.client, method)

        def ask(path: str, *rest: Any, **more: Any) -> Any:
            asked[path.removeprefix(f"{scene.root}/")] += 1
            return real(path, *rest, **more)

        return ask

    for method in ("get_async", "get_children_async", "exists_async"):
        monkeypatch.setattr(scene.client, method, counted(method))
    one.decide(scene.body, view)
    one.reconcile(view)
    assert one.state.observation is not None
    assert one.state.observation.incident is not None
    assert {"progress", "plans", "incidents", "members"} <= asked.keys()
    assert {path: count for path, count in asked.items() if count > 1} == {}


def test_recommended_plans_wait_for_approval(scene: Scene) -> None:
    one = scene.running()
    scene.switches["recommend"] = True
    before = scene.desired()
    scene.kill("e1", "e2")
    scene.until(lambda: scene.conditions()["Ready"] == ("False", "AwaitingApproval"), "it waits", one)
    assert "PlanProposed" in scene.reasons()
    assert scene.desired().assignment == before.assignment  # type: ignore[union-attr]
    (path,) = [
        p
        for p in scene.api.objects
        if "recoveryplans" in p and p.count("-") >= 3 and "Proposed" in _state(scene, p)
    ]
    scene.api.objects[path]["metadata"]["annotations"] = {"reprise.dev/approved": "true"}
    scene.until(lambda: scene.desired().assignment != before.assignment, "it is carried out", one)  # type: ignore[union-attr]
    assert "PlanApproved" in scene.reasons()


def _state(scene: Scene, path: str) -> str:
    written = [b for v, p, b in scene.api.calls if v == "apply" and p == f"{path}/status"]
    return str(written[-1]["status"]["state"]) if written else ""


@pytest.mark.parametrize("everywhere", [False, True])
def test_pausing_is_told_and_taken_back(scene: Scene, everywhere: bool) -> None:
    one = scene.running()

    def pause(value: bool) -> None:
        if everywhere:
            scene.switches["paused"] = value
        else:
            scene.body = {**scene.body, "spec": {**scene.body["spec"], "paused": value}}
            scene.body["metadata"] = {
                **scene.body["metadata"],
                "generation": scene.body["metadata"]["generation"] + 1,
            }

    pause(True)
    scene.until(lambda: scene.conditions()["Paused"] == ("True", "Asked"), "it says so", one)
    scene.until(lambda: scene.desired().paused, "the driver is told", one)  # type: ignore[union-attr]
    assert "Asked" in scene.reasons()
    pause(False)
    scene.until(lambda: scene.conditions()["Paused"][0] == "False", "it goes on", one)
    scene.until(lambda: not scene.desired().paused, "the driver is told", one)  # type: ignore[union-attr]


def test_a_spec_changed_in_the_middle_waits_for_the_end(scene: Scene) -> None:
    one = scene.running()
    path = f"/api/v1/namespaces/{scene.body['metadata']['namespace']}/pods/minimal-driver"
    made = scene.api.objects[path]
    driver = PodView(
        "minimal-driver", scene.body["metadata"]["namespace"], "minimal", "driver", "uid-d", "m1", "Running",
        annotations=made["metadata"]["annotations"],
    )  # fmt: skip
    scene.pods["minimal-driver"] = driver
    scene.kill("e1", "e2")
    scene.until(lambda: scene.conditions()["Recovering"][0] == "True", "an incident", one)
    scene.body = {**scene.body, "spec": {**scene.body["spec"], "batch": {"interval": "2s"}}}
    scene.body["metadata"] = {**scene.body["metadata"], "generation": 2}
    scene.until(lambda: "SpecChangePostponed" in scene.reasons(), "it waits", one)
    assert path in scene.api.objects
    scene.add("e4", "e5")
    scene.until(lambda: path not in scene.api.objects, "the driver is restarted", one)
    assert "DriverRestarted" in scene.reasons()
    assert scene.conditions()["Recovering"][0] == "False"
    assert driver.annotations[manifests.REVISION]


def test_a_driver_that_reports_no_more_is_said_to_be_silent_and_ended(scene: Scene) -> None:
    scene.settings = replace(scene.settings, driver_silent_s=1.0)
    one = scene.running()
    path = f"/api/v1/namespaces/{scene.body['metadata']['namespace']}/pods/minimal-driver"
    annotations = scene.api.objects[path]["metadata"]["annotations"]
    scene.pods["minimal-driver"] = PodView(
        "minimal-driver", "default", "minimal", "driver", "uid-d", "m1", "Running", annotations=annotations
    )
    scene.until(lambda: one.driver.silence.reported and one.driver.problem == "", "its reports are seen", one)
    scene.frozen = True
    scene.until(lambda: path not in scene.api.objects, "it is ended", one)
    scene.until(lambda: scene.conditions()["Degraded"] == ("True", "DriverDown"), "it is said", one)
    assert "DriverSilent" in scene.reasons()


def test_a_spec_that_cannot_run_is_refused_and_the_old_one_goes_on(scene: Scene) -> None:
    one = scene.running()
    source = {**scene.body["spec"]["sources"][0], "parallelism": 0}
    scene.body = {**scene.body, "spec": {**scene.body["spec"], "sources": [source]}}
    scene.body["metadata"] = {**scene.body["metadata"], "generation": 2}
    scene.until(lambda: scene.conditions()["Valid"] == ("False", "SpecRefused"), "it is refused", one)
    assert scene.conditions()["Ready"][0] == "True"
    assert "SpecRefused" in scene.reasons()


def test_two_operators_at_once_decide_each_thing_once(scene: Scene) -> None:
    one, other = scene.running(), scene.operator(scene.connect())
    before = scene.closed()
    scene.kill("e1", "e2")
    scene.until(lambda: scene.conditions()["Recovering"][0] == "True", "an incident", one, other)
    scene.add("e4", "e5")
    scene.until(lambda: scene.conditions()["Recovering"][0] == "False", "it is closed", other, one)
    assert scene.closed() == before + 1
    one.end()  # the leader goes in the middle: the other one goes on
    scene.kill("e4", "e5")
    scene.add("e6", "e7")
    scene.until(lambda: scene.closed() == before + 2, "the other goes on", other)


def test_a_deletion_removes_pods_and_records(scene: Scene) -> None:
    one = scene.running()
    scene.body["metadata"] = {**scene.body["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
    assert not one.finalize(0.0, 20.0), "the driver is told to end"
    assert one.finalize(1.0, 20.0)
    assert scene.client.exists(scene.root) is None


def test_a_deletion_without_zookeeper_ends_and_says_what_it_left(scene: Scene) -> None:
    one = scene.running()
    scene.client.close()
    assert not one.finalize(0.0, 20.0), "the driver is told to end"
    assert not one.finalize(5.0, 20.0), "it waits for ZooKeeper"
    assert one.finalize(21.0, 20.0)
    assert "RecordsLeft" in scene.reasons()


@pytest.mark.parametrize("step", [(Decider, "decide"), (Actor, "act"), (Records, "observe")])
def test_a_defect_in_a_step_is_in_the_status_until_the_step_works(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, step: tuple[type, str]
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise KeyError("nobody foresaw this")

    one, view = scene.running(), ClusterView(dict(scene.pods), None)
    with monkeypatch.context() as broken:
        broken.setattr(*step, fails)
        one.decide(scene.body, view)
        one.reconcile(view)
    assert scene.conditions()["Observed"][0] == "False"
    assert scene.conditions()["Ready"][0] == "Unknown"
    assert "defect of the operator: KeyError: 'nobody foresaw this'" in scene.message("Observed")
    scene.until(lambda: scene.conditions()["Ready"] == ("True", "AllQueriesAvailable"), "ready", one)


def test_without_zookeeper_nothing_is_decided_and_it_says_so(scene: Scene) -> None:
    one = scene.running()
    scene.client.close()
    view = ClusterView(dict(scene.pods), None)
    one.decide(scene.body, view)
    one.reconcile(view)
    assert scene.conditions()["Observed"] == ("False", "NoAnswer")
    assert scene.conditions()["Ready"][0] == "Unknown"
    assert "NoAnswer" in scene.reasons()
    assert not [p for v, p, _ in scene.api.calls if v in ("patch", "delete") and "/pods/e" in p]
