"""Spark's settings for an exchange.  Every application has them: whether it uses one is decided later."""

from __future__ import annotations

READER_BYTES = 32 << 20
"""What one node takes in before its host has read it, from all others together."""
EXECUTOR_CORES = 5
"""By name only, as relays sleep: two relays, two more while the next exchange starts, and one for other jobs."""
SETTINGS = {
    "spark.executor.cores": str(EXECUTOR_CORES),
    "spark.shuffle.streaming.networkBufferSize": "64",  # no frame is smaller: each is sent when it is written
    "spark.shuffle.streaming.networkBufferMaxWaitTimeMs": "1000",  # of the thread that would send what waits
    # below what Spark holds to be the least: two records on their way for each node, however many there are
    "spark.shuffle.streaming.writerMaxMemory": "64",
    "spark.shuffle.streaming.readerMaxMemory": str(READER_BYTES),
}
"""They are read when an executor starts."""
