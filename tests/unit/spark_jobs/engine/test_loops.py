"""Cycles whose states are stored late: a checkpoint holds the last output over feedback edges all the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pytest

from reprise.spark_jobs.node.buffers import EdgeBuffer
from reprise.spark_jobs.node.runtime import OperatorRuntime
from reprise.spark_jobs.sinks import Sink, differs
from reprise.spark_jobs.topology import StreamTopology, load_text, override
from tests.support import engine_worlds
from tools.testbed.local_engine import World, tick

pytestmark = pytest.mark.wide

Shown = tuple[dict[str, bytes], dict[int, list[object]]]
"""What is in the sinks' files, and the rows of each batch that `Slow` has taken."""


class Slow(Sink):
    """Takes every batch, and shows none beyond `allowed`."""

    allowed = 10**6
    rows: ClassVar[dict[int, list[object]]] = {}

    def write(self, batch: int, table: pa.Table | None) -> None:
        rows = [] if table is None else table.to_pylist()
        if self.rows.setdefault(batch, rows) != rows:
            raise differs("what is shown", batch)
        self.settle(0.0)

    def settle(self, patience_s: float) -> str | None:
        self.visible = max([self.visible, *(b for b in self.rows if b <= self.allowed)])
        return None

    def shown(self) -> list[tuple[int, float]]:
        return []


TEXT = (
    Path("examples/feedback.yaml")
    .read_text()
    .replace(
        "  checkpoint:",
        """\
      output: {sink: {class: "tests.unit.spark_jobs.engine.test_loops:Slow"}}
    - name: seen
      class: reprise.spark_jobs.operators:Map
      with: {select: [tag]}
      inputs: [{from: decay}]
      output: {}
  checkpoint:""",
    )
)
"""The cycle of the examples; what goes back is shown, and others read it, too."""


def resource_of(**changes: object) -> StreamTopology:
    return override(load_text(TEXT), changes)


def begun(resource: StreamTopology, folder: Path) -> World:
    Slow.rows.clear()
    Slow.allowed = 10**6
    return engine_worlds.begun(resource, folder)


def finished(world: World) -> Shown:
    """What all sinks show in the end."""
    world.run(lambda e: e.done or any("was written before" in p for p in e.problems))
    return world.output(), dict(Slow.rows)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Shown:
    return finished(begun(resource_of(), tmp_path_factory.mktemp("fault-free")))


def sink_is_slow(patch: pytest.MonkeyPatch) -> Callable[[], None]:
    patch.setattr(Slow, "allowed", 9)
    return lambda: patch.setattr(Slow, "allowed", 19)


def disk_is_away(patch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Output that was spilled cannot be read when the state is to be stored."""
    away, read = [True], OperatorRuntime.loops

    def loops(self: OperatorRuntime) -> dict[str, bytes]:
        if self.feedback and away:
            raise OSError(5, "Input/output error")
        return read(self)

    patch.setattr(OperatorRuntime, "loops", loops)
    return away.clear


def no_room(patch: pytest.MonkeyPatch) -> Callable[[], None]:
    """One of two readers is sent a batch, and for the other one there is no room."""
    full, put = [True], EdgeBuffer.put

    def refused(
        self: EdgeBuffer,
        batch: int,
        watermark: int | None,
        body: bytes,
        force: bool = False,
        header: bytes = b"",
    ) -> None:
        if full and (self.source, self.target, batch) == ("decay.0", "seen.0", 10):
            raise OSError(28, "No space left on device")
        put(self, batch, watermark, body, force)

    patch.setattr(EdgeBuffer, "put", refused)
    return full.clear


@pytest.mark.usefixtures("exchange")
@pytest.mark.parametrize("late", [sink_is_slow, disk_is_away, no_room])
@pytest.mark.parametrize(
    "kept", [{"scope": "global"}, {"bufferMemory": "1"}, {}], ids=["global", "no-memory", "auto"]
)
def test_what_goes_back_is_in_a_state_that_is_stored_after_others_went_on_with_it(
    expected: Shown,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    late: Callable[[pytest.MonkeyPatch], Callable[[], None]],
    kept: dict[str, str],
) -> None:
    """Else the batch after a restoration has nothing where rows were, and its output is not what was shown."""
    world = begun(resource_of(**{f"recovery.{name}": value for name, value in kept.items()}), tmp_path)
    Slow.allowed = 19  # one checkpoint after the other
    over = late(monkeypatch)
    world.run(lambda e: e.positions["smooth.0"] == e.positions["smooth.1"] == 11)
    tick(world, 5)
    assert world.engine.positions["decay.0"] < 11 and world.engine.punctuations.newest == 0
    over()
    world.run(lambda e: e.punctuations.newest >= 10)
    assert world.engine.punctuations.newest == 10
    world.nodes.lose("a", "b", "c")
    world.nodes.start("d")
    world.want(2, 10, world.spread("d"))
    Slow.allowed = 10**6
    assert finished(world) == expected


@pytest.mark.usefixtures("lines_at_once")
@pytest.mark.parametrize("log", ["memory", "checkpointed"])
@pytest.mark.parametrize("lost", ["abc", "b"])
def test_so_it_is_where_partitions_store_themselves_by_their_own_clocks(
    expected: Shown, tmp_path: Path, log: str, lost: str
) -> None:
    changes = {"checkpoint.protocol": "uncoordinated", "checkpoint.log": log, "checkpoint.everyBatches": 3}
    world = begun(resource_of(**changes), tmp_path)
    Slow.allowed = 9
    tick(world, 25)
    while not (world.engine.lines.snapshots["decay.0"][-1].position > 9 and world.engine.punctuations.newest):
        Slow.allowed += 1
        tick(world)
        assert Slow.allowed < 40, "it stores itself before the end"
    world.nodes.lose(*lost)
    world.nodes.start("d")
    tick(world)
    stays = {p: n for p, n in world.engine.desired.assignment.items() if n in world.nodes.hosts}
    assignment = dict.fromkeys(world.topology.order, "d") | stays
    world.want(1, world.engine.punctuations.newest, assignment, retain=True)
    Slow.allowed = 10**6
    world.want(1, world.engine.punctuations.newest, assignment)
    assert finished(world) == expected
