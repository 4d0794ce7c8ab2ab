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
    SourcePart,
    Tables,
    Targets,
)
from reprise.spark_jobs.errors import EncodeError, NotYetError, SourceError, SpecError
from reprise.spark_jobs.operators.parameters import duration_us
from reprise.spark_jobs.operators.state import StatefulOperator
from reprise.spark_jobs.operators.state_map import MapState
from reprise.spark_jobs.operators.state_rows import DequeState, ListState
from reprise.spark_jobs.operators.timers import Timers

__all__ = [
    "LATE_ROWS",
    "Columns",
    "DequeState",
    "EncodeError",
    "Inbox",
    "Input",
    "Kind",
    "ListState",
    "MapState",
    "NotYetError",
    "Operator",
    "Place",
    "Range",
    "Source",
    "SourceError",
    "SourcePart",
    "SpecError",
    "StatefulOperator",
    "Tables",
    "Targets",
    "Timers",
    "duration_us",
]
