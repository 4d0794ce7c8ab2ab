"""Keeps one driver pod alive for a topology: created when there is none, created anew when it has ended, moved when its
machine is gone, ended when it is silent or its loop hangs, and restarted when the spec asks for another one.

A restart is never in the middle of a recovery, unless the spec says so (`upgrade: replay`): a recovery ends with a
checkpoint, and wrong code may prevent every one.  A pod that has not come to run holds nothing up.

The pod has a fixed name, so the API server itself refuses a second one.  A pod that was told to end and that nobody ends, as
its machine is lost, is removed by force; the process may then live on where nobody sees it, beside its successor.  That does
no harm: hosts refuse commands of lower epochs, and the checkpoint store and sinks refuse what a driver of a lower epoch
writes (docs/decisions/0007-driver-given-up.md).
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from reprise.controller.crd.convert import cut
from reprise.controller.kubernetes.api import Api, collection
from reprise.controller.kubernetes.errors import ConflictError
from reprise.controller.kubernetes.events import EventReason, Events
from reprise.controller.kubernetes.pods import KubernetesNode, PodView
from reprise.controller.operator.pods import manifests, network_policy, pod_template, zk_mounts
from reprise.controller.operator.pods.drain import WAY_OUT, Drain, nothing_released
from reprise.controller.operator.pods.driver_silence import DriverSilence
from reprise.controller.operator.pods.endings import OVERDUE_S, Endings
from reprise.controller.operator.settings import OperatorSettings
from reprise.controller.status.loop_watch import LoopWatch
from reprise.controller.zookeeper.errors import CoordinationError
from reprise.controller.zookeeper.observation import Observation
from reprise.spark_jobs.topology import StreamTopology

LONGEST_PAUSE_S = 60.0
STABLE_S = 120.0
"""A driver that has run for so long has not failed to start."""
FIRST_REPORT_S = 300.0
"""A driver may take so long to its first report: it imports, starts Spark, and may copy a checkpoint of a standby site."""
AGAIN_S = 5.0
"""Between two forced deletions of one pod, while the watch has not told that it is gone."""


@dataclass(slots=True)
class DriverKeeper:
    """Keeps the driver of one topology."""

    api: Api
    settings: OperatorSettings
    owner: Mapping[str, Any]
    events: Events
    clock: Callable[[], float] = time.monotonic
    drain: Drain | None = None
    """None: records cannot be written, so a change that needs a drain waits."""
    problem: str = ""
    """Why there is no driver that works; empty when there is one."""
    silence: DriverSilence = field(init=False)
    """Whoever reads the records tells it of the driver's reports."""
    loop: LoopWatch = field(init=False)
    """The same, of what they say of its loop."""
    pods_wait: bool = False
    """Whether executors' pods have not started."""
    _user: zk_mounts.UserSecret | None = None
    _ends: int = 0
    _not_before: float = 0.0
    _created: float = field(default=0.0)
    _wanted: tuple[StreamTopology, str] | None = None
    _policy: str = ""
    """The network policy that this process has applied last."""
    _endings: Endings = field(init=False)
    _ended_uid: str = ""
    """Of the last pod whose end was counted."""
    _given_up_uid: str = ""
    """Of the last pod that was told to end because it was silent, or its loop hung."""
    _held_up: str = ""
    """What to add to its problem where a changed spec waits until a driver that ends again and again has drained."""
    _forced: tuple[str, float] = ("", 0.0)
    """The last pod that was removed by force, and when."""

    outdated: bool = False
    """Whether the driver was started with another spec than the newest valid one."""

    def __post_init__(self) -> None:
        self.silence = DriverSilence(self.settings.driver_silent_s, self.clock)
        self.loop = LoopWatch()
        self._endings = Endings(self.clock)

    @property
    def silent(self) -> bool:
        """Whether the driver, whose pod may well run, has said nothing for so long that it is given up."""
        limit = self.silence.limit_s
        return self.silence.silent_s > (limit if self.silence.reported else max(limit, FIRST_REPORT_S))

    def heard(self, seen: Observation) -> None:
        """What the driver has reported by a look at its records."""
        self.silence.heard(seen.report if seen.connected else None)
        self.loop.heard(self.clock(), seen.progress if seen.connected else None, seen.report)

    def look(
        self,
        resource: StreamTopology,
        pod: PodView | None,
        machines: Mapping[str, KubernetesNode] | None,
        recovering: bool,
        seen: Observation | None = None,
    ) -> None:
        """One step towards a driver of the right kind."""
        uid = pod.uid if pod is not None and pod.phase == "Running" else ""
        self.silence.follow(uid)
        self.loop.follow(uid)
        self._endings.keep([] if pod is None else [pod])
        revision = self._revision(resource)
        if pod is None:  # between two pods nothing is in effect that was not before
            self.outdated = self.outdated or self._was_of_another(resource)
        else:
            self.outdated = pod.annotations.get(manifests.REVISION) != revision or self._deaf(
                resource, pod, seen
            )
        if pod is not None and not pod.ended:
            self._keep_to_itself(resource, pod.annotations.get(network_policy.MARK, ""))
        if pod is None:
            self._create(resource)
        elif pod.ended:
            self._ended(resource, pod, seen)
        elif (why := self._lost(pod, machines)) is not None:
            self._move(resource, pod, why)
        elif pod.deleted_at is not None:
            self.problem = self.problem if pod.uid == self._given_up_uid else "the driver is ending"
        elif pod.phase == "Running" and (self.silent or self.loop.hung):
            self._give_up_useless(resource, pod)
        elif self.outdated:
            self._renew(resource, pod, recovering, seen)
        else:
            self._let_be(resource, pod)

    def _was_of_another(self, resource: StreamTopology) -> bool:
        """Whether the last driver was started with another spec, as far as its record can be read: an operator that has just
        started has not seen its pod."""
        found = None if self.drain is None else self.drain.last_started()
        if found is None:
            return False
        before, image = found
        settings = self.settings if before.kubernetes.image else replace(self.settings, image=image)
        return manifests.revision(before, settings) != self._revision(resource)

    def _deaf(self, resource: StreamTopology, pod: PodView, seen: Observation | None) -> bool:
        """Whether it is of an image from before drivers followed settings in place, and should follow others."""
        progress = seen.progress if seen is not None and self.silence.reported else None
        before = pod.annotations.get(manifests.DRIVER_SETTINGS)
        unable = progress is not None and not progress.settings and before is not None
        return unable and before != manifests.driver_settings(resource)

    def _let_be(self, resource: StreamTopology, pod: PodView) -> None:
        """The driver is the right one: only what it waits for is said."""
        self.problem = "" if pod.phase == "Running" else f"the driver's pod is {pod.phase}: {pod.reason}"
        if pod.phase == "Pending" and pod.machine:
            needs = pod_template.needs(resource, self.settings.image)
            self.problem = cut(f"{self.problem}; on its Kubernetes node it needs {needs}", 1024)
        if no_user := self._without_user(resource, self.pods_wait or pod.phase == "Pending"):
            self.events.say(EventReason.USER_REFUSED, no_user, warning=True)

    def _revision(self, resource: StreamTopology) -> str:
        """The revision of the driver that is wanted; computed once for each spec."""
        if self._wanted is None or self._wanted[0] is not resource:
            self._wanted = resource, manifests.revision(resource, self.settings)
        return self._wanted[1]

    def _create(self, resource: StreamTopology) -> None:
        if (wait := self._not_before - self.clock()) > 0:
            self.problem = f"the driver has ended {self._ends} times; again in {wait:.0f} s"
            self.problem += "" if self._replays(resource) else self._held_up
            return
        if no_user := self._without_user(resource):
            self.problem = f"no driver is started: {no_user}"
            self.events.say(EventReason.USER_REFUSED, no_user, warning=True)
            return
        settings, folder = self.settings, collection(resource.namespace, "configmaps")
        pods = collection(resource.namespace, "pods")
        if self.api.find(f"{pods}/{manifests.driver_name(resource.name)}") is not None:
            return  # the watch has not told us yet; what it reads, and has its executors made from, is not to change
        if self.drain is not None:
            try:
                resource, settings = self.drain.to_start(resource, settings)
            except CoordinationError as error:
                self.problem = f"no driver is started before its spec is on record: {error}"
                return
        config = manifests.config_map(resource, settings, self.owner)
        self.api.apply(f"{folder}/{config['metadata']['name']}", config)
        self._keep_to_itself(resource, "")
        prefix = f"{resource.name}-{secrets.token_hex(3)}"
        pod = manifests.driver_pod(resource, settings, self.owner, prefix)
        try:
            self.api.create(pods, pod)
        except ConflictError:  # somebody was faster
            return
        self._created = self.clock()
        self._not_before = self._created + 2.0  # the watch tells of it before that, or we ask in vain
        self.problem = "the driver is starting"
        self.events.say(
            EventReason.DRIVER_CREATED, f"pod {pod['metadata']['name']}, executors {prefix}-exec-*"
        )

    def _without_user(self, resource: StreamTopology, waited_for: bool = False) -> str:
        """Why the topology's pods cannot be its user of ZooKeeper; empty where they can, or where nobody is one."""
        if self._user is None or self._user.settings is not self.settings:
            self._user = zk_mounts.UserSecret(self.api, self.settings, self.owner, self.clock)
        return self._user.make(resource, manifests.labels(resource.name, "zookeeper-user"), waited_for)

    def _keep_to_itself(self, resource: StreamTopology, there: str) -> None:
        """Make the topology's network policy where none is wanted yet; `there`: which one its driver was made with."""
        wanted = network_policy.digest(resource, self.settings)
        if wanted in (there, self._policy):
            return
        labels = manifests.labels(resource.name, "network-policy")
        body = network_policy.manifest(resource, self.settings, self.owner, labels)
        folder = collection(resource.namespace, network_policy.PLURAL, network_policy.API_GROUP)
        self.api.apply(f"{folder}/{body['metadata']['name']}", body)
        self._policy = wanted

    def _ended(self, resource: StreamTopology, pod: PodView, seen: Observation | None) -> None:
        self._held_up = self._waits(resource, pod, seen)
        if pod.phase == "Succeeded" and pod.annotations.get(manifests.REVISION) != self._revision(resource):
            self.problem = "the driver has drained"
            self._not_before = 0.0
            self.events.say(EventReason.DRIVER_RESTARTED, "the spec has changed, and the driver has drained")
        elif pod.uid != self._ended_uid:  # the watch may show it again before it tells that it is gone
            pause = self._count_end(pod)
            why = pod.reason or pod.phase
            self.problem = f"the driver has ended: {why}{self._held_up}"
            self.events.say(
                EventReason.DRIVER_ENDED, f"{why}; a new one in {pause:.0f} s{self._held_up}", warning=True
            )
        self._delete(resource, pod, grace_s=None)

    def _waits(self, resource: StreamTopology, pod: PodView, seen: Observation | None) -> str:
        """What to say where the spec has changed and the driver in `pod`, which has ended, has not drained: one that ends
        again and again never will."""
        if self._replays(resource) or not self._changes_output(resource, pod):
            return ""
        if self.drain is None or seen is None or nothing_released(seen):
            return ""
        way_out = "" if self._changes_queries(resource) else f", and {WAY_OUT}"
        return f"; the changed spec waits until a driver with the former one has drained{way_out}"

    def _count_end(self, pod: PodView) -> float:
        """Seconds until there may be another one: ever more while none lasts."""
        self._ended_uid = pod.uid
        if self._created and self.clock() - self._created > STABLE_S:
            self._ends = 0
        pause = min(LONGEST_PAUSE_S, 2.0**self._ends)
        self._ends += 1
        self._not_before = self.clock() + pause
        return pause

    def _give_up_useless(self, resource: StreamTopology, pod: PodView) -> None:
        """The driver is silent, or it hangs."""
        if self.silent:
            silent = f"no report for {self.silence.silent_s:.0f} s while ZooKeeper answers"
            self._give_up(resource, pod, EventReason.DRIVER_SILENT, f"the driver is silent: {silent}")
        else:
            hangs = f"the driver hangs: {self.loop.describe()}"
            self._give_up(resource, pod, EventReason.DRIVER_HUNG, hangs)

    def _give_up(self, resource: StreamTopology, pod: PodView, reason: EventReason, problem: str) -> None:
        """It is told to end in the orderly way first: where its kubelet lives, that ends a process that is stopped, too."""
        self._count_end(pod)
        self.problem = problem
        self.events.say(reason, f"{problem}; it is ended and started anew", warning=True)
        self._delete(resource, pod, grace_s=None)
        self._given_up_uid = pod.uid

    def _move(self, resource: StreamTopology, pod: PodView, why: str) -> None:
        self.problem = f"the driver is lost: {why}"
        uid, at = self._forced
        if uid == pod.uid and self.clock() - at < AGAIN_S:
            return
        self._forced = pod.uid, self.clock()
        self.events.say(EventReason.DRIVER_LOST, why, warning=True)
        self._delete(resource, pod, grace_s=0)

    def _renew(
        self, resource: StreamTopology, pod: PodView, recovering: bool, seen: Observation | None
    ) -> None:
        ran = pod.phase != "Pending"  # else no container has: neither a drain nor a recovery is in its hands
        changes, replays = self._changes_output(resource, pod), self._replays(resource)
        if no_user := self._without_user(resource):  # its successor could not start
            self.problem = f"the driver goes on with the former spec: {no_user}"
            self.events.say(EventReason.USER_REFUSED, no_user, warning=True)
            return
        if ran and recovering and not (changes and replays):
            self._postpone(changes and not self._changes_queries(resource))
            return
        if changes and not replays and (ran or seen is None or not nothing_released(seen)):
            self.problem = "the spec has changed: the driver is drained when ZooKeeper answers"
            if self.drain is not None and seen is not None:
                self.problem = self.drain.look(resource, seen, pod, self.silence.reported)
            return
        self.events.say(EventReason.DRIVER_RESTARTED, "the spec has changed")
        self._delete(resource, pod, grace_s=None)

    def _postpone(self, changes: bool) -> None:
        """A driver is not replaced in the middle of a recovery; `changes`: whether the new one would make other output."""
        way_out = f"; {WAY_OUT}, also in the middle of a recovery" if changes else ""
        self.events.say(
            EventReason.SPEC_CHANGE_POSTPONED,
            f"the driver is restarted with the new spec when the incident is closed{way_out}",
        )
        held_up = changes and self._held_up and self.clock() - self._created <= STABLE_S
        self.problem = f"the driver has ended {self._ends} times{self._held_up}" if held_up else ""

    def _changes_queries(self, resource: StreamTopology) -> bool:
        return self.drain is not None and self.drain.changes_queries(resource)

    def _replays(self, resource: StreamTopology) -> bool:
        """Whether the new driver may make shown batches again.  None of another graph begins in the middle of a stream."""
        return resource.upgrade == "replay" and not self._changes_queries(resource)

    def _changes_output(self, resource: StreamTopology, pod: PodView) -> bool:
        """Whether other code would make shown batches again.  A driver of an earlier version, which has no such mark, does
        not know how to drain."""
        before = pod.annotations.get(manifests.OUTPUT)
        return before not in (None, manifests.output_revision(resource, self.settings))

    def _delete(self, resource: StreamTopology, pod: PodView, grace_s: int | None) -> None:
        path = f"{collection(resource.namespace, 'pods')}/{pod.name}"
        self.api.delete(path, uid=pod.uid, grace_s=grace_s)

    def _lost(self, pod: PodView, machines: Mapping[str, KubernetesNode] | None) -> str | None:
        """Why nobody will end this pod, though it must end; None while somebody may.

        Kubernetes marks the pods of a machine that it cannot reach for deletion after the time that their tolerations
        give; no kubelet carries that out.  Where Node objects may not be read, that is seen by the grace that passes, and
        sooner by a driver that was silent before already."""
        gone = _without_machine(pod, machines)
        if gone is not None or pod.deleted_at is None:
            return gone
        if self._endings.overdue(pod):
            return "it was told to end, its grace is over, and nobody has ended it"
        silent_s = self.silence.silent_s
        if pod.uid != self._given_up_uid and silent_s > pod.grace_s + OVERDUE_S:
            return f"it is told to end, and has said nothing for {silent_s:.0f} s"
        return None


def _without_machine(pod: PodView, machines: Mapping[str, KubernetesNode] | None) -> str | None:
    """A machine that does not exist, or one that is not reachable when Kubernetes has given up on the pod as well."""
    if machines is None or not pod.machine:
        return None
    machine = machines.get(pod.machine)
    if machine is None:
        return f"Kubernetes node {pod.machine} is gone"
    if not machine.reachable and pod.deleted_at is not None:
        return f"Kubernetes node {pod.machine} is not ready"
    return None
