"""The coordinator's side of ZooKeeper: a snapshot in, a decision out as one transaction.

Invariants. Every transaction checks the version of the desired state that its snapshot was read with, and of
each record that it rewrites: of two coordinators, or one that was frozen in the middle, only one gets through.
A snapshot is only called valid when the session was connected before and after all reads; right after a loss
of the connection nothing is known for a while, because nodes whose sessions are being renewed would look lost.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, TypeVar

from reprise.controller.coordinator.lag_window import LagWindow
from reprise.controller.coordinator.node_list import NodeList
from reprise.controller.coordinator.stats_window import StatsWindow
from reprise.controller.coordinator.suspects import Suspects
from reprise.controller.coordinator.transaction import Operation, Versions, operations
from reprise.controller.zookeeper import paths
from reprise.controller.zookeeper.errors import (
    ClientError,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    RecordError,
    SessionError,
    StaleError,
)
from reprise.controller.zookeeper.leaving import leaving_folder, parse_leaving
from reprise.controller.zookeeper.node_record import absence_counts_after_s
from reprise.controller.zookeeper.observation import Observation, snapshot_of
from reprise.controller.zookeeper.process_records import Leader, encode_leader, parse_paused
from reprise.controller.zookeeper.records import parse_desired, parse_poison, parse_progress, parse_stats
from reprise.controller.zookeeper.recovery_records import parse_incident
from reprise.controller.zookeeper.session import ANSWER_S, Answer, SessionState, Stat, Watch, ZooKeeperSession
from reprise.controller.zookeeper.skip_wishes import parse_skip
from reprise.controller.zookeeper.wish_folder import WishFolder
from reprise.controller.zookeeper.znode import check_all
from reprise.scheduler.incident import Incident, number_in
from reprise.scheduler.model import (
    Desired,
    Leaving,
    Node,
    PartitionStats,
    Progress,
    SkipWish,
    Snapshot,
    TopologyView,
)
from reprise.scheduler.node_start import StartPhase
from reprise.scheduler.steps import Decision
from reprise.scheduler.wishes import annotated
from reprise.spark_jobs.platform import PLATFORM

log = logging.getLogger("reprise.coordinator")

_WRITTEN: Mapping[str, Callable[[bytes, str], Any]] = MappingProxyType(
    {paths.DESIRED: parse_desired, paths.INCIDENT: parse_incident, paths.POISON: parse_poison}
)
"""Records that the coordinator itself writes."""
DOUBT_S = 0.3
"""Until the next look while a node stands without a heartbeat; as often as the driver reports."""


T = TypeVar("T")
Read = Answer[tuple[bytes, Stat]]


@dataclass(frozen=True, slots=True)
class Reading:
    """A snapshot with the versions that a decision on it depends on."""

    snapshot: Snapshot
    versions: Versions
    seen: Observation | None = None
    """What the snapshot was made of; None without a session."""
    led: bool = True
    """Whether this coordinator still had the place when it was read."""


def _nothing_more(_snapshot: Snapshot, _decision: Decision) -> Iterable[Operation]:
    return ()


@dataclass(slots=True)
class Store:
    """One topology's records. `keep`: how many of the newest checkpoint records the data plane still has files
    for. `also`: what else belongs into the transaction of a decision. `changed` is set when nodes, progress or
    the session may have changed."""

    client: ZooKeeperSession
    root: str
    topology: TopologyView
    clock: Callable[[], float]
    paused: bool = False
    keep: int = 3
    grace_s: float = absence_counts_after_s()
    """How long after a reconnection nothing is believed: for as long as living agents may be absent."""
    elapsed: Callable[[], float] = time.monotonic
    """Seconds that only grow, for how long ago something was: `clock` may be set while we run."""
    also: Callable[[Snapshot, Decision], Iterable[Operation]] = _nothing_more
    changed: threading.Event = field(default_factory=threading.Event)
    reported: threading.Event | None = None
    """Set in place of `changed` by a report of the driver; None: `changed` stands for that as well."""
    requests: Mapping[str, float] = field(default_factory=dict)
    """When nodes were asked for, by name, where their agents cannot know: unix seconds, from whoever sees their pods."""
    notices: Mapping[str, Leaving] = field(default_factory=dict)
    """Nodes that are to be emptied, by name, as whoever sees their pods knows it."""
    labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Labels of the machine of each node, by the node's name, as whoever sees their pods knows them."""
    after: Callable[[float, Callable[[], object]], None] = PLATFORM.after
    """Calls something so many seconds from now."""
    answer_s: float = ANSWER_S
    """Longest wait for one answer, seconds."""
    _connections: int = 0
    _trusted_from: float = float("-inf")
    _nodes: NodeList = field(init=False)
    asked: Mapping[str, SkipWish] = field(default_factory=dict)
    """Queries that are to be skipped, as whoever sees the annotations of the topology knows it."""
    _leaving: WishFolder[Leaving] = field(init=False)
    _skips: WishFolder[SkipWish] = field(init=False)
    _suspects: Suspects = field(init=False)
    _leads: bool = False
    """By the last answer in this session."""
    _commanded: int = 0
    _kept: dict[str, tuple[Any, int]] = field(default_factory=dict)
    """Desired state and incident with their versions, as this coordinator has written them last, while an incident is open:
    only the leader writes them, and its next transaction checks their versions."""
    _collided: bool = False
    """The last decision was refused because of a record that was there already."""
    _window: StatsWindow = field(default_factory=StatsWindow)
    _lags: LagWindow = field(default_factory=LagWindow)

    def __post_init__(self) -> None:
        folder = self._path(paths.NODES)
        self._nodes = NodeList(self.client, folder, self.changed.set, self._await)
        leaving, skips = self._path(paths.LEAVING), self._path(paths.SKIPS)
        self._leaving = WishFolder(self.client, leaving, parse_leaving, self.changed.set, self._await)
        self._skips = WishFolder(self.client, skips, parse_skip, self.changed.set, self._await)
        self._suspects = Suspects(self.grace_s, self.elapsed)

    def open(self) -> None:
        """Create the folders; the client has been started. Raises SessionError."""
        self.client.add_listener(self._listen)
        try:
            for folder in paths.FOLDERS:
                self.client.ensure_path(f"{self.root}/{folder}")
        except ClientError as error:
            raise SessionError(f"{self.root}: folders not created: {error!r}") from error

    def follow(self, topology: TopologyView, keep: int, paused: bool) -> None:
        """The next reading is of this topology."""
        self.topology, self.keep, self.paused = topology, keep, paused

    def close(self) -> None:
        """The client, which others may share, lives on."""
        self.client.remove_listener(self._listen)

    @property
    def trusted_for_s(self) -> float:
        """Since when absence means something again, in seconds; negative while sessions are being renewed."""
        return self.elapsed() - self._trusted_from

    @property
    def connected(self) -> bool:
        """Whether the session is valid now."""
        return self.client.state is SessionState.CONNECTED

    @property
    def heartbeats(self) -> frozenset[str]:
        """Names with a heartbeat by the last reading, also those whose record cannot be read, which are no nodes."""
        return self._nodes.names

    def fenced(self, name: str) -> None:
        """The node of this name can never register again, and its heartbeat is removed: the next reading is without it."""
        self._nodes.doubt()
        self._suspects.gone(name)

    @property
    def commanded(self) -> int:
        """When somebody had last told this topology to pause, or to go on, at the last reading; a transaction's number."""
        return self._commanded

    # -- reading -------------------------------------------------------------------------------------------------

    def read(self) -> Reading:
        """What the records say now; a snapshot without session when that cannot be known. Raises RecordError
        for a record that is needed and cannot be read."""
        try:
            connections = self._connections
            if self.connected and self.trusted_for_s >= 0:
                reading = self._read()
                if self.connected and connections == self._connections:
                    return reading
        except SessionError as error:
            log.warning("event=read-failed error=%r", error)
        except NoAuthError as error:
            raise RecordError(
                self.root, "$", "ZooKeeper does not let this process read all records"
            ) from error
        return Reading(Snapshot(self.clock(), self.topology, session=False), Versions())

    def _read(self) -> Reading:
        seen, nodes, versions = self._observe()
        return Reading(self._snapshot(seen, nodes), versions, seen, self._leads)

    def _observe(self) -> tuple[Observation, tuple[Node, ...], Versions]:
        """The records, the nodes in the order of their names, and the versions of what the coordinator writes itself."""
        # Desired state first: what is read after it is at least as new, so a node that it names and that is
        # not there any more is gone, and not yet to come.
        # All are asked before the first is waited for: a session answers in order, and a wait is a change of threads.
        leader = self.client.exists_async(self._path(paths.COORDINATOR))
        kept = dict(self._kept)
        first = {name: self._ask(name) for name in _WRITTEN if name not in kept}
        wishes, skips = leaving_folder(self._leaving), self._skips.read()
        nodes = tuple(wishes.of(self._with_request(node), self.notices) for node in self._nodes.read())
        folder = self.client.get_children_async(f"{self.root}/{paths.CHECKPOINTS}")
        asked, commands = self._ask(paths.STATS), self._ask(paths.PAUSED)
        progress = self._await(self._ask(paths.PROGRESS, self._saw_report))  # with the last all are there
        found = {name: self._parsed(name, answer) for name, answer in first.items()} | kept
        written = [found.get(name) or (None, None) for name in _WRITTEN]
        desired, incident, poison = (record for record, _ in written)
        stats, paused = self._found(asked), self._await(commands)
        self._commanded = paused[1].mzxid if paused else 0
        self._leads = self._mine(self._await(leader))
        if not self._leads:
            self._kept.clear()
        records = self._await(folder) or []
        now = self.clock()
        report = progress and parse_progress(progress[0], self._path(paths.PROGRESS))
        seen = Observation(
            time=now,
            connected=True,
            nodes={node.id: node for node in nodes},
            progress=report,
            report=progress[1].mzxid if progress else 0,
            desired=desired,
            incident=incident,
            stats=self._window.add(now, stats and stats[0], self._stats),
            checkpoints=frozenset(int(k) for k in records if k.isdigit()),
            poison=poison,
            paused=parse_paused(paused[0], self._path(paths.PAUSED)) if paused else None,
            led=self._leads,
            wishes={**{annotated(query): wish for query, wish in self.asked.items()}, **skips},
        )
        return seen, nodes, Versions(*(version for _, version in written))

    def _snapshot(self, seen: Observation, nodes: tuple[Node, ...]) -> Snapshot:
        """What a decision is made of: of the nodes also suspects, and of the incident a name that is free."""
        believed = self._suspects.add(nodes, seen.desired, seen.progress)
        if self._suspects.doubtful:
            self._look_again()
        snapshot = replace(
            snapshot_of(self.topology, seen, self.paused),
            nodes=believed,
            checkpoints=frozenset(sorted(seen.checkpoints)[-self.keep :]),
            closed=self._last_closed() if seen.desired is None else 0,
        )
        if self._collided and snapshot.incident is not None:
            snapshot = replace(snapshot, incident=self._with_a_free_name(snapshot.incident))
        self.note_lags(snapshot.progress, snapshot.desired, snapshot.incident)
        if snapshot.incident is None:
            snapshot = replace(snapshot, steady=self._lags.steady(seen.time))
        return snapshot

    def _with_request(self, node: Node) -> Node:
        asked = self.requests.get(node.name)
        if (labels := self.labels.get(node.name)) is not None:
            node = replace(node, labels=labels)
        return node if asked is None else replace(node, start=node.start.known({StartPhase.REQUESTED: asked}))

    def _last_closed(self) -> int:
        """The greatest number of an incident that has left records: none of them is ever written again."""
        incidents, plans = self._on_record()
        return max((number_in(name) for name in (*incidents, *plans)), default=0)

    def _with_a_free_name(self, incident: Incident) -> Incident:
        """The open incident under a name that no record of another has, else nothing of it could be filed.  Earlier versions
        began to count anew where the desired state was gone, and gave a name twice."""
        incidents, plans = self._on_record()
        taken = {*incidents, *(plan.rpartition("-p")[0] for plan in plans if plan not in incident.plans)}
        if incident.id not in taken:
            return incident
        names = (f"{incident.id}-{k}" for k in itertools.count(2))
        return replace(incident, id=next(name for name in names if name not in taken))

    def _on_record(self) -> list[list[str]]:
        """The names of all closed incidents, and of all plans."""
        asked = [self.client.get_children_async(self._path(name)) for name in (paths.INCIDENTS, paths.PLANS)]
        return [self._await(answer) or [] for answer in asked]

    def note_lags(
        self, progress: Progress | None, desired: Desired | None, incident: Incident | None
    ) -> None:
        """What somebody has just read of this topology, so that its steady lag is known when a failure is noticed."""
        outputs = [query.id for query in self.topology.queries]
        self._lags.note(self.clock(), outputs, progress, desired, incident)

    def ask_for_sample(self) -> Callable[[], None]:
        """The statistics alone, so that the window is full when a failure is noticed: asked for now, read when what is
        returned is called. That raises SessionError."""
        asked = self._ask(paths.STATS)
        return lambda: self._sample(asked)

    def _sample(self, asked: Read) -> None:
        try:
            found = self._found(asked)
        except ClientError as error:
            raise SessionError(f"{self._path(paths.STATS)}: {error!r}") from error
        self._window.note(self.clock(), found and found[0], self._stats)

    def _parsed(self, name: str, answer: Read) -> tuple[Any, int] | None:
        raw = self._found(answer)
        return raw and (_WRITTEN[name](raw[0], self._path(name)), raw[1])

    def _stats(self, raw: bytes) -> Mapping[str, PartitionStats]:
        """Without statistics the declared costs hold."""
        try:
            return parse_stats(raw, self._path(paths.STATS))
        except RecordError as error:
            log.warning("event=stats-ignored reason=%r", str(error))
            return {}

    def _ask(self, name: str, watch: Watch | None = None) -> Read:
        return self.client.get_async(self._path(name), watch=watch)

    def _found(self, answer: Read) -> tuple[bytes, int] | None:
        found = self._await(answer)
        return None if found is None else (found[0], found[1].version)

    def _await(self, answer: Answer[T]) -> T | None:
        """The content of a znode; None where there is no such znode."""
        try:
            return answer.get(self.answer_s)
        except NoNodeError:
            return None

    # -- writing -------------------------------------------------------------------------------------------------

    def commit(self, reading: Reading, decision: Decision) -> None:
        """All steps of a decision or none. Raises StaleError when someone has written since the reading, and
        SessionError when it is not known whether the decision is carried out; either way: read again.  TooLargeError:
        nothing was sent."""
        self._kept.clear()
        if not self.connected:
            raise SessionError("no session: the decision is dropped")
        connections = self._connections
        transaction = self.client.transaction()
        more = self.also(reading.snapshot, decision)
        for operation in (*operations(self.root, reading.versions, decision), *more):
            operation(transaction)
        check_all(self.root, transaction.writes)
        failures = [refused for refused in transaction.commit(self.answer_s) if refused is not None]
        self._collided = any(isinstance(refused, NodeExistsError) for refused in failures)
        if failures:
            raise StaleError(f"refused: {', '.join(type(f).__name__ for f in failures)}")
        if connections == self._connections:
            self._kept |= _left_by(reading, decision)

    def lead(self, who: Leader) -> bool:
        """Whether this coordinator is the one to act; takes the place when it is free.  One that has it is not asked about
        again before each reading, which asks as well: two that act are refused by versions, not by this."""
        path = self._path(paths.COORDINATOR)
        try:
            if not self.connected or self.client.id is None:
                return False
            if self._leads:
                return True
            stat = self._await(self.client.exists_async(path, watch=self._saw))
            if stat is not None:
                return self._mine(stat)
            self._await(self.client.create_async(path, encode_leader(who), ephemeral=True))
            return True
        except (NodeExistsError, SessionError):
            return False

    def _mine(self, stat: Stat | None) -> bool:
        return stat is not None and stat.owner == self.client.id

    def announce(self, who: Leader) -> None:
        """Say in the leader's znode what is going on; for people, nothing depends on it, so nobody waits for it."""
        if self.connected:
            self.client.set_async(self._path(paths.COORDINATOR), encode_leader(who))

    # -- watching ------------------------------------------------------------------------------------------------

    def _listen(self, state: str) -> None:
        self._connections += 1
        self._leads = False
        self._nodes.forget()
        self._leaving.forget()
        self._skips.forget()
        self._suspects.forget()
        self._kept.clear()
        if state == SessionState.CONNECTED:
            self._trusted_from = self.elapsed() + self.grace_s
        log.info("event=zookeeper state=%s", state)
        self.changed.set()

    def _look_again(self) -> None:
        """Soon, whether anything is heard or not."""
        self.after(DOUBT_S, self.changed.set)

    def _saw(self, _: object) -> None:
        self.changed.set()

    def _saw_report(self, _: object) -> None:
        (self.reported or self.changed).set()

    def _path(self, name: str) -> str:
        return f"{self.root}/{name}"


def _left_by(reading: Reading, decision: Decision) -> dict[str, tuple[Any, int]]:
    """Desired state and incident after `decision` on what was read, with their versions; nothing where no incident is open
    then."""
    snapshot, versions = reading.snapshot, reading.versions
    desired, incident = decision.desired or snapshot.desired, decision.incident or snapshot.incident
    if incident is None or incident.closed_at is not None or desired is None:
        return {}
    return {
        paths.DESIRED: (desired, _next(versions.desired, decision.desired is not None)),
        paths.INCIDENT: (incident, _next(versions.incident, decision.incident is not None)),
    }


def _next(version: int | None, written: bool) -> int:
    """The version of a record: new ones begin at 0."""
    if version is None:
        return 0
    return version + written
