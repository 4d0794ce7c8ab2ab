"""What ZooKeeper says about a running topology, read as a whole: the one source of `run`, `status` and `history`.

Invariant: an observation never mixes "nothing there" with "not known": while ZooKeeper is away `connected` is False and
the last known records stand.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from reprise.controller.errors import RunError
from reprise.controller.zookeeper import paths
from reprise.controller.zookeeper.advance import Watch
from reprise.controller.zookeeper.client import make_client
from reprise.controller.zookeeper.errors import (
    ClientError,
    CoordinationError,
    NoAuthError,
    NoNodeError,
    RecordError,
    SessionError,
)
from reprise.controller.zookeeper.leaving import Wishes, parse_leaving
from reprise.controller.zookeeper.node_record import parse_node
from reprise.controller.zookeeper.observation import Observation
from reprise.controller.zookeeper.process_records import parse_leader, parse_paused, parse_waits
from reprise.controller.zookeeper.records import (
    CheckpointRecord,
    node_of,
    parse_checkpoint,
    parse_desired,
    parse_poison,
    parse_progress,
    parse_stats,
)
from reprise.controller.zookeeper.recovery_records import parse_incident, parse_plan
from reprise.controller.zookeeper.savepoint_records import parse_savepoints
from reprise.controller.zookeeper.session import ZooKeeperSession
from reprise.controller.zookeeper.settings_record import SettingsOnRecord, parse_settings
from reprise.controller.zookeeper.skip_wishes import parse_skip
from reprise.scheduler.incident import Incident, PlanRecord
from reprise.scheduler.model import Leaving, Node, Progress

log = logging.getLogger("reprise.observer")
T = TypeVar("T")
READ_TIMEOUT_S = 5.0
SLOW_S = 2.0
"""How often is read what changes seldom, or is wanted by people alone."""


class Observer:
    """Reads the records below one root again and again; what never changes is read once."""

    def __init__(
        self,
        hosts: str,
        root: str,
        client: ZooKeeperSession | None = None,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        """`client`: one that is shared and whose life is the caller's; then neither `open` nor `close` is needed.
        `environment`: variables that say how to prove oneself to ZooKeeper."""
        self._zk = client or make_client(hosts, 10.0, environment)
        self._hosts, self._root = hosts, root
        self._last = Observation(0.0)
        self._plans: dict[str, PlanRecord] = {}
        self._closed: dict[str, Incident] = {}
        self._checkpoint: CheckpointRecord | None = None
        self._names: list[str] = []
        self._nodes: Mapping[str, Node] = {}
        self._nodes_read = 0.0
        self._wishes: dict[str, Leaving] = {}
        self._slow: dict[str, Any] = {}
        self._slow_read = 0.0
        self._unreadable: list[str] = []
        self._watch = Watch()
        self._asked: dict[str, Any] = {}
        """Answers to come: records by name, children by name and slash."""

    def open(self, timeout_s: float = 15.0) -> None:
        """Raises RunError when no server answers."""
        try:
            self._zk.start(timeout=timeout_s)
        except ClientError as error:
            self.close()
            raise RunError(f"ZooKeeper at {self._hosts} does not answer within {timeout_s:g} s") from error

    def close(self) -> None:
        self._zk.close()

    @property
    def last(self) -> Observation:
        """What was read last, without asking again."""
        return self._last

    def read(self, known: Observation | None = None) -> Observation:
        """The records as they are now; the last known ones, marked, while ZooKeeper is away.  `known`: what this process's
        coordinator has just read for a decision, so that only what people want beside it is asked for."""
        now = time.time()
        self._unreadable = []
        try:
            if not self._zk.connected:
                raise SessionError("not connected")
            self._last = self._watched(self._read(now) if known is None else self._read_more(known))
        except ClientError:
            self._last = replace(self._last, time=now, connected=False)
        return self._last

    def poll(self) -> Observation | None:
        """A new report of the driver and all else as it was; None when the report asks for a whole look: somebody else
        drives, or for another decision, or partitions or nodes are not as they were."""
        before = self._last.progress
        if not self._zk.connected or not self._last.connected:
            return None
        try:
            self._asked.clear()
            raw, number = self._written(paths.PROGRESS)
            now = self._parse(raw, paths.PROGRESS, parse_progress)
            checkpoint = self._newest_checkpoint(now)
        except ClientError:
            return None
        if before is None or now is None or _matters(before) != _matters(now):
            return None
        self._last = replace(
            self._last,
            time=time.time(),
            progress=now,
            report=number,
            checkpoint=checkpoint,
            problems=_problems(now, self._last.waits),
        )
        self._last = self._watched(self._last)
        return self._last

    def _watched(self, seen: Observation) -> Observation:
        paused = seen.desired is not None and seen.desired.paused
        still = self._watch.note(seen.time, seen.progress, paused)
        silent_since = self._watch.silent_since
        return replace(seen, still=still, silent_since=silent_since, watched_since=self._watch.since)

    def exists(self, root: str) -> bool:
        """Whether a topology has ever run below `root`."""
        return self._zk.exists_async(root).get(READ_TIMEOUT_S) is not None

    def settings(self) -> SettingsOnRecord:
        """The settings that stand above those of what the driver was started with.  ClientError."""
        path = f"{self._root}/{paths.SETTINGS}"
        try:
            raw, stat = self._zk.get_async(path).get(READ_TIMEOUT_S)
        except NoNodeError:
            return SettingsOnRecord()
        try:
            return SettingsOnRecord(parse_settings(raw, path), stat.version)
        except RecordError as error:  # the driver says so, too, and goes on with those before
            log.warning("event=record-ignored reason=%r", str(error))
            return SettingsOnRecord(None, stat.version)

    def readable(self, root: str) -> bool:
        """Whether ZooKeeper lets this process read what is below `root`, which is there."""
        try:
            self._zk.get_children_async(root).get(timeout=READ_TIMEOUT_S)
        except NoAuthError:
            return False
        return True

    def _read(self, now: float) -> Observation:
        self._asked.clear()  # of an attempt that failed
        slow = (
            f"{paths.CHECKPOINTS}/",
            paths.STATS,
            paths.COORDINATOR,
            paths.POISON,
            paths.PAUSED,
            paths.WAITS,
            paths.SAVEPOINTS,
            f"{paths.SKIPS}/",
        )
        self._ask(
            f"{paths.PLANS}/", f"{paths.INCIDENTS}/", f"{paths.NODES}/", f"{paths.LEAVING}/",
            paths.INCIDENT, paths.PROGRESS, paths.DESIRED,
            *(slow if self._slow_due(now, "stats") else ()),
        )  # fmt: skip
        self._read_history()
        wishes = self._wishes_now()
        nodes = {node.id: wishes.of(node) for node in self._nodes_now(now).values()}
        incident = self._parsed(paths.INCIDENT, parse_incident)
        raw, number = self._written(paths.PROGRESS)
        progress = self._parse(raw, paths.PROGRESS, parse_progress)
        seldom = self._slow_now(now)
        return Observation(
            time=now,
            connected=True,
            nodes=nodes,
            progress=progress,
            report=number,
            problems=_problems(progress, seldom["waits"]),
            desired=self._parsed(paths.DESIRED, parse_desired),
            incident=incident if incident and incident.closed_at is None else None,
            closed=dict(self._closed),
            plans=dict(self._plans),
            checkpoint=self._newest_checkpoint(progress),
            **seldom,
            unreadable=tuple(self._unreadable),
        )

    def _read_more(self, known: Observation) -> Observation:
        """What no decision rests on: former incidents, plans, the newest checkpoint, what a new driver waits for."""
        self._asked.clear()
        due = self._slow_due(known.time)
        more = (paths.WAITS, paths.SAVEPOINTS) if due else ()
        self._ask(f"{paths.PLANS}/", f"{paths.INCIDENTS}/", *more)
        self._read_history()
        if due:
            waits = self._parsed(paths.WAITS, parse_waits)
            savepoints = self._parsed(paths.SAVEPOINTS, parse_savepoints)
            self._slow = {"waits": waits.problem if waits else "", "savepoints": savepoints}
            self._slow_read = known.time
        self._nodes_read = 0.0
        said = str(self._slow["waits"])
        return replace(
            known,
            problems=_problems(known.progress, said),
            waits=said,
            savepoints=self._slow["savepoints"],
            closed=dict(self._closed),
            plans=dict(self._plans),
            checkpoint=self._newest_checkpoint(known.progress),
            unreadable=tuple(self._unreadable),
        )

    def _read_history(self) -> None:
        plans, closed = self._children(paths.PLANS), self._children(paths.INCIDENTS)
        self._plans = {name: self._plans[name] for name in plans if name in self._plans}
        self._closed = {name: self._closed[name] for name in closed if name in self._closed}
        for name in plans:
            if name not in self._plans and (plan := self._parsed(f"{paths.PLANS}/{name}", parse_plan)):
                self._plans[name] = plan
        for name in closed:
            if name not in self._closed and (
                incident := self._parsed(f"{paths.INCIDENTS}/{name}", parse_incident)
            ):
                self._closed[name] = incident

    def _newest_checkpoint(self, progress: Progress | None) -> CheckpointRecord | None:
        """The record of the one that the driver names; the driver writes it a moment after it has said so."""
        newest = progress.checkpoint if progress else 0
        if newest > 0 and (self._checkpoint is None or self._checkpoint.position != newest):
            found = self._parsed(paths.checkpoint(newest), parse_checkpoint)
            self._checkpoint = found or self._checkpoint
        return self._checkpoint

    def _nodes_now(self, now: float) -> Mapping[str, Node]:
        """Read again when the set of names has changed, or some seconds have passed (a new incarnation)."""
        names = self._children(paths.NODES)
        if names != self._names or now > self._nodes_read + SLOW_S:
            self._ask(*(f"{paths.NODES}/{name}" for name in names))
            found = [self._parsed(f"{paths.NODES}/{name}", parse_node) for name in names]
            self._nodes = {record.id: node_of(record) for record in found if record}
            self._names, self._nodes_read = names, now
        return self._nodes

    def _wishes_now(self) -> Wishes:
        """Which nodes are to be emptied; a wish never changes."""
        names = self._children(paths.LEAVING)
        known = {name: self._wishes[name] for name in names if name in self._wishes}
        for name in names:
            if name not in known and (wish := self._parsed(f"{paths.LEAVING}/{name}", parse_leaving)):
                known[name] = wish
        self._wishes = known
        return Wishes(known)

    def _slow_due(self, now: float, name: str = "waits") -> bool:
        return name not in self._slow or now > self._slow_read + SLOW_S

    def _slow_now(self, now: float) -> dict[str, Any]:
        if self._slow_due(now, "stats"):
            leads, waits = self._raw(paths.COORDINATOR), self._parsed(paths.WAITS, parse_waits)
            leader = self._parse(leads, paths.COORDINATOR, parse_leader)
            skips = self._children(paths.SKIPS)
            self._ask(*(f"{paths.SKIPS}/{query}" for query in skips))
            self._slow = {
                "stats": self._parsed(paths.STATS, parse_stats) or {},
                "led": leads is not None,
                "undecided": leader.undecided if leader else "",
                "settle_s": leader.settle_s if leader else None,
                "driver_grace_s": leader.driver_grace_s if leader else None,
                "checkpoints": frozenset(int(k) for k in self._children(paths.CHECKPOINTS) if k.isdigit()),
                "poison": self._parsed(paths.POISON, parse_poison),
                "wishes": {
                    query: wish
                    for query in skips
                    if (wish := self._parsed(f"{paths.SKIPS}/{query}", parse_skip)) is not None
                },
                "waits": waits.problem if waits else "",
                "paused": self._parsed(paths.PAUSED, parse_paused),
                "savepoints": self._parsed(paths.SAVEPOINTS, parse_savepoints),
            }
            self._slow_read = now
        return self._slow

    def _ask(self, *names: str) -> None:
        """Ask for all before the first is waited for: a session answers in order, and a wait is a change of threads."""
        for name in names:
            self._asked[name] = self._answer(name)

    def _answer(self, name: str) -> Any:
        path = f"{self._root}/{name}"
        return self._zk.get_children_async(path[:-1]) if name.endswith("/") else self._zk.get_async(path)

    def _children(self, name: str) -> list[str]:
        answer = self._asked.pop(f"{name}/", None) or self._answer(f"{name}/")
        try:
            found: list[str] = answer.get(timeout=READ_TIMEOUT_S)
        except NoNodeError:
            return []
        return sorted(found)

    def _raw(self, name: str) -> bytes | None:
        return self._written(name)[0]

    def _written(self, name: str) -> tuple[bytes | None, int]:
        """What a znode holds, and the number of the transaction that wrote it; 0 where there is none."""
        answer = self._asked.pop(name, None) or self._answer(name)
        try:
            raw, stat = answer.get(timeout=READ_TIMEOUT_S)
        except NoNodeError:
            return None, 0
        return raw or None, stat.mzxid

    def _parsed(self, name: str, parse: Callable[[bytes, str], T]) -> T | None:
        return self._parse(self._raw(name), name, parse)

    def _parse(self, raw: bytes | None, name: str, parse: Callable[[bytes, str], T]) -> T | None:
        if raw is None:
            return None
        try:
            return parse(raw, f"{self._root}/{name}")
        except CoordinationError as error:
            self._unreadable.append(str(error))
            return None


def _matters(progress: Progress) -> tuple[object, ...]:
    """All of a report but the numbers that grow while nothing happens."""
    return (
        progress.driver, progress.seq, progress.generation, progress.nodes, progress.failed, progress.ended,
        progress.done, progress.bad_checkpoints, progress.not_kept, progress.positions.keys(),
    )  # fmt: skip


def _problems(progress: Progress | None, waits: str) -> tuple[str, ...]:
    """What the driver complains of, and what one waits for that has not begun."""
    return (*(progress.problems if progress else ()), *((waits,) if waits else ()))
