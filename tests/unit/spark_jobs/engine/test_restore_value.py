"""States are fetched in the order of what they bring back, on each node, whatever the order of names."""

from __future__ import annotations

from pathlib import Path

import pytest

from reprise.spark_jobs.node import restoring
from reprise.spark_jobs.storage.files import Files
from reprise.spark_jobs.topology import override
from tests.unit.spark_jobs.engine.test_recovery import DIAMOND
from tests.unit.spark_jobs.engine.test_scope import in_the_middle, lose, resource_of, to_the_end
from tools.testbed.local_engine import World

PRIORITIES = {"0": 1, "1": 4, "2": 1, "3": 10, "4": 7}
"""Queries of the counts; what shows the greatest of them all has the least priority, and needs them all."""


def world(folder: Path, priorities: dict[str, int]) -> World:
    output = {"priority": 1, "priorities": priorities}
    resource = override(
        resource_of(DIAMOND),
        {
            "operators[count].parallelism": len(PRIORITIES),
            "operators[count].output": output,
            "operators[top].output.priority": 1,
        },
    )
    made = World(resource, folder, "w")
    made.nodes.start("a", "b", "c")
    counts = {p: "b" for p in made.topology.partitions if p.startswith("count")}
    made.want(1, 0, {**made.spread("a", "c"), **counts})
    return made


def read_after_the_loss(
    folder: Path, priorities: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> dict[str, int]:
    """The states that node c, to which all counts go, reads one after the other, with their bytes."""
    found: dict[str, int] = {}
    real = Files.read

    def read(files: Files, relative: str) -> bytes | None:
        content = real(files, relative)
        if relative.endswith(".state") and content is not None:
            name = next(part for part in Path(relative).parts if part.startswith("count"))
            assert name not in found
            found[name[: len("count.0")]] = len(content)
        return content

    made = world(folder, priorities)
    newest = in_the_middle(made)
    stays = lose(made, "b")
    lost = made.topology.partitions.keys() - stays.keys()
    with monkeypatch.context() as patched:
        patched.setattr(restoring, "PARALLEL", 1)
        patched.setattr(Files, "read", read)
        made.want(1, newest, {**stays, **dict.fromkeys(sorted(lost), "c")}, retain=True)
        made.run(lambda e: not e.installing)
    to_the_end(made, newest)
    return found


def test_the_most_valuable_query_is_fetched_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order = list(read_after_the_loss(tmp_path, PRIORITIES, monkeypatch))
    assert order[:3] == ["count.3", "count.4", "count.1"]
    assert len(order) == len(PRIORITIES)


def test_of_equal_queries_the_smallest_is_fetched_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = list(read_after_the_loss(tmp_path, dict.fromkeys(PRIORITIES, 5), monkeypatch).values())
    assert len(sizes) == len(PRIORITIES)
    assert sizes == sorted(sizes) and sizes[0] < sizes[-1]
