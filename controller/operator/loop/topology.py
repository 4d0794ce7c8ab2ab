"""One StreamTopology: each step looks at everything and does what is to be done next.

Level-triggered: nothing depends on having seen a change, so a controller that was killed at any step, or has slept through
a day, goes on from what is there.  A step never waits for anybody longer than one request; what fails is said in a
condition and tried again.
"""

from __future__ import annotations

import contextlib
import json
import logging
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any

from reprise.controller import logs
from reprise.controller.crd.base import TopologyReference
from reprise.controller.kubernetes.api import Api
from reprise.controller.kubernetes.errors import BudgetError, OperatorError
from reprise.controller.kubernetes.events import Events
from reprise.controller.observability.metrics import look as metrics_look
from reprise.controller.observability.metrics.totals import Totals
from reprise.controller.operator.loop.poll_rate import PollKind, PollRate
from reprise.controller.operator.permitted import permit
from reprise.controller.operator.pods.capacity import NOTHING_KNOWN, CapacityForecast
from reprise.controller.operator.pods.capacity_forecaster import CapacityForecaster
from reprise.controller.operator.pods.cluster_view import ClusterView
from reprise.controller.operator.pods.drain import Drain
from reprise.controller.operator.pods.driver import DriverKeeper
from reprise.controller.operator.pods.executors import ExecutorKeeper
from reprise.controller.operator.pods.manifests import driver_name, owner
from reprise.controller.operator.pods.removal import Removal
from reprise.controller.operator.pods.verdict import State
from reprise.controller.operator.records import Records
from reprise.controller.operator.settings import OperatorSettings
from reprise.controller.operator.status.publisher import Publisher
from reprise.controller.operator.status.reporter import StatusReporter
from reprise.controller.operator.status.topology_status import Situation
from reprise.controller.status.query_state import RunState, state_of
from reprise.controller.topology_view import view_of
from reprise.controller.web import Board
from reprise.controller.zookeeper.errors import CoordinationError
from reprise.controller.zookeeper.node_record import absence_counts_after_s
from reprise.controller.zookeeper.observation import Observation
from reprise.controller.zookeeper.session import ZooKeeperSession
from reprise.scheduler import Decision
from reprise.scheduler.incident import Kind
from reprise.scheduler.model import TopologyView
from reprise.spark_jobs.errors import SpecError
from reprise.spark_jobs.topology import StreamTopology, from_json

log = logging.getLogger("reprise.operator")
REFUSED_S = 30.0
"""Between two looks at a topology whose spec cannot be read; a new spec wakes it."""
_APPROVAL_S = 2.0
ALONE = ClusterView({}, None)
"""Nothing is known of pods or machines."""


@dataclass(slots=True)
class _Spec:
    """The newest spec that could be read."""

    generation: int
    resource: StreamTopology
    view: TopologyView


@dataclass(slots=True)
class TopologyController:
    """Used by one thread at a time; `wake` is called from any thread when there is reason for a step."""

    api: Api
    client: ZooKeeperSession
    settings: OperatorSettings
    body: Mapping[str, Any]
    wake: Callable[[], None]
    poll_rate: PollRate = field(default_factory=PollRate)
    board: Board | None = None
    """Where the web page finds what was seen."""
    _since: float = field(default_factory=time.time)
    _totals: Totals = field(default_factory=Totals)
    _spec: _Spec | None = None
    _invalid: tuple[int, str] = (-1, "")
    _records: Records | None = None
    _executors: ExecutorKeeper | None = None
    _reporter: StatusReporter | None = None
    _held_back: str = ""
    _looked_for_approval: float = 0.0
    _problem: str = ""
    """What the last step could not do."""
    _recommend: bool = False
    _recovering: bool = False
    _adopted: tuple[int, bool] | None = None
    _kind: PollKind | None = None
    """How it is looked at now."""
    _calm: bool = False
    """By the last decision, nothing is to be decided before somebody changes something."""
    _short: bool = False
    """The last look wanted a write that it needs, and there was none to spare."""
    _whole: float = 0.0
    """When everything was looked at last."""
    _stagger: float = field(default_factory=lambda: random.uniform(0.5, 1.0))
    """So that not all that were found together are looked at together."""
    _ending: bool = False
    _forecaster: CapacityForecaster | None = None
    _outlook: CapacityForecast = NOTHING_KNOWN
    _rest: tuple[Events, DriverKeeper] | None = None
    _removal: Removal | None = None
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

    @property
    def seen(self) -> metrics_look.Look | None:
        """What was found last, for the metrics; made when it is asked for, so that nothing is kept twice."""
        spec, records = self._spec, self._records
        if spec is None or records is None:
            return None
        state = state_of(spec.view.queries, records.last)
        return metrics_look.Look(spec.resource, spec.view, state, self._since, self._totals)

    @property
    def quiet(self) -> bool:
        """Nothing is going on: a poll is enough."""
        return self._kind is PollKind.POLL

    def decide(self, body: Mapping[str, Any], around: ClusterView) -> Decision | None:
        """The coordinator's look: a snapshot, a decision, a transaction; it writes nothing to the API server.  None when
        there was nothing to decide, or it could not be carried out."""
        with self._lock, self._timed(PollKind.DECIDE):
            self.body = body
            if self._kind is None:  # counted from the start, so that a thousand new ones have a pace as well
                self._next(PollKind.DECIDE)
            if self._over or self._take_spec(around) is None or self._records is None:
                return None
            self._problem, self._calm, self._short = "", False, False
            try:
                if self._records.connected:
                    self._records.open()
                    decision = self._records.coordinator.turn()
                    self._calm = decision is not None and decision.until == inf
                    if decision is not None and decision.plan is not None:
                        self.events.note("PlanMade", f"{decision.plan.id}: {decision.reason}")
                    return decision
            except BudgetError:
                self._short = True
            except (OperatorError, CoordinationError) as error:
                self._failed(error)
            return None

    def plan_ahead(self) -> None:
        """After a look that found that a burst settles, while there is time for it.  What follows from that look is not
        held up."""
        records = self._records
        if records is not None:
            records.coordinator.precompute()

    def reconcile(self, around: ClusterView) -> float:
        """What follows from it: pods are ended and created, objects and status written; seconds until the next look."""
        with self._lock, self._timed(PollKind.RECONCILE):
            if self._over:
                return self._next(PollKind.POLL)
            spec = self._spec
            if spec is None:
                self._tell(around, None)
                return REFUSED_S
            try:
                self._act(spec, around)
            except BudgetError:
                self._short = True
            except (OperatorError, CoordinationError) as error:
                self._failed(error)
            assert self._records is not None
            state = state_of(spec.view.queries, self._show(spec, self._records.observe()))
            self._recovering = state.observation.incident is not None
            self._tell(around, state)
            self._whole = time.monotonic()
            return self._next(PollKind.DECIDE if self._busy(state) else PollKind.POLL)

    def poll(self, body: Mapping[str, Any], around: ClusterView) -> float | None:
        """A look at a quiet topology: has its driver anything to say?  Seconds until the next look; None when everything
        must be looked at."""
        with self._lock, self._timed(PollKind.POLL):
            spec, meta = self._spec, body["metadata"]
            now = time.monotonic()
            if (
                not self.quiet or spec is None or self._records is None or self._reporter is None
                or now - self._whole > self.poll_rate.whole_s() * self._stagger
                or meta.get("generation") != spec.generation or meta.get("deletionTimestamp")
                or self._adopted != (spec.generation, around.paused)
                or (seen := self._records.poll()) is None
            ):  # fmt: skip
                return None
            self.body = body
            self._show(spec, seen)
            if self.driver.silent:
                return None
            if self._reporter.due:
                self._tell(around, state_of(spec.view.queries, seen))
            return self._next(PollKind.POLL)

    @property
    def _over(self) -> bool:
        """`finalize` removes what a step would create."""
        return self._ending or bool(self.body["metadata"].get("deletionTimestamp"))

    def _failed(self, error: Exception) -> None:
        self._problem = f"{type(error).__name__}: {error}"
        log.warning("event=step-failed topology=%s reason=%r", self.body["metadata"]["name"], self._problem)

    def _busy(self, state: RunState) -> bool:
        seen = state.observation
        pods = {} if self._executors is None else self._executors.verdicts
        undecided = self._records is not None and bool(self._records.coordinator.problem)
        settled = all(v.state is State.ALIVE for v in pods.values())
        return (
            seen.incident is not None or seen.desired is None or not seen.connected or self._short or not settled
            or bool(self._problem) or bool(self._held_back) or bool(self.driver.problem) or undecided
        )  # fmt: skip

    def _next(self, look: PollKind) -> float:
        """Count this topology among those that are looked at in this way."""
        if look is not self._kind and not self._ending:
            self._uncount()
            self.poll_rate.enter(look)
            self._kind = look
        return self.poll_rate.between_s(look)

    def _uncount(self) -> None:
        if self._kind is not None:
            self.poll_rate.leave(self._kind)
            self._kind = None

    @contextlib.contextmanager
    def _timed(self, look: PollKind) -> Iterator[None]:
        meta = self.body["metadata"]
        logs.about(topology=f"{meta['namespace']}/{meta['name']}", incident=None, plan=None)
        began = time.thread_time()
        yield
        self.poll_rate.note(look, time.thread_time() - began)

    def end(self) -> None:
        """Stop without touching anything: the operator goes, the topology stays."""
        with self._lock:
            self._uncount()
            if self._records is not None:
                self._records.close()

    def finalize(self, waited_s: float, patience_s: float, around: ClusterView = ALONE) -> bool:
        """One step of removing everything, `waited_s` after the first; True when nothing is left to do.  With ZooKeeper
        away the records stay, and an object of the same name removes them when it starts."""
        with self._lock:
            self._ending = True
            self._uncount()
            meta = self.body["metadata"]
            if self._records is None:
                self._take_spec(ALONE)
            if self._removal is None:
                self._removal = Removal(self.api, self.events, meta["namespace"], meta["name"])
            if not self._removal.step(around.pods):
                return False
            if self._records is None:
                return True
            try:
                self._records.remove()
            except CoordinationError as error:
                if waited_s < patience_s:
                    return False
                self.events.say("RecordsLeft", f"not removed from ZooKeeper: {error}", warning=True)
            self._records.close()
            return True

    # -- the spec ----------------------------------------------------------------------------------------------------

    def _take_spec(self, around: ClusterView) -> _Spec | None:
        meta = self.body["metadata"]
        generation = int(meta.get("generation", 0))
        if (self._spec is None or self._spec.generation != generation) and self._invalid[0] != generation:
            try:
                resource = from_json(json.dumps(document_of(self.body)))
                permit(resource, self.settings)
                self._spec = _Spec(generation, resource, view_of(resource, own_code=False))
                self._invalid = (-1, "")
            except SpecError as error:
                self._invalid = (generation, str(error))
                self.events.note("SpecRefused", str(error), warning=True)
        if self._spec is None:
            return None
        self._recommend = around.recommend or self._spec.resource.recovery.recommend_only
        self._adopt(self._spec, around)
        return self._spec

    def _adopt(self, spec: _Spec, around: ClusterView) -> None:
        """What the coordinator reads of a spec, once for each that is new."""
        resource, meta, news = spec.resource, self.body["metadata"], (spec.generation, around.paused)
        if self._adopted == news:
            return
        if self._records is None:
            self._records = Records(
                self.client,
                resource,
                spec.view,
                meta["uid"],
                self.settings,
                self._permits,
                self.wake,
                self._reported,
            )
            self._forecaster = CapacityForecaster(self.api, resource.namespace)
            self._executors = ExecutorKeeper(
                self.api,
                resource.namespace,
                self._records,
                self.events,
                patience_s=absence_counts_after_s(self.settings.session_s),
            )
        self._reporter_of().publisher.priorities = {q.id: q.priority for q in spec.view.queries}
        self._records.adopt(resource, spec.view, resource.paused or around.paused)
        self._adopted = news

    def _reported(self) -> None:
        """The driver has said something: while nothing is going on, the next poll is soon enough."""
        if not self.quiet and not self._calm:
            self.wake()

    def _permits(self, decision: Decision) -> bool:
        """Whether a decision may be carried out: in recommend-only mode a plan waits until its object is approved."""
        publisher = self._reporter_of().publisher
        plan = decision.plan
        if plan is None or not self._recommend or _is_start(decision):
            self._held_back = ""
            return True
        name = publisher.propose(plan)
        if name != self._held_back:
            self._held_back, self._looked_for_approval = name or "", 0.0
            self.events.note("PlanProposed", f"{name}: {decision.reason}")
        if name is None or time.monotonic() - self._looked_for_approval < _APPROVAL_S:
            return False
        self._looked_for_approval = time.monotonic()
        if not publisher.approved(name):
            return False
        self.events.note("PlanApproved", name)
        self._held_back = ""
        return True

    # -- acting ------------------------------------------------------------------------------------------------------

    def _act(self, spec: _Spec, around: ClusterView) -> None:
        assert self._records is not None
        assert self._executors is not None
        pods = {name: pod for name, pod in around.pods.items() if pod.role == "executor"}
        driver = around.pods.get(driver_name(spec.resource.name))
        if self._records.connected:
            self._executors.look(pods, around.machines)
            coming = (State.PENDING, State.STARTING)
            here = frozenset(n for n, v in self._executors.verdicts.items() if v.state not in coming)
            assert self._forecaster is not None
            self._outlook = self._forecaster.look(spec.resource, around, here)
        recovering = self._recovering or self._reporter_of().recovering
        if self.driver.drain is None:
            self.driver.drain = Drain(self._records, self.events)
        self.driver.pods_wait = any(pod.phase == "Pending" for pod in pods.values())
        self.driver.look(spec.resource, driver, around.machines, recovering, self._records.last)

    def _show(self, spec: _Spec, seen: Observation) -> Observation:
        self.driver.heard(seen)
        if self.board is not None:
            self.board.show(spec.resource.namespace, spec.resource.name, spec.resource, seen)
        return seen

    def _tell(self, around: ClusterView, state: RunState | None) -> None:
        resource = self._spec.resource if self._spec else None
        seen = state.observation if state else None
        self._reporter_of().tell(
            Situation(
                generation=int(self.body["metadata"].get("generation", 0)),
                resource=resource,
                invalid=self._invalid[1],
                state=state,
                verdicts=self._executors.verdicts if self._executors else {},
                driver=driver_name(resource.name) if resource else "",
                driver_problem=self.driver.problem,
                root=self._records.root if self._records else "",
                coordinator=self.settings.identity,
                held_back=self._held_back,
                outlook=self._outlook,
                paused_by=_paused_by(resource, around, seen),
                problem=self._problem,
            )
        )

    def _reporter_of(self) -> StatusReporter:
        if self._reporter is None:
            meta = self.body["metadata"]
            reference = TopologyReference(name=meta["name"], uid=meta["uid"])
            publisher = Publisher(
                self.api, meta["namespace"], reference, {}, owner(self.body), self.settings.keep_incidents
            )
            self._reporter = StatusReporter.of(self.api, meta["name"], publisher, self.events)
            self._reporter.standing = dict(self.body.get("status") or {})
        return self._reporter


def document_of(body: Mapping[str, Any]) -> dict[str, Any]:
    """What the resource's model knows of a Kubernetes object."""
    meta = body["metadata"]
    kept = {key: meta[key] for key in ("name", "namespace") if key in meta}
    kept["labels"] = dict(meta.get("labels") or {})
    return {"apiVersion": body["apiVersion"], "kind": body["kind"], "metadata": kept, "spec": body["spec"]}


def _is_start(decision: Decision) -> bool:
    return decision.incident is not None and decision.incident.kind is Kind.START


def _paused_by(resource: StreamTopology | None, around: ClusterView, seen: Observation | None) -> str:
    if around.paused:
        return "all topologies are paused by the operator's switches"
    if resource is not None and resource.paused:
        return "spec.paused"
    if seen is not None and seen.desired is not None and seen.desired.paused:
        return "commands/paused in ZooKeeper"
    return ""
