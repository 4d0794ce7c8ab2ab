"""The engines of `benchmarks.nexmark`: each runs a query until it is stopped, on as many nodes with the same memory."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import psutil

from benchmarks import flink_cluster, overhead_structured
from benchmarks.nexmark_queries import flink_statements, topology
from reprise.controller.local.cluster import EmbeddedCluster
from reprise.controller.local.cluster.process_reaper import MARK, marked
from reprise.controller.local.run.config import RunConfig
from reprise.controller.local.run.supervisor import run_topology
from tools.kafka.jars import jar_folder

LOCKS = Path(__file__).parent
MEMORY_MB = 2048
"""Heap of a node's JVM, of engines that compute in it."""
MANAGED_MB = 512
"""Memory of a TaskManager beside its heap, in which windows wait."""
COMPILED = "-XX:TieredStopAtLevel=4"
"""All of Java's compilers, behind the flags of a fast start."""

ERROR = re.compile(r"^(Caused by: )?[\w.]+(Exception|Error)\b")

Problem = Callable[[], str]
"""Why the engine has ended; empty while it runs."""
Engine = Callable[[str, str, EmbeddedCluster, Path], AbstractContextManager[Problem]]
"""Of the query's name, the brokers, a cluster whose mark all processes get, and an empty folder."""


@contextmanager
def reprise(query: str, brokers: str, cluster: EmbeddedCluster, out: Path) -> Iterator[Problem]:
    config = RunConfig(resource=topology(query, brokers, len(cluster.nodes)), out=out, cluster=cluster)
    over = threading.Event()

    def watch(*_: Any) -> None:
        if over.is_set():
            raise KeyboardInterrupt

    def problem() -> str:
        if not run.done():
            return ""
        result = run.result()
        return f"{result.outcome.value}: {result.reason}; logs in {out}/logs"

    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(run_topology, config, watch)
        try:
            yield problem
        finally:
            over.set()


@contextmanager
def structured(
    query: str, brokers: str, cluster: EmbeddedCluster, out: Path, *more: str
) -> Iterator[Problem]:
    jars = jar_folder("spark_kafka", print, LOCKS)
    service = overhead_structured.process(
        cluster, "benchmarks.nexmark_structured", ["--query", query, "--brokers", brokers, *more], out,
        nodes=len(cluster.nodes), memory_mb=MEMORY_MB, interval_s=0.0, class_path=f"{jars}/*",
    )  # fmt: skip
    service.start()
    try:
        yield lambda: "" if service.alive else _reason(service.log)
    finally:
        service.stop(10.0)


def realtime(
    query: str, brokers: str, cluster: EmbeddedCluster, out: Path
) -> AbstractContextManager[Problem]:
    """Structured Streaming in its real-time mode."""
    return structured(query, brokers, cluster, out, "--realtime")


@contextmanager
def flink(query: str, brokers: str, cluster: EmbeddedCluster, out: Path) -> Iterator[Problem]:
    jars = [flink_cluster.distribution(print), jar_folder("flink_kafka", print, LOCKS)]
    nodes = len(cluster.nodes)
    cluster.kill(cluster.nodes)  # Flink has nodes of its own
    settings = {"taskmanager.memory.managed.size": f"{MANAGED_MB}m"}
    with flink_cluster.Flink(out, "Sql", jars, settings, {MARK: cluster.token}, MEMORY_MB) as engine:
        statements = flink_statements(query, brokers)
        compiled = [COMPILED]
        engine.start(
            [f"-Dparallelism.default={nodes}", *statements], nodes, {"jobmanager": compiled, "taskmanager": compiled}
        )  # fmt: skip
        yield lambda: "" if engine.alive else _reason(engine.log)


ENGINES: Mapping[str, Engine] = {
    "reprise": reprise,
    "flink": flink,
    "structured": structured,
    "realtime": realtime,
}
REALTIME = ("q1",)
"""The queries that real-time mode of Spark 4.3 does: it refuses joins, and gives a window with each change
of it."""


def cpu_s(cluster: EmbeddedCluster) -> dict[int, float]:
    """Of each process with the cluster's mark that is alive, seconds by pid."""
    found = {}
    for process in marked(cluster.token):
        try:
            times = psutil.Process(process.pid).cpu_times()
        except psutil.NoSuchProcess:
            continue
        found[process.pid] = times.user + times.system
    return found


def _reason(log: Path) -> str:
    """The last line of a log that names an error."""
    lines = [line.strip() for line in log.read_text().splitlines() if ERROR.search(line)]
    return f"{lines[-1][:200] if lines else 'ended'}; log in {log}"
