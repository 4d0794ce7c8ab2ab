"""Other engines through the losses and arrivals of `benchmarks.recovery`, on the nodes of the same cluster."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import polars as pl

from benchmarks import overhead_structured, recovery_flink, recovery_structured
from benchmarks.recovery_measure import Evidence
from benchmarks.recovery_work import PRIORITIES, QUERIES, Feed, Tweets, miscounted
from reprise.controller.local.cluster import EmbeddedCluster
from reprise.controller.local.cluster.process_reaper import MARK
from reprise.controller.local.report.history import Writes
from reprise.controller.local.run.services import Service
from reprise.controller.local.run.supervisor import resize
from reprise.scheduler.node_start import StartPhase

WARM_S = (30.0, 90.0)
"""A stream runs so long before the failure, as JVMs are slow at first; longer, up to the second, until it keeps up."""
KEEPS_UP_S = 8.0
"""Age of the newest batch that is written."""
POLL_S = 0.05
START_S, END_S = 120.0, 30.0
IDS = tuple(f"{query}.0" for query in QUERIES)


@dataclass(frozen=True, slots=True)
class Plan:
    """What one run of an engine is to pass."""

    tweets: Tweets
    service_ms: float
    kill: int
    """Nodes that are lost."""
    requests: Sequence[float]
    """Seconds from the failure until each new node is requested, rising."""
    horizon_s: float


@dataclass(frozen=True, slots=True)
class PeerRun:
    """`reason`: why the run did not get to its end, or what of its output is wrong; empty: nothing."""

    evidence: Evidence | None
    reason: str


class Stopped(Exception):
    """The engine has ended, or did not begin in time."""


class Nodes(Protocol):
    """The nodes of an engine."""

    @property
    def nodes(self) -> Sequence[str]:
        """Those that were started and not killed, the eldest first."""

    @property
    def alive(self) -> bool:
        """Whether the engine is, though nodes are lost."""

    def add_node(self) -> str:
        """Request another one; its name."""

    def kill(self, names: Sequence[str]) -> None:
        """SIGKILL to all processes of these."""

    def there(self) -> frozenset[str]:
        """Those that have registered."""


@dataclass(frozen=True, slots=True)
class SparkNodes:
    """The nodes of a local cluster, and an application on them."""

    cluster: EmbeddedCluster
    service: Service

    @property
    def nodes(self) -> Sequence[str]:
        return sorted(self.cluster.nodes, key=lambda name: int(name.lstrip("n")))

    @property
    def alive(self) -> bool:
        return self.service.alive

    def add_node(self) -> str:
        return self.cluster.add_node()

    def kill(self, names: Sequence[str]) -> None:
        self.cluster.kill(names)

    def there(self) -> frozenset[str]:
        return frozenset(record.node for record in self.cluster.arrived().values())


def structured(
    cluster: EmbeddedCluster, plan: Plan, out: Path, nodes: int, settings: Mapping[str, str]
) -> PeerRun:
    """Structured Streaming; a trigger follows the one before at once."""
    resize(cluster, nodes, lambda _: None)
    feed = Feed(plan.tweets, out / "tweets")
    more = [
        "--data",
        str(feed.folder),
        "--service-ms",
        str(plan.service_ms),
        "--settings",
        json.dumps(dict(settings)),
    ]
    work = out / "application"
    service = overhead_structured.process(
        cluster, "benchmarks.recovery_structured", ["--total", "0", *more], work,
        nodes=nodes, memory_mb=cluster.config.executor_memory_mb, interval_s=0.0,
    )  # fmt: skip
    service.start()
    engine = SparkNodes(cluster, service)
    try:
        wait_for(engine, (work / recovery_structured.RUNNING).exists, START_S)
        with feed:
            warm(engine, lambda: [_structured_writes(work, feed, plan.tweets)])
            failure, phases = lose(engine, plan)
        (work / recovery_structured.STOP).touch()
        deadline = time.monotonic() + END_S
        while service.alive and time.monotonic() < deadline:
            time.sleep(POLL_S)
    except Stopped as error:
        return PeerRun(None, f"{error}; log in {service.log}")
    finally:
        service.stop(10.0)
    written = _structured_writes(work, feed, plan.tweets)
    wrong = miscounted(_structured_counts(work), plan.tweets.counts(len(written.batches)))
    return PeerRun(_evidence(feed, failure, dict.fromkeys(IDS, written), plan, phases), "; ".join(wrong))


def flink(
    cluster: EmbeddedCluster, plan: Plan, out: Path, nodes: int, settings: Mapping[str, str]
) -> PeerRun:
    """Flink beside a cluster without nodes, of which it has the processes ended if this process cannot."""
    resize(cluster, 0, lambda _: None)
    environment = {**os.environ, MARK: cluster.token}
    jars = recovery_flink.distribution(print)
    options = recovery_flink.archives(jars, environment, print)
    feed = Feed(plan.tweets, out / "tweets")
    with recovery_flink.Flink(out / "flink", settings, environment, jars) as engine:
        job = recovery_flink.job(feed.folder, engine.out, plan.service_ms, nodes)
        engine.start(job, nodes, options)
        try:
            wait_for(engine, engine.running, START_S)
            with feed:
                warm(engine, lambda: recovery_flink.writes(engine.out, feed, plan.tweets).values())
                failure, phases = lose(engine, plan)
        except Stopped as error:
            return PeerRun(None, f"{error}; log in {engine.log}")
    written = recovery_flink.writes(engine.out, feed, plan.tweets)
    wrong = recovery_flink.miscounted(engine.out, plan.tweets.counts(plan.tweets.batches))
    return PeerRun(_evidence(feed, failure, written, plan, phases), "; ".join(wrong))


Phases = Mapping[StartPhase, tuple[float, ...]]


def _evidence(
    feed: Feed, failure: float, writes: Mapping[str, Writes], plan: Plan, phases: Phases
) -> Evidence:
    return Evidence(feed.zero, failure, writes, dict(zip(IDS, PRIORITIES, strict=True)), plan.kill, phases)


def warm(engine: Nodes, writes: Callable[[], Iterable[Writes]]) -> None:
    """Until the engine keeps up, or has had long enough for that."""
    began = time.monotonic()
    while (passed := time.monotonic() - began) < WARM_S[1]:
        if not engine.alive:
            raise Stopped("the engine has ended")
        newest = [one.due[-1] if one.due.size else 0.0 for one in writes()] if passed >= WARM_S[0] else [0.0]
        if time.time() - min(newest) < KEEPS_UP_S:
            return
        time.sleep(1.0)


def lose(engine: Nodes, plan: Plan) -> tuple[float, Phases]:
    """Kill nodes and request new ones until the horizon; when that was, and when the new nodes were requested and there."""
    failure = time.time()
    engine.kill(engine.nodes[-plan.kill :])
    requested: dict[str, float] = {}
    there: dict[str, float] = {}
    requests = list(plan.requests)
    while (now := time.time()) < failure + plan.horizon_s:
        if not engine.alive:
            raise Stopped("the engine has ended")
        if requests and now >= failure + requests[0]:
            requests.pop(0)
            requested[engine.add_node()] = now
        if requested.keys() - there.keys():
            for name in engine.there() & requested.keys():
                there.setdefault(name, time.time())
        time.sleep(POLL_S)
    phases = {StartPhase.REQUESTED: requested, StartPhase.HEARTBEAT: there}
    return failure, {phase: tuple(sorted(at.values())) for phase, at in phases.items()}


def wait_for(engine: Nodes, done: Callable[[], bool], most_s: float) -> None:
    """Stopped: the engine has ended, or it took too long."""
    deadline = time.monotonic() + most_s
    while not done():
        if not engine.alive:
            raise Stopped("the engine has ended")
        if time.monotonic() > deadline:
            raise Stopped(f"the engine did not run within {most_s:.0f} s")
        time.sleep(POLL_S)


def _structured_writes(work: Path, feed: Feed, tweets: Tweets) -> Writes:
    """When each batch of tweets was written: all queries write at once."""
    rows = {int(k): v for k, v in json.loads((work / recovery_structured.PROGRESS).read_text()).items()}
    at: dict[int, float] = {}
    if not rows:
        return Writes(np.array([], dtype=np.int64), np.array([]), np.array([]))
    for line in (work / recovery_structured.WRITTEN).read_text().splitlines():
        one = json.loads(line)
        at.setdefault(one["batch"], one["at"])
    written: list[float] = []
    done = 0
    for number in sorted(at):
        if number not in rows:
            break  # it was not committed
        done += rows[number]
        written += [at[number]] * (done // tweets.rows - len(written))
    batches = np.arange(1, len(written) + 1, dtype=np.int64)
    due = np.array([feed.due(int(batch)) for batch in batches])
    return Writes(batches, due, np.array(written))


def _structured_counts(work: Path) -> dict[str, dict[str, int]]:
    """The last counts in the output of the micro-batches that were committed."""
    rows = json.loads((work / recovery_structured.PROGRESS).read_text())
    folders = [work / "sink" / f"batch={number}" for number in rows]
    files = [file for folder in folders if folder.exists() for file in folder.glob("*.parquet")]
    last = pl.read_parquet(files).group_by("query", "tag").agg(pl.col("count").max())
    found: dict[str, dict[str, int]] = {}
    for query, tag, count in last.iter_rows():
        found.setdefault(QUERIES[query], {})[tag] = count
    return found
