"""The operator library, as resources name it: `class: reprise.operators:KeyedCount`; docs/operators.md.

These names are promised to stay (docs/stability.md).
"""

from reprise.spark_jobs.operators import (
    ColumnError,
    CountWindow,
    Deduplicate,
    ExtendPath,
    Filter,
    FlatMap,
    Join,
    KeyedAggregate,
    KeyedCount,
    Latest,
    Map,
    PathJoin,
    RunningAggregate,
    SessionWindow,
    Sink,
    SlidingWindow,
    StreamTableJoin,
    TopK,
    TumblingWindow,
    Union,
    WindowedJoin,
)

__all__ = [
    "ColumnError",
    "CountWindow",
    "Deduplicate",
    "ExtendPath",
    "Filter",
    "FlatMap",
    "Join",
    "KeyedAggregate",
    "KeyedCount",
    "Latest",
    "Map",
    "PathJoin",
    "RunningAggregate",
    "SessionWindow",
    "Sink",
    "SlidingWindow",
    "StreamTableJoin",
    "TopK",
    "TumblingWindow",
    "Union",
    "WindowedJoin",
]
