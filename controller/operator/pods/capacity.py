"""What room machines have for more executors, and which of those that were asked for will come, when, and why not.

Three witnesses:  Node objects (allocatable CPU, taints, labels), the requests of all pods on them, and what the
scheduler and an autoscaler have said of pods that wait.  Plans are made for the executors that are there (Su and Zhou,
section 4): this view changes no plan.  It tells people, beside the reason why a query waits, whether waiting will help.

Invariant: what may not be read is None, never nothing and never plenty.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from reprise.controller.kubernetes.pods import USUAL, KubernetesNode, PodView, milli, seconds

START_S = 15.0
"""From a machine to an executor that is a node: image there, JVM, registration."""
LONGEST_START_S = 120.0
"""A container that has not started by then, on a machine, is not only waiting for its image."""
PROVISION_S = 120.0
"""From an autoscaler's decision to a machine that is ready; clouds take one to three minutes."""
LEAST_S = 5.0
"""An estimate that has run out: soon."""
_COMING = {"TriggeredScaleUp": "cluster-autoscaler", "Nominated": "karpenter"}
"""Reasons of Events by which autoscalers say that they add a machine for a pod."""
_REFUSED = {"NotTriggerScaleUp": "cluster-autoscaler", "FailedScheduling": "karpenter"}
_SCHEDULER = "default-scheduler"


@dataclass(frozen=True, slots=True)
class Load:
    """CPU that a pod has been promised on its machine; of every pod, whosever it is."""

    uid: str
    machine: str
    cpu_milli: int


@dataclass(frozen=True, slots=True)
class Demand:
    """What one executor asks of a machine."""

    cpu_milli: int
    labels: Mapping[str, str] = field(default_factory=dict)
    tolerated: frozenset[str] = frozenset()
    """Keys of taints; `*` for all."""
    alone: bool = False
    """At most one of the topology's executors on a machine."""


@dataclass(frozen=True, slots=True)
class Said:
    """An autoscaler's newest word on a pod."""

    reason: str
    message: str
    at: float


@dataclass(frozen=True, slots=True)
class Expected:
    """An executor that was asked for and is not there."""

    pod: str
    in_s: float | None
    """About so many seconds from now; None: nobody has said that it will come."""
    why: str
    machine: str = ""
    """Where it is and does not start."""


@dataclass(frozen=True, slots=True)
class CapacityForecast:
    """The whole view."""

    room: int | None
    """More executors that machines have room for now; None: requests or Nodes may not be read, or more than labels
    says which machines take one."""
    expected: tuple[Expected, ...] = ()

    def __str__(self) -> str:
        """One sentence for people; empty when there is nothing to say."""
        coming = sorted(e.in_s for e in self.expected if e.in_s is not None)
        stuck = [e for e in self.expected if e.in_s is None]
        parts = []
        if coming:
            parts.append(f"{len(coming)} nodes are expected, the first in about {coming[0]:.0f} s")
        placed = [e for e in stuck if e.machine]
        stuck = [e for e in stuck if not e.machine]
        if placed:
            parts.append(f"{len(placed)} executors do not start: {placed[0].why} (on {placed[0].machine})")
        if stuck:
            parts.append(f"{len(stuck)} executors have no Kubernetes node: {stuck[0].why}")
        if self.room and stuck:
            parts.append(f"there is room for {self.room}")
        return "; ".join(parts)


NOTHING_KNOWN = CapacityForecast(None)


def load_view(pod: Mapping[str, Any]) -> Load:
    """What any pod requests: the greater of its containers' sum and its largest init container, and its overhead.  One
    that has ended holds nothing."""
    meta, spec = pod.get("metadata", {}), pod.get("spec", {})
    ended = (pod.get("status") or {}).get("phase") in ("Failed", "Succeeded")
    asked = max(
        sum(_asked(c) for c in spec.get("containers") or ()),
        max((_asked(c) for c in spec.get("initContainers") or ()), default=0),
    ) + milli((spec.get("overhead") or {}).get("cpu", "0"))
    return Load(str(meta.get("uid", "")), str(spec.get("nodeName") or ""), 0 if ended else asked)


def _asked(container: Mapping[str, Any]) -> int:
    return milli(((container.get("resources") or {}).get("requests") or {}).get("cpu", "0"))


def room_for(
    demand: Demand,
    machines: Iterable[KubernetesNode],
    used: Mapping[str, int],
    taken: frozenset[str] = frozenset(),
) -> int:
    """How many more executors fit, machine by machine; `used`: promised CPU by machine, milli; `taken`: machines that have
    one of the topology's executors."""
    found = 0
    for machine in machines:
        if _takes(machine, demand):
            fits = max(0, machine.cpu_milli - used.get(machine.name, 0)) // max(1, demand.cpu_milli)
            found += min(fits, machine.name not in taken) if demand.alone else fits
    return found


def _takes(machine: KubernetesNode, demand: Demand) -> bool:
    if not (machine.reachable and machine.schedulable):
        return False
    if any(machine.labels.get(key) != value for key, value in demand.labels.items()):
        return False
    return "*" in demand.tolerated or all(key in demand.tolerated for key in machine.taints)


def expected_of(
    pods: Iterable[PodView], here: frozenset[str], said: Mapping[str, Said], room: int | None, now: float
) -> tuple[Expected, ...]:
    """Say for each executor pod that is not `here` yet whether it will be, in order of name; `said` by pod."""
    found, left = [], room or 0
    for pod in sorted(pods, key=lambda p: p.name):
        if pod.name in here or pod.ended or pod.deleted_at is not None:
            continue
        word = said.get(pod.name)
        if held_up := _held_up(pod, now):
            found.append(Expected(pod.name, None, held_up, pod.machine))
        elif pod.machine:
            found.append(
                Expected(pod.name, _rest(START_S, pod.created_at, now), f"starting on {pod.machine}")
            )
        elif word is not None and word.reason in _COMING:
            who = _COMING[word.reason]
            found.append(
                Expected(
                    pod.name, _rest(PROVISION_S + START_S, word.at, now), f"{who} adds a Kubernetes node"
                )
            )
        elif left > 0:
            left -= 1
            found.append(Expected(pod.name, START_S, "there is room for it"))
        elif word is not None and word.reason in _REFUSED:
            found.append(
                Expected(pod.name, None, f"{_REFUSED[word.reason]} adds no Kubernetes node: {word.message}")
            )
        else:
            found.append(Expected(pod.name, None, pod.reason or "the scheduler has said nothing yet"))
    return tuple(found)


def _held_up(pod: PodView, now: float) -> str:
    """Why a pod that has a machine does not start there; empty while there is nothing unusual.  What is missing of its
    volumes a kubelet says in Events alone."""
    if not pod.machine or pod.phase != "Pending":
        return ""
    if pod.reason not in ("", *USUAL):
        return pod.reason
    waits_s = 0.0 if pod.created_at is None else now - pod.created_at
    if waits_s < LONGEST_START_S:
        return ""
    return f"{pod.reason or 'Pending'} for {waits_s:.0f} s; `kubectl describe pod {pod.name}` says what is missing"


def _rest(whole_s: float, since: float | None, now: float) -> float:
    return whole_s if since is None else max(LEAST_S, since + whole_s - now)


def said_of(events: Sequence[Mapping[str, Any]]) -> dict[str, Said]:
    """The newest word of an autoscaler on each pod, out of Event objects of any kind."""
    found: dict[str, Said] = {}
    for event in events:
        about, reason = event.get("involvedObject") or {}, str(event.get("reason", ""))
        source = str((event.get("source") or {}).get("component") or event.get("reportingComponent") or "")
        if about.get("kind") != "Pod" or reason not in _COMING | _REFUSED or source == _SCHEDULER:
            continue
        at = next(
            (t for key in ("lastTimestamp", "eventTime", "firstTimestamp") if (t := seconds(event.get(key)))),
            0.0,
        )
        name = str(about.get("name", ""))
        if name not in found or found[name].at <= at:
            found[name] = Said(reason, str(event.get("message", ""))[:200], at)
    return found
