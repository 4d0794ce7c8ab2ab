"""One StreamTopology: each step looks at everything and does what is to be done next.

Level-triggered: nothing depends on having seen a change, so a controller that was killed at any step, or has slept through
a day, goes on from what is there.  A step never waits for anybody longer than one request; what fails is said in a
condition and tried again.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kazoo.client import KazooClient

from controller.coordination.errors import CoordinationError
from controller.metrics.control import Look
from controller.operator.api import Api
from controller.operator.driver import DriverKeeper
from controller.operator.errors import OperatorError
from controller.operator.events import Events
from controller.operator.executors import ExecutorKeeper
from controller.operator.manifests import driver_name, owner
from controller.operator.pods import Machine, PodView
from controller.operator.publish import Publisher
from controller.operator.records import Records
from controller.operator.settings import OperatorSettings
from controller.operator.status import Situation, status_of
from controller.resources.base import TopologyReference
from controller.resources.conditions import Claim, Truth
from controller.run.observation import Observation
from controller.run.state import RunState, run_state
from scheduler import Decision
from scheduler.incident import Kind
from spark_jobs.errors import SpecError
from spark_jobs.topology import StreamTopology, Topology, expand, from_json

log = logging.getLogger("reprise.operator")
LOOK_S = 0.3
"""Between steps while something is going on; settling and deadlines are a matter of time alone."""
QUIET_S = 1.0
"""Between steps while nothing is; ZooKeeper's watches wake the controller all the same."""
PUBLISH_S = 0.5
_APPROVAL_S = 2.0
_GOOD = frozenset({"Ready", "Valid", "Observed"})
"""Conditions that are True while all is well."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What one step sees besides the object itself."""

    pods: Mapping[str, PodView]
    """Of this topology, by name."""
    machines: Mapping[str, Machine] | None
    paused: bool = False
    recommend: bool = False


@dataclass(slots=True)
class _Spec:
    """The newest spec that could be read."""

    generation: int
    resource: StreamTopology
    topology: Topology


@dataclass(slots=True)
class TopologyController:
    """Used by one thread at a time; `wake` is called from any thread when there is reason for a step."""

    api: Api
    client: KazooClient
    settings: OperatorSettings
    body: Mapping[str, Any]
    wake: Callable[[], None]
    seen: Look | None = None
    """What the last look has found, for the metrics."""
    _since: float = field(default_factory=time.time)
    _spec: _Spec | None = None
    _invalid: tuple[int, str] = (-1, "")
    _records: Records | None = None
    _executors: ExecutorKeeper | None = None
    _publisher: Publisher | None = None
    _held_back: str = ""
    _looked_for_approval: float = 0.0
    _published: float = 0.0
    _said: dict[str, tuple[str, str]] = field(default_factory=dict)
    _status: Mapping[str, Any] = field(default_factory=dict)
    _checkpoints: dict[int, float] = field(default_factory=dict)
    _recommend: bool = False
    _ending: bool = False
    _rest: tuple[Events, DriverKeeper] | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def events(self) -> Events:
        return self._parts()[0]

    @property
    def driver(self) -> DriverKeeper:
        return self._parts()[1]

    def _parts(self) -> tuple[Events, DriverKeeper]:
        if self._rest is None:
            about = {key: value for key, value in owner(self.body).items() if key != "controller"}
            events = Events(self.api, self.body["metadata"]["namespace"], about)
            self._rest = events, DriverKeeper(self.api, self.settings, owner(self.body), events)
        return self._rest

    def step(self, body: Mapping[str, Any], around: Surroundings) -> float:
        """One look at everything; seconds until the next one is due."""
        with self._lock:
            self.body = body
            if self._ending or body["metadata"].get("deletionTimestamp"):
                return QUIET_S  # `finalize` removes what a step would create
            self._status = self._status or dict(body.get("status") or {})
            spec, problem = self._take_spec(around), ""
            if spec is None:
                self._publish(around, "", None)
                return 30.0
            try:
                self._act(spec, around)
            except (OperatorError, CoordinationError) as error:
                problem = f"{type(error).__name__}: {error}"
                log.warning("event=step-failed topology=%s reason=%r", body["metadata"]["name"], problem)
            state = self._look(spec)
            self._publish(around, problem, state)
            busy = (
                state is None or state.observation.incident is not None or state.observation.desired is None
            )
            return LOOK_S if busy else QUIET_S

    def end(self) -> None:
        """Stop without touching anything: the operator goes, the topology stays."""
        with self._lock:
            if self._records is not None:
                self._records.close()

    def finalize(self, waited_s: float, patience_s: float) -> bool:
        """One step of removing everything; True when nothing is left to do.  With ZooKeeper away the records stay, and an
        object of the same name removes them when it starts."""
        with self._lock:
            self._ending = True
            meta = self.body["metadata"]
            if self._records is None:
                self._take_spec(Surroundings({}, None))
            if not self.driver.remove(meta["name"], meta["namespace"]):
                return False
            if self._records is None:
                return True
            try:
                self._records.remove()
            except CoordinationError as error:
                if waited_s < patience_s:
                    return False
                self.events.say("RecordsLeft", f"ZooKeeper does not answer: {error}", warning=True)
            self._records.close()
            return True

    # -- the spec ----------------------------------------------------------------------------------------------------

    def _take_spec(self, around: Surroundings) -> _Spec | None:
        meta = self.body["metadata"]
        generation = int(meta.get("generation", 0))
        if (self._spec is None or self._spec.generation != generation) and self._invalid[0] != generation:
            try:
                resource = from_json(json.dumps(_document(self.body)))
                self._spec = _Spec(generation, resource, expand(resource))
                self._invalid = (-1, "")
            except SpecError as error:
                self._invalid = (generation, str(error))
                self.events.say("SpecRefused", str(error), warning=True)
        if self._spec is None:
            return None
        self._recommend = around.recommend or self._spec.resource.recovery.recommend_only
        self._adopt(self._spec, around)
        return self._spec

    def _adopt(self, spec: _Spec, around: Surroundings) -> None:
        resource, meta = spec.resource, self.body["metadata"]
        if self._records is None:
            self._records = Records(
                self.client, resource, meta["uid"], self.settings, self._permits, self.wake
            )
            self._executors = ExecutorKeeper(self.api, resource.namespace, self._records, self.events)
            self._publisher = self._new_publisher()
        assert self._publisher is not None
        self._publisher.priorities = {q.id: q.priority for q in spec.topology.queries.values()}
        self._records.adopt(resource, resource.paused or around.paused)

    def _permits(self, decision: Decision) -> bool:
        """Whether a decision may be carried out: in recommend-only mode a plan waits until its object is approved."""
        assert self._publisher is not None
        plan = decision.plan
        if plan is None or not self._recommend or _is_start(decision):
            self._held_back = ""
            return True
        name = self._publisher.propose(plan)
        if name != self._held_back:
            self._held_back, self._looked_for_approval = name or "", 0.0
            self.events.say("PlanProposed", f"{name}: {decision.reason}")
        if name is None or time.monotonic() - self._looked_for_approval < _APPROVAL_S:
            return False
        self._looked_for_approval = time.monotonic()
        if not self._publisher.approved(name):
            return False
        self.events.say("PlanApproved", name)
        self._held_back = ""
        return True

    # -- acting ------------------------------------------------------------------------------------------------------

    def _act(self, spec: _Spec, around: Surroundings) -> None:
        records, executors = self._records, self._executors
        assert records is not None
        assert executors is not None
        pods = {name: pod for name, pod in around.pods.items() if pod.role == "executor"}
        driver = around.pods.get(driver_name(spec.resource.name))
        if records.connected:
            records.open()
            decision = records.coordinator.turn()
            if decision is not None and decision.plan is not None:
                self.events.say("PlanMade", f"{decision.plan.id}: {decision.reason}")
            executors.look(pods, around.machines)
        recovering = self._state_recovering
        self.driver.look(spec.resource, driver, around.machines, recovering)

    @property
    def _state_recovering(self) -> bool:
        conditions = {c.get("type"): c.get("status") for c in self._status.get("conditions") or []}
        return conditions.get("Recovering") == "True"

    # -- telling -----------------------------------------------------------------------------------------------------

    def _look(self, spec: _Spec) -> RunState | None:
        if self._records is None:
            return None
        seen = self._records.observe()
        self._note_checkpoint(seen)
        state = run_state(spec.topology, seen)
        self.seen = Look(spec.resource, spec.topology, state, self._since)
        return state

    def _note_checkpoint(self, seen: Observation) -> None:
        position = seen.progress.checkpoint if seen.progress else 0
        if position and position not in self._checkpoints:
            self._checkpoints = {position: time.time()}

    def _publish(self, around: Surroundings, problem: str, state: RunState | None) -> None:
        if time.monotonic() - self._published < PUBLISH_S:
            return
        self._published = time.monotonic()
        resource = self._spec.resource if self._spec else None
        seen = state.observation if state else None
        situation = Situation(
            generation=int(self.body["metadata"].get("generation", 0)),
            resource=resource,
            invalid=self._invalid[1],
            state=state,
            verdicts=self._executors.verdicts if self._executors else {},
            driver=driver_name(resource.name) if resource else "",
            driver_problem=self.driver.problem,
            completed_at=self._checkpoints.get(seen.progress.checkpoint) if seen and seen.progress else None,
            root=self._records.root if self._records else "",
            coordinator=self.settings.identity,
            held_back=self._held_back,
            paused_by=_paused_by(resource, around, seen),
            problem=problem,
        )
        try:
            self._tell(situation, seen)
        except OperatorError as error:
            log.warning(
                "event=not-published topology=%s reason=%r", self.body["metadata"]["name"], str(error)
            )

    def _tell(self, situation: Situation, seen: Observation | None) -> None:
        status, claims = status_of(situation, self._status)
        publisher = self._publisher or self._new_publisher()
        urgent = [[c.type, c.truth, c.reason] for c in claims]
        publisher.status(status, [urgent, status.get("queries"), status.get("incident")], self._status)
        self._status = status
        self._announce(claims)
        if seen is not None and seen.connected and self._publisher is not None:
            self._publisher.recoveries(seen)
            if not self._held_back:
                self._publisher.propose(None)

    def _announce(self, claims: Sequence[Claim]) -> None:
        """An Event for each condition that has changed; the first look tells only what people would ask about."""
        for claim in claims:
            now, before = (claim.truth.value, claim.reason), self._said.get(claim.type)
            self._said[claim.type] = now
            good = claim.truth.value == ("True" if claim.type in _GOOD else "False")
            if now == before or (before is None and (good or claim.truth is Truth.UNKNOWN)):
                continue
            text = f"{claim.type} is {claim.truth.value}" + (f": {claim.message}" if claim.message else "")
            self.events.say(claim.reason, text, warning=not good)

    def _new_publisher(self) -> Publisher:
        meta = self.body["metadata"]
        reference = TopologyReference(name=meta["name"], uid=meta["uid"])
        return Publisher(
            self.api, meta["namespace"], reference, {}, owner(self.body), self.settings.keep_incidents
        )


def _document(body: Mapping[str, Any]) -> dict[str, Any]:
    """What the resource's model knows of a Kubernetes object."""
    meta = body["metadata"]
    kept = {key: meta[key] for key in ("name", "namespace") if key in meta}
    kept["labels"] = dict(meta.get("labels") or {})
    return {"apiVersion": body["apiVersion"], "kind": body["kind"], "metadata": kept, "spec": body["spec"]}


def _is_start(decision: Decision) -> bool:
    return decision.incident is not None and decision.incident.kind is Kind.START


def _paused_by(resource: StreamTopology | None, around: Surroundings, seen: Observation | None) -> str:
    if around.paused:
        return "all topologies are paused by the operator's switches"
    if resource is not None and resource.paused:
        return "spec.paused"
    if seen is not None and seen.desired is not None and seen.desired.paused:
        return "commands/paused in ZooKeeper"
    return ""
