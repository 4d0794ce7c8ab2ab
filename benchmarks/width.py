"""`python -m benchmarks.width`: what a steady job costs the driver, by the number of nodes.

Ten partitions a node: two sources and eight keyed operators of as many partitions each as there are nodes, once in a `row`
(each operator reads the one before, the last has the output) and once `beside` each other (all read a source, each has an
output).  All edges are all to all.  A steady job releases one batch, which every partition applies; no checkpoint is due.

Counted, as the mean of `--jobs` such jobs after three that are not counted (16: the ledger is written every 16 batches):

- job_cpu_ms: CPU time of the thread that runs `Engine.tick`, without that of the hosts.  The work of Spark's scheduler and
  of py4j is not in it: the hosts are in this process, and there is no Spark.
- job_bytes: what the driver and all slots exchange in one job: orders, reports, and the function of each stage as it is
  pickled, once a slot.  Spark's own descriptions of tasks are not in it, nor are messages between nodes.
- whole_orders: bytes of the orders of the first job, which say everything, as do those after a job that failed.
- expand_s: CPU time of `expand`, from the resource to the partition graph.

Hosts are `light` by default: they read and write all that hosts do, but their partitions exchange no messages (a thousand
nodes that read each other all to all: nine million a batch).  With `--hosts full` they are those of a node, and exchange
them; what is counted is the same.  With `--scattered N` the first N partitions of each operator are behind the others, at
positions that change with each job, and every node that sends to them is told.  The figures at the top are those of the
worse shape.
"""

from __future__ import annotations

import argparse
import gc
import json
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.width_hosts import LAG, Wire
from reprise.spark_jobs.engine.engine import Engine
from reprise.spark_jobs.engine.engine_spec import EngineSpec, Sites
from reprise.spark_jobs.engine.punctuation import Punctuations
from reprise.spark_jobs.state.checkpoints import CheckpointStore
from reprise.spark_jobs.state.ledger import Ledger
from reprise.spark_jobs.state.release import Release
from reprise.spark_jobs.topology import StreamTopology, expand, from_object

SHAPES = ("row", "beside")
SOURCES = 2
OPERATORS = 8
WARM_JOBS = 3


@dataclass(frozen=True, slots=True)
class Setting:
    """What is measured: see the module's text."""

    nodes: int
    jobs: int = 16
    full: bool = False
    scattered: int = 0


@dataclass(frozen=True, slots=True)
class Job:
    """What one job cost; `orders`, `functions` and `reports` are bytes, all slots together."""

    cpu_s: float
    orders: int
    functions: int
    reports: int

    @property
    def bytes(self) -> int:
        """All that the driver and the slots exchanged."""
        return self.orders + self.functions + self.reports


def resource(shape: str, nodes: int) -> StreamTopology:
    """The topology of one shape."""
    sources = [
        {
            "name": f"s{k}",
            "class": "reprise.sources:HashtagSource",
            "parallelism": nodes,
            "with": {"rate": 2 * nodes},
        }
        for k in range(SOURCES)
    ]
    operators: list[dict[str, Any]] = []
    for k in range(OPERATORS):
        read = [f"s{k % SOURCES}"]
        if shape == "row":
            read = [f"o{k - 1}"] if k else [f"s{j}" for j in range(SOURCES)]
        operator: dict[str, Any] = {
            "name": f"o{k}",
            "class": "reprise.operators:Sink",
            "parallelism": nodes,
            "inputs": [{"from": name, "by": ["tweet"]} for name in read],
        }
        last = shape == "beside" or k == OPERATORS - 1
        operators.append({**operator, "output": {}} if last else operator)
    return from_object(
        {
            "apiVersion": "reprise.dev/v1alpha1",
            "kind": "StreamTopology",
            "metadata": {"name": "width"},
            "spec": {"sources": sources, "operators": operators, "checkpoint": {"interval": "24h"}},
        }
    )


def steady_jobs(shape: str, setting: Setting) -> tuple[list[Job], Job, int, float]:
    """The cost of each job and of the very first one, the number of partitions, and seconds of `expand`."""
    found = resource(shape, setting.nodes)
    began = time.thread_time()
    topology = expand(found)
    expand_s = time.thread_time() - began
    with tempfile.TemporaryDirectory() as folder:
        wire = Wire(Path(folder), setting.full, setting.scattered)
        engine = _engine(found, wire, f"{folder}/checkpoints", setting)
        names = [f"n{k:04d}#1" for k in range(setting.nodes)]
        wire.start(names)
        placed = {p: names[k % setting.nodes] for k, p in enumerate(topology.order)}
        engine.want(EngineSpec(1, 1, 0, placed))
        jobs, first = list[Job](), None
        for number in range(WARM_JOBS + setting.jobs):
            if number == WARM_JOBS:  # what the hosts hold is not the driver's to look through
                gc.collect()
                gc.freeze()
            before = engine.horizon
            cost = _tick(engine, wire, names)
            first = first or cost
            if number >= WARM_JOBS:
                if engine.failures or engine.horizon != before + 1 or len(engine.at_work) != len(placed):
                    raise RuntimeError(f"no steady job: {engine.problems[-3:]}")
                jobs.append(cost)
        gc.unfreeze()
    assert first is not None
    return jobs, first, len(topology.partitions), expand_s


def _engine(found: StreamTopology, wire: Wire, location: str, setting: Setting) -> Engine:
    topology = expand(found)
    engine = Engine(
        resource=found,
        topology=topology,
        sites=Sites(f"{location}/sink", location),
        epoch=1,
        connect=wire.connect,
        ledger=Ledger(location, found, topology),
        release=Release(location, 0.0, ahead=1 + (LAG if setting.scattered else 0), epoch=1),
        store=CheckpointStore(location),
        punctuations=Punctuations(found.checkpoint),
    )
    if setting.full:
        wire.stages = OPERATORS + 2  # so many hops has the row, and a batch is to pass it in one job
    engine.begin(0)
    return engine


def _tick(engine: Engine, wire: Wire, names: list[str]) -> Job:
    began = time.thread_time()
    engine.tick({name: name for name in names}, threading.Event())
    return Job(time.thread_time() - began - wire.cpu_s, wire.orders, wire.functions, wire.reports)


def measure(setting: Setting) -> dict[str, Any]:
    """The whole answer, as `--output json` shows it."""
    shapes: dict[str, dict[str, Any]] = {}
    for shape in SHAPES:
        jobs, first, partitions, expand_s = steady_jobs(shape, setting)
        shapes[shape] = {
            "partitions": partitions,
            "job_cpu_ms": round(1000 * fmean(job.cpu_s for job in jobs), 1),
            "job_bytes": round(fmean(job.bytes for job in jobs)),
            "orders": round(fmean(job.orders for job in jobs)),
            "functions": round(fmean(job.functions for job in jobs)),
            "reports": round(fmean(job.reports for job in jobs)),
            "whole_orders": first.orders,
            "expand_s": round(expand_s, 3),
        }
    worst = {
        name: max(found[name] for found in shapes.values())
        for name in ("job_cpu_ms", "job_bytes", "whole_orders", "expand_s")
    }
    return {
        "nodes": setting.nodes,
        "partitions": shapes[SHAPES[0]]["partitions"],
        **worst,
        "hosts": "full" if setting.full else "light",
        "scattered": setting.scattered,
        "shapes": shapes,
    }


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.width",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--nodes", type=int, nargs="+", default=[10, 50, 100, 200, 500, 1000])
    parser.add_argument("--jobs", type=int, default=16, help="steady jobs that are counted (default 16)")
    parser.add_argument("--hosts", choices=("light", "full"), default="light")
    parser.add_argument("--scattered", type=int, default=0, help="partitions of each operator that are apart")
    parser.add_argument("--output", choices=("text", "json"), default="text", help="json: one object a line")
    options = parser.parse_args(arguments)
    if options.output == "text":
        columns = (
            "driver CPU, ms",
            "bytes",
            "of them orders",
            "functions",
            "reports",
            "whole orders",
            "expand, s",
        )
        print("| nodes | partitions |", *(f"{column} |" for column in columns))
        print("|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
    for nodes in options.nodes:
        found = measure(Setting(nodes, options.jobs, options.hosts == "full", options.scattered))
        if options.output == "json":
            print(json.dumps(found), flush=True)
            continue
        worse = max(found["shapes"].values(), key=lambda shape: shape["job_bytes"])
        sizes = " | ".join(f"{worse[name]:,}" for name in ("job_bytes", "orders", "functions", "reports"))
        print(
            f"| {nodes:,} | {found['partitions']:,} | {found['job_cpu_ms']} | {sizes} | {found['whole_orders']:,} "
            f"| {found['expand_s']} |",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
