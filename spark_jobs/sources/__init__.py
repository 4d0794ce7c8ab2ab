"""Replayable sources: generators, files, and tables replayed in event time.  Reference: docs/operators.md."""

from spark_jobs.operators.frames import END_OF_TIME
from spark_jobs.sources.generator import GeneratorSource, HashtagSource
from spark_jobs.sources.replay import EventTimeReplay, FileSource
from spark_jobs.sources.tables import TableError

__all__ = ["END_OF_TIME", "EventTimeReplay", "FileSource", "GeneratorSource", "HashtagSource", "TableError"]
