"""What own operators and sources are written against; docs/operators.md shows how.

These names are promised to stay (docs/stability.md).
"""

from reprise.spark_jobs.contract import (
    LATE_ROWS,
    Columns,
    Inbox,
    Input,
    Kind,
    Operator,
    Place,
    Range,
    Source,
    Tables,
)
from reprise.spark_jobs.errors import EncodeError, NotYetError, SourceError, SpecError
from reprise.spark_jobs.operators.parameters import duration_us
from reprise.spark_jobs.operators.timers import Timers

__all__ = [
    "LATE_ROWS",
    "Columns",
    "EncodeError",
    "Inbox",
    "Input",
    "Kind",
    "NotYetError",
    "Operator",
    "Place",
    "Range",
    "Source",
    "SourceError",
    "SpecError",
    "Tables",
    "Timers",
    "duration_us",
]
