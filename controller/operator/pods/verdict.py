"""One verdict on each node out of two witnesses, Kubernetes and ZooKeeper, that notice different things at different times.

| Kubernetes says | heartbeat | verdict |
|---|---|---|
| pod Failed or Succeeded (eviction, crash) | any | lost: the kubelet has seen it end |
| no such pod, but it was a member | any | lost: deleted; a process may live on where nobody sees it |
| pod being deleted, its grace is over | any | lost: nobody ends it |
| pod being deleted | there | leaving |
| machine unreachable, or no such machine | gone | lost |
| machine unreachable | there | suspect: the kubelet is ill, not the executor |
| pod Running, was a member | gone for a while | lost: dead or frozen below a kubelet that sees nothing |
| pod Running, never a member | gone | starting |
| pod Pending | gone | pending |
| anything else | not known | unknown, which changes nothing |

What is lost is fenced first (`reprise.controller.zookeeper.membership`) and then taken from the API server, because to
Spark a Running pod, even one that is being deleted, is an executor that lives.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from reprise.controller.kubernetes.pods import KubernetesNode, PodView
from reprise.controller.operator.heartbeat import Heartbeat


class State(StrEnum):
    ALIVE = "alive"
    PENDING = "pending"  # has no machine yet
    STARTING = "starting"  # has one, and no heartbeat yet
    LEAVING = "leaving"  # told to end
    SUSPECT = "suspect"
    LOST = "lost"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Verdict:
    state: State
    reason: str = ""


def judge(
    pod: PodView | None,
    machines: Mapping[str, KubernetesNode] | None,
    beat: Heartbeat | None,
    overdue: bool,
    patience_s: float,
) -> Verdict:
    """`pod` None: no such pod (any more).  `machines` None: Node objects may not be read.  `beat` None: ZooKeeper does
    not answer.  `overdue`: it was told to end, its grace is over, and nobody has ended it (`endings`).  `patience_s`: how
    long a heartbeat may be gone while ZooKeeper answers."""
    if pod is None:
        return Verdict(State.LOST, "the pod was deleted")
    said = _by_kubernetes(pod, beat, overdue)
    if said is not None:
        return said
    if beat is None:
        return Verdict(State.UNKNOWN, "ZooKeeper does not answer")
    machine = _unreachable(pod, machines)
    if beat.there:
        return Verdict(State.SUSPECT, machine) if machine else Verdict(State.ALIVE)
    return Verdict(State.LOST, machine) if machine else _silent(pod, beat, patience_s)


def _by_kubernetes(pod: PodView, beat: Heartbeat | None, overdue: bool) -> Verdict | None:
    """What its phase and deletion say, if they say anything."""
    if pod.ended:
        return Verdict(State.LOST, f"the pod has ended: {pod.disrupted or pod.reason or pod.phase}")
    if beat is not None and beat.fenced:
        return Verdict(State.LOST, "given up before")
    if pod.deleted_at is None:
        return None
    if overdue:
        return Verdict(State.LOST, "told to end, and nobody has ended it")
    leaving = beat is not None and beat.there
    return Verdict(State.LEAVING, pod.disrupted or "being deleted") if leaving else None


def _silent(pod: PodView, beat: Heartbeat, patience_s: float) -> Verdict:
    """A pod without heartbeat on a machine that seems well."""
    if not beat.member:
        return Verdict(State.STARTING if pod.machine else State.PENDING, pod.reason)
    if beat.gone_s < patience_s:
        return Verdict(State.SUSPECT, "no heartbeat")
    return Verdict(State.LOST, f"no heartbeat for {beat.gone_s:.1f} s")


def _unreachable(pod: PodView, machines: Mapping[str, KubernetesNode] | None) -> str:
    """Why the pod's machine is gone; empty when it is not, or nothing is known of machines."""
    if machines is None or not pod.machine:
        return ""
    machine = machines.get(pod.machine)
    if machine is None:
        return f"Kubernetes node {pod.machine} is gone"
    return "" if machine.reachable else f"Kubernetes node {pod.machine} is not ready"
