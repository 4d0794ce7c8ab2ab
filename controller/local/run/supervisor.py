"""One run from start to verdict: cluster, driver, coordinator, faults, the wait for the end, the report.

The supervisor decides nothing about recovery.  It does for a local run what Kubernetes does in production: it keeps
driver and coordinator alive and provides nodes; besides it breaks what the fault schedule says.  Invariant: whatever
happens, Ctrl-C, an error, SIGKILL of this very process, nothing that it started outlives it
(`reprise.controller.local.cluster.process_reaper`), and what is known is written to the folder of the run.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from reprise.algorithms.cpu import milli_cpu
from reprise.controller.errors import EmbeddedError, RunError
from reprise.controller.local.cluster.cluster import EmbeddedCluster
from reprise.controller.local.cluster.config import ClusterConfig
from reprise.controller.local.faults.faults import most_killed
from reprise.controller.local.faults.schedule import Moment, Schedule
from reprise.controller.local.report import layout as files
from reprise.controller.local.report.write import write_report
from reprise.controller.local.run.change import QueryChanges
from reprise.controller.local.run.commands import services_of
from reprise.controller.local.run.config import Outcome, RunConfig, RunResult
from reprise.controller.local.run.ending import Ending
from reprise.controller.local.run.inject import Injector, Roster, natural
from reprise.controller.status.actions import DRIVER_HUNG, RESTARTED, STREAM_BEGAN
from reprise.controller.status.loop_watch import LoopWatch
from reprise.controller.status.query_state import RunState, run_state
from reprise.controller.status.records import records
from reprise.controller.zookeeper.client import connected
from reprise.controller.zookeeper.errors import ClientError, RecordError
from reprise.controller.zookeeper.node_record import SESSION_S
from reprise.controller.zookeeper.observation import Observation
from reprise.controller.zookeeper.observer import Observer
from reprise.spark_jobs.topology import StreamTopology, expand

log = logging.getLogger("reprise.run")
TICK_S = 0.2
STOP_S = 10.0
Watcher = Callable[[RunState, list[dict[str, Any]]], None]
"""Called several times a second with the state and the actions so far."""


def run_topology(
    config: RunConfig,
    watch: Watcher = lambda _state, _actions: None,
    progress: Callable[[str], None] = log.info,
    changed: Callable[[StreamTopology], None] = lambda _resource: None,
) -> RunResult:
    """Run until the stream ends, the time is up or something makes going on impossible.  `changed` is called with the
    topology that runs from now on, where queries came or went.

    KeyboardInterrupt is taken as the wish to end: the result says so.  OutDirError for a folder that cannot be used; every
    other trouble is an outcome.
    """
    layout = files.prepare(config.out, config.resource, config.resume)
    run = _Run(config, layout, watch, progress, changed)
    outcome, reason = Outcome.FAILED, ""
    try:
        outcome, reason = run.to_the_end()
    except KeyboardInterrupt:
        outcome, reason = Outcome.INTERRUPTED, "interrupted"
    except (RunError, EmbeddedError) as error:
        reason = str(error)
    finally:
        run.record |= {"outcome": outcome.value, "reason": reason, "ended": time.time()}
        run.save()
    try:
        incident = write_report(
            layout,
            run.config.resource,
            run.record,
            run.seen.incidents,
            list(run.seen.plans.values()),
            run.seen.progress.stored if run.seen.progress is not None else None,
        )
    except OSError as error:  # a full disk: what is known is said, if it cannot be written
        progress(f"problem: the report is not written: {error.strerror or error}")
        incident = {}
    return RunResult(outcome, config.out, run.record, incident, reason)


class _Run:
    def __init__(
        self,
        config: RunConfig,
        layout: files.Layout,
        watch: Watcher,
        progress: Callable[[str], None],
        changed: Callable[[StreamTopology], None] = lambda _resource: None,
    ) -> None:
        self.config, self.layout = config, layout
        self.watch, self.progress, self.changed = watch, progress, changed
        self.topology = expand(config.resource)
        self.record = files.new_record(config.resource, resumed=config.resume)
        self.actions: list[dict[str, Any]] = self.record["actions"]
        self.seen = Observation(time.time())
        self.loop_watch = LoopWatch()
        self.zero: float | None = None
        self.changes: QueryChanges
        self._unwritten = ""
        """Why `run.json` could not be brought up to date the last time."""

    def to_the_end(self) -> tuple[Outcome, str]:
        files.write_json(self.layout.record, self.record)
        standby, faults = _standby(self.config)
        with self._cluster(standby) as cluster, contextlib.ExitStack() as ends:
            root = _free_root(cluster, self.config)
            access = cluster.zk_environment()
            self.record |= {"root": root, "zk": cluster.zk_hosts, "zkAccess": access, "standby": standby}
            cluster.serve(root)
            ends.callback(_leave, cluster, root)
            services = services_of(self.config, self.layout, cluster, root)
            observer = Observer(cluster.zk_hosts, root, environment=access)
            observer.open()
            ends.callback(observer.close)
            session = ends.enter_context(connected(cluster.zk_hosts, SESSION_S, access))
            self.changes = QueryChanges(session, root, self.layout, services, self._say, time.time)
            roster = Roster(sorted(cluster.nodes, key=natural))
            injector = Injector(cluster, roster, services, self._say)
            for service in services.values():
                ends.callback(service.stop, STOP_S)
                self.progress(f"starting the {service.name}")
                service.start()
            files.write_json(self.layout.record, self.record)
            try:
                return self._watch_until_done(observer, injector, Schedule(faults))
            finally:
                self.seen = observer.read() if cluster.zookeeper.alive else self.seen
                self._keep_last(observer)
                self.record["restarts"] = {name: service.restarts for name, service in services.items()}
                self._thaw(cluster, injector)

    @contextlib.contextmanager
    def _cluster(self, standby: int) -> Iterator[EmbeddedCluster]:
        wanted = self.config.resource.nodes.count + standby
        if self.config.cluster is not None:
            resize(self.config.cluster, wanted, self.progress)
            yield self.config.cluster
            return
        resource = self.config.resource
        memory = resource.spark.executor_memory_bytes // 2**20
        settings = ClusterConfig(
            nodes=wanted,
            executor_memory_mb=memory,
            cpu_milli=milli_cpu(resource.nodes.cpu_cores),
            labels=self.config.labels,
            session_timeout_ms=self.config.session_timeout_ms,
            log_dir=self.layout.out / "logs" / "cluster",
            start_timeout_s=90.0 + 10 * wanted,
        )
        cluster = EmbeddedCluster(settings)
        try:
            cluster.start(self.progress)
            yield cluster
        finally:
            cluster.stop()

    # -- the loop ------------------------------------------------------------------------------------------------------

    def _watch_until_done(
        self, observer: Observer, injector: Injector, schedule: Schedule
    ) -> tuple[Outcome, str]:
        ending = Ending(self.topology)
        deadline = None if self.config.timeout_s is None else time.monotonic() + self.config.timeout_s
        while True:
            began = time.monotonic()
            self.seen = seen = observer.read()
            if (other := self.changes.look(self.config.resource, seen)) is not None:
                ending = self._goes_on_with(other)
                continue
            if not self.changes.under_way:
                self._end_hung_driver(time.monotonic(), seen, injector)
                self._revive(injector)
            self._note_start(seen)
            assignment = seen.desired.assignment if seen.desired else {}
            injector.tick(assignment)
            for fault in schedule.due(self._moment(seen)):
                injector.carry_out(fault, assignment)
            injector.arrived(node.name for node in seen.nodes.values())
            self.watch(run_state(self.topology, seen, frozenset(injector.frozen)), self.actions)
            if (end := ending.look(seen, began)) is not None:
                self.record["unfired"] = [fault.describe() for fault in schedule.unfired]
                return end
            if deadline is not None and time.monotonic() > deadline:
                return Outcome.TIMEOUT, f"not done after {self.config.timeout_s:g} s"
            time.sleep(max(0.01, TICK_S - (time.monotonic() - began)))

    def _goes_on_with(self, other: StreamTopology) -> Ending:
        """Driver and coordinator are those of another topology from now on."""
        self.config = replace(self.config, resource=other)
        self.topology = expand(other)
        self.loop_watch = LoopWatch()
        self.changed(other)
        return Ending(self.topology)

    def _moment(self, seen: Observation) -> Moment:
        now = time.time()
        milestones = {
            "incident": len(seen.incidents),
            "plan": len(seen.plans),
            "checkpoint": self._checkpoints(seen),
            "closed": len(seen.closed),
        }
        horizon = seen.progress.horizon if seen.progress else 0
        return Moment(now, None if self.zero is None else now - self.zero, horizon, milestones)

    def _checkpoints(self, seen: Observation) -> int:
        """How many completed in this run, as far as was seen."""
        found: list[int] = self.record.setdefault("checkpoints", [])
        position = seen.progress.checkpoint if seen.progress else 0
        if position > 0 and position not in found:
            found.append(position)
        return len(found)

    def _note_start(self, seen: Observation) -> None:
        """The zero of the schedule: the first batch is applied somewhere."""
        moved = seen.progress is not None and any(p > 0 for p in seen.progress.positions.values())
        if self.zero is None and moved:
            self.zero = self.record["zero"] = time.time()
            self._say({"time": self.zero, "action": STREAM_BEGAN})

    def _end_hung_driver(self, now: float, seen: Observation, injector: Injector) -> None:
        """It would report for ever and do nothing; another one takes its place with the next look."""
        self.loop_watch.heard(now, seen.progress if seen.connected else None, seen.report)
        if self.loop_watch.hung:
            why = self.loop_watch.describe()
            self.loop_watch = LoopWatch()
            injector.services["driver"].crash()
            self._say({"time": time.time(), "action": DRIVER_HUNG, "target": "driver", "reason": why})

    def _revive(self, injector: Injector) -> None:
        for service in injector.services.values():
            status = service.revive()
            if status is not None:
                self._say(
                    {"time": time.time(), "action": RESTARTED, "target": service.name, "status": status}
                )

    def _say(self, action: dict[str, Any]) -> None:
        log.info("event=run-action " + " ".join(f"{key}=%s" for key in action), *action.values())
        if self.zero is not None:
            action["elapsed"] = round(action["time"] - self.zero, 3)
        if self.seen.progress is not None:
            action["batch"] = self.seen.progress.horizon
        self.actions.append(action)
        self.save()

    def save(self) -> None:
        """Bring `run.json` up to date; a full disk must not end the run that it is about."""
        try:
            files.write_json(self.layout.record, self.record)
            self._unwritten = ""
        except OSError as error:
            if str(error) != self._unwritten:
                self.progress(f"problem: run.json is not written: {error.strerror or error}")
            self._unwritten = str(error)

    def _keep_last(self, observer: Observer) -> None:
        """How everything stands at the end, for who asks later; a full disk must not end the report."""
        settings = None
        with contextlib.suppress(ClientError, RecordError):
            settings = observer.settings().settings
        try:
            files.write_json(self.layout.last, {"settings": settings, "records": records(self.seen)})
        except OSError as error:
            self.progress(f"problem: {files.LAST} is not written: {error.strerror or error}")

    def _thaw(self, cluster: EmbeddedCluster, injector: Injector) -> None:
        """A cluster that is given back has no frozen node and a living ZooKeeper."""
        if self.config.cluster is not None:
            with contextlib.suppress(EmbeddedError):
                cluster.kill([name for name in injector.frozen if name in cluster.nodes])
            if not cluster.zookeeper.alive:
                cluster.zookeeper.start()


def _standby(config: RunConfig) -> tuple[int, tuple[Any, ...]]:
    """Standby nodes and the faults that remain: with standby nodes nobody has to arrive."""
    best = config.resource.recovery.strategy == "best-case"
    count = config.standby if config.standby is not None else (most_killed(config.faults) if best else 0)
    if count and not config.keep_adds:
        return count, tuple(fault for fault in config.faults if fault.action != "add")
    return count, config.faults


def _free_root(cluster: EmbeddedCluster, config: RunConfig) -> str:
    """A root that no run before has used on this cluster."""
    base = f"/reprise/{config.resource.namespace}/{config.resource.name}"
    number, root = 1, base
    observer = Observer(cluster.zk_hosts, base, environment=cluster.zk_environment())
    observer.open()
    try:
        while observer.exists(root):
            number += 1
            root = f"{base}-{number}"
    finally:
        observer.close()
    return root


def resize(cluster: EmbeddedCluster, wanted: int, progress: Callable[[str], None]) -> None:
    """Kill or start nodes until `wanted` are there, and wait for those that are not."""
    names = sorted(cluster.nodes, key=natural)
    cluster.kill(names[wanted:])
    added = [cluster.add_node() for _ in range(wanted - len(names))]
    cluster.wait_for(added, progress=progress)
    cluster.wait_for(names[:wanted], progress=lambda _: None)


def _leave(cluster: EmbeddedCluster, root: str) -> None:
    with contextlib.suppress(EmbeddedError):
        cluster.unserve(root)
