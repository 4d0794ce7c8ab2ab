"""A topology's records in ZooKeeper as the operator uses them: the coordinator, its view, and the fencing of pods.

The coordinator is that of `reprise.controller.coordinator`, with two things added from outside: what a decision takes from a
pod that is not there any more, it takes in the same transaction that fences the pod; and a decision may be held back for
approval.  The records belong to one StreamTopology object: `owner` holds its uid, and what an object of the same name
has left behind is removed before anything is read.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from reprise.controller.coordinator.coordinator import Coordinator
from reprise.controller.coordinator.history import Kept
from reprise.controller.coordinator.store import Store
from reprise.controller.coordinator.transaction import Operation
from reprise.controller.operator import graph_step, savepoint_wishes
from reprise.controller.operator.heartbeat import Heartbeat
from reprise.controller.operator.settings import OperatorSettings
from reprise.controller.topology_view import policy_of, view_of
from reprise.controller.zookeeper import membership, paths
from reprise.controller.zookeeper import users as zk_users
from reprise.controller.zookeeper.errors import (
    BadVersionError,
    ClientError,
    NodeExistsError,
    NoNodeError,
    RecordError,
    SessionError,
    TooLargeError,
)
from reprise.controller.zookeeper.node_record import absence_counts_after_s
from reprise.controller.zookeeper.observation import Observation
from reprise.controller.zookeeper.observer import Observer
from reprise.controller.zookeeper.process_records import (
    Spec,
    encode_drain,
    encode_owner,
    encode_spec,
    parse_owner,
    parse_spec,
)
from reprise.controller.zookeeper.session import SessionState, Stat, ZooKeeperSession
from reprise.controller.zookeeper.settings_record import parse_settings, write_settings
from reprise.controller.zookeeper.znode import check, pack
from reprise.scheduler import Decision, Snapshot
from reprise.scheduler.model import TopologyView
from reprise.spark_jobs.errors import SpecError
from reprise.spark_jobs.state.savepoint_wish import SavepointWish
from reprise.spark_jobs.topology import StreamTopology, from_json
from reprise.spark_jobs.topology.changes import Settings, in_effect, settings_of

log = logging.getLogger("reprise.operator")
FRESH_S = 1.0
"""What was read for a decision counts as read now for so long; what follows from a decision may wait in a burst."""


class _Waking(threading.Event):
    """Tells somebody else, too."""

    def __init__(self, wake: Callable[[], None]) -> None:
        super().__init__()
        self._also = wake

    def set(self) -> None:
        super().set()
        self._also()


class Records:
    """The records of one topology; used by one thread at a time.  Methods raise SessionError when ZooKeeper does not
    answer."""

    def __init__(
        self, client: ZooKeeperSession, resource: StreamTopology, view: TopologyView, uid: str, settings: OperatorSettings,
        permits: Callable[[Decision], bool], wake: Callable[[], None],
        reported: Callable[[], None] | None = None,
    ) -> None:  # fmt: skip
        """`wake` is called when nodes or the session may have changed, `reported` when the driver has said something."""
        self._client, self._uid, self._settings, self._wake = client, uid, settings, wake
        self._reported = reported or wake
        self.root = paths.root_of(resource.namespace, resource.name)
        self._open = False
        self._observer = Observer(settings.zk, self.root, client)
        self.handed_on: tuple[SavepointWish, ...] = ()
        """Savepoints that the driver knows to be wanted, or of which it has said what came of them."""
        self._wanted: tuple[StreamTopology, TopologyView, bool] = resource, view, resource.paused
        self._started: StreamTopology | None = None
        """What the last driver was started with, as far as it is known and can be read."""
        self._known: Spec | None = None
        """The same, as its record says."""
        self._spec_version: int | None = None
        """Of the record that says so; None: there is none, or it was not read yet."""
        self._permits = permits
        self._told: Settings | None = None
        """The settings that its driver was told last."""
        self._members: dict[str, int] = {}
        self._missing_since: dict[str, float] = {}
        self.shown: tuple[StreamTopology, TopologyView] = resource, view
        """What people are shown: what is wanted, or, until a driver is started with other queries, those that run."""
        self.coordinator = self._coordinator(resource, view)

    def _coordinator(self, resource: StreamTopology, view: TopologyView) -> Coordinator:
        store = Store(
            client=self._client,
            root=self.root,
            topology=view,
            clock=time.time,
            paused=resource.paused,
            keep=resource.checkpoint.keep,
            grace_s=absence_counts_after_s(self._settings.session_s),
            also=self._also,
            changed=_Waking(self._wake),
            reported=_Waking(self._reported),
        )
        settings = self._settings
        return Coordinator(
            store,
            policy_of(resource, settings.settle_s, settings.driver_grace_s),
            permits=self._permitted,
            kept=Kept(settings.keep_records, settings.keep_records_mi * 2**20),
        )

    def adopt(self, resource: StreamTopology, view: TopologyView, paused: bool) -> None:
        """A spec that has changed: what takes effect in place does so with the coordinator's next look; the rest when a
        driver is started with it."""
        self._wanted = resource, view, paused
        self._follow()

    def _follow(self) -> None:
        """The coordinator decides by the topology in effect: what runs, with the settings that are wanted."""
        (wanted, view, paused), settings = self._wanted, self._settings
        started = self._started
        now = wanted if started is None else in_effect(started, settings_of(wanted))
        if now.document != wanted.document:
            view = view_of(now, own_code=False)
        self.shown = (now, view) if graph_step.other_graph(started, wanted) else self._wanted[:2]
        self.coordinator.store.follow(view, now.checkpoint.keep, paused)
        self.coordinator.policy = policy_of(now, settings.settle_s, settings.driver_grace_s)

    def tell_settings(self) -> None:
        """Have the driver follow the settings of the wanted spec; nothing where it was told.  SessionError: not now."""
        settings = settings_of(self._wanted[0])
        if not self._open or settings == self._told:
            return
        path = f"{self.root}/{paths.SETTINGS}"
        try:
            if self._told is None:
                found = self._get(path)
                self._told = self._begun_with() if found is None else self._followed(found[0], path)
            if settings == self._told:
                return
            write_settings(self._client, self.root, settings)
        except (ClientError, TooLargeError) as error:
            raise SessionError(f"{path}: {error!r}") from error
        self._told = settings

    def _followed(self, raw: bytes, path: str) -> Settings | None:
        """What a driver follows that was told this; None for what nobody can read, which is replaced."""
        try:
            return parse_settings(raw, path)
        except RecordError as error:
            log.warning("event=record-ignored reason=%r", str(error))
            return None

    def _begun_with(self) -> Settings:
        """What a driver follows that was told nothing."""
        return settings_of(self._started or self._wanted[0])

    @property
    def connected(self) -> bool:
        return self._client.state is SessionState.CONNECTED

    @property
    def opened(self) -> bool:
        """Whether the records are known to be this object's."""
        return self._open

    def open(self) -> None:
        """Make the records this object's; nothing when they are."""
        if self._open:
            return
        path = f"{self.root}/{paths.OWNER}"
        try:
            self._client.ensure_path(self.root)
            found = self._get(path)
            if found is not None and (uid := parse_owner(found[0])) != self._uid:
                log.info("event=records-removed root=%s uid=%s", self.root, uid)
                self._remove_all()
                self._client.ensure_path(self.root)
                found = None
            if found is None:
                self._client.create(path, encode_owner(self._uid))
            self._client.ensure_path(f"{self.root}/{membership.FOLDER}")
        except ClientError as error:
            raise SessionError(f"{self.root}: {error!r}") from error
        self.coordinator.store.open()
        self._open = True
        try:
            self.former()  # which spec they are of says what may be decided
        except SessionError:
            self._open = False
            raise

    def hand_on(self, wishes: tuple[SavepointWish, ...]) -> None:
        """Let the driver know which savepoints are to be taken or deleted, once each: what came of a wish is in its record.
        Nothing else waits for that: what fails is tried again with the next look."""
        if wishes == self.handed_on:
            return
        new = [wish for wish in wishes if wish not in self.handed_on]
        try:
            savepoint_wishes.hand_on(self._client, self.root, new)
        except ClientError as error:
            log.warning("event=savepoints-not-handed-on root=%s error=%r", self.root, error)
            return
        self.handed_on = wishes

    def remove(self) -> None:
        """All records, if they are this object's."""
        if not self.connected:
            raise SessionError(f"{self.root}: not removed, no connection")
        try:
            found = self._get(f"{self.root}/{paths.OWNER}")
            if found is not None and parse_owner(found[0]) == self._uid:
                self._remove_all()
        except NoNodeError:
            return
        except ClientError as error:
            raise SessionError(f"{self.root}: {error!r}") from error

    def _remove_all(self) -> None:
        """Whose they are goes last: what is left when this is interrupted is still known as that object's, and removed with
        the next try, and never taken over by another object of that name."""
        for name in self._client.get_children(self.root):
            if name != paths.OWNER:
                self._client.delete(f"{self.root}/{name}", recursive=True)
        self._client.delete(self.root, recursive=True)

    def close(self) -> None:
        """Stop listening and give up the lead."""
        self.coordinator.store.close()
        if not self.connected:
            return
        path = f"{self.root}/{paths.COORDINATOR}"
        try:
            stat = self._client.exists_async(path).get()
            if stat is not None and stat.owner == self._client.id:
                self._client.delete_async(path).get()
        except ClientError:
            return

    def observe(self) -> Observation:
        """All that people want to see; what the coordinator has just read for a decision is not read again."""
        known, self.coordinator.seen = self._just_read, None
        if known is not None:
            known = replace(known, undecided=self.coordinator.problem)
        return self._observer.read(known)

    @property
    def _just_read(self) -> Observation | None:
        """What the coordinator has read for the decision of this look; None where that is a while ago."""
        seen = self.coordinator.seen
        return seen if seen is not None and 0 <= time.time() - seen.time < FRESH_S else None

    @property
    def last(self) -> Observation:
        """What was observed last; nothing yet at the beginning."""
        return self._observer.last

    def former(self) -> Spec | None:
        """What the last driver was started with; None as well for a record that cannot be read, which nobody can start."""
        if not self._open:
            raise SessionError(f"{self.root}: the records are not known to be this object's yet")
        try:
            found = self._get(f"{self.root}/{paths.SPEC}")
        except ClientError as error:
            raise SessionError(f"{self.root}/{paths.SPEC}: {error!r}") from error
        self._spec_version = None if found is None else found[1].version
        spec = None
        if found is not None and found[0]:
            try:
                spec = parse_spec(found[0], f"{self.root}/{paths.SPEC}")
            except RecordError as error:
                log.warning("event=record-ignored reason=%r", str(error))
        if spec != self._known:  # it was written, and the answer that said so was lost
            self._runs(spec)
        return spec

    @property
    def started_with(self) -> StreamTopology | None:
        """What the last driver was started with; None where nobody knows, or can read it."""
        return self._started

    def followed(self) -> StreamTopology | None:
        """The same, with the settings that its driver was told last.  SessionError: not now."""
        if self._started is None:
            return None
        path = f"{self.root}/{paths.SETTINGS}"
        try:
            found = self._get(path)
        except ClientError as error:
            raise SessionError(f"{path}: {error!r}") from error
        settings = self._followed(found[0], path) if found is not None else None
        return self._started if settings is None else in_effect(self._started, settings)

    def _runs(self, spec: Spec | None) -> None:
        """Take note that this is what the last driver was started with."""
        before, self._started, self._known = self._started, None, spec
        if spec is not None:
            with contextlib.suppress(SpecError):  # of another version: the coordinator goes by what is wanted
                self._started = from_json(spec.document)
        anew = self._started is not None and graph_step.other_graph(before, self._started)
        if anew:  # of what was known of the former graph nothing holds: as in a topology that starts
            self.coordinator.store.close()
            self.coordinator, self._told = self._coordinator(*self._wanted[:2]), None
        self._follow()
        if anew:
            self.coordinator.store.open()

    def started(self, spec: Spec) -> None:
        """A driver is started with this.  Where its graph is another one, the records of the former one are gone with it.
        StaleError: it is not on record; SessionError: nobody knows whether it is."""
        path, raw = f"{self.root}/{paths.SPEC}", pack(encode_spec(spec))
        check(path, raw)
        try:
            if self._spec_version is not None and graph_step.is_of_other(self._started, spec.document):
                self._spec_version = graph_step.take_step(self._client, self.root, raw, self._spec_version)
            else:
                self._spec_version = self._put(path, raw)
        except ClientError as error:
            raise SessionError(f"{path}: {error!r}") from error
        self._runs(spec)

    def _put(self, path: str, raw: bytes) -> int:
        """Write a record, whether it is there or not; its version then."""
        try:
            return self._client.set_async(path, raw).get().version
        except NoNodeError:
            self._client.create_async(path, raw, makepath=True).get()
            return 0

    def close_to_others(self) -> None:
        """Records that were made without users, or by others, are given to the topology's; between two drivers, as one that
        runs as somebody else would be shut out."""
        keys = self._settings.zk_keys
        try:
            if keys is not None and not zk_users.is_closed(self._client, self.root, keys):
                count = zk_users.close(self._client, self.root, keys)
                log.info("event=records-closed root=%s znodes=%d", self.root, count)
        except ClientError as error:
            raise SessionError(f"{self.root}: not closed to others: {error!r}") from error

    def ask_to_drain(self, driver: str) -> None:
        """Tell the driver of this life to stop at a checkpoint; one that has written meanwhile is not overwritten unseen."""
        path, data = f"{self.root}/{paths.DRAIN}", encode_drain(driver)
        try:
            found = self._get(path)
            if found is None:
                self._client.create_below(self.root, paths.DRAIN, data)
            elif found[0] != data:
                self._client.set_async(path, data, found[1].version).get()
        except (BadVersionError, NodeExistsError) as error:
            raise SessionError(f"{path}: somebody else has written it: {error!r}") from error
        except ClientError as error:
            raise SessionError(f"{path}: {error!r}") from error

    def poll(self) -> Observation | None:
        """The last observation with a new report of the driver: three requests, where a whole look takes dozens.  None when
        there is news, and everything must be looked at."""
        store = self.coordinator.store
        commands = self._client.exists_async(f"{self.root}/{paths.PAUSED}")
        read_sample = store.ask_for_sample()
        seen = self._observer.poll()  # asked for last: with its answer the others are there
        try:
            stat = commands.get()
            if store.commanded != (0 if stat is None else stat.mzxid):
                return None
            read_sample()
        except ClientError:
            return None
        if seen is not None:
            store.note_lags(seen.progress, seen.desired, seen.incident)
        return seen

    # -- members -----------------------------------------------------------------------------------------------------

    def heartbeats(self) -> dict[str, Heartbeat] | None:
        """The heartbeat of every pod that ever was a member; None while ZooKeeper cannot be believed: when it does not
        answer, and for as long after a reconnection as agents take to renew their sessions.  What the coordinator
        has just read for a decision is not read again."""
        store = self.coordinator.store
        if not self.connected or store.trusted_for_s < 0:
            self._missing_since.clear()
            return None
        try:
            there = set(self._children(paths.NODES)) if self._just_read is None else store.heartbeats
            members = self._children(membership.FOLDER)
            versions = self._versions(members)
        except ClientError:
            return None
        now = time.monotonic()
        found = {}
        for pod in {*there, *members}:
            # from when it was missed, not from when it was seen last: a quiet topology is not looked at for a while
            if pod in there:
                self._missing_since.pop(pod, None)
            gone = 0.0 if pod in there else now - self._missing_since.setdefault(pod, now)
            fenced = versions.get(pod, membership.JOINED_VERSION) != membership.JOINED_VERSION
            found[pod] = Heartbeat(pod in there, pod in members, fenced, gone)
        return found

    def fence(self, pod: str, reason: str) -> None:
        """Give a pod up: it cannot register again, and its heartbeat goes with this."""
        path = membership.path_of(self.root, pod)
        try:
            try:
                self._client.set_async(path, membership.fenced(reason), membership.JOINED_VERSION).get()
            except NoNodeError:
                self._client.create_async(path, b"").get()
                self._client.set_async(path, membership.fenced(reason)).get()
            except BadVersionError:
                pass  # fenced already
            self._client.delete_async(f"{self.root}/{paths.NODES}/{pod}").get()
        except (NoNodeError, NodeExistsError):
            pass
        except ClientError as error:
            raise SessionError(f"{pod} not fenced: {error!r}") from error
        self._members.pop(pod, None)
        self.coordinator.store.fenced(pod)
        log.info("event=fenced root=%s pod=%s reason=%r", self.root, pod, reason)

    def forget(self, pod: str) -> None:
        """A pod that was fenced and is gone for good; its name is never used again."""
        try:
            self._client.delete_async(membership.path_of(self.root, pod)).get()
        except NoNodeError:
            pass
        except ClientError as error:
            raise SessionError(f"{pod} not forgotten: {error!r}") from error
        self._members.pop(pod, None)
        self._missing_since.pop(pod, None)

    def _permitted(self, decision: Decision) -> bool:
        """Not between the end of a driver that has drained and the step to other queries."""
        held = graph_step.held_back(self.coordinator.seen, decision)
        if held and graph_step.other_graph(self._started, self._wanted[0]):
            return False
        return self._permits(decision)

    def _also(self, snapshot: Snapshot, decision: Decision) -> Iterator[Operation]:
        yield from self._fencing(snapshot, decision)
        yield from graph_step.checked(self.root, self._spec_version)

    def _fencing(self, snapshot: Snapshot, decision: Decision) -> Iterator[Operation]:
        """What a decision takes from nodes that are gone, it takes for good."""
        if decision.desired is None or snapshot.desired is None:
            return
        alive = {node.id for node in snapshot.nodes}
        kept = set(decision.desired.assignment.values())
        gone = sorted(set(snapshot.desired.assignment.values()) - alive - kept)
        # what was known is good enough: where it is not any more, the transaction is refused
        for pod, version in self._versions([node.rpartition("#")[0] for node in gone], anew=False).items():
            if version == membership.JOINED_VERSION:
                path = membership.path_of(self.root, pod)
                yield _rewrite(path, membership.fenced(f"lost: {decision.rule}"), version)
                self._members.pop(pod, None)

    def _versions(self, pods: Iterable[str], anew: bool = True) -> dict[str, int | None]:
        """The versions of membership records; one that was rewritten never changes again, so it is read once.  With
        `anew` False, one that had not been rewritten is not read again either."""
        found: dict[str, int | None] = {}
        asked = {}
        for pod in pods:
            known = self._members.get(pod)
            if known is not None and (known > membership.JOINED_VERSION or not anew):
                found[pod] = known
            else:
                asked[pod] = self._client.exists_async(membership.path_of(self.root, pod))
        for pod, answer in asked.items():
            stat = answer.get()
            found[pod] = None if stat is None else stat.version
            if stat is not None:
                self._members[pod] = stat.version
        return found

    def _children(self, name: str) -> list[str]:
        try:
            return self._client.get_children(f"{self.root}/{name}")
        except NoNodeError:
            return []

    def _get(self, path: str) -> tuple[bytes, Stat] | None:
        try:
            return self._client.get(path)
        except NoNodeError:
            return None


def _rewrite(path: str, data: bytes, version: int) -> Operation:
    return lambda transaction: transaction.set_data(path, data, version)
