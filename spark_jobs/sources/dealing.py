"""Rows that are dealt to source partitions in turn: row i belongs to partition i mod parallelism.

Invariant: partitions that have read all of the first rows go on at the same place in any number.
"""

from __future__ import annotations

from collections.abc import Sequence

from reprise.spark_jobs.contract import Place, Range, SourcePart
from reprise.spark_jobs.errors import SpecError


def share(rows: int, place: Place) -> int:
    """How many of the first `rows` rows belong to a partition."""
    return max(0, -((place.index - rows) // place.parallelism))


def dealt_again(operator: str, parts: Sequence[SourcePart], parallelism: int) -> Sequence[SourcePart]:
    """Where other partitions go on.  SpecError: what these have read is not the first rows."""
    read = [part.upto.end for part in parts]
    rows = sum(read)
    if read != [share(rows, Place(operator, index, len(parts))) for index in range(len(parts))]:
        raise SpecError(
            "parallelism",
            f"its partitions have read {', '.join(map(str, read))} rows, dealt in turn: these are not the first {rows}, "
            "so other partitions cannot go on behind them",
        )
    ends = [share(rows, Place(operator, index, parallelism)) for index in range(parallelism)]
    return [SourcePart(Range(end, end)) for end in ends]
