"""The coordinator's part of a look: a snapshot, a decision, a transaction; nothing is written to the API server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from reprise.controller.kubernetes.events import EventReason, Events
from reprise.controller.kubernetes.pods import KubernetesNode, PodView
from reprise.controller.operator.records import Records
from reprise.controller.zookeeper.errors import CoordinationError
from reprise.scheduler import Decision
from reprise.scheduler.model import Leaving, SkipWish
from reprise.spark_jobs.state.savepoint_wish import SavepointWish

NOBODY: Mapping[str, Leaving] = MappingProxyType({})
NOTHING: Mapping[str, SkipWish] = MappingProxyType({})


@dataclass(slots=True)
class Decider:
    """Decides about one topology."""

    records: Records
    events: Events

    def decide(
        self,
        executors: Mapping[str, PodView],
        notices: Mapping[str, Leaving] = NOBODY,
        machines: Mapping[str, KubernetesNode] | None = None,
        skips: Mapping[str, SkipWish] = NOTHING,
        savepoints: tuple[SavepointWish, ...] = (),
    ) -> Decision | None:
        """Read, decide, and carry it out; None when there was nothing to decide, or it could not be carried out.  Raises
        CoordinationError.  `executors`: pods by name; `notices`: those that are to be emptied; `machines`: Node
        objects by name, None where they cannot be read; `skips`: queries that are to be skipped; `savepoints`: those
        that are to be taken or deleted."""
        asked = {pod.name: pod.created_at for pod in executors.values() if pod.created_at is not None}
        self.records.coordinator.store.requests = asked
        self.records.coordinator.store.notices = notices
        self.records.coordinator.store.asked = skips
        self.records.coordinator.store.labels = {
            pod.name: machines[pod.machine].labels
            for pod in executors.values()
            if machines is not None and pod.machine in machines
        }
        if not self.records.connected:
            return None
        self.records.open()
        untold: CoordinationError | None = None
        try:
            self.records.tell_settings()
        except CoordinationError as error:  # which may last: no recovery waits for it
            untold = error
        decision = self.records.coordinator.turn()
        self.records.hand_on(savepoints)
        if decision is not None and decision.plan is not None:
            self.events.note(EventReason.PLAN_MADE, f"{decision.plan.id}: {decision.reason}")
        if untold is not None:
            raise untold
        return decision

    def precompute(self) -> None:
        """Make the plan that will be due when a burst has settled; from any thread."""
        self.records.coordinator.precompute()

    @property
    def problem(self) -> str:
        """Why it cannot decide, or cannot write down what it has decided; empty when it can."""
        return self.records.coordinator.problem
