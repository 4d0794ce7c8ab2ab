"""Other engines through the losses and arrivals of `benchmarks.recovery`."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, takewhile
from pathlib import Path
from typing import Protocol

import numpy as np
import polars as pl

from benchmarks import flink_cluster, overhead_structured, recovery_flink, recovery_structured
from benchmarks.recovery_measure import Evidence
from benchmarks.recovery_work import PRIORITIES, QUERIES, Feed, Tweets, miscounted
from reprise.controller.local.cluster import EmbeddedCluster
from reprise.controller.local.cluster.process_reaper import MARK
from reprise.controller.local.report.history import Writes
from reprise.controller.local.run.inject import natural
from reprise.controller.local.run.services import Service
from reprise.controller.local.run.supervisor import resize
from reprise.scheduler.node_start import StartPhase

WARM_S = (30.0, 90.0)
"""A stream runs so long before the failure, as JVMs are slow at first; longer, up to the second, until it keeps up."""
KEEPS_UP_S = 8.0
"""Age of the newest batch that is written."""
POLL_S, LOOK_S = 0.05, 0.5
AFTER_CHECKPOINT_S = 3.0
START_S, END_S = 120.0, 30.0
IDS = tuple(f"{query}.0" for query in QUERIES)
Phases = Mapping[StartPhase, tuple[float, ...]]


@dataclass(frozen=True, slots=True)
class Plan:
    """The losses and requests of one run."""

    tweets: Tweets
    service_ms: float
    kill: int
    """Nodes that are lost, the youngest."""
    requests: Sequence[float]
    """Seconds from the failure until each new node is requested, rising."""
    horizon_s: float


@dataclass(frozen=True, slots=True)
class PeerRun:
    """`reason`: why the run did not get to its end, or which output is wrong; empty: nothing."""

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
        return sorted(self.cluster.nodes, key=natural)

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
        cluster, "benchmarks.recovery_structured", more, work,
        nodes=nodes, memory_mb=cluster.config.executor_memory_mb, interval_s=0.0,
    )  # fmt: skip
    service.start()
    engine = SparkNodes(cluster, service)
    try:
        wait_for(engine, (work / recovery_structured.RUNNING).exists, START_S)
        with feed:
            kept_up = warm(engine, lambda: structured_writes(work, feed))
            failure, phases, reason = lose(engine, plan)
        (work / recovery_structured.STOP).touch()
        deadline = time.monotonic() + END_S
        while service.alive and time.monotonic() < deadline:
            time.sleep(POLL_S)
    except Stopped as error:
        return PeerRun(None, f"{error}; log in {service.log}")
    finally:
        service.stop(10.0)
    written = structured_writes(work, feed)
    wrong = miscounted(structured_counts(work), plan.tweets.counts(written.batches.size))
    evidence = _evidence(feed, failure, dict.fromkeys(IDS, written), plan, phases)
    return PeerRun(evidence, "; ".join(filter(None, [kept_up, reason, *wrong])))


def flink(
    cluster: EmbeddedCluster, plan: Plan, out: Path, nodes: int, settings: Mapping[str, str]
) -> PeerRun:
    """Flink beside a cluster without nodes, whose reaper ends the processes if this process cannot."""
    resize(cluster, 0, lambda _: None)
    jars, options = prepare_flink(cluster)
    feed = Feed(plan.tweets, out / "tweets")
    with flink_cluster.Flink(
        out / "flink", recovery_flink.JOB, [jars], settings, {MARK: cluster.token}
    ) as engine:
        engine.start(recovery_flink.job(feed.folder, engine.out, plan.service_ms, nodes), nodes, options)
        try:
            wait_for(engine, engine.running, START_S)
            with feed:
                kept_up = warm(
                    engine,
                    lambda: recovery_flink.writes(recovery_flink.computed(engine.out, 0), feed, plan.tweets),
                )
                _checkpoint_since(engine, time.time(), START_S)
                time.sleep(AFTER_CHECKPOINT_S)
                failure, phases, reason = lose(engine, plan)
            checkpoint = _checkpoint_since(engine, time.time(), END_S)
            time.sleep(recovery_flink.COMMIT_S)
        except Stopped as error:
            return PeerRun(None, f"{error}; log in {engine.log}")
    found = [recovery_flink.computed(engine.out, number) for number in range(len(QUERIES))]
    wrong = recovery_flink.miscounted(engine.out, found, plan.tweets, checkpoint)
    written = {
        query: recovery_flink.writes(one, feed, plan.tweets) for query, one in zip(IDS, found, strict=True)
    }
    evidence = _evidence(feed, failure, written, plan, phases)
    return PeerRun(evidence, "; ".join(filter(None, [kept_up, reason, *wrong])))


def prepare_flink(cluster: EmbeddedCluster) -> tuple[Path, Mapping[str, Sequence[str]]]:
    """Flink's jars and the options of its JVMs.  FlinkError when it cannot be had."""
    jars = flink_cluster.distribution(print)
    return jars, recovery_flink.archives(jars, {MARK: cluster.token}, print)


def _checkpoint_since(engine: flink_cluster.Flink, since: float, most_s: float) -> float:
    """Wait for a checkpoint that is triggered later, and return when the newest completed one was triggered."""
    deadline = time.monotonic() + most_s
    while (found := engine.completed()) < since and time.monotonic() < deadline:
        if not engine.alive:
            raise Stopped("the engine has ended")
        time.sleep(LOOK_S)
    return found


def _evidence(
    feed: Feed, failure: float, writes: Mapping[str, Writes], plan: Plan, phases: Phases
) -> Evidence | None:
    if not any(one.written.size for one in writes.values()):
        return None
    return Evidence(feed.zero, failure, writes, dict(zip(IDS, PRIORITIES, strict=True)), plan.kill, phases)


def warm(engine: Nodes, writes: Callable[[], Writes]) -> str:
    """Wait until the engine keeps up; empty, or that it did not."""
    began = time.monotonic()
    while (passed := time.monotonic() - began) < WARM_S[1]:
        if not engine.alive:
            raise Stopped("the engine has ended")
        if passed >= WARM_S[0] and (due := writes().due).size and time.time() - due[-1] < KEEPS_UP_S:
            return ""
        time.sleep(2.0)
    return f"it was more than {KEEPS_UP_S:g} s late before the failure"


def lose(engine: Nodes, plan: Plan) -> tuple[float, Phases, str]:
    """Kill nodes and request new ones until the horizon.  Returns when the failure was, when the new nodes were requested
    and registered, and why it ended earlier."""
    failure = time.time()
    engine.kill(engine.nodes[-plan.kill :])
    requested: dict[str, float] = {}
    there: dict[str, float] = {}
    requests, looked, reason = list(plan.requests), 0.0, ""
    while (now := time.time()) < failure + plan.horizon_s:
        if not engine.alive:
            reason = f"the engine ended {now - failure:.0f} s after the failure"
            break
        if requests and now >= failure + requests[0]:
            requests.pop(0)
            requested[engine.add_node()] = now
        if requested.keys() - there.keys() and now >= looked + LOOK_S:
            looked = now
            for name in engine.there() & requested.keys():
                there.setdefault(name, time.time())
        time.sleep(POLL_S)
    phases = {StartPhase.REQUESTED: requested, StartPhase.HEARTBEAT: there}
    return failure, {phase: tuple(sorted(at.values())) for phase, at in phases.items()}, reason


def wait_for(engine: Nodes, done: Callable[[], bool], most_s: float) -> None:
    """Stopped: the engine has ended, or it took too long."""
    deadline = time.monotonic() + most_s
    while True:
        if not engine.alive:
            raise Stopped("the engine has ended")
        if done():
            return
        if time.monotonic() > deadline:
            raise Stopped(f"the engine did not run within {most_s:.0f} s")
        time.sleep(POLL_S)


# -- what Structured Streaming leaves behind -------------------------------------------------------------------------------


def structured_batches(work: Path) -> dict[int, list[int]]:
    """Micro-batch -> the batches of tweets that it has read, of those that were committed; from the logs of the query."""
    checkpoint, log = work / "checkpoint", dict[int, set[int]]()
    for path in (checkpoint / "sources" / "0").glob("[0-9]*"):
        for line in path.read_text().splitlines()[1:]:
            entry = json.loads(line)
            batch = int(entry["path"].rpartition("-")[2].removesuffix(".txt"))
            log.setdefault(entry["batchId"], set()).add(batch)
    found: dict[int, list[int]] = {}
    done = -1
    for number in sorted(int(path.name) for path in (checkpoint / "commits").glob("[0-9]*")):
        last = (checkpoint / "offsets" / str(number)).read_text().splitlines()[-1]
        upto = int(json.loads(last)["logOffset"])
        found[number] = sorted(batch for at in range(done + 1, upto + 1) for batch in log.get(at, ()))
        done = upto
    return found


def structured_writes(work: Path, feed: Feed) -> Writes:
    """When each batch of tweets was written, up to the first that was not; all queries write at once."""
    at: dict[int, float] = {}
    path = work / recovery_structured.WRITTEN
    for line in path.read_text().splitlines() if path.exists() else ():
        one = json.loads(line)
        at.setdefault(one["batch"], one["at"])
    written = {
        batch: at[number]
        for number, batches in structured_batches(work).items()
        if number in at
        for batch in batches
    }
    batches = list(takewhile(written.__contains__, count(1)))
    due = np.array([feed.due(batch) for batch in batches])
    return Writes(np.array(batches, dtype=np.int64), due, np.array([written[batch] for batch in batches]))


def structured_counts(work: Path) -> dict[str, dict[str, int]]:
    """The last counts in the output of the micro-batches that were committed."""
    folders = [work / "sink" / f"batch={number}" for number in structured_batches(work)]
    files = [file for folder in folders for file in folder.glob("*.parquet")]
    found: dict[str, dict[str, int]] = {}
    if files:
        last = pl.read_parquet(files).group_by("query", "tag").agg(pl.col("count").max())
        for query, tag, number in last.iter_rows():
            found.setdefault(QUERIES[query], {})[tag] = number
    return found


def own_counts(out: Path) -> dict[str, dict[str, int]]:
    """The last counts in the output of a run of this project."""
    found: dict[str, dict[str, int]] = {}
    for query in QUERIES:
        batches = (out / "sink" / query).glob("*/*.parquet")
        if files := [
            file for file in batches if file.stat().st_size
        ]:  # a batch without rows is an empty file
            last = pl.read_parquet(files).group_by("tag").agg(pl.col("count").max())
            found[query] = dict(last.iter_rows())
    return found
