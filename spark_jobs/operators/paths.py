"""Which nodes of a changing graph can be reached from changing sources, and on which paths: the operators of a
cyclic query.

The query is that of Siachamis et al., "CheckMate: Evaluating Checkpointing Protocols for Streaming Dataflows",
section VI and fig. 6: paths from sources are joined with the links that begin where they end, what would go round in
a circle is left out, and each longer path is a result and comes back to the join with the next batch.

A path is the list of its nodes; the first is the source, the last is the node that is reached, and a source alone is
the path of one node.  Invariant: after batch b the join holds exactly the paths over sources and links that are
there after b and that have had time to grow, one link a batch; each is made once in its life, which ends with its
source or one of its links.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import polars as pl
import pyarrow as pa

from reprise.spark_jobs.contract import Columns, Inbox, Kind, Operator, Place, Tables
from reprise.spark_jobs.errors import SpecError
from reprise.spark_jobs.operators.frames import (
    ColumnError,
    column,
    inbox_table,
    select,
    to_arrow,
    to_polars,
    typed,
)
from reprise.spark_jobs.topology.columns import input_of, merged, require

Path = tuple[int, ...]
Link = tuple[int, int]
LINK, PATH, JOINED = ("start_node", "end_node"), ("path",), ("source", "path", "start_node", "end_node")
DELETED = ("source", *LINK)
EXTENDED = ("source", "reachable", "path")


@dataclass(slots=True)
class PathState:
    """Links by the node where they begin, paths by the node where they end; both in the order in which they came."""

    links: dict[int, dict[int, None]] = field(default_factory=dict)
    paths: dict[int, dict[Path, None]] = field(default_factory=dict)
    through: dict[Link, dict[Path, None]] = field(default_factory=dict)
    """The same paths by each link that they hold."""
    origin: dict[int, dict[Path, None]] = field(default_factory=dict)
    """The same paths by their source."""

    def add_link(self, link: Link) -> bool:
        """Whether it was not there."""
        ends = self.links.setdefault(link[0], {})
        new = link[1] not in ends
        ends[link[1]] = None
        return new

    def add_path(self, path: Path) -> bool:
        """Whether it was not there."""
        held = self.paths.setdefault(path[-1], {})
        if path in held:
            return False
        held[path] = None
        self.origin.setdefault(path[0], {})[path] = None
        for link in pairwise(path):
            self.through.setdefault(link, {})[path] = None
        return True

    def drop_link(self, link: Link) -> None:
        """Remove a link, if it is there, and the paths that hold it."""
        ends = self.links.get(link[0], {})
        ends.pop(link[1], None)
        if not ends:
            self.links.pop(link[0], None)
        self._drop_paths(tuple(self.through.get(link, ())))

    def drop_source(self, source: int) -> None:
        """Remove the paths that begin there."""
        self._drop_paths(tuple(self.origin.get(source, ())))

    def _drop_paths(self, paths: Iterable[Path]) -> None:
        for path in paths:
            _drop(self.paths, path[-1], path)
            _drop(self.origin, path[0], path)
            for link in pairwise(path):
                _drop(self.through, link, path)


def _drop(index: dict[Any, dict[Path, None]], key: Any, path: Path) -> None:
    del index[key][path]
    if not index[key]:
        del index[key]


class PathJoin(Operator):
    """Joins paths that end at a node with links that begin there; emits `source`, `path`, `start_node` and
    `end_node` of the link.

    `links` (columns `start_node`, `end_node`) come by `start_node`; `sources` and `paths`, the feedback edge (both
    with a column `path`, a list of nodes), by the last node of the path; `deletes` (`source`, or `start_node` and
    `end_node`, the others null) to every partition.  In a batch, deletes come first and hold for what the feedback
    edge brings, too; then paths and sources enter and meet the links that are held, then links enter and meet the
    paths.  What is there already is ignored.
    """

    def __init__(
        self,
        *,
        links: str = "links",
        sources: str = "sources",
        paths: str = "project",
        deletes: str = "deletes",
    ) -> None:
        self.links, self.sources, self.paths, self.deletes = links, sources, paths, deletes
        every = [links, sources, paths, deletes]
        for name, value in zip(("sources", "paths", "deletes"), every[1:], strict=True):
            if every.count(value) > 1:
                raise SpecError(name, f"{value!r} is named twice: four upstream operators are needed")

    def output_columns(self, inputs: Mapping[str, Columns]) -> Columns:
        for field_, name, wanted in (
            ("links", self.links, LINK),
            ("sources", self.sources, PATH),
            ("paths", self.paths, PATH),
            ("deletes", self.deletes, DELETED),
        ):
            require(input_of(inputs, name, field_), wanted, field_)
        return JOINED

    def initial(self, place: Place) -> PathState:
        return PathState()

    def step(self, state: PathState, inbox: Inbox) -> tuple[PathState, pa.Table | None]:
        sources, links = _deleted(inbox_table(inbox, self.deletes))
        for source in sources:
            state.drop_source(source)
        for link in links:
            state.drop_link(link)
        out: list[tuple[Path, int]] = []
        for path in _paths(inbox_table(inbox, self.paths)):
            if path[0] not in sources and links.isdisjoint(pairwise(path)):
                self._enter(state, path, out)
        for path in _paths(inbox_table(inbox, self.sources)):
            self._enter(state, path, out)
        for link in _links(inbox_table(inbox, self.links)):
            if state.add_link(link):
                out += [(path, link[1]) for path in state.paths.get(link[0], ())]
        return state, _joined(out)

    @staticmethod
    def _enter(state: PathState, path: Path, out: list[tuple[Path, int]]) -> None:
        if state.add_path(path):
            out += [(path, end) for end in state.links.get(path[-1], ())]

    def counters(self, state: PathState) -> Mapping[str, int]:
        """See `Operator.counters`."""
        return {
            "links": sum(map(len, state.links.values())),
            "paths": sum(map(len, state.paths.values())),
        }

    def freeze(self, state: PathState) -> Callable[[], Tables]:
        links = [(start, end) for start, ends in state.links.items() for end in ends]
        paths = [path for held in state.paths.values() for path in held]

        def encode() -> Tables:
            starts, ends = ([link[i] for link in links] for i in (0, 1))
            columns = {"start_node": pa.array(starts, pa.int64()), "end_node": pa.array(ends, pa.int64())}
            return {"links": pa.table(columns), "paths": pa.table({"path": _lists(paths)})}

        return encode

    def restore(self, place: Place, tables: Tables) -> PathState:
        state = PathState()
        for link in _links(tables["links"]):
            state.add_link(link)
        for path in _paths(tables["paths"]):
            state.add_path(path)
        return state


class ExtendPath(Operator):
    """Paths that are one link longer: `source`, `reachable` (the node at the end of the link) and `path`, out of
    what PathJoin emits."""

    kind = Kind.REPEATABLE

    def output_columns(self, inputs: Mapping[str, Columns]) -> Columns:
        require(merged(inputs), JOINED, "inputs")
        return EXTENDED

    def step(self, state: Any, inbox: Inbox) -> tuple[Any, pa.Table | None]:
        table = inbox_table(inbox)
        if table is None:
            return state, None
        for name in JOINED:
            column(table, name)
        longer = pl.concat_list("path", "end_node").alias("path")
        return state, to_arrow(
            to_polars(table).select("source", pl.col("end_node").alias("reachable"), longer)
        )


def _links(table: pa.Table | None) -> list[Link]:
    if table is None:
        return []
    links = _rows(table, LINK)
    if any(None in link for link in links):
        raise ColumnError("a link has a null in 'start_node' or 'end_node'; drop such rows before")
    return links


def _rows(table: pa.Table, names: Sequence[str]) -> list[Any]:
    whole = typed(select(table, names), dict.fromkeys(names, pa.int64()))
    return list(zip(*(each.to_pylist() for each in whole.columns), strict=True))


def _paths(table: pa.Table | None) -> list[Path]:
    if table is None:
        return []
    found = typed(select(table, PATH), {"path": pa.list_(pa.int64())}).column("path").to_pylist()
    if not all(found) or any(None in path for path in found):
        raise ColumnError(
            "column 'path' has a row without nodes, or a null among them; drop such rows before"
        )
    return [tuple(path) for path in found]


def _deleted(table: pa.Table | None) -> tuple[set[int], set[Link]]:
    """Sources and links that are deleted."""
    if table is None:
        return set(), set()
    rows = _rows(table, DELETED)
    links = {(start, end) for source, start, end in rows if source is None}
    return {source for source, *_ in rows if source is not None}, links


def _lists(paths: list[Path]) -> pa.Array:
    return pa.array([list(path) for path in paths], pa.list_(pa.int64()))


def _joined(pairs: list[tuple[Path, int]]) -> pa.Table | None:
    if not pairs:
        return None
    numbers = {
        "source": [path[0] for path, _ in pairs],
        "start_node": [path[-1] for path, _ in pairs],
        "end_node": [end for _, end in pairs],
    }
    columns = {name: pa.array(values, pa.int64()) for name, values in numbers.items()}
    columns["path"] = _lists([path for path, _ in pairs])
    return pa.table({name: columns[name] for name in JOINED})
