"""What the operators of a node count, for people: docs/operators.md."""

from __future__ import annotations

from collections.abc import Mapping

from polars.exceptions import PanicException

from reprise.spark_jobs.node.runtime import OperatorRuntime, Runtime


def counters_of(runtimes: Mapping[str, Runtime], problems: list[str]) -> dict[str, dict[str, int]]:
    """What each partition counts, where it counts anything.  User code that raises here has harmed no batch: that is one of
    `problems` and no failure."""
    found = {}
    for partition, runtime in runtimes.items():
        if isinstance(runtime, OperatorRuntime):
            try:
                found[partition] = runtime.counters()
            except (Exception, PanicException) as error:
                problems.append(f"{partition}: counters: {type(error).__name__}: {error}")
    return {partition: counted for partition, counted in found.items() if counted}
