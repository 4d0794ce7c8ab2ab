"""The peer: Structured Streaming with Spark's Kafka connector, from topic to topic, as a process of its own.

The same JSON is parsed into the same columns, filtered and written with the same keys.  The connector's writer knows no
transactions: rows of a batch that is tried again are there twice.
"""

from __future__ import annotations

from benchmarks.overhead_structured import arguments, session, watch

SCHEMA = "id long, time long, name string, amount double"


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--brokers", required=True)
    parser.add_argument("--origin", required=True)
    parser.add_argument("--target", required=True)
    parser.add_argument("--most", type=int, required=True, help="rows a trigger")
    parser.add_argument("--total", type=int, required=True, help="rows to read")
    options = parser.parse_args()
    from pyspark.sql import functions as f

    spark = session(options)
    read = spark.readStream.format("kafka").option("kafka.bootstrap.servers", options.brokers)
    read = read.option("subscribe", options.origin).option("startingOffsets", "earliest")
    messages = read.option("maxOffsetsPerTrigger", options.most).load()
    rows = messages.select(f.from_json(f.col("value").cast("string"), SCHEMA).alias("row")).select("row.*")
    out = rows.where("id >= 0").select(
        f.col("id").cast("string").alias("key"), f.to_json(f.struct("*")).alias("value")
    )
    writer = out.writeStream.format("kafka").option("kafka.bootstrap.servers", options.brokers)
    writer = writer.option("topic", options.target)
    watch(writer.option("checkpointLocation", f"file://{options.out}/checkpoint"), options)
    spark.stop()


if __name__ == "__main__":
    main()
