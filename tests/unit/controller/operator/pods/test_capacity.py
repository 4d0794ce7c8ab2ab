"""What room there is, who will come, and that the unknown is neither nothing nor plenty."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from reprise.controller.kubernetes.pods import KubernetesNode, PodView, kubernetes_node
from reprise.controller.operator.pods import capacity_forecaster
from reprise.controller.operator.pods.capacity import (
    LEAST_S,
    PROVISION_S,
    START_S,
    CapacityForecast,
    Demand,
    Expected,
    Load,
    Said,
    expected_of,
    load_view,
    room_for,
    said_of,
)
from reprise.controller.operator.pods.cluster_view import Cluster, ClusterView
from reprise.spark_jobs.topology import from_json
from tests.support.fake_api import FakeApi

NOW = 1_000.0
ONE = Demand(500)
WELL = KubernetesNode("m1", True, True, (), 2000)


def pod(name: str, machine: str = "", **more: Any) -> PodView:
    return PodView(name, "ns", "a", "executor", f"uid-{name}", machine, **more)


@pytest.mark.parametrize(
    ("machine", "demand", "used", "room"),
    [
        (WELL, ONE, 0, 4),
        (WELL, ONE, 600, 2),  # 1400 left
        (WELL, ONE, 5000, 0),  # promised before it shrank
        (replace(WELL, ready=None), ONE, 0, 0),
        (replace(WELL, schedulable=False), ONE, 0, 0),
        (replace(WELL, taints=("spot",)), ONE, 0, 0),
        (replace(WELL, taints=("spot",)), replace(ONE, tolerated=frozenset({"spot"})), 0, 4),
        (replace(WELL, taints=("spot", "gpu")), replace(ONE, tolerated=frozenset({"spot"})), 0, 0),
        (replace(WELL, taints=("spot", "gpu")), replace(ONE, tolerated=frozenset({"*"})), 0, 4),
        (WELL, replace(ONE, labels={"role": "worker"}), 0, 0),
        (replace(WELL, labels={"role": "worker"}), replace(ONE, labels={"role": "worker"}), 0, 4),
    ],
)
def test_room_on_one_machine(machine: KubernetesNode, demand: Demand, used: int, room: int) -> None:
    assert room_for(demand, [machine], {"m1": used}) == room


def test_room_is_counted_machine_by_machine() -> None:
    """Two halves do not make a whole."""
    halves = [replace(WELL, name=name, cpu_milli=700) for name in ("m1", "m2")]
    assert room_for(ONE, halves, {"m1": 300, "m2": 300}) == 0


def test_who_must_be_alone_shares_with_none_of_its_own() -> None:
    machines = [replace(WELL, name=name) for name in ("m1", "m2", "m3")]
    alone = replace(ONE, alone=True)
    assert room_for(alone, machines, {"m3": 1900}, frozenset({"m1"})) == 1


def test_an_executors_demand_is_the_topologys_and_sparks() -> None:
    body = yaml.safe_load(
        (Path(__file__).parents[5] / "examples" / "minimal.yaml").read_text(encoding="utf-8")
    )
    body["spec"]["nodes"] = {"count": 2, "cpu": "500m"}
    body["spec"]["spark"] = {"conf": {"spark.kubernetes.executor.node.selector.role": "worker"}}
    body["spec"]["kubernetes"] = {
        "nodeSelector": {"zone": "a"},
        "tolerations": [{"key": "spot", "operator": "Exists"}],
        "executor": {"spread": "required"},
    }
    found = capacity_forecaster.demand_of(from_json(json.dumps(body)))
    assert found == Demand(500, {"zone": "a", "role": "worker"}, frozenset({"spot"}), alone=True)


def test_a_taint_that_is_a_wish_keeps_nobody_off() -> None:
    taints = [{"key": "old", "effect": "PreferNoSchedule"}, {"key": "spot", "effect": "NoSchedule"}]
    assert kubernetes_node({"metadata": {"name": "m1"}, "spec": {"taints": taints}}).taints == ("spot",)


def test_what_a_pod_is_promised() -> None:
    def asks(cpu: str) -> dict[str, Any]:
        return {"resources": {"requests": {"cpu": cpu}}}

    spec = {"nodeName": "m1", "containers": [asks("100m"), asks("1"), {}], "overhead": {"cpu": "50m"}}
    assert load_view({"metadata": {"uid": "u"}, "spec": spec}) == Load("u", "m1", 1150)
    first = {**spec, "initContainers": [asks("3")]}
    assert load_view({"metadata": {"uid": "u"}, "spec": first}).cpu_milli == 3050
    assert (
        load_view({"metadata": {"uid": "u"}, "spec": spec, "status": {"phase": "Succeeded"}}).cpu_milli == 0
    )


def test_promises_are_summed_and_taken_back() -> None:
    cluster = Cluster(lambda _: None)
    cluster.load_changed(None, Load("a", "m1", 300))
    cluster.load_changed(None, Load("b", "m1", 200))
    cluster.load_changed(None, Load("c", "", 900))
    assert cluster.used == {"m1": 500}
    cluster.load_changed(Load("a", "m1", 300), Load("a", "m1", 0))
    cluster.load_changed(Load("b", "m1", 200), None)
    assert cluster.used == {}


def told(*pods: PodView, room: int | None = None, **said: Said) -> list[tuple[float | None, str]]:
    found = expected_of(pods, frozenset({"here"}), said, room, NOW)
    return [(e.in_s, e.why) for e in found]


def test_who_is_there_or_has_ended_is_not_waited_for() -> None:
    assert told(pod("here", "m1"), pod("e1", phase="Failed"), pod("e2", deleted_at=NOW)) == []


def test_a_pod_with_a_machine_is_starting() -> None:
    assert told(pod("e1", "m1", created_at=NOW - 4)) == [(START_S - 4, "starting on m1")]
    assert told(pod("e1", "m1", created_at=NOW - 100)) == [(LEAST_S, "starting on m1")]
    assert told(pod("e1", "m1", created_at=NOW - 400, phase="Running")) == [(LEAST_S, "starting on m1")]


def test_one_that_cannot_start_there_is_not_promised() -> None:
    """A missing Secret is in the container's state, a missing ConfigMap in Events alone: then only the time tells."""
    missing = 'CreateContainerConfigError: secret "a" not found'
    assert told(pod("e1", "m1", created_at=NOW - 4, reason=missing)) == [(None, missing)]
    late = pod("e1", "m1", created_at=NOW - 400, reason="ContainerCreating")
    ((in_s, why),) = told(late)
    assert in_s is None and why.startswith("ContainerCreating for 400 s; `kubectl describe pod e1`")
    assert told(replace(late, created_at=NOW - 4)) == [(START_S - 4, "starting on m1")]
    said = str(CapacityForecast(3, expected_of([late], frozenset(), {}, 3, NOW)))
    assert said.startswith("1 executors do not start: ContainerCreating for 400 s") and "(on m1)" in said
    assert "room" not in said


@pytest.mark.parametrize(
    ("executor", "room"),
    [
        ({}, 4),
        ({"topologySpreadConstraints": [{"topologyKey": "zone"}]}, 4),
        ({"topologySpreadConstraints": [{"topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}]}, None),
        ({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "pool", "operator": "Exists"}]}]}}}}, None),
    ],
)  # fmt: skip
def test_room_is_not_promised_where_more_than_labels_counts(
    executor: dict[str, Any], room: int | None
) -> None:
    body = yaml.safe_load(
        (Path(__file__).parents[5] / "examples" / "minimal.yaml").read_text(encoding="utf-8")
    )
    body["spec"]["nodes"] = {"count": 2, "cpu": "500m"}
    body["spec"]["kubernetes"] = {"executor": executor}
    one = capacity_forecaster.CapacityForecaster(FakeApi(), "ns")  # type: ignore[arg-type]
    waiting = pod("e1", "m1")
    one.look(
        from_json(json.dumps(body)), ClusterView({"e1": waiting}, {"m1": WELL}, used={"m1": 0}), frozenset()
    )
    assert one.forecast.room == room


def test_an_autoscaler_that_adds_a_machine_is_believed() -> None:
    word = Said("TriggeredScaleUp", "pod triggered scale-up: [{pool 1->3}]", NOW - 30)
    assert told(pod("e1"), e1=word) == [
        (PROVISION_S + START_S - 30, "cluster-autoscaler adds a Kubernetes node")
    ]


def test_an_autoscaler_that_adds_none_says_why() -> None:
    word = Said("NotTriggerScaleUp", "max node group size reached", NOW)
    assert told(pod("e1"), e1=word) == [
        (None, "cluster-autoscaler adds no Kubernetes node: max node group size reached")
    ]


def test_room_is_given_to_as_many_as_it_is_for() -> None:
    waits = "Unschedulable: 0/3 nodes are available"
    assert told(pod("e1", reason=waits), pod("e2", reason=waits), room=1) == [
        (START_S, "there is room for it"),
        (None, waits),
    ]


def test_without_a_word_nothing_is_promised() -> None:
    assert told(pod("e1")) == [(None, "the scheduler has said nothing yet")]


def event(reason: str, name: str, at: str, component: str = "cluster-autoscaler") -> dict[str, Any]:
    return {
        "involvedObject": {"kind": "Pod", "name": name},
        "reason": reason,
        "message": f"{reason} {at}",
        "lastTimestamp": at,
        "source": {"component": component},
    }


def test_the_newest_word_counts_and_the_schedulers_is_none() -> None:
    early, late = "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"
    found = said_of(
        [
            event("TriggeredScaleUp", "e1", late),
            event("NotTriggerScaleUp", "e1", early),
            event("FailedScheduling", "e2", late, "default-scheduler"),
            event("FailedScheduling", "e3", late, "karpenter"),
            event("Pulled", "e4", late, "kubelet"),
            {"involvedObject": {"kind": "Node"}, "reason": "TriggeredScaleUp"},
            {},
        ]
    )
    assert {name: word.reason for name, word in found.items()} == {
        "e1": "TriggeredScaleUp",
        "e3": "FailedScheduling",
    }


def test_the_outlook_says_whether_waiting_helps() -> None:
    soon, later = Expected("e1", 12.4, "starting on m1"), Expected("e2", 130.0, "an autoscaler")
    stuck = Expected("e3", None, "Unschedulable: taints")
    assert str(CapacityForecast(None)) == ""
    assert str(CapacityForecast(None, (later, soon))) == "2 nodes are expected, the first in about 12 s"
    assert str(CapacityForecast(0, (soon, stuck))) == (
        "1 nodes are expected, the first in about 12 s; 1 executors have no Kubernetes node: Unschedulable: taints"
    )


class EventApi(FakeApi):
    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    def list(self, _path: str, **_query: str) -> Any:
        self.asked += 1
        self._answer()
        return [event("TriggeredScaleUp", "e1", "2026-01-01T00:00:00Z")]


def test_events_are_asked_for_only_while_pods_wait_and_not_at_every_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = [100.0]
    monkeypatch.setattr(capacity_forecaster.time, "monotonic", lambda: clock[0])
    api = EventApi()
    one = capacity_forecaster.CapacityForecaster(api, "ns")  # type: ignore[arg-type]
    assert one._heard([pod("e1", "m1")]) == {}
    assert api.asked == 0
    assert one._heard([pod("e1")])["e1"].reason == "TriggeredScaleUp"
    one._heard([pod("e1")])
    assert api.asked == 1
    clock[0] += capacity_forecaster.ASK_S + 1
    api.away = True
    assert "e1" in one._heard([pod("e1")]), "what was known stands"
    assert api.asked == 2
