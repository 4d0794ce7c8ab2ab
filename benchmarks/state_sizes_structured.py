"""The same query and rows on Structured Streaming, whose state is in RocksDB with a changelog, for `benchmarks.state_sizes`.

`--phase run` makes the state, gives it the rows when they are due, says its figures in one line of JSON, and then waits to
be killed; `--phase recover` goes on from the checkpoint with the rows that came behind, and says how long it took until
these were done.  Each micro-batch is stored before the next one begins, so what lies between two snapshots of Reprise is
ten of them here, or fewer where it is behind.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import threading
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.state_sizes_load import BATCHES, BEHIND, COLUMNS, Load, quantile, sleep_until, value

PROVIDER = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
STATE_STORE = "spark.sql.streaming.stateStore"
FILES_AT_ONCE = 8
LOOK_S = 0.1


class Written:
    """Bytes of all files that were ever seen in a folder, by a thread that looks again and again."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._sizes = folder, dict[str, int]()
        self._ends = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def upto_now(self) -> int:
        self._look()
        with self._lock:
            return sum(self._sizes.values())

    def _run(self) -> None:
        while not self._ends.wait(LOOK_S):
            self._look()

    def _look(self) -> None:
        for parent, _, names in os.walk(self._folder):
            for name in names:
                if name.startswith(".") or name.endswith(".tmp"):  # not there yet, or a checksum
                    continue
                path = f"{parent}/{name}"
                try:
                    size = Path(path).stat().st_size
                except FileNotFoundError:
                    continue
                with self._lock:
                    self._sizes[path] = max(size, self._sizes.get(path, 0))

    def end(self) -> None:
        self._ends.set()
        self._thread.join()


def session(folder: Path) -> Any:
    from pyspark.sql import SparkSession

    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.streaming.numRecentProgressUpdates": "100000",
        f"{STATE_STORE}.providerClass": PROVIDER,
        f"{STATE_STORE}.rocksdb.changelogCheckpointing.enabled": "true",
    }
    builder = SparkSession.builder.appName("state-sizes")
    for key, setting in settings.items():
        builder = builder.config(key, setting)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def query(spark: Any, folder: Path) -> Any:
    """The aggregate of `state_sizes_load.operator`, started."""
    from pyspark.sql import functions as f

    rows = spark.readStream.schema("k long, v long").option("maxFilesPerTrigger", FILES_AT_ONCE)
    columns = [(f.col("v") + at).alias(f"v{at}") for at in range(COLUMNS)]
    aggregates = [f.count("*").alias("n")]
    for at in range(COLUMNS):
        aggregates += [call(f"v{at}").alias(f"{call.__name__}{at}") for call in (f.sum, f.min, f.max)]
    found = rows.parquet(f"file://{folder}/input").select("k", *columns).groupBy("k").agg(*aggregates)
    writer = found.writeStream.outputMode("update").format("noop")
    return writer.option("checkpointLocation", f"file://{folder}/checkpoint").start()


def put(folder: Path, number: int, keys: np.ndarray, shown: bool = True) -> Path:
    """A file of rows; where it is not `shown`, it has to be moved."""
    name = f"{number:06d}.parquet"
    path = folder / "prepared" / name
    pq.write_table(pa.table({"k": keys, "v": value(keys, number)}), path)
    return show(folder, path) if shown else path


def show(folder: Path, path: Path) -> Path:
    now = time.time()
    os.utime(path, (now, now))  # files are read in the order of their times
    return path.rename(folder / "input" / path.name)


def progress(running: Any) -> list[dict[str, Any]]:
    """What is used of its triggers that had rows, in order: unix seconds of the end, rows, milliseconds of commits, keys."""
    if running.exception() is not None:
        raise SystemExit(str(running.exception()))
    found = []
    for one in running.recentProgress:
        raw = json.loads(one.json)
        if not raw["numInputRows"]:
            continue
        began = datetime.fromisoformat(raw["timestamp"].replace("Z", "+00:00")).timestamp()
        stores = raw.get("stateOperators", [])
        found.append(
            {
                "ended": began + raw["durationMs"].get("triggerExecution", 0) / 1000,
                "rows": int(raw["numInputRows"]),
                "commit_ms": sum(s.get("commitTimeMs", 0) for s in stores),
                "keys": sum(s.get("numRowsTotal", 0) for s in stores),
            }
        )
    return found


def wait_for(running: Any, rows: int) -> list[dict[str, Any]]:
    """Its triggers, once it has done so many rows."""
    while True:
        found = progress(running)
        if sum(one["rows"] for one in found) >= rows:
            return found
        time.sleep(LOOK_S)


def run(load: Load, folder: Path) -> dict[str, Any]:
    for name in ("input", "prepared"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    number = 0
    for keys in load.filling():
        number += 1
        put(folder, number, keys)
    batches = list(load.batches())[: load.snapshots * BATCHES]
    paths = [put(folder, number + at, keys, shown=False) for at, keys in enumerate(batches, 1)]
    spark = session(folder)
    running = query(spark, folder)
    filled = len(wait_for(running, load.keys))
    written = Written(folder / "checkpoint" / "state")
    before = written.upto_now()
    dues, due = list[float](), time.monotonic()
    unix = time.time() - due
    for path in paths:
        sleep_until(due)
        show(folder, path)
        dues.append(unix + due)
        due += load.interval_s
    triggers = wait_for(running, load.keys + len(batches) * load.rows)
    after = written.upto_now()
    written.end()
    if triggers[-1]["keys"] != load.keys:
        raise SystemExit(f"the state has {triggers[-1]['keys']} keys, not {load.keys}")
    latencies = latencies_of(triggers[filled:], dues, load.rows)
    return {
        "first_mb": before / 2**20,
        "written_mb": (after - before) / load.snapshots / 2**20,
        "pause_ms": float(max(one["commit_ms"] for one in triggers[filled:])),
        "p50_ms": quantile(latencies, 0.5) * 1e3,
        "p99_ms": quantile(latencies, 0.99) * 1e3,
        "greatest_ms": max(latencies) * 1e3,
    }


def latencies_of(triggers: list[dict[str, Any]], dues: list[float], rows: int) -> list[float]:
    """Seconds from when each file was due until the trigger that had its rows ended."""
    ends, done = [], 0
    for one in triggers:
        done += one["rows"]
        ends += [one["ended"]] * (done // rows - len(ends))
    return [end - due for end, due in zip(ends, dues, strict=True)]


def recover(load: Load, folder: Path) -> dict[str, Any]:
    """A new process, and no files of the one before but the checkpoint's."""
    shutil.rmtree(folder / "local", ignore_errors=True)
    for at, keys in enumerate(list(load.batches())[-BEHIND:], 1):
        put(folder, 900_000 + at, keys)
    spark = session(folder)
    spark.range(1).count()  # what the first job of a session costs is no part of a recovery
    began = time.time()
    running = query(spark, folder)
    triggers = wait_for(running, BEHIND * load.rows)
    if triggers[-1]["keys"] != load.keys:
        raise SystemExit(f"the state has {triggers[-1]['keys']} keys after its recovery, not {load.keys}")
    return {"recovery_s": triggers[-1]["ended"] - began}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--phase", choices=("run", "recover"), required=True)
    parser.add_argument("--load", type=json.loads, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    options = parser.parse_args()
    found = (run if options.phase == "run" else recover)(Load(**options.load), options.folder.resolve())
    sys.stdout.write(json.dumps(found) + "\n")
    sys.stdout.flush()
    threading.Event().wait()  # to be killed
    return 0


if __name__ == "__main__":
    sys.exit(main())
