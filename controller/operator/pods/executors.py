"""Looks after the executors' pods of a topology: one verdict on each, and an end for those that are lost.

Order matters.  First the fence, so that the pod can never be a node again; then its end in the API server, phase Failed
before the forced deletion, because that is what makes Spark drop the executor at once and ask for another one (a
Running pod is alive to it, whatever its machine says).  Each step is taken again until it is seen to be done.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from reprise.controller.kubernetes.api import Api, collection
from reprise.controller.kubernetes.errors import NotFoundError
from reprise.controller.kubernetes.events import Events
from reprise.controller.kubernetes.pods import KubernetesNode, PodView
from reprise.controller.operator.heartbeat import Heartbeat
from reprise.controller.operator.pods.endings import Endings
from reprise.controller.operator.pods.verdict import State, Verdict, judge
from reprise.controller.operator.records import Records
from reprise.controller.zookeeper.node_record import absence_counts_after_s

FORGET_S = 300.0
"""After this time the record of a pod that is gone is removed."""


@dataclass(slots=True)
class ExecutorKeeper:
    """The executors of one topology."""

    api: Api
    namespace: str
    records: Records
    events: Events
    clock: Callable[[], float] = time.monotonic
    patience_s: float = absence_counts_after_s()
    """How long a heartbeat may be gone: as long as the coordinator, which fences sooner what the driver has lost, lets a
    node stand."""
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    _gone_since: dict[str, float] = field(default_factory=dict)
    _endings: Endings = field(init=False)

    def __post_init__(self) -> None:
        self._endings = Endings(self.clock)

    def look(self, pods: Mapping[str, PodView], machines: Mapping[str, KubernetesNode] | None) -> None:
        """Judge all and end the lost.  Raises SessionError and OperatorError."""
        beats = self.records.heartbeats()
        names = {*pods, *(beats or {})}
        self._endings.keep(pods.values())
        judged = {
            name: judge(pod, machines, _beat(beats, name), self._endings.overdue(pod), self.patience_s)
            for name, pod in ((name, pods.get(name)) for name in sorted(names))
        }
        for name, verdict in judged.items():
            if verdict.state is State.LOST and beats is not None:
                self._end(name, pods.get(name), beats.get(name), verdict)
        self.verdicts = {name: v for name, v in judged.items() if name in pods}

    def _end(self, name: str, pod: PodView | None, beat: Heartbeat | None, verdict: Verdict) -> None:
        fenced = beat is not None and beat.fenced
        if pod is None:
            self._gone(name, beat, fenced)
            return
        if not fenced or (beat is not None and beat.there):
            self.records.fence(name, verdict.reason)
            self.events.say("NodeLost", f"{name}: {verdict.reason}", warning=True)
        if not pod.ended:
            self._evict(pod, verdict)

    def _gone(self, name: str, beat: Heartbeat | None, fenced: bool) -> None:
        """No pod of that name is known; a watch may lag behind, so ask before giving it up."""
        if not fenced:
            if self.api.find(f"{collection(self.namespace, 'pods')}/{name}") is None:
                self.records.fence(name, "the pod was deleted")
                self.events.say("NodeLost", f"{name}: the pod was deleted", warning=True)
            return
        if beat is not None and beat.there:
            self.records.fence(name, "the pod was deleted")
        since = self._gone_since.setdefault(name, self.clock())
        if self.clock() - since > FORGET_S:
            self.records.forget(name)
            del self._gone_since[name]

    def _evict(self, pod: PodView, verdict: Verdict) -> None:
        path = f"{collection(self.namespace, 'pods')}/{pod.name}"
        status = {"phase": "Failed", "reason": "NodeLost", "message": verdict.reason}
        try:
            self.api.patch(f"{path}/status", {"status": status, "metadata": {"uid": pod.uid}})
        except NotFoundError:
            return
        self.api.delete(path, uid=pod.uid, grace_s=0)
        self.events.say("PodEvicted", f"{pod.name}: {verdict.reason}", warning=True)


def _beat(beats: Mapping[str, Heartbeat] | None, name: str) -> Heartbeat | None:
    return None if beats is None else beats.get(name, Heartbeat(there=False, member=False))
