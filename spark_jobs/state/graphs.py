"""Which operators a stream has, and since which batch: queries come and go where the stream has drained, or not at all.

Problem: checkpoints name states by partition, and one that has none for a partition means that it begins with nothing.  For
an operator that has come later that is so in the checkpoint behind which it comes, and in no older one: there its output
would begin again at batches that others have long shown, and go on with rows that it has never seen.

So each driver writes down beside the ledger, before it releases anything, which graph it has and behind which batch each
operator of it begins (`graphs/<epoch>.json`).  Invariants: a graph that differs from the one on record is taken over only
where nothing was released behind the newest checkpoint, and that is whole; no driver goes on from a checkpoint of before an
operator began.  As with revisions the record of the newest epoch counts.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from reprise.spark_jobs.errors import CheckpointError, raise_all
from reprise.spark_jobs.state.checkpoints import CheckpointStore
from reprise.spark_jobs.state.driver_records import DriverRecords
from reprise.spark_jobs.state.epochs import Fence
from reprise.spark_jobs.storage.files import Files
from reprise.spark_jobs.topology import StreamTopology
from reprise.spark_jobs.topology.graph_change import (
    Graph,
    GraphChange,
    Stage,
    graph_change,
    graph_of,
    unable_to_change,
)

log = logging.getLogger("reprise.checkpoints")
GRAPHS = "graphs"


class GraphError(CheckpointError):
    """The stream does not go on with this graph, or not from this checkpoint."""


@dataclass(frozen=True, slots=True)
class StreamGraph:
    """What is on record: the graph of the newest driver, and operators that came after the stream's beginning, each with
    the batch behind which its output begins."""

    graph: Graph
    begins: Mapping[str, int]

    def has_from_the_beginning(self, name: str) -> bool:
        """Whether a source or an operator was there when the stream began, and ever since."""
        return name in self.graph.sources or (name in self.graph.operators and name not in self.begins)


class Graphs:
    """The records of one stream, as the driver that has claimed it uses them."""

    def __init__(self, store: CheckpointStore, fence: Fence) -> None:
        self._store, self._fence = store, fence
        self._written = DriverRecords(Files(store.location), GRAPHS)

    def begin(self, resource: StreamTopology, newest: int, drained: bool) -> Mapping[str, int]:
        """A driver begins after the checkpoint `newest` with this graph.  `drained`: nothing was released behind that.

        Returns behind which batch each operator begins that was not there from the beginning.  GraphError: this graph, or
        this checkpoint, is none to go on with; SpecError: more than queries differs; SupersededError: a later driver has
        begun.  StoreError: not now."""
        before = self._written.newest(_parsed)
        begins = {} if before is None else dict(before.begins)
        graph = graph_of(resource)
        change = GraphChange() if before is None else graph_change(before.graph, graph)
        if late := sorted(name for name in graph.operators if newest < begins.get(name, 0)):
            raise GraphError(
                f"the newest checkpoint is {newest}, and {', '.join(late)} came behind batch "
                f"{max(begins[name] for name in late)}: its output would begin again. A checkpoint since then is missing: "
                "bring it back from a mirror or a backup of the location, or begin anew with another one"
            )
        if change:
            raise_all(unable_to_change(resource))
            begins = self._changed(change, begins, newest, drained)
        self._written.write(self._fence.epoch, _encoded(StreamGraph(graph, begins)))
        self._fence.check()
        self._written.forget_before(self._fence.epoch)
        return begins

    def _changed(
        self, change: GraphChange, begins: Mapping[str, int], newest: int, drained: bool
    ) -> dict[str, int]:
        what = f"queries come or go ({', '.join((*change.added, *change.removed))})"
        if not drained:
            raise GraphError(
                f"{what}, and batches behind checkpoint {newest} may have been shown: go on with the "
                "former topology, and let it change where it has drained (`reprise apply`)"
            )
        if newest:
            self._require_whole(newest, what)
        log.info(
            "event=queries-change added=%s removed=%s position=%d",
            ",".join(change.added) or "-", ",".join(change.removed) or "-", newest,
        )  # fmt: skip
        stay = {name: batch for name, batch in begins.items() if name not in change.removed}
        return stay | dict.fromkeys(change.added, newest)

    def _require_whole(self, newest: int, what: str) -> None:
        """Behind this checkpoint alone they come or go: no older one serves from here on."""
        try:
            manifest = self._store.verify(newest)
        except CheckpointError as error:
            raise type(error)(f"{what} behind checkpoint {newest}, which is not whole: {error}") from error
        if manifest.apart:
            raise GraphError(f"{what}, and checkpoint {newest} has partitions behind different batches")


def graph_on_record(location: str) -> StreamGraph | None:
    """The graph of the newest driver; None: none is on record, as the stream has not begun or is of an earlier version.
    CheckpointError: it cannot be told."""
    return DriverRecords(Files(location), GRAPHS).newest(_parsed)


def _encoded(found: StreamGraph) -> bytes:
    parts = {"sources": found.graph.sources, "operators": found.graph.operators}
    plain = {
        part: {name: stage.to_json() for name, stage in stages.items()} for part, stages in parts.items()
    }
    return json.dumps({**plain, "begins": dict(found.begins)}).encode()


def _parsed(data: bytes) -> StreamGraph:
    found: dict[str, Any] = json.loads(data)
    sources, operators = (
        {str(name): Stage.from_json(stage) for name, stage in found[part].items()}
        for part in ("sources", "operators")
    )
    return StreamGraph(
        Graph(sources, operators), {str(name): int(batch) for name, batch in found["begins"].items()}
    )
