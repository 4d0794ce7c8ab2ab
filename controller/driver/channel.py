"""The driver's side of the ZooKeeper tree: desired state and nodes in, progress, stats and checkpoints out.

Loss of ZooKeeper is not loss of nodes: while the session is suspended the last known nodes and desired
state stand, and nothing is written; when it is back, everything is read again and progress is published anew.  For a while
after that a node that is absent still stands, as its own session is being renewed: a server that slept forgets them all.
So does, for as long, a node whose heartbeat alone is gone, while the driver hears its executor (`hears`).

Only the newest driver writes: each write checks, in one transaction, that the epoch's znode is as this driver has left it.
So one that was frozen for an hour between two instructions, and wakes before it can learn of its successor, writes nothing.
The main thread and the publisher use one channel; what it remembers is read and replaced under one lock.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence, Set
from functools import partial
from typing import TypeVar

from reprise.controller.driver.publish_rate import PublishRate
from reprise.controller.driver.report import MAX_PROBLEM, bounded, cut
from reprise.controller.observability.metrics.process import session_of
from reprise.controller.zookeeper import paths
from reprise.controller.zookeeper.client import make_client
from reprise.controller.zookeeper.errors import (
    BadVersionError,
    ClientError,
    NodeExistsError,
    NoNodeError,
    RecordError,
    RefusedError,
    RolledBackError,
    TooLargeError,
)
from reprise.controller.zookeeper.node_record import (
    SESSION_S,
    NodeRecord,
    absence_counts_after_s,
    nodes_path,
    parse_node,
)
from reprise.controller.zookeeper.process_records import (
    Waits,
    encode_number,
    encode_waits,
    parse_drain,
    parse_number,
    parse_spec,
)
from reprise.controller.zookeeper.records import encode_progress, parse_desired
from reprise.controller.zookeeper.savepoint_records import SavepointsRecord, parse_savepoints, parse_wish
from reprise.controller.zookeeper.session import (
    Answer,
    SessionState,
    Transaction,
    ZooKeeperSession,
    patiently,
)
from reprise.controller.zookeeper.settings_record import FollowedSettings
from reprise.controller.zookeeper.wish_folder import WishFolder
from reprise.controller.zookeeper.znode import check, pack
from reprise.scheduler.model import Desired, Progress
from reprise.spark_jobs.credentials import redacted
from reprise.spark_jobs.errors import SpecError, SupersededError
from reprise.spark_jobs.platform import PLATFORM, Platform
from reprise.spark_jobs.state.savepoint_wish import SavepointWish
from reprise.spark_jobs.topology import StreamTopology, from_json
from reprise.spark_jobs.topology.changes import Settings
from reprise.spark_jobs.topology.graph_change import graph_of

log = logging.getLogger("reprise.driver")
T = TypeVar("T")
SESSION_TIMEOUT_S = 10.0


class ChannelError(Exception):
    """A znode that cannot be read or written; names the path."""


class Channel:
    """One driver's connection.  `changed` is set when nodes or the desired state may have changed."""

    def __init__(
        self,
        hosts: str,
        root: str,
        clock: Callable[[], float] | None = None,
        session: ZooKeeperSession | None = None,
        platform: Platform = PLATFORM,
        resource: StreamTopology | None = None,
    ) -> None:
        """`resource`: what the driver was started with; it takes no number where other queries are on record."""
        clock, self._sleep = clock or platform.elapsed, platform.sleep
        self._hosts = hosts
        self._zk = session or make_client(hosts, SESSION_TIMEOUT_S)
        self._root, self._clock, self._absence_counts_from = root, clock, 0.0
        self._graph = None if resource is None else graph_of(resource)
        self._absent_since: dict[str, float] = {}
        self.hears: Callable[[NodeRecord], bool] = lambda _: False
        """Whether a node whose znode is gone is heard all the same; the driver's loop knows."""
        self.changed = platform.event()
        self.nodes: Mapping[str, NodeRecord] = {}
        self._nodes_stale = self._desired_stale = self._epoch_stale = True
        self._desired: Desired | None = None
        self._publish_rate = PublishRate()
        self._epoch = self._newest_epoch = self._version = 0
        self._tried: set[int] = set()
        """Numbers that this driver may have written."""
        self._silent = self._drain = False
        self._drain_stale = True
        self._settings = FollowedSettings(self._zk, root, self.changed.set)
        self._lock = platform.lock()
        folder = f"{root}/{paths.SAVEPOINT_WISHES}"
        self._wishes = WishFolder(self._zk, folder, parse_wish, self.changed.set, self._answered)

    def open(self) -> None:
        """Connect; raises ChannelError when no server answers in time."""
        try:
            self._zk.start(timeout=60)
            for name in ("nodes", "checkpoints"):
                patiently(partial(self._zk.ensure_path, f"{self._root}/{name}"), self._clock, self._sleep)
        except ClientError as error:
            raise ChannelError(f"ZooKeeper at {self._hosts} does not answer: {error!r}") from error
        self._zk.add_listener(self._listen)

    def close(self) -> None:
        """End the session."""
        self._zk.close()

    def _listen(self, state: str) -> None:
        log.info("event=zookeeper state=%s", state)
        if state == SessionState.CONNECTED:
            longest = max((record.session_s for record in self.nodes.values()), default=SESSION_S)
            self._absence_counts_from = self._clock() + absence_counts_after_s(longest)
            self._nodes_stale = self._desired_stale = self._epoch_stale = self._drain_stale = True
            self._wishes.forget()
            self._settings.doubt()
            self.changed.set()

    @property
    def connected(self) -> bool:
        """Whether the session can be trusted now."""
        return self._zk.state is SessionState.CONNECTED

    @property
    def session(self) -> str:
        """The session's state in the words of the metrics."""
        return session_of(self._zk.state)

    def next_epoch(self, least: int = 0) -> int:
        """A number, at least `least`, that is greater than that of every driver before this one.  The records of drivers
        can be lost and the stream live on, which then knows of a greater one.  Raises ClientError or RecordError.

        A connection that is lost meanwhile is waited for: whether a number was written is not known then, and another one,
        which is greater, is taken.  To be told that it was written, later, would look like a successor.

        SupersededError: this driver has a number, and another one a greater, of which it may not have heard yet; or the
        topology goes on with other queries than those that this driver was started with."""
        epoch, version = patiently(lambda: self._take_number(least), self._clock, self._sleep)
        with self._lock:
            self._epoch = self._newest_epoch = epoch
            self._version = version
        return epoch

    def _take_number(self, least: int) -> tuple[int, int]:
        """The number, and the version of the znode that says so."""
        path = f"{self._root}/{paths.DRIVER}"
        while True:
            spec = self._version_of_spec()
            try:
                raw, stat = self._zk.get(path)
                newest = parse_number(raw, path)
                if 0 < self._epoch < newest and newest not in self._tried:
                    raise SupersededError(
                        f"a driver of epoch {newest} has begun: this one does not come after it"
                    )
                epoch = max(newest + 1, least)
                self._tried.add(epoch)
                if spec is None:
                    return epoch, self._zk.set(path, encode_number(epoch), stat.version).version
                if self._take_with(spec, path, encode_number(epoch), stat.version):
                    return epoch, stat.version + 1
            except NoNodeError:
                with contextlib.suppress(NodeExistsError):
                    self._zk.create(path, makepath=True)
            except BadVersionError:
                continue  # another driver has taken this one

    def _version_of_spec(self) -> int | None:
        """The version of the record that says what the last driver is started with, where it has the queries of this one;
        None where there is no such record, as in a run on one machine.  SupersededError: it has others, so that this driver
        is of a graph that nobody decides by any more.  What cannot be read, as of another version, has the same queries."""
        path = f"{self._root}/{paths.SPEC}"
        try:
            raw, stat = self._zk.get(path)
        except NoNodeError:
            return None
        with contextlib.suppress(RecordError, SpecError):
            if self._graph not in (None, graph_of(from_json(parse_spec(raw, path).document))):
                raise SupersededError(
                    "the topology goes on with other queries than those that this driver was started with"
                )
        return stat.version

    def _take_with(self, spec: int, path: str, number: bytes, version: int) -> bool:
        """Write the number while both records are of these versions; False: somebody has written one of them."""
        transaction = self._zk.transaction()
        transaction.check(f"{self._root}/{paths.SPEC}", spec)
        transaction.set_data(path, number, version)
        refused = transaction.commit()
        for error in refused:
            if error is not None and not isinstance(error, BadVersionError | NoNodeError | RolledBackError):
                raise error
        return not any(refused)

    def silence(self) -> None:
        """Write nothing from now on: this driver is not the newest."""
        self._silent = True

    @property
    def superseded(self) -> bool:
        """Whether a later driver has started, so that this one, which was given up somewhere, must not speak any more;
        the last known answer while ZooKeeper is away."""
        with self._lock:
            if self._epoch_stale and self.connected:
                path = f"{self._root}/{paths.DRIVER}"
                try:
                    self._epoch_stale = False
                    raw, _ = self._zk.get(path, watch=self._saw_epoch)
                    self._newest_epoch = parse_number(raw, path)
                except NoNodeError:  # the records were removed, and this driver's place with them
                    log.warning("event=epoch-gone root=%s", self._root)
                    self._silent = True
                except (ClientError, RecordError) as error:
                    self._epoch_stale = True
                    log.warning("event=epoch-not-read error=%r", error)
            return self._silent or self._newest_epoch > self._epoch

    def _saw_epoch(self, _: object) -> None:
        self._epoch_stale = True
        self.changed.set()

    def _saw_nodes(self, _: object) -> None:
        self._nodes_stale = True
        self.changed.set()

    def _saw_desired(self, _: object) -> None:
        self._desired_stale = True
        self.changed.set()

    def read_nodes(self) -> Mapping[str, NodeRecord]:
        """Living nodes by "node#incarnation"; the last known ones while ZooKeeper is away."""
        with self._lock:
            if self._nodes_stale and self.connected:
                self._nodes_stale = False
                try:
                    self.nodes = self._settled(self._living())
                except ClientError as error:
                    self._nodes_stale = True
                    log.warning("event=nodes-not-read error=%r", error)
            return self.nodes

    def _living(self) -> dict[str, NodeRecord]:
        found, folder = {}, nodes_path(self._root)
        for name in self._zk.get_children(folder, watch=self._saw_nodes):
            try:
                raw, _ = self._zk.get(f"{folder}/{name}", watch=self._saw_nodes)
            except NoNodeError:
                continue
            try:
                record = parse_node(raw, f"{folder}/{name}")
            except RecordError as error:  # it must not hide the others
                log.warning("event=node-ignored reason=%r", str(error))
                continue
            found[record.id] = record
        return found

    def _settled(self, found: dict[str, NodeRecord]) -> Mapping[str, NodeRecord]:
        """`found`, and while absence does not count also who was there before; that is then looked at again."""
        absent = {key: record for key, record in self.nodes.items() if key not in found}
        self._absent_since = {key: self._absent_since.get(key, self._clock()) for key in absent}
        if not absent:
            return found
        names = {record.node for record in found.values()}
        stand = {key: record for key, record in absent.items() if self._stands(key, record, names)}
        if stand:
            self._nodes_stale = True
        if len(stand) < len(absent):
            self.changed.set()
        return {**stand, **found}

    def _stands(self, key: str, record: NodeRecord, names: Set[str]) -> bool:
        """Whether the absence of its znode does not mean yet that a node is lost.  An agent for which alone ZooKeeper is
        slow loses its session while its node works; it is given as long to come back, as the same incarnation, as after an
        outage."""
        if self._clock() < self._absence_counts_from:
            return True
        absent_s = self._clock() - self._absent_since[key]
        return (
            record.node not in names
            and absent_s < absence_counts_after_s(record.session_s)
            and self.hears(record)
        )

    @property
    def doubtful(self) -> bool:
        """Whether a node counts as there whose heartbeat is not: whether it is heard must be asked again."""
        with self._lock:
            return any(key in self.nodes for key in self._absent_since)

    def read_desired(self) -> Desired | None:
        """The desired state, None before there is one; the last known one while ZooKeeper is away.  Raises RecordError."""
        if self._desired_stale and self.connected:
            path = f"{self._root}/{paths.DESIRED}"
            try:
                self._desired_stale = False
                if self._zk.exists(path, watch=self._saw_desired) is not None:
                    raw, _ = self._zk.get(path, watch=self._saw_desired)
                    self._desired = parse_desired(raw, path)
            except ClientError as error:
                self._desired_stale = True
                log.warning("event=desired-not-read error=%r", error)
        return self._desired

    def read_settings(self) -> Settings | None:
        """What is to be followed of the topology's settings, None before anybody has said so; the last known ones while
        ZooKeeper is away.  Raises RecordError."""
        try:
            return self._settings.read()
        except ClientError as error:
            log.warning("event=settings-not-read error=%r", error)
            return None

    def read_drain(self) -> bool:
        """Whether this very driver was asked to drain; what was asked of another life is none of its business."""
        path = f"{self._root}/{paths.DRAIN}"
        if self._drain_stale and self.connected:
            try:
                self._drain_stale = False
                if self._zk.exists(path, watch=self._saw_drain) is not None:
                    raw, _ = self._zk.get(path)
                    self._drain = parse_drain(raw, path) == str(self._epoch)
            except (ClientError, RecordError) as error:
                self._drain_stale = True
                log.warning("event=drain-not-read error=%r", error)
        return self._drain

    def _saw_drain(self, _: object) -> None:
        self._drain_stale = True
        self.changed.set()

    def read_savepoint_wishes(self) -> Mapping[str, SavepointWish]:
        """Savepoints that are to be taken or deleted, by the ids of the wishes; none while ZooKeeper is
        away, as nothing is lost by that."""
        try:
            return self._wishes.read() if self.connected else {}
        except ClientError as error:
            log.warning("event=savepoint-wishes-not-read error=%r", error)
            return {}

    def read_savepoints(self) -> SavepointsRecord | None:
        """What a driver, this one or one before, has said of savepoints last; None while ZooKeeper does not say.  A record
        that cannot be read is none: what stands there is written anew."""
        path = f"{self._root}/{paths.SAVEPOINTS}"
        if not self.connected:
            return None
        try:
            if self._zk.exists(path) is None:
                return SavepointsRecord()
            return parse_savepoints(self._zk.get(path)[0])
        except ClientError as error:
            log.warning("event=savepoints-not-read error=%r", error)
            return None
        except RecordError as error:
            log.warning("event=savepoints-unreadable error=%r", error)
            return SavepointsRecord()

    def _answered(self, answer: Answer[T]) -> T | None:
        """The value of an answer; None where there is no such znode."""
        try:
            return answer.get(timeout=SESSION_TIMEOUT_S)
        except NoNodeError:
            return None

    def forget_savepoint_wish(self, wish: str) -> bool:
        """Remove a wish of which it is published what came of it."""
        path = f"{self._root}/{paths.SAVEPOINT_WISHES}/{wish}"
        try:
            return (
                self.connected
                and not self.superseded
                and not self._refused(paths.SAVEPOINT_WISHES, self._write(_removal(path)))
            )
        except ClientError as error:
            log.warning("event=savepoint-wish-stays wish=%s error=%r", wish, error)
            return False

    def forget_checkpoints(self, keep: int) -> None:
        """Remove the records of all but the newest `keep` checkpoints; their files are gone, too."""
        folder = f"{self._root}/checkpoints"
        try:
            if self.connected and not self.superseded:
                names = [name for name in self._zk.get_children(folder) if name.isdigit()]
                for name in sorted(names, key=int)[:-keep]:
                    if self._refused(f"checkpoints/{name}", self._write(_removal(f"{folder}/{name}"))):
                        break
        except ClientError as error:
            log.warning("event=old-checkpoint-records-stay error=%r", error)

    def publish_progress(self, record: Progress) -> bool:
        """Write how things stand, as often as its size allows (`reprise.controller.driver.publish_rate`).  False: it is
        due and could not be written."""
        now = self._clock()
        if not self._publish_rate.due(record, now):
            return True
        if size := self._publish(paths.PROGRESS, encode_progress(bounded(record))):
            self._publish_rate.wrote(record, now, size)
        return size > 0

    def publish(self, name: str, record: bytes) -> bool:
        """Write one of the driver's own records; False when ZooKeeper is away or refuses, or the record is too large."""
        return self._publish(name, record) > 0

    def waits_for(self, problem: str) -> None:
        """Tell people what this driver waits for, which has not begun and so has no progress; empty: it does not any more.
        It is of this session, so that nobody hears of a driver that is gone; what fails is said again with the next try."""
        path = f"{self._root}/{paths.WAITS}"
        if not self.connected or self.superseded:
            return
        record = Waits(str(self._epoch), cut(redacted(problem), MAX_PROBLEM))
        try:
            there = self._zk.exists(path) is not None
            if there:
                self._refused(paths.WAITS, self._write(_removal(path)))
            if problem:
                data = pack(encode_waits(record))
                made = self._write(lambda transaction: transaction.create(path, data, ephemeral=True))
                self._refused(paths.WAITS, made)
        except ClientError as error:
            log.warning("event=not-published name=%s error=%r", paths.WAITS, error)

    def _publish(self, name: str, record: bytes) -> int:
        """Bytes written; 0 for none."""
        if not self.connected or self.superseded:
            return 0
        path, data = f"{self._root}/{name}", pack(record)
        try:
            check(path, data)
            refusals = self._write(lambda transaction: transaction.set_data(path, data))
            if isinstance(refusals[1], NoNodeError):
                refusals = self._write(lambda transaction: transaction.create(path, data))
        except ClientError as error:
            log.warning("event=not-published name=%s error=%r", name, error)
            return 0
        except TooLargeError as error:
            log.error("event=not-published name=%s error=%r", name, str(error))
            return 0
        return 0 if self._refused(name, refusals) else len(data)

    def _refused(self, name: str, refusals: Sequence[RefusedError | None]) -> bool:
        failed = [type(refused).__name__ for refused in refusals if refused is not None]
        if failed:
            self._epoch_stale = True  # most likely there is a later one
            log.warning("event=not-written name=%s refused=%s", name, ",".join(failed))
        return bool(failed)

    def _write(self, operation: Callable[[Transaction], None]) -> list[RefusedError | None]:
        """One operation, if this is still the newest driver; why the check and it were refused, if they were."""
        transaction = self._zk.transaction()
        transaction.check(f"{self._root}/{paths.DRIVER}", self._version)
        operation(transaction)
        return transaction.commit()


def _removal(path: str) -> Callable[[Transaction], None]:
    return lambda transaction: transaction.delete(path)
