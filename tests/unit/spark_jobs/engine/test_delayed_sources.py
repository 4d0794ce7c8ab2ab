"""A source that is read over a feedback edge: its reader is one batch behind it, so that at a checkpoint the source's last
batch is not applied yet, and a source keeps no output."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from reprise.spark_jobs.contract import Place, Range, Tables
from reprise.spark_jobs.engine import local_lines
from reprise.spark_jobs.engine.savepoints import SavepointTaker
from reprise.spark_jobs.sources import HashtagSource
from reprise.spark_jobs.state.savepoint_wish import SavepointWish
from reprise.spark_jobs.state.savepoints import Savepoints
from reprise.spark_jobs.topology import StreamTopology, load_text, override
from tools.testbed.local_engine import World, past, tick


class Following(HashtagSource):
    """Its state is the last batch that it has followed, and no batch is followed twice."""

    def initial(self, place: Place) -> int:
        return 0

    def follow(
        self, place: Place, state: int, batch: int, span: Range, table: pa.Table | None
    ) -> tuple[int, int | None]:
        assert batch == state + 1
        return batch, self.watermark(place, batch, span)

    def freeze(self, state: int) -> Callable[[], Tables]:
        return lambda: {"at": pa.table({"at": [state]})}

    def restore(self, place: Place, tables: Tables) -> Any:
        return tables["at"]["at"][0].as_py()


class Trimming(Following):
    """Deletes rows as soon as it may."""

    begins: ClassVar[int] = 0
    """The first row that it still has."""
    missed: ClassVar[list[int]] = []
    """Batches that it was asked for when some of their rows were deleted."""

    def stored(self, place: Place, upto: Range) -> None:
        Trimming.begins = max(Trimming.begins, upto.end)

    def read(self, place: Place, batch: int, span: Range) -> pa.Table:
        if span.start < Trimming.begins:
            Trimming.missed.append(batch)
        return super().read(place, batch, span)


TOPOLOGY = """
apiVersion: reprise.dev/v1alpha1
kind: StreamTopology
metadata: {name: delayed}
spec:
  batch: {interval: 100ms}
  sources:
    - name: east
      class: reprise.sources:HashtagSource
      parallelism: 2
      with: {rate: 200, interval: 100ms, batches: 90, tags: 60, seed: 7}
    - name: west
      class: tests.unit.spark_jobs.engine.test_delayed_sources:Following
      with: {rate: 100, interval: 100ms, batches: 90, tags: 60, seed: 8}
  operators:
    - name: both
      class: reprise.operators:Union
      inputs: [{from: east}, {from: west, feedback: true}]
      output: {}
    - name: soon
      class: reprise.operators:Union
      inputs: [{from: west}]
      output: {}
  checkpoint: {everyBatches: 5}
  nodes: {count: 2}
"""
UNCOORDINATED = {"protocol": "uncoordinated", "everyBatches": 5}
WAYS: dict[str, dict[str, object]] = {
    "rounds": {},
    "everything back": {"recovery.scope": "global"},
    "arrival": {"batch.order": "arrival"},
    "own clocks, log in memory": {"checkpoint": {**UNCOORDINATED, "log": "memory"}},
    "own clocks, log stored": {"checkpoint": {**UNCOORDINATED, "log": "checkpointed"}},
    "communication-induced": {"checkpoint": {**UNCOORDINATED, "protocol": "communication-induced", "log": "checkpointed"}},
}  # fmt: skip


@pytest.fixture(autouse=True)
def lines_are_recorded_with_each_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_lines, "RECORD_S", 0.0)
    monkeypatch.setattr(local_lines, "SHARE", 0)


def begun(resource: StreamTopology, folder: Path, name: str = "w") -> World:
    world = World(resource, folder, name)
    world.engine.release.ahead = 4
    world.nodes.start("a", "b")
    return world


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> World:
    world = begun(load_text(TOPOLOGY), tmp_path_factory.mktemp("fault-free"))
    world.want(1, 0, world.spread("a", "b"))
    world.run(lambda e: e.done)
    return world


@pytest.mark.parametrize("way", WAYS)
def test_a_source_that_deletes_what_it_may_still_has_what_its_delayed_reader_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """A checkpoint at batch k has the source behind batch k and that reader behind the one before."""
    monkeypatch.setattr(Trimming, "begins", 0)
    monkeypatch.setattr(Trimming, "missed", [])
    text = TOPOLOGY.replace(":Following", ":Trimming")
    world = begun(override(load_text(text), WAYS[way]), tmp_path)
    world.want(1, 0, world.spread("a", "b"))
    for generation, upto in ((2, 5), (3, 30)):
        world.run(lambda e, upto=upto: e.punctuations.newest > upto and past(upto)(e))  # type: ignore[misc]
        newest = world.engine.punctuations.newest
        assert Trimming.begins > 0, "it has deleted rows"
        world.nodes.lose("a", "b")
        world.nodes.start("a", "b")
        world.want(generation, newest, world.spread("a", "b"))
    world.run(lambda e: e.done)
    assert Trimming.missed == []


@pytest.mark.wide
@pytest.mark.parametrize("lost", [("a", "b"), ("b",), ()], ids=["all", "one", "driver"])
@pytest.mark.parametrize("way", WAYS)
def test_rows_are_those_without_failures(
    expected: World, tmp_path: Path, way: str, lost: tuple[str, ...]
) -> None:
    world = begun(override(load_text(TOPOLOGY), WAYS[way]), tmp_path)
    world.want(1, 0, world.spread("a", "b"))
    for generation, upto in ((2, 5), (3, 30)):
        world.run(lambda e, upto=upto: e.punctuations.newest > upto and past(upto)(e))  # type: ignore[misc]
        newest = world.engine.punctuations.newest
        assert not world.engine.done
        world.nodes.lose(*lost)
        world.nodes.start(*lost)
        if not lost:
            world.driver()
            world.engine.punctuations.newest, world.engine.release.ahead = newest, 4
        world.want(generation, newest, world.spread("a", "b"))
    world.run(lambda e: e.done)
    if way == "arrival":
        assert rows(world) == rows(expected)
    else:
        assert world.output() == expected.output()


def rows(world: World) -> Counter[tuple[str, bytes]]:
    """Of each operator, in whatever batches."""
    files = world.output().items()
    return Counter((name.partition("/")[0], row) for name, data in files for row in data.splitlines())


@pytest.mark.parametrize("reader", [True, False], ids=["reader", "source"])
def test_one_end_of_the_edge_goes_back_alone(expected: World, tmp_path: Path, reader: bool) -> None:
    world = begun(load_text(TOPOLOGY), tmp_path)
    everywhere = {"east.0": "a", "east.1": "a", "west.0": "b" if not reader else "a", "soon.0": "a"}
    everywhere["both.0"] = "b" if reader else "a"
    world.want(1, 0, everywhere)
    world.run(past(12))
    newest = world.engine.punctuations.newest
    assert 0 < newest < min(world.engine.positions.values())
    world.nodes.lose("b")
    world.want(2, newest, {p: n for p, n in everywhere.items() if n == "a"}, retain=True)
    tick(world, 3)
    world.nodes.start("c")
    world.want(2, newest, {p: "c" if n == "b" else n for p, n in everywhere.items()}, retain=True)
    world.run(lambda e: e.done)
    assert world.output() == expected.output()


def test_another_topology_goes_on_from_a_savepoint(expected: World, tmp_path: Path) -> None:
    first = begun(load_text(TOPOLOGY), tmp_path)
    first.want(1, 0, first.spread("a", "b"))
    first.run(lambda e: e.punctuations.newest >= 5)
    taker, wish = SavepointTaker(first.engine, first.fence), SavepointWish("before", "w1")
    for _ in range(200):
        tick(first)
        taker.turn([wish])
        if taker.now is not None and wish.id in taker.now.done:
            break
    assert taker.now is not None and taker.now.done[wish.id] == ""
    position = Savepoints(str(first.checkpoints)).read("before").position
    assert 5 <= position < 90
    start = {"location": str(first.checkpoints), "savepoint": "before"}
    second = begun(override(load_text(TOPOLOGY), {"checkpoint.startFrom": start}), tmp_path, "second")
    second.engine.begin(position)
    second.want(1, position, second.spread("a", "b"))
    second.run(lambda e: e.done)
    assert second.output() == {n: r for n, r in expected.output().items() if number(n) > position}


def number(file: str) -> int:
    return int(file.rpartition("-")[2].removesuffix(".jsonl"))
