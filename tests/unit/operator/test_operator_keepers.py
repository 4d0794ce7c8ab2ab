"""What is done about drivers and executors, in which order, and that a step taken twice does no harm."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from fake_api import FakeApi

from controller.operator import manifests
from controller.operator.driver import DriverKeeper
from controller.operator.events import Events
from controller.operator.executors import ExecutorKeeper
from controller.operator.pods import Machine, PodView, pod_view
from controller.operator.settings import OperatorSettings
from controller.operator.verdict import Heartbeat, State
from spark_jobs.topology import StreamTopology, from_json

EXAMPLE = Path(__file__).parents[3] / "examples" / "minimal.yaml"
SETTINGS = OperatorSettings(namespace="ops", identity="op-1", zk="zk:2181", image="reprise:1")
BODY = {
    "apiVersion": "reprise.dev/v1alpha1",
    "kind": "StreamTopology",
    "metadata": {"name": "minimal", "uid": "u1"},
}
PODS = "/api/v1/namespaces/default/pods"
WELL = {"m1": Machine("m1", True, True)}


def topology(**spec: Any) -> StreamTopology:
    body = yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))
    body["spec"] |= spec
    return from_json(json.dumps(body))


def keeper(api: FakeApi) -> DriverKeeper:
    events = Events(api, "default", manifests.owner(BODY))  # type: ignore[arg-type]
    return DriverKeeper(api, SETTINGS, manifests.owner(BODY), events)  # type: ignore[arg-type]


def driver_of(resource: StreamTopology, **more: Any) -> PodView:
    made = manifests.driver_pod(resource, SETTINGS, manifests.owner(BODY), "minimal-abc")
    made["metadata"]["uid"] = "pod-uid"
    made["spec"]["nodeName"] = "m1"
    made["status"] = {"phase": "Running", **more}
    return pod_view(made)


def test_a_driver_is_created_once_with_its_config_first() -> None:
    api = FakeApi()
    one = keeper(api)
    one.look(topology(), None, WELL, recovering=False)
    one.look(topology(), None, WELL, recovering=False)  # the watch has not told yet
    writes = [(v, p) for v, p, _ in api.calls if "events" not in p]
    assert writes == [
        ("apply", "/api/v1/namespaces/default/configmaps/minimal-driver"),
        ("create", f"{PODS}/minimal-driver"),
    ]
    pod = api.objects[f"{PODS}/minimal-driver"]
    assert pod["metadata"]["ownerReferences"][0]["uid"] == "u1"
    assert pod["metadata"]["ownerReferences"][0]["controller"] is True


def test_a_driver_that_runs_is_left_alone() -> None:
    api, resource = FakeApi(), topology()
    one = keeper(api)
    one.look(resource, driver_of(resource), WELL, recovering=False)
    assert api.calls == []
    assert one.problem == ""


def test_a_driver_that_ended_is_replaced_later_and_later(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("controller.operator.driver.time.monotonic", lambda: now)
    api, resource = FakeApi(), topology()
    one, pauses = keeper(api), []
    for _ in range(8):
        one.look(resource, None, WELL, recovering=False)
        assert f"{PODS}/minimal-driver" in api.objects
        one.look(resource, driver_of(resource, phase="Failed"), WELL, recovering=False)
        assert f"{PODS}/minimal-driver" not in api.objects
        assert "ended" in one.problem
        began = now
        while f"{PODS}/minimal-driver" not in api.objects:
            now += 0.5
            one.look(resource, None, WELL, recovering=False)
        pauses.append(now - began)
        del api.objects[f"{PODS}/minimal-driver"]
        now += 3.0
    assert pauses == sorted(pauses)
    assert pauses[0] <= 2.0
    assert pauses[-1] <= 60.5


def test_a_new_spec_waits_for_the_end_of_the_incident() -> None:
    api, old, new = FakeApi(), topology(), topology(batch={"interval": "2s"})
    one, running = keeper(api), driver_of(topology())
    assert manifests.revision(old, SETTINGS) != manifests.revision(new, SETTINGS)
    one.look(new, running, WELL, recovering=True)
    assert api.verbs(PODS) == []
    assert [b["reason"] for _, p, b in api.calls if "events" in p] == ["SpecChangePostponed"]
    one.look(new, running, WELL, recovering=False)
    assert api.verbs(PODS) == ["delete"]


@pytest.mark.parametrize("change", [{"paused": True}, {"recovery": {"correlatedNodes": 3}}])
def test_what_the_coordinator_alone_reads_needs_no_new_driver(change: dict[str, Any]) -> None:
    assert manifests.revision(topology(), SETTINGS) == manifests.revision(topology(**change), SETTINGS)


def test_a_driver_on_a_lost_machine_is_forced_off() -> None:
    api, resource = FakeApi(), topology()
    gone = driver_of(resource)
    keeper(api).look(resource, gone, {}, recovering=True)
    assert [(v, b) for v, p, b in api.calls if p.startswith(PODS)] == [
        ("delete", {"uid": "pod-uid", "grace_s": 0})
    ]


class FakeRecords:
    def __init__(self, beats: dict[str, Heartbeat] | None) -> None:
        self.beats = beats
        self.log: list[str] = []

    def heartbeats(self) -> dict[str, Heartbeat] | None:
        return self.beats

    def fence(self, pod: str, reason: str) -> None:
        self.log.append(f"fence {pod}")
        assert self.beats is not None
        self.beats[pod] = Heartbeat(there=False, member=True, fenced=True)

    def forget(self, pod: str) -> None:
        self.log.append(f"forget {pod}")


def executors(api: FakeApi, records: FakeRecords) -> ExecutorKeeper:
    events = Events(api, "default", manifests.owner(BODY))  # type: ignore[arg-type]
    return ExecutorKeeper(api, "default", records, events)  # type: ignore[arg-type]


def executor(name: str, phase: str = "Running") -> PodView:
    return PodView(name, "default", "minimal", "executor", f"uid-{name}", "m1", phase)


def test_fence_then_failed_then_deleted() -> None:
    order: list[str] = []
    api, records = FakeApi(), FakeRecords({"e1": Heartbeat(there=False, member=True, gone_s=9)})
    records.log = order
    one = executors(api, records)
    one.look({"e1": executor("e1")}, {"m1": Machine("m1", None, True)})
    assert order == ["fence e1"]
    calls = [(v, p.removeprefix(PODS), b) for v, p, b in api.calls if p.startswith(PODS)]
    assert calls[0][:2] == ("patch", "/e1/status")
    assert calls[0][2]["status"]["phase"] == "Failed"
    assert calls[1] == ("delete", "/e1", {"uid": "uid-e1", "grace_s": 0})


def test_without_zookeeper_nothing_is_ended() -> None:
    api, records = FakeApi(), FakeRecords(None)
    one = executors(api, records)
    one.look({"e1": executor("e1"), "e2": executor("e2", "Failed")}, {})
    assert api.calls == []
    assert one.verdicts["e1"].state is State.UNKNOWN


def test_a_pod_that_the_watch_does_not_know_yet_is_not_given_up() -> None:
    api = FakeApi({f"{PODS}/e1": {"metadata": {"name": "e1"}}})
    records = FakeRecords({"e1": Heartbeat(there=True, member=True)})
    executors(api, records).look({}, WELL)
    assert records.log == []
    api.objects.clear()
    executors(api, records).look({}, WELL)
    assert records.log == ["fence e1"]


def test_a_lost_pod_is_ended_again_until_it_is_gone() -> None:
    api, records = FakeApi(), FakeRecords({"e1": Heartbeat(there=False, member=True, fenced=True)})
    one = executors(api, records)
    one.look({"e1": executor("e1")}, WELL)
    one.look({"e1": executor("e1", "Failed")}, WELL)
    assert records.log == []
    assert api.verbs(f"{PODS}/e1") == ["patch", "delete"]
