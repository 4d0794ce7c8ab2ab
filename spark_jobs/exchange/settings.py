"""Spark's settings for an exchange.  Every application has them: whether it uses one is decided later."""

from __future__ import annotations

READER_BYTES = 32 << 20
"""What one node takes in before its host has read it, from all others together."""
MOST_NODES = 64
"""With more, N * N connections and a thread for each in every inlet would cost more than they give, and what hosts may have
unconfirmed (`reprise.spark_jobs.node.pump.WINDOW_BYTES`) no longer fits into what a node takes in unread."""
EXECUTOR_CORES = 9
"""By name only, as relays sleep: two relays, two of the next exchange, those of two that are about to end, and one for other
jobs."""
SETTINGS = {
    "spark.executor.cores": str(EXECUTOR_CORES),
    "spark.shuffle.streaming.networkBufferSize": "64",  # no frame is smaller: each is sent when it is written
    "spark.shuffle.streaming.networkBufferMaxWaitTimeMs": "1000",  # of the thread that would send what waits
    # below what Spark holds to be the least: two records on their way for each node, however many there are
    "spark.shuffle.streaming.writerMaxMemory": "64",
    "spark.shuffle.streaming.readerMaxMemory": str(READER_BYTES),
}
"""They are read when an executor starts."""
