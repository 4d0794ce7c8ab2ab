"""Runs on a real cluster against the definition of the output: the checker of all end-to-end tests.

A scenario is a topology, a number of nodes and a fault schedule.  Its verdict is always the same: every output partition has
exactly one file for every batch, with the bytes that `reprise.spark_jobs.operators.local` says.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from reprise.controller.local.cluster import ClusterConfig, EmbeddedCluster
from reprise.controller.local.faults.faults import parse_faults
from reprise.controller.local.report.compare import compare
from reprise.controller.local.run.config import Outcome, RunConfig, RunResult
from reprise.controller.local.run.supervisor import Watcher, run_topology
from reprise.spark_jobs.contract import Place
from reprise.spark_jobs.operators.local import run_local
from reprise.spark_jobs.sinks import FileSink
from reprise.spark_jobs.topology import StreamTopology, load_topology, override

BATCHES = 40
TIMEOUT_S = 420.0
"""A run takes about a minute on two idle cores; seven leave room for a busy machine and still end a hung one."""


def cluster(nodes: int, cpu_milli: int = 200, worker_cores: int = 1) -> EmbeddedCluster:
    """A cluster for scenarios, whose nodes announce `cpu_milli`; runs change how many there are.

    Plans count the greater of what is declared and what is measured.  So a test that says which queries a plan brings back
    takes large nodes, and declares far more than partitions use."""
    return EmbeddedCluster(
        ClusterConfig(nodes=nodes, cpu_milli=cpu_milli, worker_cores=worker_cores, start_timeout_s=300.0)
    )


def topology2(nodes: int = 10, **more: Any) -> StreamTopology:
    """Topology 2 of Su and Zhou (15 queries), slowed down to what a test needs."""
    changes: dict[str, Any] = {
        "sources[source].with.batches": BATCHES,
        "sources[source].with.rate": 100,
        "nodes.count": nodes,
        "checkpoint.interval": "4s",
    }
    return override(load_topology("examples/topology2.yaml"), changes | more)


def write_expected(resource: StreamTopology, folder: Path) -> Path:
    """The definition's output as sink files."""
    outputs = [o for o in resource.operators if o.output is not None]
    for number, rows in enumerate(run_local(resource), start=1):
        for operator in outputs:
            for index in range(operator.parallelism):
                place = Place(operator.name, index, operator.parallelism)
                assert operator.output is not None
                FileSink(folder / "sink", place, operator.output.format).write(number, rows[place.partition])
    return folder


def run(
    resource: StreamTopology,
    on: EmbeddedCluster,
    out: Path,
    faults: Sequence[Mapping[str, Any]],
    watch: Watcher = lambda _state, _actions: None,
    **more: Any,
) -> RunResult:
    """One run on a cluster that is there; `watch` sees its state several times a second."""
    parsed = parse_faults([dict(f) for f in faults], "faults", resource.nodes.count)
    config = RunConfig(resource=resource, out=out, faults=parsed, timeout_s=TIMEOUT_S, cluster=on, **more)
    return run_topology(config, watch)


def assert_exactly_once(result: RunResult, expected: Path) -> None:
    """The verdict."""
    assert result.outcome is Outcome.DONE, f"{result.outcome}: {result.reason}; logs in {result.out / 'logs'}"
    found = compare(expected, result.out)
    assert found.identical, (found.missing[:5], found.extra[:5], found.different[:5], found.twice[:5])
    assert found.equal > 0
    assert result.record["unfired"] == []


def writes(out: Path) -> list[dict[str, Any]]:
    """The lines of events.jsonl: query, batch, time of the write, time it was due."""
    return [json.loads(line) for line in (out / "events.jsonl").read_text().splitlines()]
