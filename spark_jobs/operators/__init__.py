"""The operator library: what a topology can say without own code.  Reference: docs/operators.md."""

from reprise.spark_jobs.operators.count_windows import CountWindow
from reprise.spark_jobs.operators.deduplicate import Deduplicate
from reprise.spark_jobs.operators.frames import ColumnError
from reprise.spark_jobs.operators.joins import StreamTableJoin, WindowedJoin
from reprise.spark_jobs.operators.keyed import KeyedAggregate, KeyedCount, Latest
from reprise.spark_jobs.operators.pairs import Join
from reprise.spark_jobs.operators.paths import ExtendPath, PathJoin
from reprise.spark_jobs.operators.rowwise import Filter, FlatMap, Map, Sink, Union
from reprise.spark_jobs.operators.running import RunningAggregate
from reprise.spark_jobs.operators.sessions import SessionWindow
from reprise.spark_jobs.operators.topk import TopK
from reprise.spark_jobs.operators.windows import SlidingWindow, TumblingWindow

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
