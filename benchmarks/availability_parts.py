"""What `benchmarks.availability` runs with: the windowed aggregates of Hwang et al., in batches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from reprise.spark_jobs.contract import Inbox, Kind, Operator, Place, Tables

Result = tuple[int, int]
"""Batch, and what came of it."""


def _no_rows() -> pa.Table:
    return pa.table({"batch": pa.array([], pa.int64()), "value": pa.array([], pa.int64())})


@dataclass(frozen=True, slots=True)
class Windows:
    """What is in the windows: rows in that of the first aggregate, results in those behind it."""

    rows: pa.Table = field(default_factory=_no_rows)
    behind: tuple[tuple[Result, ...], ...] = ()


class Sliding(Operator):
    """`chain` aggregates behind each other on one node.  The first one counts the rows of the last `size` batches, each
    `advance` batches; each further one sums up what the one before has given in the last `size` batches.

    What a result depends on ends with the windows before it, so this is `convergent`.  Column: `tweet`, any integers.
    """

    kind = Kind.CONVERGENT

    def __init__(self, *, size: int, advance: int = 1, chain: int = 1) -> None:
        self.size, self.advance, self.chain = size, advance, chain

    def oldest_needed(self, batch: int) -> int | None:
        """See `Operator.oldest_needed`: the begin of the oldest of the windows that follow each other."""
        return max(1, batch - self.chain * (self.size - 1))

    def initial(self, place: Place) -> Windows:
        return Windows(behind=((),) * (self.chain - 1))

    def step(self, state: Windows, inbox: Inbox) -> tuple[Windows, pa.Table | None]:
        batch, table = inbox.batch, inbox.table()
        rows = state.rows.filter(pc.field("batch") > batch - self.size)
        if table is not None:
            values = table["tweet"].cast(pa.int64())
            batches = pa.chunked_array([pa.array([batch] * len(values), pa.int64())])
            rows = pa.concat_tables([rows, pa.table({"batch": batches, "value": values})])
        if batch % self.advance:
            return Windows(rows.combine_chunks(), state.behind), None
        value, behind = rows.num_rows, list[tuple[Result, ...]]()
        for window in state.behind:
            kept = (*(one for one in window if one[0] > batch - self.size), (batch, value))
            behind.append(kept)
            value = sum(each for _, each in kept)
        return Windows(rows.combine_chunks(), tuple(behind)), pa.table({"batch": [batch], "n": [value]})

    def freeze(self, state: Windows) -> Callable[[], Tables]:
        def tables() -> Tables:
            found = [(level, *one) for level, window in enumerate(state.behind) for one in window]
            columns = zip(*found, strict=True) if found else ((), (), ())
            names = ("level", "batch", "value")
            arrays = [pa.array(list(column), pa.int64()) for column in columns]
            return {"rows": state.rows, "behind": pa.table(dict(zip(names, arrays, strict=True)))}

        return tables

    def restore(self, place: Place, tables: Tables) -> Windows:
        found = tables["behind"].to_pylist()
        behind = tuple(
            tuple((row["batch"], row["value"]) for row in found if row["level"] == level)
            for level in range(self.chain - 1)
        )
        return Windows(tables["rows"], behind)
