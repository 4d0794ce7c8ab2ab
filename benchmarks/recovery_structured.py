"""The counts of `benchmarks.recovery_work` by Structured Streaming, as a process of its own.

One streaming query counts by (query, hashtag) for all 15, as the engine has no priorities.  Each micro-batch replaces the
folder of its number, so the output is exactly once.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from benchmarks.overhead_structured import arguments, session
from benchmarks.recovery_work import QUERIES

WRITTEN, RUNNING, STOP = "batches.jsonl", "running", "stop"
LOOK_S = 0.3
KEPT = {"spark.sql.streaming.minBatchesToRetain": "100000"}
"""The logs of all micro-batches are there at the end."""
TUNED = {
    "spark.locality.wait": "0s",
    "spark.network.timeout": "10s",
    "spark.network.timeoutInterval": "5s",
    "spark.executor.heartbeatInterval": "1s",
    "spark.shuffle.io.maxRetries": "1",
    "spark.shuffle.io.retryWait": "100ms",
}
"""A lost executor is given up soon, and nobody waits for one that holds data.  All else is left as it comes."""


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--service-ms", type=float, required=True)
    parser.add_argument("--settings", type=json.loads, required=True)
    options = parser.parse_args()
    # a file is read by one task unless it is divided, and the rows of a task are served one after the other
    divided = {"spark.sql.files.openCostInBytes": "1"} if options.service_ms else {}
    spark = session(options, KEPT | divided | options.settings)
    query = _query(spark, options.data, options.service_ms, options.out, options.interval)
    (options.out / RUNNING).touch()
    while query.isActive and not (options.out / STOP).exists():
        time.sleep(LOOK_S)
    if (error := query.exception()) is not None:
        raise SystemExit(str(error))
    query.stop()
    spark.stop()


def _query(spark: Any, data: Path, service_ms: float, out: Path, interval_s: float) -> Any:
    from pyspark.sql import functions as f

    lines = spark.readStream.text(f"file://{data}")
    tags = lines.select(f.explode(f.expr("slice(split(value, ' '), 2, 100)")).alias("tag"))
    if service_ms:  # of all queries at once: Java sleeps whole milliseconds
        call = f"reflect('java.lang.Thread', 'sleep', {round(service_ms * len(QUERIES))}L)"
        tags = tags.where(f.expr(f"{call} = 'null'"))  # text of what a method without a result returns
    rows = tags.select("tag", f.explode(f.expr(f"sequence(0, {len(QUERIES) - 1})")).alias("query"))
    counted = rows.groupBy("query", "tag").count()

    def write(batch: Any, number: int) -> None:
        batch.write.mode("overwrite").parquet(f"file://{out}/sink/batch={number}")
        with (out / WRITTEN).open("a") as log:
            log.write(json.dumps({"batch": number, "at": time.time()}) + "\n")

    writer = counted.writeStream.outputMode("update").foreachBatch(write)
    if interval_s:
        writer = writer.trigger(processingTime=f"{round(interval_s * 1000)} milliseconds")
    return writer.option("checkpointLocation", f"file://{out}/checkpoint").start()


if __name__ == "__main__":
    main()
