"""What Spark is told for an application with exchanges."""

from __future__ import annotations

from collections.abc import Mapping

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
"""Spark's settings for an application with exchanges.  They are read when an executor starts."""


def settings_of(exchange: str) -> Mapping[str, str]:
    """Spark's settings for what `spark.exchange` says; nothing more for `chained`."""
    return {} if exchange == "chained" else SETTINGS


def executor_cores(exchange: str) -> int:
    """Cores by name of an executor, and so of a standalone Worker, for what `spark.exchange` says."""
    return 1 if exchange == "chained" else EXECUTOR_CORES
