"""Replayable sources: generators, files, and tables replayed in event time.  Reference: docs/operators.md."""

from reprise.spark_jobs.operators.frames import END_OF_TIME, IDLE
from reprise.spark_jobs.sources.generator import GeneratorSource, HashtagSource
from reprise.spark_jobs.sources.nexmark import NexmarkSource
from reprise.spark_jobs.sources.reachability import ReachabilitySource
from reprise.spark_jobs.sources.replay import EventTimeReplay, FileSource
from reprise.spark_jobs.sources.tables import TableError

__all__ = [
    "END_OF_TIME",
    "IDLE",
    "EventTimeReplay",
    "FileSource",
    "GeneratorSource",
    "HashtagSource",
    "NexmarkSource",
    "ReachabilitySource",
    "TableError",
]
