"""Queries of NexMark by Structured Streaming, as a process of its own, in micro-batches or in real-time mode."""

from __future__ import annotations

from benchmarks.nexmark_queries import COLUMNS, QUERIES, RESULTS, SQL
from benchmarks.overhead_structured import arguments, session

CHECKPOINT_S = 10
"""Of real-time mode: its batches take so long, though results come at once."""
SLOTS = 4
"""Tasks a node in real-time mode: those of all stages run at the same time."""


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--brokers", required=True)
    parser.add_argument("--query", choices=QUERIES, required=True)
    parser.add_argument("--realtime", action="store_true")
    options = parser.parse_args()
    query = QUERIES[options.query]
    from pyspark.sql import functions as f

    spark = session(options, {"spark.executor.cores": str(SLOTS)} if options.realtime else {})
    kafka = {"kafka.bootstrap.servers": options.brokers}
    for kind in query.kinds:
        schema = ", ".join(f"{column} {SQL[of]}" for column, of in COLUMNS[kind].items())
        read = spark.readStream.format("kafka").options(**kafka, subscribe=kind, startingOffsets="earliest")
        rows = (
            read.load()
            .select(f.from_json(f.col("value").cast("string"), schema).alias("row"))
            .select("row.*")
        )
        if "window(" in query.structured:
            rows = rows.withColumn("due", f.timestamp_micros("time")).withWatermark("due", "0 seconds")
        rows.createOrReplaceTempView(kind)
    values = spark.sql(query.structured).select(f.to_json(f.struct("*")).alias("value"))
    writer = values.writeStream.format("kafka").options(**kafka, topic=RESULTS)
    writer = writer.option("checkpointLocation", f"file://{options.out}/checkpoint")
    if options.realtime:
        writer = writer.outputMode("update").trigger(realTime=f"{CHECKPOINT_S} seconds")
    writer.start().awaitTermination()


if __name__ == "__main__":
    main()
