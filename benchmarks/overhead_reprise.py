"""One run of Reprise: with everything that guards it, or as a bare data plane.

Bare: the driver alone, told once what runs where by a desired record like the coordinator's; no coordinator, no
checkpoints.  The nodes' heartbeats and the driver's progress record remain, as they are how a driver finds its nodes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from reprise.algorithms.cpu import milli_cpu, under_cap
from reprise.controller.local.cluster.cluster import EmbeddedCluster
from reprise.controller.local.report import layout as files
from reprise.controller.local.run.commands import services_of
from reprise.controller.local.run.config import Outcome, RunConfig
from reprise.controller.local.run.services import Service
from reprise.controller.local.run.supervisor import run_topology
from reprise.controller.zookeeper import paths
from reprise.controller.zookeeper.client import connected
from reprise.controller.zookeeper.errors import NoNodeError
from reprise.controller.zookeeper.observer import Observer
from reprise.controller.zookeeper.records import encode_desired, parse_progress, parse_stats
from reprise.controller.zookeeper.session import ZooKeeperSession
from reprise.scheduler.model import Desired, Progress
from reprise.scheduler.placement import spread
from reprise.spark_jobs.topology import StreamTopology, expand

POLL_S = 0.5


@dataclass(frozen=True, slots=True)
class Sample:
    """One look at a running driver: jobs so far, the least position, operators' CPU in thousandths of a core."""

    time: float
    jobs: int
    position: int
    cpu_milli: float


@dataclass(frozen=True, slots=True)
class Ran:
    """A finished run; `samples` only of bare ones, `reason` empty when it ended well."""

    out: Path
    reason: str = ""
    samples: tuple[Sample, ...] = ()
    assignment: Mapping[str, str] | None = None


def guarded(resource: StreamTopology, cluster: EmbeddedCluster, out: Path, timeout_s: float) -> Ran:
    """Coordinator, checkpoints, statistics: as `reprise run` does it."""
    result = run_topology(RunConfig(resource=resource, out=out, cluster=cluster, timeout_s=timeout_s))
    if result.outcome is Outcome.INTERRUPTED:
        raise KeyboardInterrupt
    observer = Observer(cluster.zk_hosts, str(result.record["root"]), environment=cluster.zk_environment())
    observer.open()
    try:
        desired = observer.read().desired
    finally:
        observer.close()
    reason = "" if result.ok else f"{result.outcome.value} {result.reason}"
    return Ran(out, reason, assignment=dict(desired.assignment) if desired else None)


def bare(
    resource: StreamTopology,
    cluster: EmbeddedCluster,
    out: Path,
    timeout_s: float,
    assignment: Mapping[str, str] | None = None,
    retain: bool = False,
) -> Ran:
    """The driver alone; `retain`: buffering on from the first batch, and nothing is ever dropped."""
    layout = files.prepare(out, resource, resume=False)
    root = f"/reprise/benchmarks/{resource.name}-{time.time_ns()}"
    cluster.serve(root)
    config = RunConfig(resource=resource, out=out, cluster=cluster)
    driver = services_of(config, layout, cluster, root)["driver"]
    deadline = time.monotonic() + timeout_s
    try:
        with connected(cluster.zk_hosts, 10.0, cluster.zk_environment()) as zk:
            driver.start()
            nodes = _ready_nodes(zk, root, driver, resource.nodes.count, deadline)
            placed = dict(assignment) if assignment else placement(resource, nodes)
            zk.create(f"{root}/desired", encode_desired(desired(placed, retain)), makepath=True)
            samples = tuple(_until_done(zk, root, driver, deadline))
        return Ran(out, "", samples, placed)
    except TimeoutError as error:
        return Ran(out, f"{error}; log in {driver.log}")
    finally:
        driver.stop(10.0)
        cluster.unserve(root)


def placement(resource: StreamTopology, nodes: list[str]) -> dict[str, str]:
    """As the coordinator places a topology at its start.  ValueError when it does not fit."""
    topology = expand(resource)
    costs = {p.id: milli_cpu(p.cpu_cores) for p in topology.partitions.values()}
    room = under_cap(resource.recovery.cpu_cap, milli_cpu(resource.nodes.cpu_cores))
    placed = spread(topology.order, costs, dict.fromkeys(nodes, room))
    if placed is None:
        raise ValueError(f"{len(nodes)} nodes are too few for {sum(costs.values())} milli-CPU")
    return placed


def desired(assignment: Mapping[str, str], retain: bool) -> Desired:
    """What the first driver of a root obeys."""
    return Desired(1, 0, 0, "1", assignment, retain=retain, punctuate=False)


def _ready_nodes(zk: ZooKeeperSession, root: str, driver: Service, count: int, deadline: float) -> list[str]:
    """Nodes that the driver has warmed up: one that is desired before is taken for lost."""
    while True:
        nodes = _progress(zk, root).nodes
        if len(nodes) >= count:
            return sorted(nodes)
        _check(driver, deadline, f"only {len(nodes)} of {count} nodes were ready")
        time.sleep(POLL_S)


def _until_done(zk: ZooKeeperSession, root: str, driver: Service, deadline: float) -> Iterator[Sample]:
    while True:
        progress, raw = _progress(zk, root), _read(zk, f"{root}/{paths.STATS}")
        cpu = sum(one.cpu_milli for one in parse_stats(raw).values()) if raw else 0.0
        yield Sample(progress.time, progress.jobs, min(progress.positions.values(), default=0), cpu)
        if progress.done:
            return
        if progress.failed:
            raise TimeoutError(f"partitions failed: {dict(progress.failed)}")
        _check(driver, deadline, "not done in time")
        time.sleep(POLL_S)


def _check(driver: Service, deadline: float, what: str) -> None:
    if not driver.alive:
        raise TimeoutError("the driver has ended")
    if time.monotonic() > deadline:
        raise TimeoutError(what)


def _progress(zk: ZooKeeperSession, root: str) -> Progress:
    """One of a driver that says nothing, while there is none."""
    raw = _read(zk, f"{root}/{paths.PROGRESS}")
    return parse_progress(raw) if raw else Progress("")


def _read(zk: ZooKeeperSession, path: str) -> bytes:
    try:
        raw: bytes = zk.get(path)[0]
    except NoNodeError:
        return b""
    return raw
