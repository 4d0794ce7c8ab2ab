"""Judges the executors' pods of a topology by what Kubernetes and ZooKeeper say, and fences those that are lost.

It comes before the decision: a pod that Kubernetes has seen end, or has deleted, is fenced when its agent may still hold its
heartbeat, and the decision of the same look finds the node gone.  So a loss costs one look, whoever sees it first.  What
follows for the pod itself, its end in the API server, comes after the decision (`executors`), and only for what is fenced.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from reprise.controller.kubernetes.api import Api, collection
from reprise.controller.kubernetes.events import EventReason, Events
from reprise.controller.kubernetes.pods import KubernetesNode, PodView
from reprise.controller.operator.heartbeat import Heartbeat
from reprise.controller.operator.pods.endings import Endings
from reprise.controller.operator.pods.verdict import State, Verdict, judge
from reprise.controller.operator.records import Records
from reprise.controller.zookeeper.node_record import absence_counts_after_s

FORGET_S = 300.0
"""After this time the record of a pod that is gone is removed."""


@dataclass(frozen=True, slots=True)
class PodVerdicts:
    """What one look found of the executors' pods."""

    verdicts: Mapping[str, Verdict] = field(default_factory=dict)
    """Of the pods that there are, by name."""
    fenced: frozenset[str] = frozenset()
    """Pods that can never be a node again."""

    @property
    def here(self) -> frozenset[str]:
        """Pods that have come, whatever became of them."""
        coming = (State.PENDING, State.STARTING)
        return frozenset(name for name, verdict in self.verdicts.items() if verdict.state not in coming)

    @property
    def settled(self) -> bool:
        """Whether all are alive."""
        return all(verdict.state is State.ALIVE for verdict in self.verdicts.values())


@dataclass(slots=True)
class Witness:
    """Judges the pods of one topology."""

    api: Api
    namespace: str
    records: Records
    events: Events
    clock: Callable[[], float] = time.monotonic
    patience_s: float = absence_counts_after_s()
    """How long a heartbeat may be gone: as long as the coordinator, which fences sooner what the driver has lost, lets a
    node stand."""
    findings: PodVerdicts = field(default_factory=PodVerdicts)
    """Of the last look."""
    _members: frozenset[str] = frozenset()
    """Pods that were members and not fenced at the last look."""
    _gone_since: dict[str, float] = field(default_factory=dict)
    _endings: Endings = field(init=False)

    def __post_init__(self) -> None:
        self._endings = Endings(self.clock)

    def has_news(self, pods: Mapping[str, PodView]) -> bool:
        """Whether Kubernetes says that a pod is lost which still counts as a node.  Asks nobody, so that a look at a
        topology whose pods are well costs no request more."""
        fenced = self.findings.fenced
        ended = (p for p in pods.values() if p.ended or self._endings.overdue(p))
        return any(pod.name not in fenced for pod in ended) or not self._members <= pods.keys()

    def look(self, pods: Mapping[str, PodView], machines: Mapping[str, KubernetesNode] | None) -> PodVerdicts:
        """Judge all pods and fence those that are lost.  Raises SessionError and OperatorError."""
        beats = self.records.heartbeats()
        names = {*pods, *(beats or {})}
        self._endings.keep(pods.values())
        judged = {
            name: judge(pod, machines, _beat(beats, name), self._endings.overdue(pod), self.patience_s)
            for name, pod in ((name, pods.get(name)) for name in sorted(names))
        }
        fenced = set(self.findings.fenced & names)
        for name, verdict in judged.items():
            if verdict.state is not State.LOST or beats is None:
                continue
            if self._fence(name, pods.get(name), beats.get(name), verdict):
                fenced.add(name)
        if beats is not None:
            members = (name for name, beat in beats.items() if beat.member and not beat.fenced)
            self._members = frozenset(members) - fenced
        self.findings = PodVerdicts({n: v for n, v in judged.items() if n in pods}, frozenset(fenced))
        return self.findings

    def _fence(self, name: str, pod: PodView | None, beat: Heartbeat | None, verdict: Verdict) -> bool:
        """Whether the pod is fenced now."""
        fenced = beat is not None and beat.fenced
        if pod is None:
            return self._gone(name, beat, fenced)
        if not fenced or (beat is not None and beat.there):
            self.records.fence(name, verdict.reason)
            self.events.note(EventReason.NODE_LOST, f"{name}: {verdict.reason}", warning=True)
        return True

    def _gone(self, name: str, beat: Heartbeat | None, fenced: bool) -> bool:
        """No pod of that name is known; a watch may lag behind, so ask before giving it up."""
        if not fenced:
            if self.api.find(f"{collection(self.namespace, 'pods')}/{name}") is not None:
                return False
            self.records.fence(name, "the pod was deleted")
            self.events.note(EventReason.NODE_LOST, f"{name}: the pod was deleted", warning=True)
            return True
        if beat is not None and beat.there:
            self.records.fence(name, "the pod was deleted")
        since = self._gone_since.setdefault(name, self.clock())
        if self.clock() - since > FORGET_S:
            self.records.forget(name)
            del self._gone_since[name]
        return True


def _beat(beats: Mapping[str, Heartbeat] | None, name: str) -> Heartbeat | None:
    return None if beats is None else beats.get(name, Heartbeat(there=False, member=False))
