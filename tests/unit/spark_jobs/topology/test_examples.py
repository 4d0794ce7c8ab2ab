"""Every example loads, runs for some batches without Spark, fits its nodes, and can be drawn."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from reprise.controller.cli.graph_drawing import draw
from reprise.controller.cli.graph_text import as_text
from reprise.spark_jobs.operators.local import run_local
from reprise.spark_jobs.topology import expand, load_topology, override
from reprise.spark_jobs.topology.layout import place

EXAMPLES = Path(__file__).parents[4] / "examples"
EVERY = sorted(EXAMPLES.glob("*.yaml"))
FILES = [path for path in EVERY if "KafkaSource" not in path.read_text()]
"""Those that run with nothing beside them; those that read a broker run in the tests that start one."""


def test_there_are_examples() -> None:
    assert {f.stem for f in FILES} >= {"minimal", "topology1", "topology2", "flights"}


@pytest.mark.wide
@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_an_example_runs_and_every_query_gives_rows(path: Path) -> None:
    resource = load_topology(path)
    topology = expand(resource)
    seen: set[str] = set()
    for outputs in run_local(resource, 6):
        seen |= {p for p, rows in outputs.items() if rows is not None}
    assert set(topology.queries) <= seen


@pytest.mark.long
@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_an_example_runs_twice_alike(path: Path) -> None:
    resource = load_topology(path)
    for first, second in zip(run_local(resource, 2), run_local(resource, 2), strict=True):
        assert first.keys() == second.keys()
        for pid, rows in first.items():
            assert rows == second[pid] if rows is None else rows.equals(second[pid])


@pytest.mark.long
@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_the_nodes_of_an_example_can_host_it_but_few_survivors_only_a_part(path: Path) -> None:
    resource = load_topology(path)
    sizes = sorted((p.cpu_cores for p in expand(resource).partitions.values()), reverse=True)
    usable = resource.nodes.cpu_cores * resource.recovery.cpu_cap
    free = [usable] * resource.nodes.count
    for size in sizes:  # first fit, greatest first
        node = next(i for i, room in enumerate(free) if room >= size - 1e-9)
        free[node] -= size
    if resource.nodes.count >= 10:
        assert 2 * usable < sum(sizes) / 2


def test_the_demo_has_the_size_that_it_promises() -> None:
    topology = expand(load_topology(EXAMPLES / "flights.yaml"))
    assert 30 <= len(topology.partitions) <= 45
    assert len(topology.queries) >= 12 and len({q.priority for q in topology.queries.values()}) >= 8


def test_topology_2_is_that_of_the_paper() -> None:
    topology = expand(load_topology(EXAMPLES / "topology2.yaml"))
    assert set(topology.queries) == {f"o{i}.0" for i in range(15)}
    assert len(topology.partitions) == 17
    assert all({"source.0", "parser.0"} <= q.partitions for q in topology.queries.values())
    # The loss of O1 stops eight other queries; leaves differ in what they need.
    assert sum("o1.0" in query.partitions for query in topology.queries.values()) == 9
    assert {len(q.partitions) for q in topology.queries.values()} >= {3, 5, 8, 12}


def test_the_rate_can_be_overridden_for_a_benchmark() -> None:
    resource = override(load_topology(EXAMPLES / "topology1.yaml"), {"sources[tweets].with.rate": 400})
    outputs = next(iter(run_local(resource)))
    assert outputs["tweets.0"].num_rows == 200


@pytest.mark.parametrize("suffix", [".svg", ".png"])
def test_a_picture_is_written_and_names_everything(suffix: str, tmp_path: Path) -> None:
    topology = expand(load_topology(EXAMPLES / "feedback.yaml"))
    path = tmp_path / f"graph{suffix}"
    draw(topology, path)
    data = path.read_bytes()
    assert data.startswith(b"\x89PNG" if suffix == ".png" else b"<?xml")
    assert len(data) > 5000
    draw(topology, path)
    assert path.read_bytes() == data, "two runs give the same bytes"


def test_a_picture_of_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"ends in .svg or .png"):
        draw(expand(load_topology(EXAMPLES / "minimal.yaml")), tmp_path / "graph.gif")


@pytest.mark.long
@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_boxes_of_a_layer_do_not_overlap(path: Path) -> None:
    boxes = sorted(place(expand(load_topology(path))).boxes.values(), key=lambda b: (b.layer, b.y))
    for above, below in pairwise(boxes):
        if above.layer == below.layer:
            assert below.y - below.rows / 2 >= above.y + above.rows / 2 + 1


def test_the_text_lists_operators_and_queries_by_priority() -> None:
    text = as_text(expand(load_topology(EXAMPLES / "feedback.yaml")))
    assert text.startswith("feedback: 4 operators, 5 partitions, 2 queries\n")
    assert "smooth    2           1m        count (by tag), decay (by tag, feedback)\n" in text
    assert "smooth.1  4         5           tweets.0 count.0 smooth.0-1 decay.0\n" in text
    flights = as_text(expand(load_topology(EXAMPLES / "flights.yaml"))).splitlines()
    queries = flights[[line.split()[:1] for line in flights].index(["query"]) + 1 :]
    priorities = [int(line.split()[1]) for line in queries]
    assert priorities == sorted(priorities, reverse=True) and len(priorities) == 22
