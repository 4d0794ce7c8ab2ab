"""The sources that come with the library, as resources name them: `class: reprise.sources:FileSource`; docs/operators.md.

These names are promised to stay (docs/stability.md).
"""

from reprise.spark_jobs.sources import (
    END_OF_TIME,
    IDLE,
    EventTimeReplay,
    FileSource,
    GeneratorSource,
    HashtagSource,
    NexmarkSource,
    ReachabilitySource,
    TableError,
)

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
