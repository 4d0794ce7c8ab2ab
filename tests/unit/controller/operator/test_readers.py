"""Pods and Nodes as Kubernetes gives them; whatever is missing is no error."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprise.controller.kubernetes.pods import kubernetes_node, milli, pod_view

POD: dict[str, Any] = {
    "metadata": {
        "name": "t-1-exec-3", "namespace": "ns", "uid": "u", "deletionTimestamp": "2026-01-02T03:04:05Z",
        "labels": {"reprise.dev/topology": "t", "reprise.dev/role": "executor"}, "annotations": {"a": "b"},
    },
    "spec": {
        "nodeName": "m1",
        "containers": [{"resources": {"requests": {"cpu": "250m"}}}, {"resources": {"requests": {"cpu": "1"}}}],
    },
    "status": {
        "phase": "Failed",
        "containerStatuses": [{"state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}],
        "conditions": [{"type": "DisruptionTarget", "reason": "PreemptionByScheduler"}],
    },
}  # fmt: skip


def test_a_pod() -> None:
    view = pod_view(POD)
    assert (view.name, view.topology, view.role, view.machine) == ("t-1-exec-3", "t", "executor", "m1")
    assert view.ended
    assert view.reason == "OOMKilled (exit code 137)"
    assert view.disrupted == "PreemptionByScheduler"
    assert view.cpu_milli == 1250
    assert view.deleted_at == 1767323045.0


def test_why_a_pod_has_no_machine() -> None:
    unscheduled = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/3 nodes",
    }
    view = pod_view({"metadata": {"name": "p"}, "status": {"phase": "Pending", "conditions": [unscheduled]}})
    assert view.reason == "Unschedulable: 0/3 nodes"
    assert view.deleted_at is None


@pytest.mark.parametrize(
    ("status", "ready", "reachable"),
    [("True", True, True), ("False", False, False), ("Unknown", None, False)],
)
def test_a_machine(status: str, ready: bool | None, reachable: bool) -> None:
    node = {
        "metadata": {"name": "m1"},
        "status": {"conditions": [{"type": "Ready", "status": status}], "allocatable": {"cpu": "3920m"}},
    }
    view = kubernetes_node(node)
    assert (view.ready, view.reachable, view.cpu_milli) == (ready, reachable, 3920)


def test_conditions_of_a_machine_that_are_true() -> None:
    """A heartbeat of theirs is no news."""

    def node(heartbeat: str) -> dict[str, Any]:
        said = {"lastHeartbeatTime": heartbeat, "lastTransitionTime": "2026-01-02T03:04:05Z"}
        conditions = [
            {"type": "Ready", "status": "True", **said},
            {"type": "Terminating", "status": "True", **said},
            {"type": "RebootScheduled", "status": "True"},
            {"type": "DiskPressure", "status": "False", **said},
            {"type": "VMEventScheduled", "status": "Unknown", **said},
        ]
        return {"metadata": {"name": "m1"}, "status": {"conditions": conditions}}

    view = kubernetes_node(node("2026-01-02T03:04:06Z"))
    assert view.conditions == {"Terminating": 1767323045.0, "RebootScheduled": None}
    assert view.ready
    assert kubernetes_node(node("2026-01-02T03:09:06Z")) == view


def test_a_cordoned_machine_is_reachable() -> None:
    node = {
        "metadata": {"name": "m1"},
        "spec": {"unschedulable": True, "taints": [{"key": "node.kubernetes.io/unschedulable"}]},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }
    assert kubernetes_node(node).reachable
    assert not kubernetes_node(node).schedulable


@pytest.mark.parametrize(
    ("text", "value"), [("1", 1000), ("250m", 250), ("0.5", 500), ("2k", 2_000_000), ("x", 0), ("", 0)]
)
def test_quantities(text: str, value: int) -> None:
    assert milli(text) == value


json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.dictionaries(
        st.sampled_from(["metadata", "spec", "status", "labels", "name", "phase"]), inner
    ),
    max_leaves=8,
)


@given(text=st.text(max_size=12))
def test_any_quantity_gives_a_number(text: str) -> None:
    assert isinstance(milli(text), int)


def test_an_empty_object_is_read() -> None:
    assert pod_view({}).phase == "Pending"
    assert kubernetes_node({}).ready is None
