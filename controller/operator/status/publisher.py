"""What the records say, as the objects that people look at: the topology's status, Incidents, RecoveryPlans, Events.

Objects are views: nothing is read back from one but an approval (`approval`).  Each look computes what they ought to say,
and writes what differs from what was written last; so writes coalesce, however much happens between two looks.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from reprise.controller.crd.base import TopologyReference
from reprise.controller.crd.conditions import ConditionReason, ConditionUpdate, Truth, merged
from reprise.controller.crd.convert import (
    TOPOLOGY_LABEL,
    incident_object,
    incident_status,
    object_name,
    plan_object,
    rfc3339,
)
from reprise.controller.crd.crds import GROUP, VERSION
from reprise.controller.kubernetes.api import Api, collection
from reprise.controller.kubernetes.budget import Urgency
from reprise.controller.kubernetes.errors import ConflictError, NotFoundError
from reprise.controller.zookeeper.observation import Observation
from reprise.scheduler.incident import Incident, Kind, Phase, PlanRecord
from reprise.scheduler.view import taken_over

PERIOD_S = 2.0
"""Least time between two writes of one status, unless a condition or a phase has changed."""


def fingerprint(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()


@dataclass(slots=True)
class _Written:
    digest: str
    urgent: str
    at: float


@dataclass(slots=True)
class ObjectPublisher:
    """Writes a topology's status, its Incidents and its RecoveryPlans to the API server."""

    api: Api
    namespace: str
    reference: TopologyReference
    priorities: Mapping[str, int]
    owner: Mapping[str, Any]
    keep: int
    forecast: str = ""
    """Whether waiting will help; part of the reasons of a plan that is written now."""
    _written: dict[str, _Written] = field(default_factory=dict)
    _done: set[str] = field(default_factory=set)
    """Objects that never change again."""
    _conditions: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    _proposals: dict[str, set[str]] = field(default_factory=dict)
    """By incident the objects of plans that waited for approval, as far as this operator has made or found them."""

    def status(self, body: Mapping[str, Any], stands: Mapping[str, Any] | None = None) -> None:
        """The StreamTopology's; `stands`: what the object says now, as far as this operator has not written it."""
        name, path = self.reference.name, self._path("streamtopologies", self.reference.name)
        if path not in self._written and stands:
            known = fingerprint(_kind("StreamTopology", name, stands))
            self._written[path] = _Written(known, fingerprint(_pressing(stands)), 0.0)
        self._write(path, _kind("StreamTopology", name, body), _pressing(body))

    def recoveries(self, seen: Observation) -> None:
        """Incidents and their plans; those that were closed long ago are removed."""
        incidents = seen.incidents[-self.keep :]
        for incident in incidents:
            self._incident(incident, seen)
            for position, name in enumerate(incident.plans):
                plan = seen.plans.get(name)
                if plan is not None:
                    newest = position == len(incident.plans) - 1
                    self._plan(plan, incident, newest, seen)
        for incident in seen.incidents[: -self.keep]:
            self._remove(incident)

    def propose(self, name: str, plan: PlanRecord) -> None:
        """Show a plan that waits for approval as an object of this name."""
        if name not in self._done:
            self._proposals.setdefault(plan.incident, set()).add(name)
            body = plan_object(plan, self.reference, self.namespace, self.priorities, self.forecast)
            body["metadata"]["name"] = name
            self._create("recoveryplans", name, body)
            self._plan_status(
                name,
                {"state": "Proposed"},
                ConditionUpdate("Approved", Truth.FALSE, ConditionReason.AWAITING_APPROVAL),
            )

    def approve(self, name: str) -> None:
        """A proposed plan that may be carried out now, which the object of the plan itself will show."""
        update = ConditionUpdate("Approved", Truth.TRUE, ConditionReason.CARRIED_OUT)
        self._plan_status(name, {"state": "Superseded", "finishedAt": rfc3339(time.time())}, update)

    def supersede(self, name: str) -> None:
        """A proposed plan that nobody needs to approve any more."""
        self._plan_status(name, {"state": "Superseded", "finishedAt": rfc3339(time.time())})

    def find_plan(self, name: str) -> Mapping[str, Any]:
        """The object of a plan as it is now; empty where there is none."""
        return self.api.find(self._path("recoveryplans", name)) or {}

    def listed_plans(self) -> list[Any]:
        """The objects of all plans of the topology, proposed ones included."""
        selector = f"{TOPOLOGY_LABEL}={self.reference.name}"
        return self.api.list(self._folder("recoveryplans"), labelSelector=selector)

    def adopt(self, incident: str, name: str) -> None:
        """An operator before this one has proposed a plan under this name: it goes with its incident."""
        self._proposals.setdefault(incident, set()).add(name)

    def remove_proposal(self, name: str) -> None:
        """A proposed plan of an incident that is on no record any more."""
        self.api.at(Urgency.ROUTINE).delete(self._path("recoveryplans", name))

    # -- inside ------------------------------------------------------------------------------------------------------

    def _incident(self, incident: Incident, seen: Observation) -> None:
        name = object_name(self.reference.name, incident.id)
        over = f"closed {name} {incident.opened_at}"
        if over in self._done:
            return
        body = incident_object(incident, self.reference, self.namespace)
        stands = self._create("incidents", name, body, born="openedAt")
        if stands.get("phase") == Phase.CLOSED.value:  # by an operator before this one
            self._done.add(over)
            return
        newest = next((seen.plans[p] for p in reversed(incident.plans) if p in seen.plans), None)
        status = incident_status(incident, self.reference.name, newest, self.priorities)
        closed = incident.phase is Phase.CLOSED or incident.closed_at is not None
        restored = closed or incident.phase is Phase.VERIFYING
        kind = ConditionReason(incident.kind.value.capitalize())
        phase = ConditionReason(incident.phase.value.capitalize())
        updates = [
            ConditionUpdate("Correlated", _truth(incident.kind is Kind.CORRELATED), kind),
            ConditionUpdate("Restored", _truth(restored), phase),
            ConditionUpdate("Closed", _truth(closed), phase),
        ]
        status["conditions"] = self._merge(name, updates)
        status["observedGeneration"] = 1
        urgent = [incident.phase.value, incident.kind.value, len(incident.lost), len(incident.plans)]
        written = self._write(self._path("incidents", name), _kind("Incident", name, status), urgent)
        if closed and written:
            self._done.add(over)

    def _plan(self, plan: PlanRecord, incident: Incident, newest: bool, seen: Observation) -> None:
        name = object_name(self.reference.name, plan.id)
        finished = f"finished {name} {plan.time}"
        if finished in self._done:
            return
        body = plan_object(plan, self.reference, self.namespace, self.priorities, self.forecast)
        stands = self._create("recoveryplans", name, body, born="time")
        if stands.get("state") in ("Done", "Superseded"):
            self._done.add(finished)
            return
        restored = _restored(plan, seen)
        over = incident.closed_at is not None or incident.phase in (Phase.VERIFYING, Phase.CLOSED)
        status: dict[str, Any] = {"state": "Executing", "restored": min(restored, len(plan.added))}
        if over or restored == len(plan.added):
            status = {"state": "Done", "restored": len(plan.added)}
        elif not newest and plan.rollback is False and restored == 0:
            status = {"state": "Superseded", "restored": restored}
        done = status["state"] != "Executing"
        updates = [
            ConditionUpdate("Approved", Truth.TRUE, ConditionReason.CARRIED_OUT),
            ConditionUpdate("Executed", _truth(status["state"] == "Done"), ConditionReason(status["state"])),
        ]
        if done:
            status["finishedAt"] = rfc3339(time.time())
        if self._plan_status(name, status, *updates) and done:
            self._done.add(finished)

    def _plan_status(self, name: str, status: dict[str, Any], *updates: ConditionUpdate) -> bool:
        body = {**status, "observedGeneration": 1, "conditions": self._merge(name, updates)}
        path = self._path("recoveryplans", name)
        return self._write(path, _kind("RecoveryPlan", name, body), status["state"])

    def _create(self, plural: str, name: str, body: dict[str, Any], born: str = "") -> Mapping[str, Any]:
        """The status that the object has when it is looked at for the first time, else nothing.  Asking first costs no
        write: an operator that starts finds most objects there.

        `born`: the field that says when it began.  Where records were lost their numbers come again: an object of that name
        that began at another time is of an incident that nobody knows any more, and makes room."""
        known = f"{name} {body['spec'][born]}" if born else name
        if known in self._done:
            return {}
        path, api = self._path(plural, name), self.api.at(Urgency.SHOW)
        found = self.api.find(path)
        if found is not None and born and found.get("spec", {}).get(born) != body["spec"][born]:
            api.delete(path, uid=found["metadata"].get("uid"))
            self._conditions.pop(name, None)
            self._written.pop(path, None)
            found = None
        if found is None:
            body["metadata"]["ownerReferences"] = [dict(self.owner)]
            with contextlib.suppress(ConflictError):
                api.create(self._folder(plural), body)
        self._done.add(known)
        return (found or {}).get("status") or {}

    def _write(self, path: str, body: dict[str, Any], urgent: object) -> bool:
        """Whether the object says so now.  `urgent` is what people must see at once: while it is the same, the write waits
        until one can be spared; else BudgetError is raised when none can."""
        digest, pressing = fingerprint(body), fingerprint(urgent)
        last = self._written.get(path)
        if last is not None and last.digest == digest:
            return True
        if last is not None and last.urgent == pressing and time.monotonic() - last.at < PERIOD_S:
            return False
        routine = last is not None and last.urgent == pressing
        api = self.api.at(Urgency.ROUTINE if routine else Urgency.SHOW)
        if routine and not api.affordable:
            return False
        body["metadata"]["namespace"] = self.namespace
        try:
            api.apply(f"{path}/status", body)
        except NotFoundError:  # removed by somebody: a view that nobody wants
            return True
        self._written[path] = _Written(digest, pressing, time.monotonic())
        return True

    def _merge(self, name: str, updates: Any) -> list[dict[str, Any]]:
        found = merged(self._conditions.get(name, []), updates, 1, time.time())
        self._conditions[name] = found
        return found

    def _remove(self, incident: Incident) -> None:
        name = object_name(self.reference.name, incident.id)
        removed = f"removed {name} {incident.opened_at}"
        if removed in self._done:
            return
        api = self.api.at(Urgency.ROUTINE)
        plans = [object_name(self.reference.name, plan) for plan in incident.plans]
        for plan in (*plans, *sorted(self._proposals.get(incident.id, ()))):
            api.delete(self._path("recoveryplans", plan))
        api.delete(self._path("incidents", name))
        self._proposals.pop(incident.id, None)
        self._done.add(removed)

    def _folder(self, plural: str) -> str:
        return collection(self.namespace, plural, GROUP, VERSION)

    def _path(self, plural: str, name: str) -> str:
        return f"{self._folder(plural)}/{name}"


def _pressing(status: Mapping[str, Any]) -> object:
    """What of a topology's status people must see at once."""
    conditions = [[c.get("type"), c.get("status"), c.get("reason")] for c in status.get("conditions") or []]
    return [conditions, status.get("queries"), status.get("incident")]


def _restored(plan: PlanRecord, seen: Observation) -> int:
    """Partitions of a plan that are at work, by a report of the driver that it was decided for and that knows of it."""
    progress = seen.progress
    if progress is None or not taken_over(seen.desired, progress):
        return 0
    return sum(p in progress.positions and p not in progress.failed for p in plan.added)


def _truth(value: bool) -> Truth:
    return Truth.TRUE if value else Truth.FALSE


def _kind(kind: str, name: str, status: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": kind,
        "metadata": {"name": name},
        "status": dict(status),
    }
