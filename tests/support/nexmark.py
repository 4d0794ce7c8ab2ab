"""NexMark's queries run in this process, and what DuckDB makes of the same events.

The events of a run are tables in DuckDB, one for each source, with where each row stood in the order in which operators get
rows: `batch`, `part` (source partition) and `pos` (row of the batch).  Queries and SQL share nothing but the events.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from reprise.spark_jobs.operators.local import run_local
from reprise.spark_jobs.topology import StreamTopology, load_topology, override

EXAMPLES = Path(__file__).parents[2] / "examples"
Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Played:
    """A run: its events by source, and what the output operator gave, with the number of the batch."""

    events: Mapping[str, pa.Table]
    output: Rows

    def sql(self, query: str) -> Rows:
        """What DuckDB answers over the events."""
        with duckdb.connect() as database:
            for name, table in self.events.items():
                database.register(name, table)
            return list(database.execute(query).to_arrow_table().to_pylist())


def example(name: str, parallelism: int = 2, **changes: Any) -> StreamTopology:
    """An example with `parallelism` partitions of everything that has several there, and sources slow enough for a test;
    `changes` are parameters of all sources."""
    resource = load_topology(EXAMPLES / f"nexmark-{name}.yaml")
    paths: dict[str, Any] = {}
    for stage in resource.sources:
        paths |= {
            f"sources[{stage.name}].with.{key}": value for key, value in ({"rate": 200} | changes).items()
        }
        paths[f"sources[{stage.name}].parallelism"] = parallelism
    for operator in resource.operators:
        if operator.parallelism > 1:
            paths[f"operators[{operator.name}].parallelism"] = parallelism
    return override(resource, paths)


def played(resource: StreamTopology) -> Played:
    """The run of a whole stream."""
    found: dict[str, list[pa.Table]] = {source.name: [] for source in resource.sources}
    output: Rows = []
    (last,) = (o for o in resource.operators if o.output is not None)
    for batch, tables in enumerate(run_local(resource), 1):
        for source in resource.sources:
            for part in range(source.parallelism):
                table = tables[f"{source.name}.{part}"]
                if table is not None:
                    order = {"batch": batch, "part": part}
                    columns = {n: pa.array([v] * table.num_rows, pa.int64()) for n, v in order.items()}
                    for name, values in (columns | {"pos": pa.array(range(table.num_rows))}).items():
                        table = table.append_column(name, values)
                    found[source.name].append(table)
        for part in range(last.parallelism):
            rows = tables[f"{last.name}.{part}"]
            output += [{"batch": batch, **row} for row in (rows.to_pylist() if rows is not None else [])]
    return Played({name: pa.concat_tables(parts) for name, parts in found.items()}, output)


def counted(rows: Iterable[Mapping[str, Any]]) -> Counter[tuple[Any, ...]]:
    """Rows as a multiset, whatever the order of their columns."""
    return Counter(tuple(sorted(row.items())) for row in rows)


def latest(rows: Rows, keys: tuple[str, ...], upto: int) -> Counter[tuple[Any, ...]]:
    """What somebody holds after batch `upto` who keeps the last row of each key."""
    held = {
        tuple(row[k] for k in keys): {k: v for k, v in row.items() if k != "batch"}
        for row in rows
        if row["batch"] <= upto
    }
    return counted(held.values())
