"""What is done about drivers and executors, in which order, and that a step taken twice does no harm."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from reprise.algorithms.failure import Failure
from reprise.controller.kubernetes.errors import BudgetError, ForbiddenError
from reprise.controller.kubernetes.events import Events
from reprise.controller.kubernetes.pods import KubernetesNode, PodView, pod_view
from reprise.controller.operator.heartbeat import Heartbeat
from reprise.controller.operator.pods import manifests
from reprise.controller.operator.pods.drain import Drain
from reprise.controller.operator.pods.driver import DriverKeeper
from reprise.controller.operator.pods.endings import OVERDUE_S
from reprise.controller.operator.pods.executors import evict_lost
from reprise.controller.operator.pods.verdict import State, Verdict
from reprise.controller.operator.pods.witness import Witness
from reprise.controller.operator.pods.zk_mounts import AGAIN_S, SOON_S
from reprise.controller.operator.settings import OperatorSettings
from reprise.controller.zookeeper.observation import Observation
from reprise.controller.zookeeper.process_records import Spec
from reprise.controller.zookeeper.users import Keys
from reprise.scheduler.model import Desired, Progress
from reprise.spark_jobs.topology import StreamTopology, from_json, override
from tests.support.fake_api import FakeApi

EXAMPLE = Path(__file__).parents[5] / "examples" / "minimal.yaml"
SETTINGS = OperatorSettings(namespace="ops", identity="op-1", zk="zk:2181", image="reprise:1")
BODY = {
    "apiVersion": "reprise.dev/v1alpha1",
    "kind": "StreamTopology",
    "metadata": {"name": "minimal", "uid": "u1"},
}
PODS = "/api/v1/namespaces/default/pods"
WELL = {"m1": KubernetesNode("m1", True, True)}


def topology(**spec: Any) -> StreamTopology:
    body = yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))
    body["spec"] |= spec
    return from_json(json.dumps(body))


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def keeper(api: FakeApi, clock: Clock | None = None) -> DriverKeeper:
    events = Events(api, "default", manifests.owner(BODY))  # type: ignore[arg-type]
    return DriverKeeper(api, SETTINGS, manifests.owner(BODY), events, clock or time.monotonic)  # type: ignore[arg-type]


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


def test_what_a_driver_reads_is_not_changed_below_it(clock: Clock) -> None:
    """The watch lags, the spec changes: the running driver would make executors of the new template, with other code."""
    api = FakeApi()
    one = keeper(api, clock)
    one.look(topology(), None, WELL, recovering=False)
    api.calls.clear()
    clock.now += 60
    one.look(topology(batch={"interval": "7s"}), None, WELL, recovering=False)
    assert api.calls == []


def test_a_driver_that_does_not_start_says_what_it_needs() -> None:
    """A kubelet tells of a missing ConfigMap in Events alone, and of a missing Secret in the container's state."""
    secret = {"name": "topology-a", "valueFrom": {"secretKeyRef": {"name": "topology-a", "key": "k"}}}
    resource = topology(
        kubernetes={
            "code": {"configMap": "topology-code", "sha256": "0" * 64},
            "executor": {"env": [secret | {"name": "A"}]},
            "volumes": [{"secret": "topology-b", "mountPath": "/b"}, {"claim": "data", "mountPath": "/data"}],
        }
    )
    waiting = {"reason": "CreateContainerConfigError", "message": 'secret "topology-a" not found'}
    one = keeper(FakeApi())
    pod = driver_of(resource, phase="Pending", containerStatuses=[{"state": {"waiting": waiting}}])
    one.look(resource, pod, WELL, recovering=False)
    assert one.problem == (
        'the driver\'s pod is Pending: CreateContainerConfigError: secret "topology-a" not found; on its Kubernetes node '
        "it needs the image reprise:1, the ConfigMap topology-code, the Secret topology-a, the Secret topology-b, "
        "the claim data"
    )
    one.look(resource, replace(pod, machine="", reason="Unschedulable: no room"), WELL, recovering=False)
    assert one.problem == "the driver's pod is Pending: Unschedulable: no room"


def test_a_topology_s_user_is_there_before_its_driver() -> None:
    """The Secret is created and nothing else: the operator may not read, change or remove one."""
    api = FakeApi()
    one, asked = keeper(api), Asked()
    one.settings = replace(SETTINGS, zk_keys=Keys("k" * 32))
    one.drain = Drain(asked, one.events, time.monotonic)
    one.look(topology(), None, WELL, recovering=False)
    verbs = [(v, p.rpartition("/")[0]) for v, p, _ in api.calls if "events" not in p]
    secrets = "/api/v1/namespaces/default/secrets"
    assert verbs[0] == ("create", secrets) and verbs[-1] == ("create", PODS) and asked.closed == 1
    (made,) = [body for path, body in api.objects.items() if path.startswith(secrets)]
    (volume,) = [v for v in api.objects[f"{PODS}/minimal-driver"]["spec"]["volumes"] if "secret" in v]
    assert volume["secret"]["secretName"] == made["metadata"]["name"]
    assert made["metadata"]["ownerReferences"][0]["uid"] == "u1" and made["immutable"] is True
    before = dict(api.objects)
    del api.objects[f"{PODS}/minimal-driver"]
    again = keeper(api)
    again.settings = one.settings
    again.look(
        topology(), None, WELL, recovering=False
    )  # another operator, to which the Secret is a conflict
    assert api.objects.keys() == before.keys()


class NoSecrets(FakeApi):
    """One whose operator may not create Secrets, as long as `refused` is true."""

    refused = True

    def create(self, path: str, body: Any) -> Any:
        if self.refused and path.endswith("/secrets"):
            raise ForbiddenError(403, "secrets is forbidden")
        return super().create(path, body)


def with_users(api: FakeApi, clock: Clock) -> DriverKeeper:
    one = keeper(api, clock)
    one.settings = replace(SETTINGS, zk_keys=Keys("k" * 32))
    return one


def running(resource: StreamTopology, settings: OperatorSettings) -> PodView:
    made = manifests.driver_pod(resource, settings, manifests.owner(BODY), "minimal-abc")
    made["metadata"]["uid"] = "pod-uid"
    made["spec"]["nodeName"] = "m1"
    made["status"] = {"phase": "Running"}
    return pod_view(made)


def secrets_of(api: FakeApi) -> list[str]:
    return [path for path in api.objects if "/secrets/" in path]


def test_without_the_right_to_make_its_user_no_driver_is_started(clock: Clock) -> None:
    api, resource = NoSecrets(), topology()
    one = with_users(api, clock)
    one.look(resource, None, WELL, recovering=False)
    assert api.verbs("pods") == []
    assert one.problem.startswith("no driver is started: the Secret reprise-zookeeper-minimal-")
    assert "secrets is forbidden" in one.problem
    assert api.verbs("/events") != []
    api.refused = False
    clock.now += SOON_S
    one.look(resource, None, WELL, recovering=False)
    assert api.verbs("pods") == ["create"] and len(secrets_of(api)) == 1


def test_a_driver_runs_on_until_its_successor_s_user_is_there(clock: Clock) -> None:
    """Users are turned on, and the right to make them was forgotten."""
    api, resource = NoSecrets(), topology(upgrade="replay")
    one = with_users(api, clock)
    former = driver_of(resource)
    for _ in range(3):
        one.look(resource, former, WELL, recovering=False)
        clock.now += SOON_S
    assert api.verbs("pods") == []
    assert one.problem.startswith("the driver goes on with the former spec: the Secret ")
    assert one.outdated
    api.refused = False
    one.look(resource, former, WELL, recovering=False)
    assert api.verbs("/secrets/") == ["create"] and api.verbs("pods") == ["delete"]


@pytest.mark.parametrize(("pods_wait", "seconds"), [(False, AGAIN_S), (True, SOON_S)])
def test_a_secret_that_somebody_deletes_is_made_again(clock: Clock, pods_wait: bool, seconds: float) -> None:
    api, resource = FakeApi(), topology()
    one = with_users(api, clock)
    one.pods_wait, pod = pods_wait, running(resource, one.settings)
    one.look(resource, pod, WELL, recovering=False)
    (path,) = secrets_of(api)
    del api.objects[path]
    clock.now += seconds - 1
    one.look(resource, pod, WELL, recovering=False)
    assert secrets_of(api) == [], "it is not asked for at each look"
    clock.now += 1
    one.look(resource, pod, WELL, recovering=False)
    assert secrets_of(api) == [path]
    clock.now += seconds
    one.look(resource, pod, WELL, recovering=False)
    assert secrets_of(api) == [path] and one.problem == "", "one that is there is no problem"


def test_a_write_that_cannot_be_spared_for_a_secret_that_was_there_holds_nothing_up(clock: Clock) -> None:
    api, resource = FakeApi(), topology()
    one = with_users(api, clock)
    pod = running(resource, one.settings)
    api.spent = True
    with pytest.raises(BudgetError):
        one.look(resource, pod, WELL, recovering=False)
    api.spent = False
    one.look(resource, pod, WELL, recovering=False)
    api.spent = True
    clock.now += AGAIN_S
    one.look(resource, pod, WELL, recovering=False)
    assert one.problem == ""


def test_another_key_is_another_driver() -> None:
    keys = [None, Keys("k" * 32), Keys("j" * 32)]
    revisions = {manifests.revision(topology(), replace(SETTINGS, zk_keys=key)) for key in keys}
    assert len(revisions) == 3


def test_a_driver_that_runs_is_left_alone() -> None:
    api, resource = FakeApi(), topology()
    one = keeper(api)
    one.look(resource, driver_of(resource), WELL, recovering=False)
    assert api.calls == []
    assert one.problem == ""


def test_a_driver_that_ended_is_replaced_later_and_later(clock: Clock) -> None:
    api, resource = FakeApi(), topology()
    one, pauses = keeper(api, clock), []
    for number in range(8):
        one.look(resource, None, WELL, recovering=False)
        assert f"{PODS}/minimal-driver" in api.objects
        failed = replace(driver_of(resource, phase="Failed"), uid=f"pod-{number}")
        one.look(resource, failed, WELL, recovering=False)
        assert f"{PODS}/minimal-driver" not in api.objects
        assert "ended" in one.problem
        began = clock.now
        while f"{PODS}/minimal-driver" not in api.objects:
            clock.now += 0.5
            one.look(resource, None, WELL, recovering=False)
        pauses.append(clock.now - began)
        del api.objects[f"{PODS}/minimal-driver"]
        clock.now += 3.0
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


@pytest.mark.parametrize("path", ["output.priority", "output.priorities", "resources.cpu"])
def test_what_queries_are_worth_and_partitions_take_needs_no_new_driver(path: str) -> None:
    """A person may raise a priority in the middle of a recovery: it must not cost a recovery of everything afterwards."""
    other = {"output.priority": 9, "output.priorities": {"1": 9}, "resources.cpu": "30m"}[path]
    changed = override(topology(), {f"operators[count].{path}": other})
    assert changed != topology()
    assert manifests.revision(topology(), SETTINGS) == manifests.revision(changed, SETTINGS)


@pytest.mark.parametrize("change", [{"bufferMemory": "128Mi"}, {"bufferDisk": "8Gi"}])
def test_buffers_of_another_size_need_a_new_driver_though_its_pods_have_their_size(
    change: dict[str, str],
) -> None:
    pods = {"executor": {"memory": "2Gi", "storage": "16Gi"}}
    before, after = topology(kubernetes=pods), topology(kubernetes=pods, recovery=change)
    assert manifests.revision(before, SETTINGS) != manifests.revision(after, SETTINGS)


def test_a_driver_on_a_lost_machine_is_forced_off() -> None:
    api, resource = FakeApi(), topology()
    gone = driver_of(resource)
    keeper(api).look(resource, gone, {}, recovering=True)
    assert [(v, b) for v, p, b in api.calls if p.startswith(PODS)] == [
        ("delete", {"uid": "pod-uid", "grace_s": 0})
    ]


def forced(api: FakeApi, name: str = "minimal-driver") -> list[int | None]:
    """Grace of each deletion."""
    return [b["grace_s"] for v, p, b in api.calls if v == "delete" and p == f"{PODS}/{name}"]


def told_to_end(pod: PodView, grace_s: float = 10.0) -> PodView:
    """As the API server shows it; its clock is ahead by an hour."""
    return replace(pod, deleted_at=time.time() + 3600, grace_s=grace_s)


def reasons(api: FakeApi) -> list[str]:
    return [b["reason"] for _, p, b in api.calls if "events" in p]


def hear(one: DriverKeeper, clock: Clock, seconds: int, report: int | None = None) -> None:
    """A look a second; without `report` the driver reports each time."""
    for _ in range(seconds):
        clock.now += 1.0
        one.silence.heard(int(clock.now) if report is None else report)


def test_without_node_objects_a_driver_that_nobody_ends_is_forced_off(clock: Clock) -> None:
    api, resource = FakeApi(), topology()
    one = keeper(api, clock)
    ending = told_to_end(driver_of(resource))
    one.look(resource, ending, None, recovering=True)
    clock.now += 10.0 + OVERDUE_S
    one.look(resource, ending, None, recovering=True)
    assert forced(api) == []  # a kubelet that lives would end it within its grace
    clock.now += 0.1
    one.look(resource, ending, None, recovering=True)
    assert [(v, b) for v, p, b in api.calls if p.startswith(PODS)] == [
        ("delete", {"uid": "pod-uid", "grace_s": 0})
    ]
    assert "DriverLost" in reasons(api)
    one.look(resource, None, None, recovering=True)
    assert f"{PODS}/minimal-driver" in api.objects


def test_a_driver_that_was_silent_before_it_is_told_to_end_is_forced_off_at_once(clock: Clock) -> None:
    api, resource = FakeApi(), topology()
    one, running = keeper(api, clock), driver_of(resource)
    one.look(resource, running, None, recovering=False)
    hear(one, clock, 3)
    hear(one, clock, 45, report=1)  # Kubernetes takes so long to find a machine unreachable
    one.look(resource, running, None, recovering=False)
    assert forced(api) == []
    one.look(resource, told_to_end(running), None, recovering=False)
    assert forced(api) == [0]


def test_a_driver_that_ends_in_the_orderly_way_is_not_forced(clock: Clock) -> None:
    api, resource = FakeApi(), topology()
    one, running = keeper(api, clock), driver_of(resource)
    one.look(resource, running, None, recovering=False)
    hear(one, clock, 3)
    hear(one, clock, 10, report=1)  # it has stopped its publisher, and goes on with its end
    one.look(resource, told_to_end(running), None, recovering=False)
    assert forced(api) == []
    assert one.problem == "the driver is ending"


def test_a_silent_driver_is_said_to_be_so_ended_and_then_forced(clock: Clock) -> None:
    api, resource = FakeApi(), topology()
    one, running = keeper(api, clock), driver_of(resource)
    one.look(resource, running, None, recovering=True)
    hear(one, clock, 3)
    hear(one, clock, 60, report=1)
    one.look(resource, running, None, recovering=True)
    assert (forced(api), one.problem) == ([], "")
    hear(one, clock, 2, report=1)
    assert one.silent
    one.look(resource, running, None, recovering=True)
    assert forced(api) == [None]
    assert reasons(api) == ["DriverSilent"]
    assert "silent" in one.problem
    ending = told_to_end(running)
    one.look(resource, ending, None, recovering=True)
    assert forced(api) == [None]  # where its kubelet lives, that ends it
    assert "silent" in one.problem
    clock.now += 10.0 + OVERDUE_S + 0.1
    one.look(resource, ending, None, recovering=True)
    assert forced(api) == [None, 0]


def turns_told(one: DriverKeeper, clock: Clock, seconds: int, turns: int, driver: str = "1") -> None:
    """A look a second; the driver reports each time that its loop has begun so many turns."""
    for _ in range(seconds):
        clock.now += 1.0
        told = Progress(driver, turns=turns, turn_limit_s=100.0)
        one.heard(Observation(clock.now, connected=True, progress=told, report=int(clock.now)))


def test_a_driver_that_reports_while_its_loop_hangs_is_ended_and_its_successor_is_not(clock: Clock) -> None:
    api, resource = FakeApi(), topology()
    one, running = keeper(api, clock), driver_of(resource)
    one.look(resource, running, None, recovering=True)
    for number in range(3):  # a long job after the other: the loop turns
        turns_told(one, clock, 90, turns=number)
        one.look(resource, running, None, recovering=True)
    assert (forced(api), one.problem) == ([], "")
    turns_told(one, clock, 12, turns=2)
    one.look(resource, running, None, recovering=True)
    assert (forced(api), reasons(api)) == ([None], ["DriverHung"])
    assert "hangs" in one.problem
    assert "no turn for 101 s" in one.problem
    one.look(resource, told_to_end(running), None, recovering=True)
    assert "hangs" in one.problem
    another = replace(running, uid="another")
    one.look(resource, another, None, recovering=True)
    left = Progress("1", turns=2, turn_limit_s=100.0)  # the last report of the one before
    one.loop.heard(clock.now, left, int(clock.now))
    turns_told(one, clock, 5, turns=1, driver="2")
    one.look(resource, another, None, recovering=True)
    assert forced(api) == [None]


@pytest.mark.parametrize("kind", ["away", "stopped", "new pod", "starting"])
def test_silence_that_has_another_reason_ends_no_driver(clock: Clock, kind: str) -> None:
    api, resource = FakeApi(), topology()
    one, running = keeper(api, clock), driver_of(resource)
    one.look(resource, running, WELL, recovering=False)
    if kind != "starting":
        hear(one, clock, 3)
    hear(one, clock, 50, report=1)
    if kind == "away":  # ZooKeeper did not answer in between: whose silence was it?
        one.silence.heard(None)
    if kind == "stopped":  # this operator was: it has not seen what it missed
        clock.now += 3600.0
        one.silence.heard(2)
    if kind == "new pod":
        running = replace(running, uid="another")
        one.look(resource, running, WELL, recovering=False)
    hear(one, clock, 50, report=1)
    one.look(resource, running, WELL, recovering=False)
    assert forced(api) == []
    hear(one, clock, 260, report=1)  # but none may be silent for ever
    one.look(resource, running, WELL, recovering=False)
    assert forced(api) == [None]


def test_an_hour_that_this_operator_slept_counts_for_a_quarter_of_the_limit(clock: Clock) -> None:
    one = keeper(FakeApi(), clock)
    one.silence.follow("d1")
    hear(one, clock, 3)
    hear(one, clock, 40, report=1)
    clock.now += 3600.0
    one.silence.heard(1)
    assert not one.silent
    hear(one, clock, 10, report=1)
    assert one.silent


def test_the_end_of_a_driver_counts_once_however_often_it_is_seen(clock: Clock) -> None:
    api, resource = FakeApi(), topology()
    one = keeper(api, clock)
    for _ in range(8):
        one.look(resource, driver_of(resource, phase="Failed"), WELL, recovering=False)
    assert reasons(api) == ["DriverEnded"]
    clock.now += 1.1
    one.look(resource, None, WELL, recovering=False)
    assert f"{PODS}/minimal-driver" in api.objects


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


class Executors:
    """What one operator sees of the executors, and does about it."""

    def __init__(self, api: FakeApi, records: FakeRecords, clock: Clock | None) -> None:
        self._api: Any = api
        self._events = Events(self._api, "default", manifests.owner(BODY))
        anything: Any = records
        self.witness = Witness(self._api, "default", anything, self._events, clock or time.monotonic)

    def look(self, pods: Mapping[str, PodView], machines: Mapping[str, KubernetesNode] | None) -> None:
        evict_lost(self._api, self._events, pods, self.witness.look(pods, machines))

    @property
    def verdicts(self) -> Mapping[str, Verdict]:
        return self.witness.findings.verdicts


def executors(api: FakeApi, records: FakeRecords, clock: Clock | None = None) -> Executors:
    return Executors(api, records, clock)


def executor(name: str, phase: str = "Running") -> PodView:
    return PodView(name, "default", "minimal", "executor", f"uid-{name}", "m1", phase)


def test_fence_then_failed_then_deleted() -> None:
    order: list[str] = []
    api, records = FakeApi(), FakeRecords({"e1": Heartbeat(there=False, member=True, gone_s=9)})
    records.log = order
    one = executors(api, records)
    one.look({"e1": executor("e1")}, {"m1": KubernetesNode("m1", None, True)})
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


def test_an_executor_that_nobody_ends_is_fenced_and_forced_whatever_the_clocks_say(clock: Clock) -> None:
    api, records = FakeApi(), FakeRecords({"e1": Heartbeat(there=True, member=True)})
    one, ending = executors(api, records, clock), told_to_end(executor("e1"))
    one.look({"e1": ending}, None)
    assert one.verdicts["e1"].state is State.LEAVING
    clock.now += 10.0 + OVERDUE_S + 0.1
    one.look({"e1": ending}, None)
    assert records.log == ["fence e1"]
    assert forced(api, "e1") == [0]


def test_a_lost_pod_is_ended_again_until_it_is_gone() -> None:
    api, records = FakeApi(), FakeRecords({"e1": Heartbeat(there=False, member=True, fenced=True)})
    one = executors(api, records)
    one.look({"e1": executor("e1")}, WELL)
    one.look({"e1": executor("e1", "Failed")}, WELL)
    assert records.log == []
    assert api.verbs(f"{PODS}/e1") == ["patch", "delete"]


def test_kubernetes_has_news_until_the_pod_that_ended_or_went_is_fenced() -> None:
    api, records = FakeApi(), FakeRecords({"e1": Heartbeat(True, True), "e2": Heartbeat(True, True)})
    one = executors(api, records).witness
    pods = {"e1": executor("e1"), "e2": executor("e2")}
    one.look(pods, WELL)
    assert not one.has_news(pods)
    ended = {**pods, "e1": executor("e1", "Failed")}
    assert one.has_news(ended)
    one.look(ended, WELL)
    assert records.log == ["fence e1"]
    assert not one.has_news(ended), "it is dealt with, and costs no further look"
    del ended["e2"]
    assert one.has_news(ended)
    one.look(ended, WELL)
    assert records.log == ["fence e1", "fence e2"]
    assert not one.has_news({})


class Asked:
    """Stands for the records: what drivers were asked, and what is on record now."""

    def __init__(self, now: Observation | None = None) -> None:
        self.drivers: list[str] = []
        self.spec: Spec | None = None
        self.closed = 0
        self.now = now or Observation(0.0, connected=True)

    def observe(self) -> Observation:
        return self.now

    def ask_to_drain(self, driver: str) -> None:
        self.drivers.append(driver)

    @property
    def started_with(self) -> StreamTopology | None:
        return None if self.spec is None else from_json(self.spec.document)

    def former(self) -> Spec | None:
        return self.spec

    def started(self, spec: Spec) -> None:
        self.spec = spec

    def close_to_others(self) -> None:
        self.closed += 1


def seen(driver: str = "3", paused: bool = False, **progress: Any) -> Observation:
    desired = Desired(5, 1, 0, driver, paused=paused)
    return Observation(
        0.0, connected=True, progress=Progress(driver, horizon=40, checkpoint=30, **progress), desired=desired
    )


def reports(one: DriverKeeper, pod: PodView) -> None:
    """The driver in this pod replaces the report that was there."""
    one.silence.follow(pod.uid)
    one.silence.heard(1)
    one.silence.heard(2)


def changed(image: str) -> StreamTopology:
    return topology(kubernetes={"image": image})


def test_changed_code_waits_for_a_drain_and_then_takes_the_drivers_place(clock: Clock) -> None:
    api = FakeApi()
    one, asked = keeper(api, clock), Asked()
    one.drain = Drain(asked, one.events, clock)
    running, wanted = driver_of(topology()), changed("app:2")
    reports(one, running)
    one.look(wanted, running, WELL, recovering=True, seen=seen())
    assert not asked.drivers, "never in the middle of a recovery"
    for _ in range(3):
        one.look(wanted, running, WELL, recovering=False, seen=seen())
    assert asked.drivers == ["3"]
    assert one.problem == "the spec has changed, and the driver drains: the last checkpoint (30 of batch 40)"
    assert not [p for v, p, _ in api.calls if v == "delete"]
    clock.now += 1000.0
    one.look(wanted, running, WELL, recovering=False, seen=seen())
    assert not [p for v, p, _ in api.calls if v == "delete"], "it is never forced"
    assert "DrainWaits" in {body["reason"] for v, p, body in api.calls if "/events/" in p}
    done = replace(running, phase="Succeeded")
    one.look(wanted, done, WELL, recovering=False, seen=seen())
    assert [p for v, p, _ in api.calls if v == "delete"] == [f"{PODS}/minimal-driver"]
    one.look(wanted, None, WELL, recovering=False, seen=seen())
    made = api.objects[f"{PODS}/minimal-driver"]
    assert made["spec"]["containers"][0]["image"] == "app:2", "without a pause"


def test_a_new_life_that_still_has_the_old_code_is_asked_anew(clock: Clock) -> None:
    one, asked = keeper(FakeApi(), clock), Asked()
    one.drain = Drain(asked, one.events, clock)
    wanted = changed("app:2")
    reports(one, driver_of(topology()))
    for life in ("3", "3", "4"):
        one.look(wanted, driver_of(topology()), WELL, recovering=False, seen=seen(life))
    assert asked.drivers == ["3", "4"]


@pytest.mark.parametrize(
    ("state", "said"),
    [
        (seen(paused=True), "a paused topology takes no checkpoint"),
        (
            seen(failed={"a.0": Failure.parse("poison: operator a")}),
            "while a.0 is set aside; `upgrade: replay`",
        ),
        (Observation(0.0), "when it reports"),
    ],
)
def test_what_a_drain_waits_for_is_said(clock: Clock, state: Observation, said: str) -> None:
    one = keeper(FakeApi(), clock)
    one.drain = Drain(Asked(), one.events, clock)
    reports(one, driver_of(topology()))
    one.look(changed("app:2"), driver_of(topology()), WELL, recovering=False, seen=state)
    assert said in one.problem


@pytest.mark.parametrize(
    "change",
    [
        {"batch": {"interval": "9s"}},
        {"spark": {"executorMemory": "777Mi"}},
        {"upgrade": "replay", "kubernetes": {"image": "app:2"}},
    ],
)
def test_a_change_that_makes_no_batch_differently_or_may_needs_no_drain(change: dict[str, Any]) -> None:
    api = FakeApi()
    one, asked = keeper(api), Asked()
    one.drain = Drain(asked, one.events)
    one.look(topology(**change), driver_of(topology()), WELL, recovering=False, seen=seen())
    assert [p for v, p, _ in api.calls if v == "delete"] == [f"{PODS}/minimal-driver"]
    assert not asked.drivers


def image_of(api: FakeApi) -> str:
    found: str = api.objects[f"{PODS}/minimal-driver"]["spec"]["containers"][0]["image"]
    return found


@pytest.mark.parametrize("drained", [None, 40])
def test_a_driver_that_dies_while_it_drains_is_followed_by_one_with_the_former_spec(
    clock: Clock, drained: int | None
) -> None:
    api, asked = FakeApi(), Asked()
    one = keeper(api, clock)
    one.drain = Drain(asked, one.events, clock)
    one.look(topology(), None, WELL, recovering=False, seen=Observation(0.0))
    former = image_of(api)
    del api.objects[f"{PODS}/minimal-driver"]
    clock.now += 60.0
    other = keeper(api, clock)  # another operator, that knows the new spec alone
    other.drain = Drain(asked, other.events, clock)
    state = asked.now = seen(drained=drained)
    other.look(changed("app:2"), None, WELL, recovering=False, seen=state)
    assert image_of(api) == ("app:2" if drained else former)
    pod = pod_view({**api.objects[f"{PODS}/minimal-driver"], "status": {"phase": "Running"}})
    reports(other, pod)
    other.look(changed("app:2"), pod, WELL, recovering=False, seen=state)
    assert asked.drivers == ([] if drained else ["3"]), "and that one is drained"


def test_a_former_spec_that_is_to_be_replayed_or_makes_the_same_is_not_started_again(clock: Clock) -> None:
    for spec in ({"upgrade": "replay", "kubernetes": {"image": "app:2"}}, {"batch": {"interval": "9s"}}):
        api, asked = FakeApi(), Asked(seen())
        asked.spec = Spec(topology().document, SETTINGS.image)
        one = keeper(api, clock)
        one.drain = Drain(asked, one.events, clock)
        wanted = topology(**spec)
        one.look(wanted, None, WELL, recovering=False, seen=seen())
        made = api.objects[f"{PODS}/minimal-driver"]["metadata"]["annotations"]
        assert made[manifests.REVISION] == manifests.revision(wanted, SETTINGS)
        assert asked.spec == Spec(wanted.document, image_of(api))


def test_a_driver_follows_settings_in_place_but_one_that_knows_of_none_is_replaced() -> None:
    before = topology()
    pod, wanted = driver_of(before), override(before, {"checkpoint.everyBatches": 4, "recovery.cpuCap": 71})
    for follows, replaced in (("abc", False), ("", True)):
        api = FakeApi()
        one = keeper(api)
        seen = Observation(1.0, connected=True, report=7, progress=Progress("1", settings=follows))
        one.silence.follow(pod.uid)
        for report in (6, 7):
            one.heard(replace(seen, report=report))
        one.look(wanted, pod, WELL, recovering=False, seen=seen)
        assert one.outdated == replaced
        assert bool([c for c in api.calls if c[0] == "delete"]) == replaced
        one.look(override(before, {"recovery.cpuCap": 71}), pod, WELL, recovering=False, seen=seen)
        assert not one.outdated, "what the coordinator alone reads needs no other driver"
