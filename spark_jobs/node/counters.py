"""What the partitions of a node have done, and what their operators count, for people: docs/operators.md."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

from polars.exceptions import PanicException

from reprise.spark_jobs.node.arrival import ArrivalRuntime
from reprise.spark_jobs.node.command import Usage
from reprise.spark_jobs.node.logged import LoggedRuntime
from reprise.spark_jobs.node.runtime import OperatorRuntime, Runtime

APPLIED_EARLY = "applied_early"
"""The counter of messages that were applied before the same batch of another input, with `batch.order: arrival`."""
MAX_COUNTERS = 20
"""Counters of one operator that are shown; each is a time series of its own."""


def usage_of(runtime: Runtime) -> Usage:
    """What a partition has done since it was installed."""
    loaded, aim = runtime.loaded, runtime.aim if isinstance(runtime, LoggedRuntime) else None
    told = None if aim is None else (aim.extent, aim.replay, round(aim.least_s, 3), aim.within_s)
    return Usage(
        runtime.cpu_s,
        runtime.input_bytes,
        runtime.input_rows,
        loaded.bytes,
        loaded.seconds,
        told,
        runtime.watermark,
        runtime.waits.outside,
    )


def counters(runtime: OperatorRuntime) -> dict[str, int]:
    """What an operator counts.  Raises what user code raises, TypeError for something else than whole numbers."""
    found = dict(islice(runtime.operator.counters(runtime.state).items(), MAX_COUNTERS))
    if wrong := [
        name for name, value in found.items() if not isinstance(name, str) or type(value) is not int
    ]:
        raise TypeError(f"counter {wrong[0]!r} is {found[wrong[0]]!r}, which is no named whole number")
    return found


def counters_of(runtimes: Mapping[str, Runtime], problems: list[str]) -> dict[str, dict[str, int]]:
    """What each partition counts, where it counts anything.  User code that raises here has harmed no batch: that is one of
    `problems` and no failure."""
    found = {}
    for partition, runtime in runtimes.items():
        if isinstance(runtime, OperatorRuntime):
            try:
                found[partition] = counters(runtime)
            except (Exception, PanicException) as error:
                problems.append(f"{partition}: counters: {type(error).__name__}: {error}")
            if isinstance(runtime, ArrivalRuntime):
                found.setdefault(partition, {})[APPLIED_EARLY] = runtime.early
    return {partition: counted for partition, counted in found.items() if counted}
