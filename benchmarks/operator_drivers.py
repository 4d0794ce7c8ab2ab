"""Drivers and agents of a thousand topologies without Spark: the records that they would write, in a real ZooKeeper.

A driver here follows its topology's desired state the way the real one does (docs/recovery.md): it reports a lost node's
partitions as failed, takes over an assignment, catches up with its next report, and completes a checkpoint when one is
asked for.  Heartbeats are ephemeral znodes of sessions, one session for each group of machines that may die together: a
burst is the end of a session, and nothing else.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from benchmarks.operator_fleet import NODE_CPU_MILLI, Member
from reprise.algorithms.failure import Failure, FailureKind
from reprise.controller.zookeeper import membership, paths
from reprise.controller.zookeeper.client import make_client
from reprise.controller.zookeeper.node_record import NodeRecord, encode_node
from reprise.controller.zookeeper.process_records import encode_owner
from reprise.controller.zookeeper.records import (
    CheckpointRecord,
    encode_checkpoint,
    encode_desired,
    encode_progress,
    encode_stats,
    parse_desired,
)
from reprise.controller.zookeeper.session import Answer, Stat, ZooKeeperSession
from reprise.scheduler.model import Desired, PartitionStats, Progress

SESSION_S = 10.0
REPORT_S = 3.0
"""Between two reports of one driver; a real one reports after each chain of supersteps, which the operator does not
read while nothing happens."""
STATS_EVERY = 3
"""Reports between two statistics."""
FIRST = 40
"""Checkpoint at the start."""


@dataclass(slots=True)
class Driver:
    """One topology as its driver sees it."""

    member: Member
    root: str
    desired: Desired
    nodes: set[str]
    positions: dict[str, int]
    horizon: int = FIRST
    checkpoint: int = FIRST
    failed: dict[str, Failure] = field(default_factory=dict)
    changed: bool = False

    def lose(self, nodes: Iterable[str]) -> None:
        """Heartbeats and executors are gone."""
        gone = set(nodes)
        self.nodes -= gone
        for partition, node in self.desired.assignment.items():
            if node in gone:
                self.positions.pop(partition, None)
                self.failed[partition] = Failure(FailureKind.NODE_LOST, node)
        self.changed = True

    def follow(self, desired: Desired) -> None:
        """Take over a new desired state."""
        old, self.desired = self.desired, desired
        placed = {p for p, node in desired.assignment.items() if node in self.nodes}
        if desired.generation != old.generation:
            self.positions = dict.fromkeys(placed, desired.checkpoint)
        for partition in placed - self.positions.keys():
            self.positions[partition] = desired.checkpoint
        self.failed = {p: why for p, why in self.failed.items() if p not in placed}
        self.changed = True

    def report(self) -> bytes:
        """One report; everything that is placed has caught up by the next one."""
        raw = encode_progress(
            Progress(
                driver=self.desired.driver,
                seq=self.desired.seq,
                generation=self.desired.generation,
                nodes=frozenset(self.nodes),
                positions=self.positions,
                failed=self.failed,
                horizon=self.horizon,
                due=self.horizon,
                punctuation=self.horizon,
                checkpoint=self.checkpoint,
                time=time.time(),
            )
        )
        self.horizon += 5
        self.positions = dict.fromkeys(self.positions, self.horizon)
        return raw


def statistics(member: Member, turn: int) -> bytes:
    one = PartitionStats(20.0 + turn % 3, 1_000_000)
    return encode_stats(dict.fromkeys(member.topology.partitions, one))


def _checkpoint(position: int) -> tuple[str, bytes]:
    """Name and content of the record of a complete one."""
    return paths.checkpoint(position), encode_checkpoint(CheckpointRecord(position, time.time()))


class Drivers:
    """All of them, in one thread that reports in turn, and the session's that hears of desired states."""

    def __init__(self, hosts: str, members: Iterable[Member]) -> None:
        self._hosts = hosts
        self._client = make_client(hosts, SESSION_S)
        self._client.start(timeout=30)
        self._sessions: dict[str, ZooKeeperSession] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self.drivers = {m.name: self._populate(m) for m in members}
        self._thread = threading.Thread(target=self._report_all, daemon=True)

    def _populate(self, member: Member) -> Driver:
        root = paths.root_of(member.resource.namespace, member.name)
        self._client.ensure_path(root)
        pods = sorted(member.pods.values())
        partitions = list(member.topology.partitions)
        assignment = {p: f"{pods[i % len(pods)]}#1" for i, p in enumerate(partitions)}
        desired = Desired(1, 1, FIRST, "1", assignment)
        driver = Driver(member, root, desired, {f"{p}#1" for p in pods}, dict.fromkeys(partitions, FIRST))
        answers = [
            self._client.create_async(f"{root}/{name}", data)
            for name, data in (
                (paths.OWNER, encode_owner(member.uid)), (membership.FOLDER, b""), *((f, b"") for f in paths.FOLDERS),
                *((f"{membership.FOLDER}/{pod}", membership.joined()) for pod in pods),
                _checkpoint(FIRST), (paths.DESIRED, encode_desired(desired)),
                (paths.PROGRESS, driver.report()), (paths.STATS, statistics(member, 0)),
            )
        ]  # fmt: skip
        for answer in answers:
            answer.get(30)
        self._hear(driver)
        return driver

    def beat(self, group: str, pods: Iterable[tuple[str, str]]) -> None:
        """Heartbeats of (topology, pod), which live and die together."""
        client = self._sessions.get(group)
        if client is None:
            client = self._sessions[group] = make_client(self._hosts, SESSION_S)
            client.start(timeout=30)
        answers = []
        for name, pod in pods:
            record = NodeRecord(pod, "127.0.0.1", 1, 1, NODE_CPU_MILLI, time.time())
            path = f"{self.drivers[name].root}/{paths.NODES}/{pod}"
            answers.append(client.create_async(path, encode_node(record), ephemeral=True))
        for answer in answers:
            answer.get(30)

    def join(self, name: str, pod: str) -> None:
        """A new executor: member, heartbeat, and known to the driver."""
        driver = self.drivers[name]
        self._client.create(f"{driver.root}/{membership.FOLDER}/{pod}", membership.joined())
        self.beat("joined", [(name, pod)])
        with self._lock:
            driver.nodes.add(f"{pod}#1")
            self._write(driver)

    def cut(self, group: str, pods: Iterable[tuple[str, str]]) -> float:
        """End a group's session; when it was over, seconds since the epoch."""
        client = self._sessions.pop(group)
        client.close()
        done = time.time()
        lost: dict[str, list[str]] = {}
        for name, pod in pods:
            lost.setdefault(name, []).append(f"{pod}#1")
        with self._lock:
            for name, nodes in lost.items():
                self.drivers[name].lose(nodes)
                self._write(self.drivers[name])
        return done

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        for client in (self._client, *self._sessions.values()):
            client.close()

    def _report_all(self) -> None:
        turn, every = 0, list(self.drivers.values())
        while not self._stop.is_set():
            turn, began = turn + 1, time.monotonic()
            for number, driver in enumerate(every):
                with self._lock:
                    self._write(driver)
                if turn % STATS_EVERY == number % STATS_EVERY:
                    self._client.set_async(f"{driver.root}/{paths.STATS}", statistics(driver.member, turn))
                due = began + (number + 1) * REPORT_S / len(every)
                if (wait := due - time.monotonic()) > 0 and self._stop.wait(wait):
                    return

    def _write(self, driver: Driver) -> None:
        """Report, after a checkpoint where one is asked for and can be complete."""
        whole = len(driver.positions) == len(driver.member.topology.partitions) and not driver.failed
        if whole and driver.desired.punctuate and driver.desired.retain and not driver.changed:
            driver.checkpoint = driver.horizon
            name, record = _checkpoint(driver.checkpoint)
            self._client.create_async(f"{driver.root}/{name}", record)
        driver.changed = False
        self._client.set_async(f"{driver.root}/{paths.PROGRESS}", driver.report())

    def _hear(self, driver: Driver) -> None:
        """Read the desired state, and again when it has changed."""

        def got(answer: Answer[tuple[bytes, Stat]]) -> None:
            if self._stop.is_set():
                return
            raw, _ = answer.get()
            desired = parse_desired(raw)
            with self._lock:
                if desired.seq > driver.desired.seq:
                    driver.follow(desired)
                    self._write(driver)

        def saw(_: object) -> None:
            if not self._stop.is_set():
                self._hear(driver)

        self._client.get_async(f"{driver.root}/{paths.DESIRED}", watch=saw).when_there(got)
