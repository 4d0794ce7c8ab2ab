"""Kubernetes Events: what happened to an object, with a reason for programs and a sentence for people.

One Event object a (object, reason, message): said again, it counts up, so that a loop cannot flood the namespace; what is
repeated within half a minute is counted and not written.
One that finds no write to spare is kept for the next look; one that the API server does not take is lost, as nothing
depends on any.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from reprise.controller.crd.conditions import ConditionReason
from reprise.controller.crd.convert import cut, rfc3339
from reprise.controller.kubernetes.api import FIELD_MANAGER, Api, collection
from reprise.controller.kubernetes.budget import Urgency
from reprise.controller.kubernetes.errors import BudgetError, OperatorError

log = logging.getLogger("reprise.operator")
AGAIN_S = 30.0
"""The same is said again no sooner than this."""
_KEPT = 50
"""Events that wait for a write; the oldest go first."""


class EventReason(StrEnum):
    """What an Event says has happened; docs/kubernetes.md says more of each."""

    SPEC_REFUSED = "SpecRefused"
    """The newest spec cannot be run."""
    DRIVER_CREATED = "DriverCreated"
    """A driver's pod was made."""
    DRIVER_RESTARTED = "DriverRestarted"
    """The spec has changed, and another driver takes over."""
    DRIVER_ENDED = "DriverEnded"
    """The driver's process has ended by itself."""
    DRIVER_LOST = "DriverLost"
    """The driver's Kubernetes node is gone, or nobody ends its pod."""
    DRIVER_SILENT = "DriverSilent"
    """The driver reports nothing while ZooKeeper answers."""
    DRIVER_HUNG = "DriverHung"
    """The driver reports, and its loop does not turn."""
    DRIVER_PROBLEM = "DriverProblem"
    """What the driver has reported last."""
    JOBS_FAIL = "JobsFail"
    """Jobs fail the same way again and again."""
    PARTITION_SET_ASIDE = "PartitionSetAside"
    """Code of a partition raised."""
    SPEC_CHANGE_POSTPONED = "SpecChangePostponed"
    """A changed spec waits for the end of the incident."""
    DRAIN_ASKED = "DrainAsked"
    """The driver is to stop at a checkpoint, as the spec has changed."""
    DRAIN_WAITS = "DrainWaits"
    """A drain takes long, or cannot end."""
    FORMER_SPEC_STARTED = "FormerSpecStarted"
    """The driver ended before it had drained, or in an incident, so one with the former spec goes on first."""
    QUERIES_CHANGED = "QueriesChanged"
    """The stream has drained, and goes on with other queries."""
    USER_REFUSED = "ZooKeeperUserRefused"
    """The topology's pods cannot be its user of ZooKeeper."""
    NODE_LOST = "NodeLost"
    """A node is fenced."""
    POD_EVICTED = "PodEvicted"
    """The pod of a node that is lost was ended."""
    PLAN_MADE = "PlanMade"
    """A plan was made and is being carried out."""
    PLAN_PROPOSED = "PlanProposed"
    """A plan waits for approval."""
    PLAN_APPROVED = "PlanApproved"
    """Somebody has approved the plan."""
    POD_FORCED = "PodForced"
    """A pod of a topology that is deleted was removed by force."""
    POD_LEFT = "PodLeft"
    """A pod of a topology that is deleted cannot be removed."""
    RECORDS_LEFT = "RecordsLeft"
    """Records of a topology that is deleted stay in ZooKeeper."""


@dataclass(slots=True)
class Events:
    """The Events of one object."""

    api: Api
    namespace: str
    about: Mapping[str, Any]
    """apiVersion, kind, name, uid."""
    _said: dict[str, tuple[float, int, str]] = field(default_factory=dict)
    _waiting: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    """Path and body."""

    @property
    def waiting(self) -> bool:
        """Whether `flush` has something to do."""
        return bool(self._waiting)

    def say(
        self,
        reason: EventReason | ConditionReason,
        message: str,
        *,
        warning: bool = False,
        later: bool = False,
    ) -> None:
        """Tell what has happened, or how a condition stands now."""
        digest = hashlib.sha256(f"{self.about['uid']} {reason} {message}".encode()).hexdigest()[:16]
        now = time.time()
        last, count, first = self._said.get(digest, (0.0, 0, rfc3339(now)))
        if now - last < AGAIN_S:
            self._said[digest] = (last, count + 1, first)  # counted, and told with the next one
            return
        if len(self._said) > 1000:
            self._said.clear()
        self._said[digest] = (now, count + 1, first)
        log.info("event=said object=%s reason=%s message=%r", self.about["name"], reason, message)
        name = f"{self.about['name']}.{digest}"
        body = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": self.namespace},
            "involvedObject": {**self.about, "namespace": self.namespace},
            "reason": reason.value,
            "message": cut(message, 1000),
            "type": "Warning" if warning else "Normal",
            "source": {"component": FIELD_MANAGER},
            "reportingComponent": FIELD_MANAGER,
            "firstTimestamp": first[:19] + "Z",
            "lastTimestamp": rfc3339(now)[:19] + "Z",
            "count": count + 1,
        }
        self._waiting[f"{collection(self.namespace, 'events')}/{name}"] = body
        while len(self._waiting) > _KEPT:
            del self._waiting[next(iter(self._waiting))]
        if not later:
            self.flush()

    def note(self, reason: EventReason | ConditionReason, message: str, *, warning: bool = False) -> None:
        """Like `say`, but written with the next `flush`."""
        self.say(reason, message, warning=warning, later=True)

    def flush(self) -> None:
        """Write what waits, as far as writes can be spared."""
        api = self.api.at(Urgency.TELL)
        while self._waiting:
            path, body = next(iter(self._waiting.items()))
            try:
                api.apply(path, body)
            except BudgetError:
                return
            except OperatorError as error:
                log.warning("event=not-said reason=%r", str(error))
            del self._waiting[path]
