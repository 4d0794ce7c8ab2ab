"""Ends the pods of executors that are lost and fenced (`witness`).

Order matters.  The fence comes first, so that the pod can never be a node again; then its end in the API server, phase
Failed before the forced deletion, because that is what makes Spark drop the executor at once and ask for another one (a
Running pod is alive to it, whatever its Kubernetes node says).  Each step is taken again until it is seen to be done.
"""

from __future__ import annotations

from collections.abc import Mapping

from reprise.controller.kubernetes.api import Api, collection
from reprise.controller.kubernetes.errors import NotFoundError
from reprise.controller.kubernetes.events import EventReason, Events
from reprise.controller.kubernetes.pods import PodView
from reprise.controller.operator.pods.verdict import State, Verdict
from reprise.controller.operator.pods.witness import PodVerdicts


def evict_lost(api: Api, events: Events, pods: Mapping[str, PodView], findings: PodVerdicts) -> None:
    """End each of `pods` that is lost, fenced, and has not ended by itself.  Raises OperatorError."""
    for name, verdict in findings.verdicts.items():
        pod = pods.get(name)
        if pod is not None and not pod.ended and verdict.state is State.LOST and name in findings.fenced:
            _evict(api, events, pod, verdict)


def _evict(api: Api, events: Events, pod: PodView, verdict: Verdict) -> None:
    path = f"{collection(pod.namespace, 'pods')}/{pod.name}"
    status = {"phase": "Failed", "reason": "NodeLost", "message": verdict.reason}
    try:
        api.patch(f"{path}/status", {"status": status, "metadata": {"uid": pod.uid}})
    except NotFoundError:
        return
    api.delete(path, uid=pod.uid, grace_s=0)
    events.say(EventReason.POD_EVICTED, f"{pod.name}: {verdict.reason}", warning=True)
