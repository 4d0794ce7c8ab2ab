"""The agent of one node: leads the node's session, runs its executors, and is its heartbeat in ZooKeeper.

Invariants
- Whatever the others have seen leave never comes back as the same incarnation: when the ZooKeeper session has
  expired
  the agent kills all processes of its session but itself, starts fresh executors and registers with
  incarnation + 1.
- A lost connection is not a lost session: as long as ZooKeeper does not answer, the node works on. A session
  that
  expired only because ZooKeeper was away is registered again as the same incarnation; `fencing` says how that
  is told from a frozen node.
- A node that finds that it was frozen stops its processes at once and lets them go on only when ZooKeeper
  confirms
  the session: between thaw and verdict a zombie would otherwise have time to write. Its znode stays meanwhile: while the
  session lives, nobody has seen the node leave.
- SIGTERM is a notice: the node says so in ZooKeeper, works on for its grace, and then ends with all that it runs.
"""

import argparse
import contextlib
import logging
import math
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

from reprise.controller import logs
from reprise.controller.agent.executors import Executors, LocalExecutors
from reprise.controller.agent.fencing import LifeRecord, Verdict
from reprise.controller.zookeeper import node_record as node_tree
from reprise.controller.zookeeper.client import make_client
from reprise.controller.zookeeper.errors import ClientError, NodeExistsError, NoNodeError
from reprise.controller.zookeeper.node_record import NodeRecord, encode_node
from reprise.controller.zookeeper.process_records import encode_number, parse_number
from reprise.controller.zookeeper.session import Answer, SessionState, ZooKeeperSession, patiently
from reprise.spark_jobs.platform import PLATFORM, Platform

log = logging.getLogger("reprise.node_agent")
T = TypeVar("T")
TICK_S = 0.1
"""How soon a thawed node stops its zombies."""
GRACE = "grace"
LEFT = 143
_IDLE_LOOK_S = 0.3
"""How soon an executor that has ended, or an application that wants one, is noticed."""


class NodeAgent:
    """One thread decides; the ticker and the threads of the session only put events into its queue."""

    def __init__(
        self,
        options: argparse.Namespace,
        executors: Executors,
        platform: Platform = PLATFORM,
        session: ZooKeeperSession | None = None,
    ) -> None:
        self._platform = platform
        self._node: str = options.node
        self._host: str = options.host
        self._cpu_milli: int = options.cpu_milli
        self._labels = dict(one.split("=", 1) for one in options.label)
        self._timeout: float = options.session_timeout_ms / 1000
        self._executors = executors
        self._zk = session or make_client(options.zk, self._timeout)
        self._events: queue.SimpleQueue[str] = platform.signals()
        self._life = LifeRecord(self._timeout, platform.elapsed())
        self._life_lock = threading.Lock()
        self._still = platform.lock()
        """Held while executors are stopped and the event is put that says so, and while they are let go on if there is none:
        the answer to an earlier freeze never undoes one that the ticker finds meanwhile."""
        self._incarnation = 0
        self._started = self._now()
        self._requested: float | None = getattr(options, "requested", None)
        self._heartbeat: float | None = None
        """When this incarnation was first registered; its record says the same in every session."""
        self._scratch: Path | None = getattr(options, "scratch", None)
        self._grace_s: float = getattr(options, "grace", 0.0)
        self._leaves_at: float | None = None
        """When the node ends, seconds since the epoch, once it was told that it will."""
        self._roots: frozenset[str] = frozenset()
        self._registered_in: frozenset[str] = frozenset()
        self._held = False
        self._dirty = True
        self._looks = False
        """Whether events are being looked at."""

    def run(self) -> None:
        """Never returns; the node ends by SIGKILL, or, if the agent itself fails, by its own hand: a node without an
        agent would be one that nobody can fence."""
        signal.signal(signal.SIGTERM, self._told_to_leave)
        try:
            self._run()
        finally:
            self._executors.end_all()

    def _run(self) -> None:
        self._executors.start()
        self._zk.add_listener(self._listen)
        self._zk.start(timeout=60)
        self._join()
        self._platform.begin(self._tick_forever, "ticker")
        while True:
            self._next_event()
            self._leave_in_time()

    def _told_to_leave(self, *_: object) -> None:
        """A node that nobody knows yet has nothing that could move elsewhere, and may wait a minute for ZooKeeper:
        it ends at once."""
        if not self._looks:
            raise SystemExit(LEFT)
        self._events.put("leaving")

    def _next_event(self) -> None:
        self._looks = True
        try:
            event = self._events.get(timeout=_IDLE_LOOK_S if self._registered_in else TICK_S)
        except queue.Empty:
            self._look_around()
        else:
            self._handle(event)

    def _join(self) -> None:
        for path in (node_tree.ROOTS, node_tree.INCARNATIONS):
            self._patiently(partial(self._zk.ensure_path, path))
        self._incarnation = self._patiently(self._stored_incarnation) + 1
        self._patiently(partial(self._zk.watch_children, node_tree.ROOTS, self._see_roots))

    def _patiently(self, ask: Callable[[], T]) -> T:
        return patiently(ask, self._platform.elapsed, self._platform.sleep)

    def _now(self) -> float:
        """Seconds since the epoch, to the millisecond."""
        return round(self._platform.wall(), 3)

    # events, put from other threads

    def _listen(self, state: str) -> None:
        with self._life_lock:
            if state == SessionState.SUSPENDED:
                self._life.suspended(self._platform.elapsed())
        self._events.put(state)

    def _see_roots(self, names: list[str]) -> None:
        self._roots = frozenset(node_tree.root_of(name) for name in names)
        self._events.put("roots")

    def _tick_forever(self) -> None:
        while True:
            self._platform.sleep(TICK_S)
            self._tick()

    def _tick(self) -> None:
        """Stop everything where this node stood still."""
        with self._life_lock:
            was_frozen = self._life.tick(self._platform.elapsed())
        if was_frozen:
            with self._still:
                self._executors.freeze()
                self._events.put("woke")

    # the deciding thread

    def _handle(self, event: str) -> None:
        log.info("event=%s node=%s incarnation=%d", event.lower(), self._node, self._incarnation)
        if event == SessionState.LOST:
            self._lost()
        elif event == SessionState.CONNECTED:
            with self._life_lock:
                self._life.connected()
        elif event == "woke":
            self._held = True
        elif event == "leaving" and self._leaves_at is None:
            self._leaves_at = self._now() + self._grace()
        self._dirty = True
        self._look_around()

    def _grace(self) -> float:
        """Seconds between SIGTERM and the end: `--grace`, or what stands in the file `grace` of the scratch folder, as only
        whoever gives notice may know how soon it will be; what is no number of seconds there says nothing."""
        try:
            told = (
                float((self._scratch / GRACE).read_text(encoding="utf-8")) if self._scratch else self._grace_s
            )
        except (OSError, ValueError):
            return self._grace_s
        return told if math.isfinite(told) and told >= 0.0 else self._grace_s

    def _leave_in_time(self) -> None:
        if self._leaves_at is not None and self._now() >= self._leaves_at:
            log.info("event=left node=%s incarnation=%d", self._node, self._incarnation)
            raise SystemExit(LEFT)

    def _lost(self) -> None:
        with self._life_lock:
            now = self._platform.elapsed()
            self._life.tick(now)
            verdict = self._life.judge(now)
        log.info("event=session-expired node=%s verdict=%s", self._node, verdict.value.replace(" ", "_"))
        self._registered_in = frozenset()
        if verdict is Verdict.FENCE:
            self._seen_leaving()

    def _seen_leaving(self) -> None:
        """Others may run by now what runs here, and no record says whether they do: this incarnation ends, and the next one
        begins."""
        self._executors.end_all()
        self._held = False
        self._incarnation += 1
        self._started = self._now()
        self._requested = self._heartbeat = None
        self._executors.start()
        self._dirty = True
        log.info("event=renewed node=%s incarnation=%d", self._node, self._incarnation)

    def _look_around(self) -> None:
        if self._held:
            self._release_if_confirmed()
        if self._held:
            return
        self._tick()  # the ticker may not have found out yet
        with self._still:
            if not self._events.empty():
                return
            self._executors.keep()
        if (self._dirty or not self._registered_in) and self._zk.connected:
            try:
                self._bring_up_to_date()
            except ClientError as error:
                log.warning("event=not-registered node=%s error=%r", self._node, error)

    def _release_if_confirmed(self) -> None:
        """Let stopped processes go on when ZooKeeper has confirmed that they may."""
        try:
            self._confirm()
        except ClientError:
            return
        with self._still:
            if not self._events.empty():  # a LOST would be in the queue before a new session could answer
                return
            self._executors.thaw()
        self._held = False
        self._dirty = True
        log.info("event=released node=%s incarnation=%d", self._node, self._incarnation)

    def _confirm(self) -> None:
        """Returns when this very session has answered after the freeze; raises ClientError."""
        self._wait(self._zk.exists_async("/"))

    def _bring_up_to_date(self) -> None:
        """Make the znodes say what is: one a served root."""
        wanted = self._served()
        for root in self._registered_in - wanted:
            self._erase(root)
        self._heartbeat = self._heartbeat or self._now()
        self._store_incarnation()
        for root in sorted(wanted):
            self._write(root)
            if self._leaves_at is not None and root != node_tree.CONTROL:
                self._give_notice(root, self._leaves_at)
        self._registered_in = wanted
        self._dirty = False

    # znodes

    def _served(self) -> frozenset[str]:
        """Where the node stands while it is well."""
        return self._roots | {node_tree.CONTROL}

    def _record(self) -> bytes:
        record = NodeRecord(
            self._node,
            self._host,
            self._incarnation,
            os.getpid(),
            self._cpu_milli,
            self._started,
            self._timeout,
            self._requested,
            self._heartbeat,
            self._labels,
        )
        return encode_node(record)

    def _path(self, root: str) -> str:
        return f"{node_tree.nodes_path(root)}/{self._node}"

    def _erase(self, root: str) -> None:
        with contextlib.suppress(NoNodeError):
            self._wait(self._zk.delete_async(self._path(root)))

    def _write(self, root: str) -> None:
        """The node's record below a root, as it is now."""
        self._zk.ensure_path(node_tree.nodes_path(root))
        path = self._path(root)
        self._hold(path, self._record(), lambda: self._create(path))

    def _give_notice(self, root: str, by: float) -> None:
        """Say that this incarnation will be gone, so that what it has moves while it lives."""
        path = node_tree.leaving_path(root, f"{self._node}#{self._incarnation}")
        self._zk.ensure_path(node_tree.leaving_path(root, "").rstrip("/"))
        data = node_tree.encode_notice("SIGTERM", by)
        self._hold(path, data, lambda: self._wait(self._zk.create_async(path, data, ephemeral=True)))

    def _create(self, path: str) -> None:
        self._wait(self._zk.create_async(path, self._record(), ephemeral=True))

    def _hold(self, path: str, data: bytes, create: Callable[[], object]) -> None:
        """Create or update an ephemeral znode; one left by an older session of this node is replaced, or it would vanish
        later."""
        try:
            create()
        except NodeExistsError:
            raw, stat = self._wait(self._zk.get_async(path))
            if stat.owner != self._zk.id:
                with contextlib.suppress(NoNodeError):
                    self._wait(self._zk.delete_async(path))
                create()
            elif raw != data:
                self._wait(self._zk.set_async(path, data))

    def _stored_incarnation(self) -> int:
        path = f"{node_tree.INCARNATIONS}/{self._node}"
        try:
            return parse_number(self._wait(self._zk.get_async(path))[0], path)
        except NoNodeError:
            return 0

    def _store_incarnation(self) -> None:
        path = f"{node_tree.INCARNATIONS}/{self._node}"
        data = encode_number(self._incarnation)
        try:
            self._wait(self._zk.set_async(path, data))
        except NoNodeError:
            self._wait(self._zk.create_async(path, data, makepath=True))

    def _wait(self, answer: Answer[T]) -> T:
        return answer.get(self._timeout)


def _label(text: str) -> str:
    key, given, _ = text.partition("=")
    if not key or not given:
        raise argparse.ArgumentTypeError(f"must be KEY=VALUE, not {text!r}")
    return text


def main(arguments: list[str]) -> None:
    """Command line: options of the node."""
    parser = argparse.ArgumentParser(prog="node_agent")
    parser.add_argument("--node", required=True)
    parser.add_argument("--host", required=True)
    parser.add_argument("--zk", required=True)
    parser.add_argument("--cpu-milli", type=int, required=True)
    parser.add_argument(
        "--label",
        action="append",
        default=[],
        type=_label,
        help="KEY=VALUE, of the machine; may be repeated",
    )
    parser.add_argument("--session-timeout-ms", type=int, required=True)
    parser.add_argument(
        "--requested", type=float, help="when the node was asked for, seconds since the epoch"
    )
    parser.add_argument(
        "--grace",
        type=float,
        default=0.0,
        help="seconds between SIGTERM and the end, in which the node is emptied",
    )
    parser.add_argument("--scratch", type=Path, required=True, help="folder of the node's own")
    parser.add_argument(
        "--applications", type=Path, required=True, help="folder of applications that want an executor"
    )
    parser.add_argument("--log", type=Path, required=True, help="where a partition host that waits prints")
    options = parser.parse_args(arguments)
    if os.getsid(0) != os.getpid():
        os.setsid()
    logs.setup(level=logging.WARNING)
    log.setLevel(logging.INFO)
    executors = LocalExecutors(options.node, options.host, options.scratch, options.applications, options.log)
    NodeAgent(options, executors).run()


if __name__ == "__main__":
    main(sys.argv[1:])
