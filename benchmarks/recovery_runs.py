"""One run of one contestant of the recovery benchmark: what it runs, what is lost, and what it leaves behind."""

from __future__ import annotations

import argparse
import json
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import recovery_flink, recovery_peers, recovery_structured
from benchmarks.flink_cluster import CHECKPOINT_S, FlinkError
from benchmarks.recovery_measure import Evidence, evidence_of
from benchmarks.recovery_schedule import arrivals, lost, schedule
from benchmarks.recovery_work import SERVICE_MS, Tweets, counts, miscounted
from reprise.algorithms.cpu import milli_cpu
from reprise.controller.errors import EmbeddedError, ReportError, RunError
from reprise.controller.local.cluster import EmbeddedCluster
from reprise.controller.local.faults.faults import parse_faults
from reprise.controller.local.report.history import read_events
from reprise.controller.local.run.config import Outcome, RunConfig, load
from reprise.controller.local.run.supervisor import run_topology
from reprise.spark_jobs.topology import StreamTopology

Engine = Callable[
    [EmbeddedCluster, recovery_peers.Plan, Path, int, Mapping[str, str]], recovery_peers.PeerRun
]
ROOT = Path(__file__).resolve().parents[1]
TOPOLOGY = ROOT / "examples" / "topology2.yaml"
ROOMS = {"scarce": 2.0, "ample": 10.0}
"""CPU of all nodes together, cores.  `scarce` is that of topology2.yaml: two nodes of ten hold 2 of its 15 queries.  In an
`ample` room two hold all of them."""
STRATEGIES = ("best-case", "incremental", "operator-centric", "blocking")
PEERS: Mapping[str, tuple[Engine, Mapping[str, str]]] = {
    "structured": (recovery_peers.structured, {}),
    "structured-tuned": (recovery_peers.structured, recovery_structured.TUNED),
    "flink": (recovery_peers.flink, {}),
    "flink-tuned": (recovery_peers.flink, recovery_flink.TUNED),
}
"""Other engines, with the settings that differ from their defaults."""
WORKS = {"topology2": STRATEGIES, "counts": ("incremental", "blocking", *PEERS)}
"""Contestants for each kind of work."""
LEAD_S = 40.0
"""Longest time that a stream runs before the failure."""
PEER_LEAD_S = recovery_peers.WARM_S[1] + 2 * CHECKPOINT_S
"""The same of another engine."""


@dataclass(frozen=True, slots=True)
class Run:
    """One contestant under one schedule."""

    room: str
    seed: int
    contestant: str
    evidence: Evidence | None
    nodes: int
    """At the failure, standby nodes included."""
    reason: str
    """What was wrong; empty: it ended well."""
    load: tuple[float, float]
    """Load average of the machine before and after."""
    out: Path
    relapses: int | None = None
    """Queries that were back and fell behind again; None: the engine does not report that."""


def run(options: argparse.Namespace, cluster: EmbeddedCluster, room: str, contestant: str, seed: int) -> Run:
    """KeyboardInterrupt: somebody has interrupted it."""
    out = (options.out / room / f"seed-{seed}" / contestant).resolve()
    before = os.getloadavg()[0]
    try:
        found = (_peer if contestant in PEERS else _own)(options, cluster, room, contestant, seed, out)
    except (EmbeddedError, FlinkError, OSError, ReportError, RunError) as error:
        found = {"evidence": None, "nodes": options.nodes, "reason": str(error)}
    loads = (round(before, 1), round(os.getloadavg()[0], 1))
    return Run(room, seed, contestant, load=loads, out=out, **found)


def _own(
    options: argparse.Namespace, cluster: EmbeddedCluster, room: str, strategy: str, seed: int, out: Path
) -> dict[str, Any]:
    faults = schedule(lost(options.order, options.nodes, options.kill), _requests(options, seed))
    config = RunConfig(
        resource=topology(options, room, strategy, seed),
        out=out,
        faults=parse_faults(faults, "schedule", options.nodes),
        timeout_s=options.timeout,
        cluster=cluster,
        python_path=str(ROOT),
    )
    result = run_topology(config)
    if result.outcome is Outcome.INTERRUPTED:
        raise KeyboardInterrupt
    wrong = []
    if result.ok and options.work == "counts":
        tweets = _tweets(options, seed, LEAD_S)
        wrong = miscounted(recovery_peers.own_counts(out), tweets.counts(tweets.batches))
    incidents = result.incident.get("incidents", [])
    return {
        "evidence": evidence_of(result.incident, read_events(out / "events.jsonl")),
        "nodes": options.nodes + int(result.record.get("standby", 0)),
        "reason": "; ".join(wrong) if result.ok else f"{result.outcome.value} {result.reason}",
        "relapses": sum(query["relapses"] for one in incidents for query in one["queries"].values()),
    }


def _peer(
    options: argparse.Namespace, cluster: EmbeddedCluster, room: str, engine: str, seed: int, out: Path
) -> dict[str, Any]:
    plan = recovery_peers.Plan(
        _tweets(options, seed, PEER_LEAD_S),
        _service_ms(room),
        options.kill,
        _requests(options, seed),
        options.horizon,
    )
    run_engine, settings = PEERS[engine]
    found = run_engine(cluster, plan, out, options.nodes, settings)
    return {"evidence": found.evidence, "nodes": options.nodes, "reason": found.reason}


def _tweets(options: argparse.Namespace, seed: int, lead_s: float) -> Tweets:
    return Tweets(options.rate, options.interval, _batches(options, lead_s), _seed_of_source(seed))


def _requests(options: argparse.Namespace, seed: int) -> list[float]:
    return arrivals(seed, options.kill, options.speedup)


def _batches(options: argparse.Namespace, lead_s: float) -> int:
    return math.ceil((lead_s + options.horizon) / options.interval)


def _seed_of_source(seed: int) -> int:
    return 3 + seed


def _service_ms(room: str) -> float:
    return SERVICE_MS if room == "scarce" else 0.0


def topology(options: argparse.Namespace, room: str, strategy: str, seed: int) -> StreamTopology:
    """The work on as many nodes as were asked for, with the CPU of the room, until behind the horizon."""
    path = TOPOLOGY
    if options.work == "counts":
        path = options.out / f"counts-{room}.json"
        path.write_text(json.dumps(counts(_service_ms(room))))
    return load(
        path,
        nodes=options.nodes,
        strategy=strategy,
        overrides={
            "sources[source].with.rate": options.rate,
            "sources[source].with.interval": f"{options.interval:g}s",
            "sources[source].with.batches": _batches(options, LEAD_S),
            "sources[source].with.seed": _seed_of_source(seed),
            "batch.interval": f"{options.interval:g}s",
            "nodes.cpu": f"{round(1000 * ROOMS[room] / options.nodes)}m",
        },
    )


def cpu_milli(resource: StreamTopology) -> int:
    """What a node announces."""
    return milli_cpu(resource.nodes.cpu_cores)
