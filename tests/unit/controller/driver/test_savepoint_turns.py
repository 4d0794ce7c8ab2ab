"""What came of a wish for a savepoint, over the lives of several drivers."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from reprise.controller.driver.savepoints import SavepointTurns
from reprise.controller.simulated_world.memory_zookeeper import MemoryServer
from reprise.controller.zookeeper import paths
from reprise.controller.zookeeper.savepoint_records import SavepointsRecord, encode_wish, parse_savepoints
from reprise.spark_jobs.engine import engine as engine_module
from reprise.spark_jobs.engine.savepoints import SavepointTaker
from reprise.spark_jobs.state.savepoint_wish import SavepointWish
from reprise.spark_jobs.topology import StreamTopology, load_text, override
from tests.support.local_driver import ROOT, LocalDriver, world_of
from tests.unit.spark_jobs.engine.test_recovery import DIAMOND

WISH = SavepointWish("before", "001-a")


@pytest.fixture(autouse=True)
def little_is_released(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A savepoint covers all that is released, which would be the whole of this short stream."""
    monkeypatch.setattr(engine_module, "WINDOW", 3)
    yield


def long_stream() -> StreamTopology:
    return override(load_text(DIAMOND), {"sources[tweets].with.batches": 600})


class Turning:
    """A driver with its turns of savepoints."""

    def __init__(self, driver: LocalDriver) -> None:
        self.driver = driver
        taker = SavepointTaker(driver.engine, driver.world.fence)
        self.turns = SavepointTurns(taker, driver.channel)

    def ask(self, wish: SavepointWish = WISH) -> None:
        self.driver.tree.put(f"{ROOT}/{paths.SAVEPOINT_WISHES}/{wish.id}", encode_wish(wish))

    def record(self) -> SavepointsRecord:
        found = self.driver.tree.records.get(f"{ROOT}/{paths.SAVEPOINTS}")
        return SavepointsRecord() if found is None else parse_savepoints(found[0])

    def until(self, reached: Callable[[SavepointsRecord], bool]) -> SavepointsRecord:
        ends = time.monotonic() + 60
        while time.monotonic() < ends:
            self.driver.turn()
            self.turns.turn()
            if reached(self.record()):
                return self.record()
        raise AssertionError(f"not reached: {self.record()}")


def begun(driver: LocalDriver, generation: int, monkeypatch: pytest.MonkeyPatch) -> Turning:
    monkeypatch.setattr(driver.channel.changed, "wait", lambda _=None: True)
    newest = driver.engine.punctuations.newest
    driver.want(generation, newest, driver.world.spread("a", "b"), seq=generation)
    return Turning(driver)


def test_what_people_have_deleted_by_hand_is_not_taken_anew_by_the_next_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, tree = world_of(long_stream(), tmp_path), MemoryServer()
    first = begun(LocalDriver(world, tree), 1, monkeypatch)
    first.ask()
    taken = first.until(lambda record: WISH.id in record.done)
    assert taken.done[WISH.id] == "" and [one.name for one in taken.savepoints] == [WISH.name]
    shutil.rmtree(world.checkpoints / "savepoints")
    second = begun(LocalDriver(world, tree), 2, monkeypatch)
    told = second.until(lambda record: record.savepoints == ())
    assert told.has(WISH.id), "an operator that comes later asks no more"
    second.ask()  # one that had not heard of it does
    for _ in range(6):
        second.driver.turn()
        second.turns.turn()
    assert second.record().savepoints == () and not (world.checkpoints / "savepoints").exists()
    assert f"{ROOT}/{paths.SAVEPOINT_WISHES}/{WISH.id}" not in tree.records, "it is taken off"
    again = SavepointWish("before", "002-b")
    second.ask(again)
    found = second.until(lambda record: again.id in record.done)
    assert found.done == {WISH.id: "", again.id: ""} and found.savepoints[0].wish == again.id


def test_nothing_is_begun_before_it_is_known_what_came_of_earlier_wishes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turning = begun(LocalDriver(world_of(long_stream(), tmp_path), MemoryServer()), 1, monkeypatch)
    turning.ask()
    with monkeypatch.context() as away:
        away.setattr(turning.driver.channel, "read_savepoints", lambda: None)
        for _ in range(20):
            turning.driver.turn()
            turning.turns.turn()
        assert turning.record() == SavepointsRecord() and not turning.turns.busy
    assert turning.until(lambda record: WISH.id in record.done).done == {WISH.id: ""}
