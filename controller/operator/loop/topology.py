"""One StreamTopology: each look sees everything, decides, does what is to be done next, and shows it.

Four steps over one frozen `TopologyState`: `Witness` (what has become of the pods), `Decider` (what the coordinator
decides), `Actor` (what follows for the pods) and `TopologyDisplay` (what people see).  The first two are `decide`, and go
before everything in a burst; the other two are `reconcile`.

Level-triggered: nothing depends on having seen a change, so a controller that was killed at any step, or has slept through
a day, goes on from what is there.  A step never waits for anybody longer than one request; what fails is said in a
condition and tried again.
"""

from __future__ import annotations

import contextlib
import json
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import Any

from reprise.controller import logs
from reprise.controller.crd.base import TopologyReference
from reprise.controller.crd.convert import savepoints_by_hand, skips_by_hand
from reprise.controller.kubernetes.api import Api
from reprise.controller.kubernetes.errors import BudgetError, OperatorError
from reprise.controller.kubernetes.events import EventReason, Events
from reprise.controller.observability.metrics import look as metrics_look
from reprise.controller.observability.metrics.totals import Totals
from reprise.controller.operator.loop.decider import Decider
from reprise.controller.operator.loop.poll_rate import PollKind, PollRate
from reprise.controller.operator.loop.poll_schedule import PollSchedule
from reprise.controller.operator.permitted import permit
from reprise.controller.operator.pods.actor import Actor, executors_of
from reprise.controller.operator.pods.capacity import NOTHING_KNOWN
from reprise.controller.operator.pods.capacity_forecaster import CapacityForecaster
from reprise.controller.operator.pods.cluster_view import ClusterView
from reprise.controller.operator.pods.drain import Drain
from reprise.controller.operator.pods.driver import DriverKeeper
from reprise.controller.operator.pods.manifests import driver_name, owner
from reprise.controller.operator.pods.notices import Notices
from reprise.controller.operator.pods.removal import Removal
from reprise.controller.operator.pods.witness import Witness
from reprise.controller.operator.records import Records
from reprise.controller.operator.settings import OperatorSettings
from reprise.controller.operator.status.display import TopologyDisplay
from reprise.controller.operator.status.publisher import ObjectPublisher
from reprise.controller.operator.status.reporter import StatusReporter
from reprise.controller.operator.status.topology_state import TopologyState
from reprise.controller.status.failure_domains import losses_now
from reprise.controller.status.query_state import state_of
from reprise.controller.topology_view import view_of
from reprise.controller.web import Board
from reprise.controller.zookeeper.errors import CoordinationError
from reprise.controller.zookeeper.node_record import absence_counts_after_s
from reprise.controller.zookeeper.observation import Observation
from reprise.controller.zookeeper.session import ZooKeeperSession
from reprise.scheduler import Decision
from reprise.scheduler.model import Leaving, TopologyView
from reprise.spark_jobs.errors import SpecError
from reprise.spark_jobs.topology import StreamTopology, from_json
from reprise.spark_jobs.topology.changes import require_able_to_change

log = logging.getLogger("reprise.operator")
REFUSED_S = 30.0
"""Between two looks at a topology whose spec cannot be read; a new spec wakes it."""
NOTHING_SEEN = ClusterView({}, None)
"""Nothing is known of pods or Kubernetes nodes."""


@dataclass(frozen=True, slots=True)
class Spec:
    """The newest spec that could be read."""

    generation: int
    resource: StreamTopology
    view: TopologyView


@dataclass(frozen=True, slots=True)
class _Steps:
    """What looks after a topology whose spec could be read."""

    records: Records
    witness: Witness
    decider: Decider
    actor: Actor


class TopologyController:
    """Used by one thread at a time; `wake` is called from any thread when there is reason for a step."""

    def __init__(
        self, api: Api, client: ZooKeeperSession, settings: OperatorSettings, body: Mapping[str, Any],
        wake: Callable[[], None], poll_rate: PollRate | None = None, board: Board | None = None,
    ) -> None:  # fmt: skip
        """`board`: where the web page finds what was seen."""
        self.body, self.wake = body, wake
        self.state = TopologyState()
        """As the last step has left it."""
        meta, parent = body["metadata"], owner(body)
        about = {key: value for key, value in parent.items() if key != "controller"}
        self.events = Events(api, meta["namespace"], about)
        self.driver = DriverKeeper(api, settings, parent, self.events)
        reference = TopologyReference(name=meta["name"], uid=meta["uid"])
        publisher = ObjectPublisher(api, meta["namespace"], reference, {}, parent, settings.keep_incidents)
        self.display = TopologyDisplay(StatusReporter.of(api, meta["name"], publisher, self.events), board)
        self.display.reporter.standing = dict(body.get("status") or {})
        self._api, self._client, self._settings = api, client, settings
        self._schedule = PollSchedule(poll_rate or PollRate())
        self._notices = Notices(settings.leaving_by_taint, settings.leaving_by_condition)
        self._since = time.time()
        self._totals = Totals()
        self._spec: Spec | None = None
        self._invalid = ""
        """Why the newest spec is refused."""
        self._taken: tuple[int, StreamTopology | None] = (-1, None)
        """Generation of the spec that was looked at last, and what the driver ran by then: whether its graph may follow is
        another question where that changes."""
        self._steps: _Steps | None = None
        self._adopted: tuple[int, bool] | None = None
        self._removal: Removal | None = None
        self._ending = False
        self._lock = threading.Lock()

    @property
    def seen(self) -> metrics_look.Look | None:
        """What was found last, for the metrics; made when it is asked for, so that nothing is kept twice."""
        spec, steps = self._spec, self._steps
        if spec is None or steps is None:
            return None
        resource, view = steps.records.shown
        state = state_of(view.queries, steps.records.last)
        return metrics_look.Look(resource, view, state, self._since, self._totals)

    @property
    def name(self) -> str:
        """The label `topology` of its metrics: namespace/name."""
        return "{namespace}/{name}".format_map(self.body["metadata"])

    @property
    def quiet(self) -> bool:
        """Nothing is going on: a poll is enough."""
        return self._schedule.kind is PollKind.POLL

    # -- looks -------------------------------------------------------------------------------------------------------

    def decide(self, body: Mapping[str, Any], cluster: ClusterView) -> Decision | None:
        """The first half of a look: what Kubernetes says of pods is witnessed, then the coordinator decides.  None when
        there was nothing to decide, or it could not be carried out."""
        with self._lock, self._timed(PollKind.DECIDE):
            self.body = body
            if self._schedule.kind is None and not self._ending:  # also a thousand new ones take turns
                self._schedule.next(PollKind.DECIDE)
            if self._over or self._take_spec(cluster) is None or self._steps is None:
                return None
            steps, decision = self._steps, None
            self.state = replace(self.state, problem="", unwritten=False, calm=False)
            pods = executors_of(cluster.pods)
            with self._failures():
                if steps.records.connected and not steps.records.opened:
                    steps.records.open()
            if self._take_spec(cluster) is None:  # what the driver runs may not have been known before
                return None
            with self._failures():
                steps.records.coordinator.seen = None
                if steps.records.opened and steps.witness.has_news(pods):
                    self.state = replace(self.state, findings=steps.witness.look(pods, cluster.machines))
            with self._failures():
                decision = steps.decider.decide(
                    pods, self._leaving(cluster), cluster.machines, skips_by_hand(body["metadata"]),
                    savepoints_by_hand(body["metadata"]),
                )  # fmt: skip
            self.state = replace(
                self.state,
                calm=decision is not None and decision.until == inf,
                undecided=steps.decider.problem,
                held_back=self.display.reporter.approval.held_back,
            )
            return decision

    def precompute(self) -> None:
        """After a look that found that a burst settles, while there is time for it.  What follows from that look is not
        held up."""
        if self._steps is not None:
            self._steps.decider.precompute()

    def reconcile(self, cluster: ClusterView) -> float:
        """The second half: pods are ended and created, objects and status written; seconds until the next look."""
        with self._lock, self._timed(PollKind.RECONCILE):
            if self._over:
                return self._next(PollKind.POLL)
            spec, steps = self._spec, self._steps
            if spec is None or steps is None:
                self.state = replace(self.state, state=None)
                self._tell(cluster)
                return REFUSED_S
            with self._failures():
                self._act(spec, steps, cluster)
            with self._failures():
                seen = self._observed(steps, steps.records.observe())
                self.state = _with_seen(self.state, steps, seen)
            self._tell(cluster)
            self._schedule.looked_at_everything()
            return self._next(PollKind.DECIDE if self.state.busy else PollKind.POLL)

    def poll(self, body: Mapping[str, Any], cluster: ClusterView) -> float | None:
        """A look at a quiet topology: has its driver anything to say?  Seconds until the next look; None when everything
        must be looked at."""
        with self._lock, self._timed(PollKind.POLL):
            spec, steps, meta = self._spec, self._steps, body["metadata"]
            if (
                not self.quiet or spec is None or steps is None or self._schedule.everything_due
                or meta.get("generation") != spec.generation or meta.get("deletionTimestamp")
                or self._adopted != (spec.generation, cluster.paused)
                or self._leaving(cluster, body) != steps.records.coordinator.store.notices
                or skips_by_hand(meta) != steps.records.coordinator.store.asked
                or savepoints_by_hand(meta) != steps.records.handed_on
                or (seen := steps.records.poll()) is None
            ):  # fmt: skip
                return None
            self.body = body
            self._observed(steps, seen)
            if self.driver.silent:
                return None
            if self.display.reporter.due:
                self.state = _with_seen(self.state, steps, seen)
                self._tell(cluster)
            return self._next(PollKind.POLL)

    def end(self) -> None:
        """Stop without touching anything: the operator goes, the topology stays."""
        with self._lock:
            self._schedule.leave()
            if self._steps is not None:
                self._steps.records.close()

    def finalize(self, waited_s: float, patience_s: float, cluster: ClusterView = NOTHING_SEEN) -> bool:
        """One step of removing everything, `waited_s` after the first; True when nothing is left to do.  With ZooKeeper
        away the records stay, and an object of the same name removes them when it starts."""
        with self._lock:
            self._ending = True
            self._schedule.leave()
            meta = self.body["metadata"]
            if self._steps is None:
                self._take_spec(NOTHING_SEEN)
            if self._removal is None:
                self._removal = Removal(self._api, self.events, meta["namespace"], meta["name"])
            if not self._removal.step(cluster.pods):
                return False
            if self._steps is None:
                return True
            try:
                self._steps.records.remove()
            except CoordinationError as error:
                if waited_s < patience_s:
                    return False
                self.events.say(
                    EventReason.RECORDS_LEFT, f"not removed from ZooKeeper: {error}", warning=True
                )
            self._steps.records.close()
            return True

    # -- steps -------------------------------------------------------------------------------------------------------

    def _act(self, spec: Spec, steps: _Steps, cluster: ClusterView) -> None:
        if steps.records.connected:
            findings = steps.witness.look(executors_of(cluster.pods), cluster.machines)
            self.state = replace(self.state, findings=findings)
        recovering = self.state.recovering or self.display.reporter.recovering
        steps.actor.act(spec.resource, cluster, self.state.findings, recovering)

    def _leaving(self, cluster: ClusterView, body: Mapping[str, Any] | None = None) -> dict[str, Leaving]:
        annotations = (body or self.body)["metadata"].get("annotations") or {}
        return self._notices.of(annotations, executors_of(cluster.pods), cluster.machines)

    def _observed(self, steps: _Steps, seen: Observation) -> Observation:
        self.driver.heard(seen)
        self.display.page(steps.records.shown[0], seen)
        return seen

    def _tell(self, cluster: ClusterView) -> None:
        resource = self._spec.resource if self._spec else None
        shown = self._steps.records.shown[0] if self._steps else resource
        self.display.refused(self.body["metadata"]["namespace"], self.body["metadata"]["name"], self._invalid)
        self.state = replace(
            self.state,
            generation=int(self.body["metadata"].get("generation", 0)),
            resource=shown,
            invalid=self._invalid,
            driver=driver_name(resource.name) if resource else "",
            driver_problem=self.driver.problem,
            driver_outdated=self.driver.outdated,
            root=self._steps.records.root if self._steps else "",
            forecast=self._steps.actor.forecaster.forecast if self._steps else NOTHING_KNOWN,
            coordinator=self._settings.identity,
            paused_by=_paused_by(resource, cluster, self.state.observation),
        )
        self.display.tell(self.state)

    @contextlib.contextmanager
    def _failures(self) -> Iterator[None]:
        """What a step could not do is said, and tried again at the next look."""
        try:
            yield
        except BudgetError:
            self.state = replace(self.state, unwritten=True)
        except (OperatorError, CoordinationError) as error:
            problem = f"{type(error).__name__}: {error}"
            self.state = replace(self.state, problem=problem)
            log.warning("event=step-failed topology=%s reason=%r", self.body["metadata"]["name"], problem)
        except Exception as error:  # a defect: the status must not stay as it was
            self.state = replace(
                self.state, problem=f"defect of the operator: {type(error).__name__}: {error}"
            )
            log.exception("event=step-failed topology=%s", self.body["metadata"]["name"])

    @property
    def _over(self) -> bool:
        """`finalize` removes what a step would create."""
        return self._ending or bool(self.body["metadata"].get("deletionTimestamp"))

    def _next(self, kind: PollKind) -> float:
        return self._schedule.rate.between_s(kind) if self._ending else self._schedule.next(kind)

    @contextlib.contextmanager
    def _timed(self, kind: PollKind) -> Iterator[None]:
        meta = self.body["metadata"]
        logs.about(topology=f"{meta['namespace']}/{meta['name']}", incident=None, plan=None)
        began = time.thread_time()
        yield
        self._schedule.rate.note(kind, time.thread_time() - began)

    # -- the spec ----------------------------------------------------------------------------------------------------

    def _take_spec(self, cluster: ClusterView) -> Spec | None:
        generation = int(self.body["metadata"].get("generation", 0))
        running = self._steps.records.started_with if self._steps else None
        if self._taken[0] != generation or self._taken[1] is not running:
            self._taken = generation, running
            try:
                resource = from_json(json.dumps(document_of(self.body)))
                permit(resource, self._settings)
                self._require_able_to_follow(running, resource)
                self._spec, self._invalid = Spec(generation, resource, view_of(resource, own_code=False)), ""
            except SpecError as error:
                self._invalid = "; ".join(map(str, error.all))
                self.events.note(EventReason.SPEC_REFUSED, self._invalid, warning=True)
            self._adopted = None
        if self._spec is None:
            return None
        approval = self.display.reporter.approval
        approval.required = cluster.recommend or self._spec.resource.recovery.recommend_only
        self._adopt(self._spec, cluster)
        return self._spec

    def _require_able_to_follow(self, running: StreamTopology | None, wanted: StreamTopology) -> None:
        """SpecError where a stream that has begun does not go on with this graph.  What was taken before goes on then; an
        operator that has taken nothing goes by what the driver was started with."""
        if running is None or not self.display.reporter.standing.get("startedAt"):
            return
        try:
            require_able_to_change(running, wanted)
        except SpecError:
            if self._spec is None or _graph_refused(running, self._spec.resource):
                self._spec = self._followed(self._taken[0])
            raise

    def _followed(self, generation: int) -> Spec | None:
        """What the driver follows; None while that cannot be read, and then it is asked for with the next look."""
        assert self._steps is not None
        try:
            resource = self._steps.records.followed()
        except CoordinationError as error:
            log.warning("event=step-failed topology=%s reason=%r", self.body["metadata"]["name"], str(error))
            resource = None
        if resource is None:
            self._taken = (-1, None)
            return None
        return Spec(generation, resource, view_of(resource, own_code=False))

    def _adopt(self, spec: Spec, cluster: ClusterView) -> None:
        """What the coordinator reads of a spec, once for each that is new."""
        adopted = spec.generation, cluster.paused
        if self._adopted == adopted:
            return
        if self._steps is None:
            self._steps = self._make_steps(spec)
        self._steps.records.adopt(spec.resource, spec.view, spec.resource.paused or cluster.paused)
        views = self._steps.records.shown[1], spec.view
        self.display.reporter.publisher.priorities = {
            q.id: q.priority for view in views for q in view.queries
        }
        self._adopted = adopted

    def _make_steps(self, spec: Spec) -> _Steps:
        api, namespace = self._api, spec.resource.namespace
        records = Records(
            self._client,
            spec.resource,
            spec.view,
            self.body["metadata"]["uid"],
            self._settings,
            self.display.reporter.approval.permits,
            self.wake,
            self._reported,
        )
        self.driver.drain = Drain(records, self.events)
        patience_s = absence_counts_after_s(self._settings.session_s)
        return _Steps(
            records,
            Witness(api, namespace, records, self.events, patience_s=patience_s),
            Decider(records, self.events),
            Actor(api, self.events, records, self.driver, CapacityForecaster(api, namespace)),
        )

    def _reported(self) -> None:
        """The driver has said something: while nothing is going on, the next poll is soon enough."""
        if not self.quiet and not self.state.calm:
            self.wake()


def _with_seen(state: TopologyState, steps: _Steps, seen: Observation) -> TopologyState:
    """What is known, with what the records say now."""
    resource, view = steps.records.shown
    partitions = (p.id for p in view.partitions)
    losses = losses_now(resource.nodes.failure_domain, view.queries, partitions, seen)
    return replace(state, state=state_of(view.queries, seen), losses=losses)


def _graph_refused(running: StreamTopology, wanted: StreamTopology) -> bool:
    try:
        require_able_to_change(running, wanted)
    except SpecError:
        return True
    return False


def document_of(body: Mapping[str, Any]) -> dict[str, Any]:
    """What the resource's model knows of a Kubernetes object."""
    meta = body["metadata"]
    kept = {key: meta[key] for key in ("name", "namespace") if key in meta}
    kept["labels"] = dict(meta.get("labels") or {})
    return {"apiVersion": body["apiVersion"], "kind": body["kind"], "metadata": kept, "spec": body["spec"]}


def _paused_by(resource: StreamTopology | None, cluster: ClusterView, seen: Observation | None) -> str:
    if cluster.paused:
        return "all topologies are paused by the operator's switches"
    if resource is not None and resource.paused:
        return "spec.paused"
    if seen is not None and seen.desired is not None and seen.desired.paused:
        return "commands/paused in ZooKeeper"
    return ""
