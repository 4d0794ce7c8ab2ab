"""What the operators of a node count, for people: docs/operators.md."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

from polars.exceptions import PanicException

from reprise.spark_jobs.node.runtime import OperatorRuntime, Runtime

MAX_COUNTERS = 20
"""Counters of one operator that are shown; each is a time series of its own."""


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
    return {partition: counted for partition, counted in found.items() if counted}
