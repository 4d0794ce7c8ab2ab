"""What the cyclic query must give, from the changes of a graph and the simple paths that networkx lists.

A path of one node is there from the batch that brings its source.  A longer one is there one batch after the path without
its last link and that link are both there: then it has gone round once more.  A source or a link that is deleted takes the
paths with it that hold it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import networkx as nx
import pyarrow as pa

Path = tuple[int, ...]
Rows = Sequence[Mapping[str, Any]]


@dataclass
class Graph:
    """What is there after a batch, and since when."""

    links: dict[tuple[int, int], int] = field(default_factory=dict)
    sources: dict[int, int] = field(default_factory=dict)

    def change(self, batch: int, links: Rows, sources: Rows, deletes: Rows) -> None:
        """Apply a batch: what is deleted goes first, and what is there already keeps its age."""
        for row in deletes:
            if row["source"] is not None:
                self.sources.pop(row["source"], None)
            else:
                self.links.pop((row["start_node"], row["end_node"]), None)
        for row in sources:
            self.sources.setdefault(row["source"], batch)
        for row in links:
            self.links.setdefault((row["start_node"], row["end_node"]), batch)

    def paths(self) -> dict[Path, int]:
        """Every simple path from a source over these links, with the batch from which on it is there."""
        graph = nx.DiGraph(list(self.links))
        graph.add_nodes_from(self.sources)
        found: dict[Path, int] = {}
        for source, since in self.sources.items():
            found[source,] = since
            for target in graph.nodes - {source}:
                for path in nx.all_simple_paths(graph, source, target):
                    found[tuple(path)] = self._since(path)
        return found

    def _since(self, path: Sequence[int]) -> int:
        since = self.sources[path[0]]
        for link in pairwise(path):
            since = max(since, self.links[link]) + 1
        return since


def rows(tables: Iterable[pa.Table | None]) -> list[dict[str, Any]]:
    """The rows of several partitions."""
    return [row for table in tables if table is not None for row in table.to_pylist()]
