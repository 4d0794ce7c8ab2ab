"""Partitions, edges and queries of hand-made and random graphs."""

from __future__ import annotations

from typing import Any

import networkx as nx
from hypothesis import given
from hypothesis import strategies as st

from reprise.spark_jobs.topology import check, expand, from_object
from reprise.spark_jobs.topology.graph import Topology
from tests.support.examples import examples
from tests.support.topologies import document, operator, source


def topology(*items: dict[str, Any]) -> Topology:
    resource = from_object(document(*items))
    check(resource)
    return expand(resource)


def figure_1() -> Topology:
    """The operators of fig. 1 of Su and Zhou: S1 -> O1 -> O3, S2 -> O2 -> O4, (O3, O4) -> O5.  Each has two partitions here,
    which makes six queries; the figure has eight."""
    two = {"parallelism": 2}
    return topology(
        source("s1"),
        source("s2"),
        operator("o1", {"from": "s1", "by": ["k"]}, **two),
        operator("o2", {"from": "s2", "by": ["k"]}, **two),
        operator("o3", {"from": "o1", "forward": True}, **two, output={"priority": 2}),
        operator(
            "o4", {"from": "o2", "forward": True}, **two, output={"priority": 3, "priorities": {"1": 9}}
        ),
        operator("o5", {"from": "o3", "forward": True}, {"from": "o4", "forward": True}, **two, output={}),
    )


def test_a_query_is_its_output_partition_with_all_upstream_partitions() -> None:
    t = figure_1()
    assert t.queries["o5.0"].partitions == {"o5.0", "o3.0", "o4.0", "o1.0", "o2.0", "s1.0", "s2.0"}
    assert t.queries["o3.1"].partitions == {"o3.1", "o1.1", "s1.0"}
    assert {q.id: q.priority for q in t.queries.values()} == {
        "o3.0": 2,
        "o3.1": 2,
        "o4.0": 3,
        "o4.1": 9,
        "o5.0": 1,
        "o5.1": 1,
    }
    assert [q.id for q in t.queries.values() if "o1.1" in q.partitions] == ["o3.1", "o5.1"]
    assert t.downstream_of(["o2.0"]) == {"o2.0", "o4.0", "o5.0"}


def test_upstreams_are_in_the_order_of_inputs_then_index() -> None:
    t = topology(
        source("a", 2),
        source("b"),
        operator("c", "b", {"from": "a", "broadcast": True}, output={}),
    )
    assert [u.partition for u in t.partitions["c.0"].upstream] == ["b.0", "a.0", "a.1"]
    assert t.order == ("a.0", "a.1", "b.0", "c.0")


def test_feedback_does_not_order_but_belongs_to_the_query() -> None:
    t = topology(
        source(),
        operator("a", "s", {"from": "b", "feedback": True}, output={}),
        operator("b", "a"),
    )
    assert t.order == ("s.0", "a.0", "b.0")
    assert t.queries["a.0"].partitions == {"s.0", "a.0", "b.0"}
    assert [(u.partition, u.feedback) for u in t.partitions["a.0"].upstream] == [
        ("s.0", False),
        ("b.0", True),
    ]


def test_what_is_in_a_cycle_with_its_reader() -> None:
    """Also over edges that are no feedback, and not where a feedback edge only delays."""
    t = topology(
        source(),
        operator("a", "s", {"from": "c", "feedback": True}, {"from": "a", "feedback": True}),
        operator("b", "a"),
        operator("c", "b", "s", {"from": "b2", "feedback": True}),
        operator("b2", "b"),
        operator("out", "c", {"from": "a", "feedback": True}, output={}),
        operator("alone", "out", {"from": "alone", "feedback": True}, output={}),
    )
    cyclic = {(u.partition, p.id) for p in t.partitions.values() for u in p.upstream if u.cyclic}
    assert cyclic == {
        ("c.0", "a.0"), ("a.0", "a.0"), ("a.0", "b.0"), ("b.0", "c.0"), ("b2.0", "c.0"), ("b.0", "b2.0"),
        ("alone.0", "alone.0"),
    }  # fmt: skip


@given(
    st.lists(st.sets(st.integers(0, 6), max_size=3), min_size=7, max_size=7),
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=5),
)
@examples(100)
def test_cycles_are_the_strongly_connected_components(
    forward: list[set[int]], back: list[tuple[int, int]]
) -> None:
    """`forward`: which earlier operators each one reads; `back`: (source, reader) of feedback edges."""
    edges = {(u, v) for v, read in enumerate(forward) for u in read if u < v}
    loops = {(u, v) for u, v in back} - edges
    items: list[dict[str, Any]] = [source()]
    for v in range(7):
        inputs: list[Any] = ["s", *(f"o{u}" for u in range(7) if (u, v) in edges)]
        inputs += [{"from": f"o{u}", "feedback": True} for u in range(7) if (u, v) in loops]
        items.append(operator(f"o{v}", *inputs, **({"output": {}} if v == 6 else {})))
    graph = nx.DiGraph([*edges, *loops])
    number = {v: i for i, found in enumerate(nx.strongly_connected_components(graph)) for v in found}
    cyclic = {(u, v) for u, v in (edges | loops) if number[u] == number[v]}
    found = {
        (int(u.partition[1]), int(p.id[1]))
        for p in expand(from_object(document(*items))).partitions.values()
        for u in p.upstream
        if u.cyclic
    }
    assert found == cyclic


def test_odd_graphs_warn() -> None:
    items = (
        source(),
        source("t"),
        operator("a", "s", output={}),
        operator("b", {"from": "a", "feedback": True}, "s"),
    )
    warnings = check(from_object(document(*items)))
    assert [w.field for w in warnings] == [
        "spec.sources[t]",
        "spec.operators[b]",
        "spec.operators[b].inputs[0].feedback",
    ]


@st.composite
def graphs(draw: st.DrawFn) -> list[dict[str, Any]]:
    items = [source(f"s{i}", draw(st.integers(1, 3))) for i in range(draw(st.integers(1, 2)))]
    count = draw(st.integers(1, 6))
    for i in range(count):
        parallelism = draw(st.integers(1, 3))
        inputs = []
        upstreams = draw(
            st.lists(st.sampled_from(items), min_size=1, max_size=3, unique_by=lambda u: u["name"])
        )
        for up in upstreams:
            ways: list[dict[str, Any]] = [{"by": ["k"]}, {"broadcast": True}]
            ways += [{"forward": True}] if up["parallelism"] == parallelism else []
            inputs.append({"from": up["name"], **draw(st.sampled_from(ways))})
        later = draw(st.sampled_from([None, *range(i, count)]))
        if later is not None and f"o{later}" not in {u["name"] for u in upstreams}:
            inputs.append({"from": f"o{later}", "by": ["k"], "feedback": True})
        output = {} if i == count - 1 or draw(st.booleans()) else None
        items.append(operator(f"o{i}", *inputs, parallelism=parallelism, output=output))
    return items


@examples(60)
@given(graphs())
def test_the_invariants_hold_for_any_graph(items: list[dict[str, Any]]) -> None:
    t = topology(*items)
    position = {p: i for i, p in enumerate(t.order)}
    down = {(p, target) for p, x in t.partitions.items() for d in x.downstream for target in d.targets}
    up = {(u.partition, p) for p, x in t.partitions.items() for u in x.upstream}
    assert up == down
    for pid, partition in t.partitions.items():
        assert partition.id == pid
        for upstream in partition.upstream:
            assert upstream.feedback or position[upstream.partition] < position[pid]
    for query in t.queries.values():
        assert query.id in query.partitions
        for pid in query.partitions:
            assert {u.partition for u in t.partitions[pid].upstream} <= query.partitions
        assert query.partitions == t.upstream_of([query.id])
    operators = {i["name"]: i for i in items}
    assert {q.split(".")[0] for q in t.queries} == {
        n for n, i in operators.items() if i.get("output") is not None
    }
