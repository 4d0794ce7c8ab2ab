"""The cyclic query against networkx: at each batch it gives the simple paths that have become possible, and no others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprise.spark_jobs.contract import Inbox, Place, Range, Source
from reprise.spark_jobs.errors import SpecError
from reprise.spark_jobs.operators import ExtendPath, PathJoin
from reprise.spark_jobs.operators.frames import ColumnError
from reprise.spark_jobs.operators.local import run_local
from reprise.spark_jobs.operators.paths import PathState
from reprise.spark_jobs.operators.testing import PLACE, check_recovery, inbox, run
from reprise.spark_jobs.topology import StreamTopology, load_topology, override
from tests.support.examples import examples
from tests.support.reachability import Graph, rows

HERE = "tests.unit.spark_jobs.operators.test_paths"
QUIET = 9
"""Batches without changes after which every path of a graph of at most eight nodes has come."""


class Scripted(Source):
    """The changes of `batches`: of each batch those of this `kind`, dealt to the partitions in turn; then quiet ones."""

    def __init__(self, kind: str, batches: list[list[tuple[str, int, int]]]) -> None:
        self.kind, self.batches = kind, batches

    def advance(self, place: Place, batch: int, start: int) -> int | None:
        return start + 1 if batch <= len(self.batches) + QUIET else None

    def read(self, place: Place, batch: int, span: Range) -> pa.Table:
        here = self.batches[batch - 1] if batch <= len(self.batches) else []
        names = {"links": ("link",), "sources": ("source",), "deletes": ("-link", "-source")}[self.kind]
        own = [c for c in here if c[0] in names][place.index :: place.parallelism]
        if self.kind == "links":
            return links([(a, b) for _, a, b in own])
        if self.kind == "deletes":
            return deletes([(a, None) if k == "-source" else (a, b) for k, a, b in own])
        nodes = pa.array([a for _, a, _ in own], pa.int64())
        alone = pa.array([[a] for _, a, _ in own], pa.list_(pa.int64()))
        return pa.table({"source": nodes, "reachable": nodes, "path": alone})

    def watermark(self, place: Place, batch: int, span: Range) -> int | None:
        return None


def links(pairs: list[tuple[int, int]]) -> pa.Table:
    ends = (pa.array([pair[i] for pair in pairs], pa.int64()) for i in (0, 1))
    return pa.table(dict(zip(("start_node", "end_node"), ends, strict=True)))


def deletes(gone: list[tuple[int, int | None]]) -> pa.Table:
    """A source, (node, None), or a link."""
    return pa.table(
        {
            "source": pa.array([a if b is None else None for a, b in gone], pa.int64()),
            "start_node": pa.array([None if b is None else a for a, b in gone], pa.int64()),
            "end_node": pa.array([b for _, b in gone], pa.int64()),
        }
    )


def paths(*every: list[int]) -> pa.Table:
    return pa.table({"path": pa.array(every, pa.list_(pa.int64()))})


def topology(parallelism: int, readers: int = 1, **changes: Any) -> StreamTopology:
    found = {f"operators[{name}].parallelism": parallelism for name in ("join", "select", "project", "sink")}
    found |= {f"sources[{name}].parallelism": readers for name in ("links", "sources", "deletes")}
    return override(load_topology("examples/reachability.yaml"), found | changes)


def scripted(
    batches: list[list[tuple[str, int, int]]], parallelism: int, readers: int, **more: Any
) -> StreamTopology:
    changes: dict[str, Any] = {}
    for kind in ("links", "sources", "deletes"):
        changes[f"sources[{kind}].class"] = f"{HERE}:Scripted"
        changes[f"sources[{kind}].with"] = {"kind": kind, "batches": batches}
    return topology(parallelism, readers, **changes, **more)


def differences(resource: StreamTopology) -> list[str]:
    """Batch by batch, what the query gives against the paths that networkx lists; nothing where all is right."""
    graph, found = Graph(), []
    (sink,) = (o for o in resource.operators if o.name == "sink")
    for batch, tables in enumerate(run_local(resource), 1):
        changes = [
            rows(tables[f"{source.name}.{i}"] for i in range(source.parallelism))
            for source in resource.sources
        ]
        graph.change(batch, *changes)
        # A path is made in the batch before the one from which on it is there.
        wanted = {path for path, since in graph.paths().items() if since == batch + 1 and len(path) > 1}
        got = rows(tables[f"sink.{i}"] for i in range(sink.parallelism))
        counted = Counter(tuple(row["path"]) for row in got)
        if counted != Counter(wanted):
            found.append(f"batch {batch}: {counted} is not {wanted}")
        if any((row["source"], row["reachable"]) != (row["path"][0], row["path"][-1]) for row in got):
            found.append(f"batch {batch}: {got}")
    return found


nodes = st.integers(1, 5)
change = st.one_of(
    st.tuples(st.just("link"), nodes, nodes),
    st.tuples(st.just("link"), nodes, nodes),
    st.tuples(st.just("source"), nodes, st.just(0)),
    st.tuples(st.just("-link"), nodes, nodes),
    st.tuples(st.just("-source"), nodes, st.just(0)),
)
scripts = st.lists(st.lists(change, max_size=6), min_size=1, max_size=8)


@examples(40)
@given(scripts, st.integers(1, 4), st.integers(1, 3))
def test_each_batch_gives_the_simple_paths_that_have_become_possible(
    batches: list[list[tuple[str, int, int]]], parallelism: int, readers: int
) -> None:
    """Links to oneself, links and sources twice, and deletes of what is not there, or comes again in the same batch, too."""
    assert differences(scripted(batches, parallelism, readers)) == []


@examples(25)
@given(st.integers(0, 2**40), st.integers(2, 8), st.integers(1, 4), st.integers(1, 2))
def test_the_workload_gives_the_simple_paths_of_small_graphs(
    seed: int, count: int, parallelism: int, readers: int
) -> None:
    changes: dict[str, Any] = {}
    for kind in ("links", "sources", "deletes"):
        changes[f"sources[{kind}].with"] = {
            "kind": kind, "rate": 10, "nodes": count, "interval": "500ms", "batches": 10, "seed": seed
        }  # fmt: skip
    assert differences(topology(parallelism, readers, **changes)) == []


def test_a_longer_path_takes_a_batch_a_link() -> None:
    line: list[list[tuple[str, int, int]]] = [[("source", 1, 0), *(("link", n, n + 1) for n in range(1, 5))]]
    made = [
        [tuple(row["path"]) for row in rows(tables[f"sink.{i}"] for i in range(2))]
        for tables in run_local(scripted(line, 2, 1), 5)
    ]
    assert made == [[(1, 2)], [(1, 2, 3)], [(1, 2, 3, 4)], [(1, 2, 3, 4, 5)], []]


class KeepsFeedback(PathJoin):
    """It lets in what was on its way when its link was deleted."""

    def step(self, state: PathState, inbox: Inbox) -> tuple[PathState, pa.Table | None]:
        gone = Inbox(inbox.batch, None, tuple(i for i in inbox.inputs if i.operator == "deletes"))
        rest = Inbox(inbox.batch, None, tuple(i for i in inbox.inputs if i.operator != "deletes"))
        state, _ = super().step(state, gone)
        return super().step(state, rest)


class MeetsTwice(PathJoin):
    """Every path meets every link two times."""

    def step(self, state: PathState, inbox: Inbox) -> tuple[PathState, pa.Table | None]:
        state, out = super().step(state, inbox)
        return state, None if out is None else pa.concat_tables([out, out])


GROWS = [
    [("source", 1, 0), ("link", 1, 2), ("link", 2, 3)], [("link", 3, 1), ("link", 3, 4)],
    [("-link", 1, 2)], [("link", 1, 2)], [("-source", 1, 0)], [("source", 1, 0)],
]  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [
        {"operators[join].class": f"{HERE}:KeepsFeedback"},
        {"operators[join].class": f"{HERE}:MeetsTwice"},
        {"operators[select].with.where": "end_node <> source"},
        {"operators[select].with.where": "end_node > start_node"},
    ],
    ids=["keeps feedback", "meets twice", "goes round in circles", "drops too much"],
)
def test_the_check_notices_a_query_that_is_wrong(change: dict[str, Any]) -> None:
    begin = [[("link", 2, 3), ("link", 3, 2), ("link", 3, 1)], [("source", 3, 0)]]
    around = [*begin, *GROWS]
    assert differences(scripted(around, 2, 1)) == []
    assert differences(scripted(around, 2, 1, **change)) != []


def test_a_restored_join_goes_on_with_equal_bytes() -> None:
    batches = [
        inbox(1, {"sources": paths([1], [2]), "links": links([(1, 2), (2, 3), (1, 3)])}),
        inbox(2, {"project": paths([1, 2], [2, 3], [1, 3]), "links": links([(2, 1), (3, 1)])}),
        inbox(
            3,
            {
                "deletes": deletes([(1, 3), (7, 8), (9, None)]),
                "project": paths([1, 2, 3], [1, 3, 2], [2, 3, 1]),
            },
        ),
        inbox(4, {"deletes": deletes([(2, None)]), "links": links([(3, 5), (2, 5), (1, 5)])}),
    ]
    outputs = check_recovery(PathJoin(), batches)
    last = [(tuple(r["path"]), r["end_node"]) for r in rows(outputs[3:])]
    assert last == [((1, 2, 3), 5), ((1, 2), 5), ((1,), 5)]


def test_what_is_held_is_counted() -> None:
    join = PathJoin()
    state, _ = join.step(
        join.initial(PLACE), inbox(1, {"sources": paths([1]), "links": links([(1, 2), (1, 3)])})
    )
    state, _ = join.step(state, inbox(2, {"project": paths([1, 2], [1, 3])}))
    assert join.counters(state) == {"links": 2, "paths": 3}
    state, _ = join.step(state, inbox(3, {"deletes": deletes([(1, 2)])}))
    assert join.counters(state) == {"links": 1, "paths": 2}
    state, _ = join.step(state, inbox(4, {"deletes": deletes([(1, None)])}))
    assert join.counters(state) == {"links": 1, "paths": 0}
    assert (state.through, state.origin) == ({}, {})


INPUTS: dict[str, tuple[str, ...] | None] = {
    "deletes": ("time", "source", "start_node", "end_node"),
    "project": None,
    "sources": ("time", "source", "reachable", "path"),
    "links": ("time", "start_node", "end_node"),
}


@pytest.mark.parametrize(
    ("inputs", "field"),
    [
        ({"links": ("start", "end_node")}, "links"),
        ({"sources": ("source",)}, "sources"),
        ({"deletes": ("source", "start_node")}, "deletes"),
        ({"project": ("route",)}, "paths"),
    ],
)
def test_inputs_without_their_columns_are_refused(inputs: Mapping[str, Any], field: str) -> None:
    assert PathJoin().output_columns(INPUTS) == ("source", "path", "start_node", "end_node")
    with pytest.raises(SpecError) as caught:
        PathJoin().output_columns(INPUTS | inputs)
    assert caught.value.field == field


def test_an_input_that_is_named_twice_or_is_not_there_is_refused() -> None:
    with pytest.raises(SpecError, match="named twice"):
        PathJoin(links="a", deletes="a")
    with pytest.raises(SpecError, match="is not an input"):
        PathJoin(paths="other").output_columns(INPUTS)


def test_rows_that_are_no_paths_are_refused() -> None:
    with pytest.raises(ColumnError, match="without nodes"):
        run(PathJoin(), [inbox(1, {"sources": paths([])})])
    for kind, wrong in (("links", links([(1, None)])), ("sources", paths([None]))):
        with pytest.raises(ColumnError, match="a null"):
            run(PathJoin(), [inbox(1, {kind: wrong})])
    for kind, table in (
        ("links", pa.table({"start_node": [1], "end_node": [1.5]})),
        ("sources", pa.table({"path": [[1.5]]})),
    ):
        with pytest.raises(ColumnError, match=r"holds .*double.*, and is to be .*int64"):
            run(PathJoin(), [inbox(1, {kind: table})])
    with pytest.raises(ColumnError, match="'path' is not in the input"):
        run(ExtendPath(), [inbox(1, links([(1, 2)]).append_column("source", pa.array([1])))])
