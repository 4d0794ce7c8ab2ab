"""Passive standbys of partitions whose sinks show later what they are given: each is sent what has changed all the same,
also where its partition steps on at the beginning of every job."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from reprise.spark_jobs.engine import engine as engine_module
from reprise.spark_jobs.errors import NotYetError
from reprise.spark_jobs.node.runtime import OperatorRuntime
from reprise.spark_jobs.operators.local import run_local
from reprise.spark_jobs.sinks import Opening, Sink
from reprise.spark_jobs.topology import load_text
from tests.support.hashtags import WITH_STANDBYS
from tests.unit.spark_jobs.engine.test_standbys import all_ready, recover
from tools.testbed.local_engine import World, past, tick

pytestmark = pytest.mark.usefixtures("exchange")

EVERY = 4


class ShownLater(Sink):
    """Shows what it was given when it is waited for, as one whose brokers answer after a while."""

    there: ClassVar[dict[tuple[str, int], list[Any]]] = {}
    """What is shown of each partition and batch."""

    def __init__(self, room: int) -> None:
        """`room`: so many batches it takes before it has shown them."""
        self._room = room
        self._waiting: dict[int, pa.Table | None] = {}

    def open(self, opening: Opening) -> None:
        super().open(opening)
        self._partition = opening.place.partition

    def write(self, batch: int, table: pa.Table | None) -> None:
        if len(self._waiting) >= self._room:
            raise NotYetError("no room")
        self._waiting[batch] = table

    def settle(self, patience_s: float) -> str | None:
        for batch, table in self._waiting.items():
            rows = [] if table is None else table.to_pylist()
            assert self.there.setdefault((self._partition, batch), rows) == rows
            self.visible = batch
        self._waiting.clear()
        return None

    def shown(self) -> list[tuple[int, float]]:
        return []


@pytest.mark.parametrize(
    ("room", "checkpoint"), [(100, 1000), (1, 15)], ids=["all-is-taken", "one-at-a-time"]
)
def test_what_has_changed_is_sent_though_no_stage_ends_with_all_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int, checkpoint: int
) -> None:
    """`one-at-a-time`: its partition always has a batch that the sink has not taken, but where it stores itself, in the
    middle of a stage."""
    monkeypatch.setattr(engine_module, "WINDOW", 8)
    ShownLater.there.clear()
    sink = {"class": "tests.unit.spark_jobs.engine.test_passive_sinks:ShownLater", "with": {"room": room}}
    changes = {f"operators[{name}].availability": "passive-standby" for name in ("parse", "count")}
    changes |= {f"operators[{name}].standby": {"every": EVERY} for name in ("parse", "count")}
    changes |= {"operators[count].output.sink": sink, "checkpoint.everyBatches": checkpoint}
    world = World(load_text(WITH_STANDBYS, changes=changes), tmp_path, "w")
    world.engine.begin(0)
    world.nodes.start("a", "b", "c")
    at = dict.fromkeys(world.topology.order, "a")
    world.want(1, 0, at, standbys={"count.0": "b", "count.1": "c"})
    host = world.nodes.hosts["a"]

    def answers(_job: int, stage: int, _slot: int) -> None:
        for runtime in host.runtimes.values() if stage == 2 else ():
            if isinstance(runtime, OperatorRuntime) and runtime.sink is not None:
                runtime.sink.settle(0.0)

    world.nodes.interrupt = answers
    world.run(past(25), limit=200)
    assert world.engine.horizon < 45, "towards the end nobody steps on"
    assert all_ready(world.engine)
    world.nodes.interrupt = lambda *_: None
    known = dict(world.engine.progress.standbys)
    assert min(known.values()) >= 10
    world.nodes.lose("a")
    tick(world, 2)
    assert recover(world) == {"count.0", "count.1"}
    assert all(world.engine.positions[p] == known[p] for p in known)
    world.run(lambda e: e.done)
    wanted = {
        (partition, batch): [] if rows is None else rows.to_pylist()
        for batch, outputs in enumerate(run_local(world.resource), start=1)
        for partition, rows in outputs.items()
        if partition.startswith("count.")
    }
    assert ShownLater.there == wanted
