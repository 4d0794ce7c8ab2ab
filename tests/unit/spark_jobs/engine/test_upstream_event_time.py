"""Windows of event time with upstream backup: they begin anew at the first row of an open window, nothing of them is read
from a store, and late rows are as late as they were."""

# ruff: noqa: F811 - fixtures of the tests of other windows, which hold here as well
from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from reprise.spark_jobs.contract import Place
from reprise.spark_jobs.errors import NotYetError
from reprise.spark_jobs.operators import TumblingWindow
from reprise.spark_jobs.sinks import FileSink
from reprise.spark_jobs.sources.generator import GeneratorSource, Ints
from reprise.spark_jobs.topology import load_text
from tests.support.engine_worlds import fault_free, placed
from tests.unit.spark_jobs.engine.test_upstream_backup import (
    Watch,
    back,
    fed,
    finish,
    lose,
    restore,
    watch,  # noqa: F401 - what is given again is what was given before
)
from tools.testbed.local_engine import World, past, tick

pytestmark = pytest.mark.usefixtures("exchange", "few_batches_ahead")


class Late(GeneratorSource):
    """Rows that are up to 400 ms late, as a number of theirs says."""

    def rows(self, place: Place, numbers: Ints, times: Ints) -> pa.Table:
        mixed = (numbers * 2654435761 + place.index * 40503) % 1009
        late = np.where(mixed % 7 == 0, mixed % 5 * 100_000, 0)
        tags = [f"tag-{n % 23}" for n in mixed.tolist()]
        return pa.table({"time": np.maximum(times - late, 0), "tag": tags, "value": mixed / 7})


TOPOLOGY = f"""
apiVersion: reprise.dev/v1alpha1
kind: StreamTopology
metadata: {{name: event-time}}
spec:
  batch: {{interval: 100ms}}
  sources:
    - name: rows
      class: {__name__}:Late
      parallelism: 2
      with: {{rate: 200, interval: 100ms, batches: 60, seed: 7}}
  operators:
    - name: parse
      class: reprise.spark_jobs.operators:Filter
      parallelism: 2
      with: {{where: "value >= 0"}}
      inputs: [{{from: rows, forward: true}}]
    - name: window
      class: reprise.spark_jobs.operators:TumblingWindow
      parallelism: 3
      with: {{keys: [tag], aggregate: {{"n": "count()", "m": "mean(value)"}}, size: 700ms, lateness: 100ms}}
      inputs: [{{from: parse, by: [tag]}}]
      output: {{priority: 3}}
    - name: slide
      class: reprise.spark_jobs.operators:SlidingWindow
      with: {{keys: [tag], aggregate: {{"s": "sum(value)"}}, size: 900ms, slide: 300ms}}
      inputs: [{{from: parse}}]
      output: {{priority: 9}}
    - name: soon
      class: reprise.spark_jobs.operators:TumblingWindow
      with: {{aggregate: {{"n": "count()"}}, size: 500ms, emit: updates}}
      inputs: [{{from: parse}}]
      output: {{priority: 1}}
  checkpoint: {{everyBatches: 10}}
  recovery: {{bufferMemory: 1Mi}}
  nodes: {{count: 4}}
"""
AT = {
    "rows.0": "a", "rows.1": "b", "parse.0": "c", "parse.1": "b",
    "window.0": "d", "window.1": "b", "window.2": "a", "slide.0": "c", "soon.0": "d",
}  # fmt: skip
NAMES = ("parse", "window", "slide", "soon")
MODE: dict[str, Any] = {f"operators[{name}].availability": "upstream-backup" for name in NAMES}


def world_of(folder: Path, changes: dict[str, Any] = MODE) -> World:
    return placed(load_text(TOPOLOGY, changes=dict(changes)), folder, AT)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    world = world_of(tmp_path_factory.mktemp("fault-free"), {})
    late = 0
    while not world.engine.done:
        tick(world)
        counted = world.engine.counters.get("window.0", {})
        late = max(late, counted.get("late_rows", 0))
    assert late > 5
    return world.output()


@pytest.mark.wide
def test_open_windows_are_begun_anew_and_nothing_is_read(
    tmp_path: Path, expected: dict[str, bytes], watch: Watch
) -> None:
    watch.begin()
    world = world_of(tmp_path)
    world.run(lambda e: e.punctuations.newest >= 20 and past(24)(e))
    backed = world.engine.progress.backed
    assert {"window.0", "slide.0", "soon.0"} <= set(backed)
    newest = world.engine.punctuations.newest
    lose(world, "c", "d")
    for folder in world.checkpoints.glob("cp-*"):
        for file in [*folder.glob("window.0.*"), *folder.glob("slide.0.*"), *folder.glob("soon.0.*")]:
            file.unlink()  # whoever would read it would see that it is gone
    restore(world, "a", "b")
    assert fed(world) == {"parse.0", "window.0", "slide.0", "soon.0"}
    begun = {p: world.engine.upstream.install(p) for p in ("window.0", "slide.0")}
    for install in begun.values():
        assert install is not None and install.replays_to is not None
        assert install.file is None
        assert newest - 10 <= install.position < install.replays_to
        assert install.replays_to - install.position < 15, "no more than what is open"
    finish(world, expected)
    assert watch.read == []
    assert watch.warm > 10
    assert world.engine.desired.generation == 1


@pytest.mark.wide
def test_what_was_stored_of_a_window_says_how_far_back_it_reaches(
    tmp_path: Path, expected: dict[str, bytes], watch: Watch
) -> None:
    """It came from a checkpoint, and is lost again."""
    watch.begin()
    world = world_of(tmp_path)
    world.run(past(25))
    back(world)
    world.run(past(world.engine.punctuations.newest + 4))
    world.run(lambda e: "window.0" in e.progress.backed or past(58)(e))
    assert "window.0" in world.engine.progress.backed
    node = world.engine.desired.assignment["window.0"]
    lose(world, node)
    restore(world, *sorted(world.nodes.living()))
    assert "window.0" in fed(world)
    finish(world, expected)


@pytest.mark.wide
def test_a_window_whose_last_batch_is_not_shown_yet_still_needs_what_that_was_made_of(
    tmp_path: Path, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its state is that behind the batch in which the window closed, and the store of its output is away."""
    size = {"operators[window].with.size": "1900ms"}
    reference = fault_free(world_of(tmp_path / "reference", size))
    watch.begin()
    world = world_of(tmp_path / "away", MODE | size)
    write, refused = FileSink.write, set[int]()

    def away(self: FileSink, batch: int, table: pa.Table | None) -> None:
        mine = "/window/0/" in self._files.path(self.name(batch))
        if mine and table is not None and batch > 30 and not lost:
            refused.add(batch)
            raise NotYetError("the store is away")
        write(self, batch, table)

    lost = False
    monkeypatch.setattr(FileSink, "write", away)
    world.run(lambda _: bool(refused))
    for _ in range(3):  # hosts report meanwhile
        tick(world)
    (batch,) = refused
    assert world.engine.positions["window.0"] == batch - 1
    lose(world, "d")
    lost = True
    restore(world, "a")
    assert "window.0" in fed(world)
    finish(world, reference)


@pytest.mark.wide
def test_a_window_that_says_too_late_a_batch_is_found(
    tmp_path: Path, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check that all other tests here rest on can fail."""
    size = {"operators[window].with.size": "1900ms"}
    reference = fault_free(world_of(tmp_path / "reference", size))
    watch.begin()
    monkeypatch.setattr(TumblingWindow, "oldest_needed_behind", lambda self, state, batch: batch + 1)
    world = world_of(tmp_path / "late", MODE | size)
    world.run(past(25))
    lose(world, "d")
    restore(world, "a")
    assert "window.0" in fed(world)
    world.run(lambda e: e.done)
    assert world.output() != reference


def test_code_that_raises_when_its_state_is_asked_leaves_checkpoints(
    tmp_path: Path, expected: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = TumblingWindow.oldest_needed_behind

    def raises(self: TumblingWindow, state: Any, batch: int) -> int | None:
        if batch > 20:
            raise RuntimeError("no idea")
        return said(self, state, batch)

    monkeypatch.setattr(TumblingWindow, "oldest_needed_behind", raises)
    world = world_of(tmp_path)
    world.run(past(25))
    able = {p.rpartition(".")[0] for p in world.engine.upstream.able}
    assert able == {"parse", "slide"}
    problems = world.engine.problems
    assert any("no idea" in p for p in problems)
    assert any("window: no upstream backup" in p for p in problems)
    lose(world, "d")
    restore(world, "a")
    assert fed(world) == set()
    finish(world, expected)


@pytest.mark.parametrize("oldest", [0, 22])
def test_what_falls_or_is_no_batch_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, oldest: int
) -> None:
    said = TumblingWindow.oldest_needed_behind

    def other(self: TumblingWindow, state: Any, batch: int) -> int | None:
        return said(self, state, batch) if batch < 20 else (oldest if oldest == 0 else batch + 2)

    monkeypatch.setattr(TumblingWindow, "oldest_needed_behind", other)
    world = world_of(tmp_path)
    world.run(past(25))
    assert not {p for p in world.engine.upstream.able if p.startswith(("window", "soon"))}
