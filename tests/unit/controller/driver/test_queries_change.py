"""Queries come and go in a stream that goes on: behind the checkpoint at which it has drained, or not at all.  What stays
shows what it would have shown; what comes shows what its rows from there on say, and nothing of before."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from reprise.algorithms.positions import Positions
from reprise.controller.local.errors import OutDirError
from reprise.controller.local.report.layout import prepare
from reprise.controller.simulated_world.memory_zookeeper import MemoryServer
from reprise.spark_jobs.errors import CheckpointError, DamagedError, SpecError, SupersededError
from reprise.spark_jobs.sinks.files import Opening, Sink
from reprise.spark_jobs.state.checkpoints import CheckpointStore
from reprise.spark_jobs.state.epochs import claim_epoch
from reprise.spark_jobs.state.graphs import GraphError, Graphs, graph_on_record
from reprise.spark_jobs.storage.files import Files
from reprise.spark_jobs.topology import StreamTopology, from_json, override, to_json
from reprise.spark_jobs.topology.graph_change import graph_change, graph_of
from tests.support.local_driver import LocalDriver, world_of
from tests.unit.controller.driver.test_loop import turns
from tests.unit.controller.driver.test_upgrade import OLD, ask, batch_of, change, expected, started

COMES: dict[str, Any] = {
    "name": "seen",
    "class": "reprise.spark_jobs.operators:KeyedCount",
    "parallelism": 2,
    "with": {"keys": ["tag"]},
    "inputs": [{"from": "parse", "by": ["tag"]}],
    "output": {"priority": 5},
}


def with_operators(resource: StreamTopology, *more: Any, without: str = "") -> StreamTopology:
    document = json.loads(resource.document)
    operators = [one for one in document["spec"]["operators"] if one["name"] != without]
    document["spec"]["operators"] = [*operators, *more]
    return from_json(json.dumps(document))


ADDED = with_operators(OLD, COMES)
INSTEAD = with_operators(OLD, COMES, without="top")


def drained(folder: Path, resource: StreamTopology, monkeypatch: pytest.MonkeyPatch) -> LocalDriver:
    """In the middle of the stream, where batches were shown that no checkpoint of a rhythm covers."""
    driver = started(world_of(resource, folder), MemoryServer(), 1, 0, monkeypatch)
    turns(driver, lambda: driver.engine.punctuations.newest >= 10)
    ask(driver)
    turns(driver, driver.stop.is_set)
    return driver


def next_driver(
    driver: LocalDriver, resource: StreamTopology, monkeypatch: pytest.MonkeyPatch, generation: int = 2
) -> LocalDriver:
    world = driver.world
    change(world, resource)
    world.nodes.lose("a", "b")
    world.nodes.start("a", "b")
    newest = max(driver.engine.store.positions())
    return started(world, driver.tree, generation, newest, monkeypatch)


def of(output: dict[str, bytes], operator: str) -> dict[str, bytes]:
    return {name: data for name, data in output.items() if operator in name}


def counts(output: dict[str, bytes], operator: str) -> dict[int, dict[str, int]]:
    """Batch -> tag -> what the operator has counted of it by then, where that has changed."""
    found: dict[int, dict[str, int]] = {}
    for name, data in of(output, operator).items():
        rows = (json.loads(line) for line in data.decode().splitlines())
        found.setdefault(batch_of(name), {}).update((row["tag"], row["count"]) for row in rows)
    return found


def from_its_beginning(all_counts: dict[int, dict[str, int]], boundary: int) -> dict[int, dict[str, int]]:
    """What an operator counts that begins behind `boundary`, by what one says that was always there."""
    before: dict[str, int] = {}
    for batch in range(1, boundary + 1):
        before |= all_counts[batch]
    return {
        batch: {tag: count - before.get(tag, 0) for tag, count in rows.items()}
        for batch, rows in all_counts.items()
        if batch > boundary
    }


@pytest.mark.wide
def test_a_query_comes_and_another_goes_behind_the_checkpoint_and_what_stays_does_not_see_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = drained(tmp_path, OLD, monkeypatch)
    boundary, shown = driver.record()["drained"], driver.world.output()
    later = next_driver(driver, INSTEAD, monkeypatch)
    assert later.engine.later == {"seen": boundary}
    turns(later, lambda: later.engine.done)
    output, before = later.world.output(), expected(OLD, tmp_path / "old")
    assert {name: output[name] for name in shown} == shown
    assert of(output, "count") == of(before, "count"), "what stays"
    assert {batch_of(name) for name in of(output, "top")} == set(range(1, boundary + 1)), "what goes"
    assert counts(output, "seen") == from_its_beginning(counts(output, "count"), boundary), "what comes"
    found = graph_on_record(str(later.world.checkpoints))
    assert found is not None
    assert "top" not in found.graph.operators


@pytest.mark.wide
def test_the_next_drivers_know_where_it_has_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One ends before the first checkpoint that has it, and one behind that; what was shown is made again, equal."""
    driver = drained(tmp_path, OLD, monkeypatch)
    boundary = driver.record()["drained"]
    second = next_driver(driver, ADDED, monkeypatch, 2)
    turns(second, lambda: second.engine.horizon > boundary + 3)
    third = next_driver(second, ADDED, monkeypatch, 3)
    turns(third, lambda: third.engine.punctuations.newest > boundary)
    driver = next_driver(third, ADDED, monkeypatch, 4)
    assert driver.engine.later == {"seen": boundary}
    turns(driver, lambda: driver.engine.done)
    output, before = driver.world.output(), expected(OLD, tmp_path / "old")
    assert all(output[name] == data for name, data in before.items())
    assert counts(output, "seen") == from_its_beginning(counts(output, "count"), boundary)


@pytest.mark.wide
def test_a_query_that_went_and_comes_again_behind_the_same_checkpoint_begins_with_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That checkpoint still has the states of who had its name before, perhaps of another class or parallelism."""
    driver = drained(tmp_path, ADDED, monkeypatch)
    boundary = driver.record()["drained"]
    without = next_driver(driver, OLD, monkeypatch, 2)
    without.revisions.drained(boundary)  # it was asked to before it had released anything
    again = next_driver(without, ADDED, monkeypatch, 3)
    assert again.engine.later == {"seen": boundary}
    turns(again, lambda: again.engine.done)
    output = again.world.output()
    later = {batch: rows for batch, rows in counts(output, "seen").items() if batch > boundary}
    assert later == from_its_beginning(counts(output, "count"), boundary)
    assert of(output, "count") == of(expected(OLD, tmp_path / "old"), "count"), "what stays"


@pytest.mark.wide
def test_a_stream_that_has_not_drained_keeps_its_queries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = started(world_of(OLD, tmp_path), MemoryServer(), 1, 0, monkeypatch)
    turns(driver, lambda: driver.engine.punctuations.newest >= 10 and driver.engine.horizon > 12)
    with pytest.raises(GraphError, match=r"seen, top.*may have been shown"):
        next_driver(driver, INSTEAD, monkeypatch)
    again = next_driver(driver, OLD, monkeypatch)
    turns(again, lambda: again.engine.done)
    assert again.world.output() == expected(OLD, tmp_path / "old")


def test_nobody_goes_back_to_before_a_query_came(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There it would begin with nothing, at a batch that others have shown long ago, and its output would be another."""
    driver = drained(tmp_path, OLD, monkeypatch)
    boundary, location = driver.record()["drained"], driver.world.checkpoints
    older = [position for position in driver.engine.store.positions() if position < boundary]
    assert older
    later = next_driver(driver, ADDED, monkeypatch)
    with pytest.raises(CheckpointError, match=f"behind batch {boundary}"):
        later.engine.restore_point.find(Positions(older[-1]), back=True)
    assert older[-1] in later.engine.bad_checkpoints
    for manifest in location.glob(f"cp-*{boundary}/COMPLETE*"):
        manifest.unlink()
    with pytest.raises(GraphError, match=f"seen came behind batch {boundary}"):
        LocalDriver(later.world, later.tree)


def test_a_query_does_not_come_behind_a_checkpoint_that_is_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = drained(tmp_path, OLD, monkeypatch)
    boundary = driver.record()["drained"]
    state = next(driver.world.checkpoints.glob(f"cp-*{boundary}/count.*.state"))
    state.write_bytes(b"?")
    with pytest.raises(DamagedError, match="seen"):
        next_driver(driver, ADDED, monkeypatch)
    found = graph_on_record(str(driver.world.checkpoints))
    assert found is not None
    assert "seen" not in found.graph.operators


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"operators[count].parallelism": 2}, "operators[count].parallelism"),
        ({"operators[top].inputs": [{"from": "parse"}]}, "operators[top].inputs"),
        (
            {"sources[tweets].parallelism": 1, "operators[parse].parallelism": 1},
            "sources[tweets].parallelism",
        ),
    ],
)
def test_what_stays_stays_as_it_is(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(SpecError, match=re.escape(field)):
        graph_change(graph_of(OLD), graph_of(override(OLD, changes)))


def test_a_graph_on_record_is_the_one_that_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = drained(tmp_path, OLD, monkeypatch)
    found = graph_on_record(str(driver.world.checkpoints))
    assert found is not None
    assert found.graph == graph_of(OLD)
    assert not found.begins


def test_a_graph_that_a_frozen_driver_writes_late_counts_for_nothing(tmp_path: Path) -> None:
    """Its successor has begun with the former graph, and has not seen it."""
    location = str(tmp_path)
    store = CheckpointStore(location)
    zero, first, second = (claim_epoch(location, lambda least: least) for _ in range(3))
    Files(location).create("stream.json", b"{}")
    with pytest.raises(SupersededError):
        Graphs(store, zero).begin(OLD, 0, True)
    assert Graphs(store, second).begin(OLD, 0, True) == {}
    with pytest.raises(SupersededError):
        Graphs(store, first).begin(ADDED, 0, True)
    found = graph_on_record(location)
    assert found is not None
    assert found.graph == graph_of(OLD)
    last = claim_epoch(location, lambda least: least)
    with pytest.raises(GraphError):
        Graphs(store, last).begin(ADDED, 0, False)


def test_a_run_is_resumed_with_other_queries_where_it_has_drained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after `reprise run` was killed in the middle of a change; both topologies go on then."""
    driver = started(world_of(OLD, tmp_path), MemoryServer(), 1, 0, monkeypatch)
    turns(driver, lambda: driver.engine.punctuations.newest >= 10 and driver.engine.horizon > 12)
    out = tmp_path / "run"
    out.mkdir()
    (out / "topology.json").write_text(to_json(OLD))
    (out / "checkpoints").symlink_to(driver.world.checkpoints)
    with pytest.raises(OutDirError, match="may have been shown"):
        prepare(out, INSTEAD, resume=True)
    ask(driver)
    turns(driver, driver.stop.is_set)
    for resource in (OLD, INSTEAD):
        prepare(out, resource, resume=True)
        assert json.loads((out / "topology.json").read_text()) == json.loads(to_json(resource))
    with pytest.raises(OutDirError, match="the graph is not that of the run"):
        prepare(out, override(INSTEAD, {"operators[seen].parallelism": 3}), resume=True)


class Opened(Sink):
    """Shows at once, and notes what it was told before its first batch."""

    told: ClassVar[list[Opening]] = []

    def open(self, opening: Opening) -> None:
        self.told.append(opening)
        self.visible = opening.position

    def write(self, batch: int, table: pa.Table | None) -> None:
        self.visible = batch

    def shown(self) -> list[tuple[int, float]]:
        return []


@pytest.mark.wide
def test_a_sink_is_told_behind_which_batch_its_query_came(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else an output to Kafka, which finds no marker of the batches before, has lost them."""
    sink = {"sink": {"class": f"{__name__}:Opened"}}
    driver = drained(tmp_path, OLD, monkeypatch)
    boundary = driver.record()["drained"]
    added = with_operators(OLD, {**COMES, "output": {"priority": 5, **sink}})
    Opened.told.clear()
    later = next_driver(driver, added, monkeypatch)
    turns(later, lambda: later.engine.punctuations.newest > boundary)
    first = list(Opened.told)
    assert {(one.position, one.begins) for one in first} == {(boundary, boundary)}
    again = next_driver(later, added, monkeypatch, 3)
    turns(again, lambda: again.engine.done)
    second = Opened.told[len(first) :]
    assert second
    assert all(one.position > one.begins == boundary for one in second), "what it has shown since counts"
