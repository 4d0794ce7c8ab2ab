"""The graph that changes: the same batches for whoever asks in whatever order, its shares, and deletes of what is there."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprise.spark_jobs.contract import Place, Range
from reprise.spark_jobs.errors import SpecError
from reprise.spark_jobs.sources import END_OF_TIME, ReachabilitySource
from reprise.spark_jobs.sources.reachability import Drawn, _stream
from tests.support.examples import examples
from tests.support.reachability import Graph

KINDS = ("links", "sources", "deletes")
P = Place("g", 0, 1)


def read(kind: str, batch: int, place: Place = P, **more: Any) -> list[dict[str, Any]]:
    source = ReachabilitySource(kind=kind, **({"rate": 40, "nodes": 12} | more))
    end = source.advance(place, batch, 0)
    assert end is not None
    return source.read(place, batch, Range(0, end)).to_pylist()


@examples(30)
@given(st.integers(0, 2**70), st.integers(2, 15), st.lists(st.integers(1, 90), max_size=6))
def test_a_batch_is_the_same_whenever_and_by_whomever_it_is_asked_for(
    seed: int, nodes: int, order: list[int]
) -> None:
    def all_kinds(batch: int) -> list[list[dict[str, Any]]]:
        return [read(kind, batch, seed=seed, nodes=nodes) for kind in KINDS]

    first = {batch: all_kinds(batch) for batch in sorted(order)}
    assert {batch: all_kinds(batch) for batch in order} == first
    _stream.cache_clear()
    assert {batch: all_kinds(batch) for batch in reversed(order)} == first


@pytest.mark.parametrize("nodes", [2, 6, 40])
def test_only_what_is_there_when_a_batch_begins_is_deleted_and_each_once(nodes: int) -> None:
    graph, gone = Graph(), Counter[str]()
    for batch in range(1, 60):
        links, sources, deletes = (read(kind, batch, nodes=nodes) for kind in KINDS)
        named: list[Any] = [
            row["source"] if row["source"] is not None else (row["start_node"], row["end_node"])
            for row in deletes
        ]
        assert len(set(named)) == len(named)
        for one in named:
            assert one in (graph.links if isinstance(one, tuple) else graph.sources)
            gone[type(one).__name__] += 1
        graph.change(batch, links, sources, deletes)
        ends = [n for row in links for n in (row["start_node"], row["end_node"])]
        assert all(1 <= n <= nodes for n in ends)
        assert all(row["start_node"] != row["end_node"] for row in links)
        assert all(row["path"] == [row["source"]] == [row["reachable"]] for row in sources)
        assert len(links) + len(sources) + len(deletes) == 20
    assert gone["tuple"] > 10 and gone["int"] > 5


def test_kinds_and_begins_have_their_shares() -> None:
    many = {"rate": 40_000, "nodes": 1_000_000}
    batches = [[read(kind, batch, **many) for kind in KINDS] for batch in (1, 2, 3)]
    counts = Counter[str]()
    known: set[int] = set()
    ends: set[int] = set()
    for number, (links, sources, deletes) in enumerate(batches):
        only_sources, only_ends = known - ends, ends - known
        if number:
            counts["links"] += len(links)
            counts["sources"] += len(sources)
            counts["-link"] += sum(row["source"] is None for row in deletes)
            counts["-source"] += sum(row["source"] is not None for row in deletes)
            counts["at a source"] += sum(row["start_node"] in only_sources for row in links)
            counts["at an end"] += sum(row["start_node"] in only_ends for row in links)
        known |= {row["source"] for row in sources}
        ends |= {row["end_node"] for row in links}
    total = 40_000
    shares = {name: counts[name] / total for name in ("links", "sources", "-link", "-source")}
    assert shares == pytest.approx({"links": 0.6, "sources": 0.15, "-link": 0.2, "-source": 0.05}, abs=0.01)
    # A node drawn from all is now and then such a one by chance.
    assert counts["at a source"] / counts["links"] == pytest.approx(0.1, abs=0.02)
    assert counts["at an end"] / counts["links"] == pytest.approx(0.2, abs=0.04)


@pytest.mark.parametrize("kind", KINDS)
def test_partitions_share_the_rows_of_a_batch(kind: str) -> None:
    for batch in (1, 9):
        whole = read(kind, batch)
        parts = [read(kind, batch, Place("g", i, 3)) for i in range(3)]
        assert [whole[i::3] for i in range(3)] == parts


def test_times_lie_in_the_batch_and_the_stream_ends() -> None:
    source = ReachabilitySource(kind="links", rate=30, interval="1s", batches=3, start=5_000_000)
    ends = [source.advance(P, batch, 0) for batch in (1, 2, 3, 4)]
    assert ends == [30, 60, 90, None]
    times = [row["time"] for row in source.read(P, 2, Range(30, 60)).to_pylist()]
    assert times == sorted(times) and times[0] >= 6_000_000 and times[-1] < 7_000_000
    assert source.watermark(P, 2, Range(30, 60)) == 7_000_000
    assert source.watermark(P, 3, Range(60, 90)) == END_OF_TIME


def test_a_member_that_was_taken_is_gone() -> None:
    drawn = Drawn()
    for member in ("a", "b", "c", "b"):
        drawn.add(member)
    assert len(drawn) == 3 and drawn.draw(0.5) == "b"
    assert [drawn.take(0.0), drawn.take(0.99), drawn.take(0.0)] == ["a", "b", "c"]
    assert len(drawn) == 0
    drawn.add("a")
    assert drawn.draw(0.0) == "a"


@pytest.mark.parametrize(
    ("parameters", "field"),
    [
        ({"kind": "edges"}, "kind"),
        ({"rate": 0}, "rate"),
        ({"nodes": 1}, "nodes"),
        ({"interval": "0s"}, "interval"),
        ({"batches": 0}, "batches"),
        ({"seed": -1}, "seed"),
        ({"start": -1}, "start"),
    ],
)
def test_wrong_parameters_are_named(parameters: dict[str, Any], field: str) -> None:
    with pytest.raises(SpecError) as caught:
        ReachabilitySource(**{"kind": "links", "rate": 10, **parameters})
    assert caught.value.field == field
