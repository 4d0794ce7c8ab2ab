"""What a steady job carries grows as the nodes do, and with what changed; counted in bytes, not in time."""

from __future__ import annotations

import json

import pytest

from benchmarks import width
from benchmarks.width import SHAPES, Job, Setting, steady_jobs
from reprise.spark_jobs.topology import expand

ROW_FIRST = ["row", *(pytest.param(shape, marks=pytest.mark.wide) for shape in SHAPES if shape != "row")]
"""The shapes of which one says what the others say, too."""


def jobs(shape: str, nodes: int, **setting: int | bool) -> list[Job]:
    return steady_jobs(shape, Setting(nodes, jobs=4, **setting))[0]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.wide
def test_bytes_of_a_steady_job_grow_no_faster_than_the_nodes(shape: str) -> None:
    few, many = (max(job.bytes for job in jobs(shape, nodes)) for nodes in (8, 48))
    assert few < many <= 6 * few * 1.1, "names and numbers get longer, too"


@pytest.mark.parametrize("shape", ROW_FIRST)
@pytest.mark.wide
def test_what_one_node_is_told_does_not_grow_with_the_others(shape: str) -> None:
    few, many = (max(job.orders for job in jobs(shape, nodes)) / nodes for nodes in (8, 48))
    assert many <= 1.1 * few


@pytest.mark.wide
def test_what_changed_of_a_partition_is_told_once_a_node_that_sends_to_it() -> None:
    """Eight operators that are read, four nodes: each partition that is elsewhere costs each node a few bytes."""
    none, some = (max(job.orders for job in jobs("row", 24, scattered=n)) for n in (0, 4))
    assert none < some <= none + 24 * (8 * 4 * len('"23":-1234,') + 8 * len('"oN":{"at":1234,"but":{}},'))


@pytest.mark.parametrize("shape", ROW_FIRST)
@pytest.mark.wide
def test_full_hosts_are_told_the_same_as_light_ones(shape: str) -> None:
    light, full = jobs(shape, 3), jobs(shape, 3, full=True)
    assert [job.orders for job in light] == [job.orders for job in full]
    assert all(one.reports <= other.reports < 2 * one.reports for one, other in zip(light, full, strict=True))


@pytest.mark.parametrize("shape", SHAPES)
def test_the_shapes_have_ten_partitions_a_node(shape: str) -> None:
    assert len(expand(width.resource(shape, 3)).partitions) == 30
    assert len(expand(width.resource(shape, 1000)).partitions) == 10_000


@pytest.mark.wide
def test_json_is_one_object_with_what_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert width.main(["--nodes", "2", "--jobs", "1", "--output", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["nodes"] == 2 and found["partitions"] == 20
    assert found["job_bytes"] == max(shape["job_bytes"] for shape in found["shapes"].values()) > 0
    assert found["job_cpu_ms"] > 0 and found["expand_s"] >= 0


@pytest.mark.wide
def test_text_is_a_row_for_each_number_of_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    assert width.main(["--nodes", "2", "3", "--jobs", "1"]) == 0
    _, _, *rows = capsys.readouterr().out.splitlines()
    assert [row.split(" | ")[:2] for row in rows] == [["| 2", "20"], ["| 3", "30"]]
