"""A topology as text for a terminal: its operators with what they read, and its queries, the most valuable
first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from reprise.spark_jobs.topology.graph import Topology
from reprise.spark_jobs.topology.layout import by_operator, edges


def as_text(topology: Topology) -> str:
    """Two aligned tables, operators and queries, under a line of totals."""
    operators = by_operator(topology)
    reads: dict[str, list[str]] = {name: [] for name in operators}
    for edge in edges(topology):
        notes = ", ".join(n for n in (edge.label, "feedback" if edge.feedback else "") if n)
        reads[edge.target].append(f"{edge.origin} ({notes})" if notes else edge.origin)
    table = [["operator", "partitions", "cpu each", "reads"]]
    for name, partitions in operators.items():
        source = "source" if partitions[0].is_source else ", ".join(reads[name])
        table.append([name, str(len(partitions)), f"{partitions[0].cpu_cores * 1000:g}m", source])
    queries = [["query", "priority", "partitions", "needs"]]
    for query in sorted(topology.queries.values(), key=lambda q: -q.priority):
        queries.append(
            [query.id, str(query.priority), str(len(query.partitions)), _ranges(topology, query.partitions)]
        )
    totals = (
        f"{len(operators)} operators, {len(topology.partitions)} partitions, {len(topology.queries)} queries"
    )
    return "\n".join([f"{topology.name}: {totals}", "", *_aligned(table), "", *_aligned(queries)]) + "\n"


def _ranges(topology: Topology, ids: Iterable[str]) -> str:
    """Partitions by operator, e.g. `flights.0-1 clean.0-3 by-carrier.0`."""
    wanted = set(ids)
    parts = []
    for name, partitions in by_operator(topology).items():
        indices = [p.place.index for p in partitions if p.id in wanted]
        runs: list[list[int]] = []
        for index in indices:
            if runs and runs[-1][1] == index - 1:
                runs[-1][1] = index
            else:
                runs.append([index, index])
        if runs:
            parts.append(f"{name}." + ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs))
    return " ".join(parts)


def _aligned(table: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in table
    ]
