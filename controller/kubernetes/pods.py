"""What Kubernetes says of pods and machines: total readers from JSON to frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from reprise.controller.crd.convert import TOPOLOGY_LABEL
from reprise.controller.crd.crds import GROUP
from reprise.spark_jobs.topology.quantity import parse_cpu

ROLE_LABEL = f"{GROUP}/role"
LOST_TAINTS = ("node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready")
"""What Kubernetes puts on a machine whose kubelet is silent, or says that it is ill."""

USUAL = ("ContainerCreating", "PodInitializing")
"""What a kubelet says of each container that is about to start."""


@dataclass(frozen=True, slots=True)
class PodView:
    """One pod of a topology."""

    name: str
    namespace: str
    topology: str
    role: str
    """driver | executor"""
    uid: str
    machine: str = ""
    """Name of the Node it is bound to; empty while it is not."""
    phase: str = "Pending"
    reason: str = ""
    """Why it failed, or why it is not scheduled, or has not started on its machine."""
    deleted_at: float | None = None
    """When its grace period ends, seconds since the epoch by the API server's clock; None when it is not being deleted."""
    grace_s: float = 0.0
    """The grace period itself, of a pod that is being deleted."""
    disrupted: str = ""
    """Reason of the condition DisruptionTarget: it will be, or was, ended from outside (eviction, taint, preemption)."""
    cpu_milli: int = 0
    created_at: float | None = None
    annotations: Mapping[str, str] = field(default_factory=dict)

    @property
    def ended(self) -> bool:
        return self.phase in ("Failed", "Succeeded")


@dataclass(frozen=True, slots=True)
class KubernetesNode:
    """One Node object."""

    name: str
    ready: bool | None
    """None: its kubelet has not answered for so long that Kubernetes does not know."""
    schedulable: bool
    taints: tuple[str, ...] = ()
    cpu_milli: int = 0
    """Allocatable."""
    uid: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    conditions: Mapping[str, float | None] = field(default_factory=dict)
    """Type of each condition that is True, but Ready -> since when, seconds since the epoch by the clock of who says so;
    None: that is not said."""

    @property
    def reachable(self) -> bool:
        return self.ready is True and not any(key in LOST_TAINTS for key in self.taints)


def pod_view(pod: Mapping[str, Any]) -> PodView:
    """Read a pod with the project's labels."""
    meta, spec, status = pod.get("metadata", {}), pod.get("spec", {}), pod.get("status", {})
    labels = meta.get("labels") or {}
    conditions = {c.get("type"): c for c in status.get("conditions") or []}
    unscheduled = conditions.get("PodScheduled", {})
    reason = status.get("reason") or _ended(status) or _waits(status) or ""
    if not reason and unscheduled.get("status") == "False":
        reason = f"{unscheduled.get('reason', '')}: {unscheduled.get('message', '')}"[:200]
    return PodView(
        name=str(meta.get("name", "")),
        namespace=str(meta.get("namespace", "")),
        topology=str(labels.get(TOPOLOGY_LABEL, "")),
        role=str(labels.get(ROLE_LABEL, "")),
        uid=str(meta.get("uid", "")),
        machine=str(spec.get("nodeName") or ""),
        phase=str(status.get("phase") or "Pending"),
        reason=str(reason),
        deleted_at=seconds(meta.get("deletionTimestamp")),
        grace_s=float(meta.get("deletionGracePeriodSeconds") or 0.0),
        disrupted=str(conditions.get("DisruptionTarget", {}).get("reason", "")),
        cpu_milli=sum(_requested(c) for c in spec.get("containers") or []),
        created_at=seconds(meta.get("creationTimestamp")),
        annotations={k: v for k, v in (meta.get("annotations") or {}).items() if k.startswith(f"{GROUP}/")},
    )


def kubernetes_node(node: Mapping[str, Any]) -> KubernetesNode:
    """Read a Node object."""
    spec, status = node.get("spec", {}), node.get("status", {})
    conditions = {str(c.get("type", "")): c for c in status.get("conditions") or []}
    ready = conditions.pop("Ready", {}).get("status")
    return KubernetesNode(
        name=str(node.get("metadata", {}).get("name", "")),
        ready={"True": True, "False": False}.get(str(ready)),
        schedulable=not spec.get("unschedulable", False),
        taints=tuple(
            str(t.get("key", "")) for t in spec.get("taints") or [] if t.get("effect") != "PreferNoSchedule"
        ),
        cpu_milli=milli((status.get("allocatable") or {}).get("cpu", "0")),
        uid=str(node.get("metadata", {}).get("uid", "")),
        labels=dict(node.get("metadata", {}).get("labels") or {}),
        conditions={
            kind: seconds(c.get("lastTransitionTime"))
            for kind, c in conditions.items()
            if c.get("status") == "True"
        },
    )


def milli(quantity: object) -> int:
    """A CPU quantity in thousandths of a core; 0 for what is none."""
    try:
        return round(parse_cpu(str(quantity)) * 1000)
    except ValueError:
        return 0


def _requested(container: Mapping[str, Any]) -> int:
    return milli(((container.get("resources") or {}).get("requests") or {}).get("cpu", "0"))


def _ended(status: Mapping[str, Any]) -> str | None:
    for container in status.get("containerStatuses") or []:
        ended = (container.get("state") or {}).get("terminated")
        if ended is not None:
            said = str(ended.get("message") or "").strip().rpartition("\n")[2][:500]
            reason = f"{ended.get('reason', 'Ended')} (exit code {ended.get('exitCode')})"
            return f"{reason}: {said}" if said else reason
    return None


def _waits(status: Mapping[str, Any]) -> str | None:
    """Why a container has not started, in the kubelet's words: no such image, no such Secret."""
    for container in status.get("containerStatuses") or []:
        waiting = (container.get("state") or {}).get("waiting")
        if waiting is not None and waiting.get("reason"):
            said = str(waiting.get("message") or "").strip()[:200]
            return f"{waiting['reason']}: {said}" if said else str(waiting["reason"])
    return None


def seconds(text: object) -> float | None:
    """A time of an API object, since the epoch; None for what is none."""
    try:
        return datetime.fromisoformat(str(text)).timestamp() if text else None
    except ValueError:
        return None
