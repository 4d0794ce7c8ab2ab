"""States are fetched in the order of what they bring back, on each node, whatever the order of names."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from reprise.spark_jobs.engine.restore_value import valued
from reprise.spark_jobs.node import restoring
from reprise.spark_jobs.node.command import Install
from reprise.spark_jobs.storage.files import Files
from reprise.spark_jobs.topology import Topology, expand, load_text, override
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


# -- the values themselves ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def topology() -> Topology:
    """Queries count.0 to count.2 of priority 3, 1 and 2, and top.0 of 1, which needs them all."""
    priorities = {"priority": 3, "priorities": {"1": 1, "2": 2}}
    return expand(
        load_text(
            DIAMOND, changes={"operators[count].output": priorities, "operators[top].output.priority": 1}
        )
    )


def installs(**sizes: int | None) -> dict[str, Install]:
    """Partitions with `_` for the dot, and the bytes of their states; None: without a file."""
    found = {}
    for name, size in sizes.items():
        file = None if size is None else {"path": f"{name}.state", "size": size, "sha256": "0" * 64}
        found[name.replace("_", ".")] = Install(7, file)
    return found


def by_value(found: Mapping[str, Install]) -> list[str]:
    return sorted((p for p, one in found.items() if one.file), key=lambda p: -found[p].value)


def test_of_equal_sizes_the_most_valuable_query_comes_first(topology: Topology) -> None:
    known = installs(count_0=10, count_1=10, count_2=10)
    found = valued(known, known, topology)
    assert by_value(found) == ["count.0", "count.2", "count.1"]
    assert all(one.value > 0 for one in found.values())


def test_a_small_state_comes_before_a_large_one_of_little_more_value(topology: Topology) -> None:
    known = installs(count_0=1000, count_1=10, count_2=1000)
    assert by_value(valued(known, known, topology))[0] == "count.1"


def test_nothing_else_of_an_installation_changes(topology: Topology) -> None:
    known = installs(count_0=10, count_1=20, tweets_0=None)
    found = valued(known, known, topology)
    assert found.keys() == known.keys()
    assert found["tweets.0"] == Install(7)
    assert [(one.position, one.file) for one in found.values()] == [
        (one.position, one.file) for one in known.values()
    ]
    assert known["count.0"].value == 0.0, "what was given is as it was"


def test_one_state_needs_no_order(topology: Topology) -> None:
    known = installs(count_0=10, tweets_0=None, count_1=20)
    for wanted in (["count.0"], ["count.0", "tweets.0"], ["count.0", "not.there"], []):
        assert valued(known, wanted, topology) is known


def test_those_that_are_not_wanted_now_keep_what_they_had(topology: Topology) -> None:
    known = installs(count_0=10, count_1=10, count_2=10)
    found = valued(known, ["count.0", "count.1"], topology)
    assert found["count.2"].value == 0.0
    assert found["count.0"].value > found["count.1"].value > 0.0
