"""The peer: Spark Structured Streaming runs the same aggregation over the same files on the same workers.

Run as a process of its own, since a Python process has one Spark application.  As many executors and cores as Reprise has,
shuffle partitions = nodes, the default state store, a local checkpoint folder, and a sink that drops the rows: whatever the
sink costs is in Reprise's figures only.
"""

from __future__ import annotations

import argparse
import atexit
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

from reprise.controller.agent.announcing import announce
from reprise.controller.local.cluster.cluster import EmbeddedCluster
from reprise.controller.local.cluster.process_reaper import MARK
from reprise.controller.local.report.layout import write_atomically
from reprise.controller.local.run.services import Service

SCHEMA = "time long, tweet long, hashtags array<string>"


@dataclass(frozen=True, slots=True)
class Trigger:
    """One micro-batch: unix seconds at which it began and ended, tuples."""

    began: float
    ended: float
    rows: int


def run(
    cluster: EmbeddedCluster, data: Path, out: Path, *, nodes: int, memory_mb: int, files_a_batch: int,
    interval_s: float, total: int, timeout_s: float,
) -> list[Trigger]:  # fmt: skip
    """Its triggers with input, in order, as far as it got in time; none when it failed (the log is in `out`).

    `interval_s` 0: each trigger as soon as the one before has ended.
    """
    more = ["--data", str(data), "--files", str(files_a_batch), "--total", str(total)]
    service = process(
        cluster, "benchmarks.overhead_structured", more, out, nodes=nodes, memory_mb=memory_mb,
        interval_s=interval_s,
    )  # fmt: skip
    service.start()
    deadline = time.monotonic() + timeout_s
    try:
        while service.alive and time.monotonic() < deadline:
            time.sleep(0.5)
    finally:
        service.stop(10.0)
    return triggers(out)


def triggers(out: Path) -> list[Trigger]:
    """Those so far."""
    found = out / "progress.json"
    return parse(json.loads(found.read_text())) if found.exists() else []


def rows(out: Path) -> int:
    """Tuples that it has done so far."""
    return sum(trigger.rows for trigger in triggers(out))


def process(
    cluster: EmbeddedCluster, module: str, more: Sequence[str], out: Path, *, nodes: int, memory_mb: int,
    interval_s: float, class_path: str = "",
) -> Service:  # fmt: skip
    """A Spark application in `module`, not started yet; its log will be in `out`."""
    out.mkdir(parents=True)
    command = [
        *(sys.executable, "-m", module, "--master", cluster.master_url, "--out", str(out.resolve())),
        *("--nodes", str(nodes), "--memory", f"{memory_mb}m", "--host", cluster.zookeeper.host),
        *("--interval", str(interval_s), f"--java-options={cluster.executor_java_options()}"),
        *(f"--class-path={class_path}", *more),
    ]
    submit = ["--driver-memory", "768m", "--driver-java-options", cluster.driver_java_options()]
    submit += ["--driver-class-path", class_path] if class_path else []
    spark = {**cluster.spark_env(), "PYSPARK_SUBMIT_ARGS": cluster.submit_arguments(*submit)}
    here = {"PYTHONPATH": str(Path(__file__).resolve().parents[1])}
    return Service("structured", command, {MARK: cluster.token} | spark | here, out / "log.txt")


def parse(progress: list[dict[str, Any]]) -> list[Trigger]:
    """From Structured Streaming's progress records; triggers without input are left out."""
    found = []
    for record in progress:
        began = datetime.fromisoformat(record["timestamp"].replace("Z", "+00:00")).timestamp()
        took = record["durationMs"].get("triggerExecution", 0) / 1000
        if record["numInputRows"]:
            found.append(Trigger(began, began + took, int(record["numInputRows"])))
    return found


def session(options: argparse.Namespace, more: Mapping[str, str] = MappingProxyType({})) -> Any:
    """A Spark session with one core on each of `options.nodes` executors, all of them registered.  `more`: settings."""
    from pyspark.sql import SparkSession

    settings = {
        "spark.executor.memory": options.memory,
        "spark.executor.cores": "1",
        "spark.executor.extraJavaOptions": options.java_options,
        "spark.driver.host": options.host,
        "spark.driver.bindAddress": options.host,
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": str(options.nodes),
        "spark.sql.streaming.numRecentProgressUpdates": "100000",
        **({"spark.executor.extraClassPath": options.class_path} if options.class_path else {}),
        **more,
    }
    builder = SparkSession.builder.master(options.master).appName("structured")
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    atexit.register(announce(spark.sparkContext))
    _wait_for_executors(spark.sparkContext, options.host, options.nodes)
    return spark


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--files", type=int, required=True)
    parser.add_argument("--total", type=int, required=True)
    options = parser.parse_args()
    from pyspark.sql import functions as f

    spark = session(options)
    tweets = (
        spark.readStream.schema(SCHEMA)
        .option("maxFilesPerTrigger", options.files)
        .parquet(f"file://{options.data}")
    )
    counts = tweets.select(f.explode("hashtags").alias("tag")).groupBy("tag").count()
    writer = counts.writeStream.outputMode("update").format("noop")
    writer = writer.option("checkpointLocation", f"file://{options.out}/checkpoint")
    watch(writer, options)
    spark.stop()


def watch(writer: Any, options: argparse.Namespace) -> None:
    """Run a query until it has seen `options.total` rows, and write down its progress as it goes."""
    if options.interval > 0:
        writer = writer.trigger(processingTime=f"{round(options.interval * 1000)} milliseconds")
    query = writer.start()
    seen = 0
    while query.isActive and seen < options.total:
        time.sleep(2.0)
        records = [_plain(p) for p in query.recentProgress]
        seen = sum(record["numInputRows"] for record in records)
        write_atomically(
            options.out / "progress.json", json.dumps(records)
        )  # counts also when time is up first
    query.stop()


def _plain(progress: Any) -> dict[str, Any]:
    """The three fields that are used; by their properties, which fill in what a record leaves out."""
    return {name: getattr(progress, name) for name in ("timestamp", "numInputRows", "durationMs")}


def _wait_for_executors(context: Any, host: str, nodes: int) -> None:
    from reprise.spark_jobs.engine.chain import executors

    while len(executors(context, host)) < nodes:
        time.sleep(0.2)


def arguments(description: str) -> argparse.ArgumentParser:
    """What every such process is told by `process`."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--master", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--nodes", type=int, required=True)
    parser.add_argument("--memory", required=True)
    parser.add_argument("--host", required=True)
    parser.add_argument("--interval", type=float, required=True)
    parser.add_argument("--java-options", default="")
    parser.add_argument("--class-path", default="")
    return parser


if __name__ == "__main__":
    main()
