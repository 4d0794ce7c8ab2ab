"""What a steady job carries grows as the nodes do; counted in bytes, not in time."""

from __future__ import annotations

import pytest

from benchmarks import width
from benchmarks.width import SHAPES, Job, Setting, steady_jobs
from reprise.spark_jobs.topology import expand


def jobs(shape: str, nodes: int, **setting: int | bool) -> list[Job]:
    return steady_jobs(shape, Setting(nodes, jobs=4, **setting))[0]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.wide
def test_bytes_of_a_steady_job_grow_no_faster_than_the_nodes(shape: str) -> None:
    few, many = (max(job.bytes for job in jobs(shape, nodes)) for nodes in (8, 48))
    assert few < many <= 6 * few * 1.1, "names and numbers get longer, too"


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.wide
def test_what_one_node_is_told_does_not_grow_with_the_others(shape: str) -> None:
    few, many = (max(job.orders for job in jobs(shape, nodes)) / nodes for nodes in (8, 48))
    assert many <= 1.1 * few


@pytest.mark.parametrize("shape", SHAPES)
def test_the_shapes_have_ten_partitions_a_node(shape: str) -> None:
    assert len(expand(width.resource(shape, 3)).partitions) == 30
    assert len(expand(width.resource(shape, 1000)).partitions) == 10_000
