"""What is due and was not released is said, and whoever looks says that nothing is shown."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from reprise.controller.driver.loop import KEEPALIVE_S, SOON_S
from reprise.controller.operator.status.topology_state import TopologyState
from reprise.controller.operator.status.topology_status import condition_updates
from reprise.controller.simulated_world.memory_zookeeper import MemoryServer
from reprise.controller.status.query_state import RunState, run_state
from reprise.controller.zookeeper.advance import STILL_S, Watch
from reprise.controller.zookeeper.observation import Observation
from reprise.controller.zookeeper.records import encode_progress, parse_progress
from reprise.scheduler import Desired, Node, Progress
from reprise.spark_jobs.engine.engine import REPORT_S, WINDOW, Engine
from reprise.spark_jobs.topology import load_text
from tests.support import live_engine as live
from tests.support.local_driver import LocalDriver, world_of
from tests.unit.spark_jobs.engine.test_after_a_stop import LIVE
from tests.unit.spark_jobs.state.test_release import Machine

INTERVAL_S = 0.5


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest.fixture
def driver(tmp_path: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> LocalDriver:
    """Two batches a second, by the clock of `machine`; all that is due is shown."""
    live.END = 10_000
    driver = LocalDriver(world_of(load_text(LIVE), tmp_path), MemoryServer())
    monkeypatch.setattr(driver.channel.changed, "wait", lambda _=None: True)
    monkeypatch.setattr(driver.stop, "wait", lambda _=None: driver.stop.is_set())
    driver.engine.release = machine.release(driver.world.checkpoints, INTERVAL_S)
    driver.engine.begin(0)
    driver.want(1, 0, driver.world.spread("a", "b"))
    goes_on(driver, machine)
    return driver


def goes_on(driver: LocalDriver, machine: Machine) -> None:
    for _ in range(6):
        machine.passes(2.0)
        for _ in range(4):
            driver.turn()
    seen = said(driver)
    assert min(seen.positions.values()) == seen.horizon == seen.due > 0


def said(driver: LocalDriver) -> Progress:
    """The report as it is written now, and read."""
    return parse_progress(encode_progress(driver.loop.progress()))


def looks(driver: LocalDriver, machine: Machine) -> RunState:
    """What an operator says that looks every five seconds for a while in which nothing is released."""
    watch, now, progress = Watch(), 0.0, said(driver)
    for _ in range(8):
        machine.passes(5.0)
        now, progress = now + 5.0, said(driver)
        still = watch.note(now, progress, driver.engine.desired.paused)
    wanted = driver.engine.desired
    nodes = {f"{node}#1": Node(node, 1, 1000) for node in ("a", "b")}
    seen = Observation(now, True, nodes, progress, desired=Desired(1, 1, 0, "1", wanted.assignment))
    problems = tuple(driver.loop.progress().problems)
    seen = replace(seen, still=still, watched_since=watch.since, problems=problems)
    return run_state(driver.world.topology, seen)


def ready(state: RunState, driver: LocalDriver) -> tuple[str, str, str]:
    claim = condition_updates(TopologyState(1, driver.world.resource, state=state))[0]
    return claim.type, claim.reason, claim.message


def test_a_source_that_does_not_answer_makes_what_waits_for_it_not_ready(
    driver: LocalDriver, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> int:
        raise OSError("no broker answers")

    before = said(driver)
    monkeypatch.setattr(type(driver.engine.ledger), "reach", away)
    driver.turn()
    state = looks(driver, machine)
    now = said(driver)
    assert (now.horizon, now.positions) == (before.horizon, before.positions)
    assert now.due == before.due + round(8 * 5 / INTERVAL_S)
    assert state.share == 0.0
    kind, reason, message = ready(state, driver)
    assert (kind, reason) == ("Ready", "NotAdvancing")
    assert "no broker answers" in message
    assert {query.lag for query in state.queries} == {now.due - before.horizon}
    monkeypatch.undo()


def test_a_loop_that_hangs_does_not_hide_what_comes_due(driver: LocalDriver, machine: Machine) -> None:
    """Nobody calls the engine; the thread that publishes still speaks."""
    state = looks(driver, machine)
    assert ready(state, driver)[:2] == ("Ready", "NotAdvancing")
    assert all(now is not None for now in (q.stalled_since for q in state.queries))
    assert state.observation.time - (state.stalled[0].stalled_since or 0.0) >= STILL_S


def test_in_a_pause_nothing_is_due(driver: LocalDriver, machine: Machine) -> None:
    driver.engine.want(replace(driver.engine.desired, seq=2, paused=True))
    assert ready(looks(driver, machine), driver)[:2] == ("Ready", "AllQueriesAvailable")
    now = said(driver)
    assert now.due == now.horizon
    driver.engine.want(replace(driver.engine.desired, seq=3, paused=False))
    assert said(driver).due > now.due


def test_nothing_is_due_after_the_end_of_the_stream(driver: LocalDriver, machine: Machine) -> None:
    machine.passes(0.6)
    driver.engine.ledger.ended_at = driver.engine.horizon
    machine.passes(600.0)
    assert said(driver).due == driver.engine.horizon + 1, "the batch that ends it"


def test_a_stream_that_stops_for_an_upgrade_owes_nothing(driver: LocalDriver, machine: Machine) -> None:
    driver.engine.drain.asked = True
    for _ in range(6):
        machine.passes(INTERVAL_S)  # the last batch begins when it is due
        driver.engine.tick(driver.cluster.usable(), threading.Event())
    assert driver.engine.drained is not None
    machine.passes(600.0)
    now = said(driver)
    assert now.due == now.horizon


def test_a_topology_that_is_too_slow_says_how_far_behind_it_is_and_not_how_much_it_is_given(
    driver: LocalDriver, machine: Machine
) -> None:
    before = said(driver)
    machine.passes(60 * 3600.0)
    driver.engine.tick(driver.cluster.usable(), threading.Event())
    now = said(driver)
    assert now.horizon <= before.horizon + WINDOW
    assert now.due == before.due + round(60 * 3600 / INTERVAL_S)
    assert driver.engine.progress.due == now.due


def test_the_loop_waits_until_the_next_batch_is_due_and_not_for_longer_than_workers_live(
    driver: LocalDriver, machine: Machine
) -> None:
    release = driver.engine.release
    wait_s = driver.loop._pause(True)
    assert wait_s == release.at(driver.engine.horizon + 1) - release.now() > 0.01
    machine.passes(wait_s / 2)
    assert driver.loop._pause(True) == pytest.approx(wait_s / 2)
    machine.passes(wait_s)
    assert driver.loop._pause(True) == 0.01, "it is late"
    assert driver.loop._pause(False) == 0.5, "nothing ran"
    machine.elapsed -= 1000.0
    assert driver.loop._pause(True) == KEEPALIVE_S


@pytest.mark.parametrize(
    ("link", "idle", "steady", "wait_s"),
    [
        (0, False, False, 0.0),  # jobs move the partitions
        (7, False, False, SOON_S),
        (7, False, True, REPORT_S),
        (7, True, True, REPORT_S),
        (7, True, False, 0.25),  # the next batch is due then, and a source waits to hear of it
        (0, True, False, 0.25),
    ],
)
def test_who_needs_no_orders_is_only_asked_how_things_stand(
    driver: LocalDriver,
    machine: Machine,
    monkeypatch: pytest.MonkeyPatch,
    link: int,
    idle: bool,
    steady: bool,
    wait_s: float,
) -> None:
    driver.engine.connection.link = link
    monkeypatch.setattr(Engine, "idle", idle)
    monkeypatch.setattr(Engine, "steady", steady)
    monkeypatch.setattr(Engine, "rests_s", REPORT_S)
    release = driver.engine.release
    machine.passes(release.at(driver.engine.begun + 1) - release.now() - 0.25)
    assert driver.loop._pause(True) == pytest.approx(wait_s)
