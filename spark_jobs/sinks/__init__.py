"""Where output goes: one file for each (output partition, batch), or what the class that a resource names makes of it."""

from reprise.spark_jobs.sinks.files import (
    ENCODERS,
    BatchFiles,
    FileSink,
    Opening,
    Owner,
    Sink,
    differs,
    encoded,
    marked_by,
    marker,
    said_by_sink,
)

__all__ = [
    "ENCODERS",
    "BatchFiles",
    "FileSink",
    "Opening",
    "Owner",
    "Sink",
    "differs",
    "encoded",
    "marked_by",
    "marker",
    "said_by_sink",
]
