"""Batches that are released before they are due: hosts know them early, and begin each when it is due."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from reprise.spark_jobs.engine.engine import LEAD_S, REPORT_S, WINDOW, Engine
from reprise.spark_jobs.engine.punctuation import UNDER_WAY, Punctuations
from reprise.spark_jobs.state.release import Anchor
from reprise.spark_jobs.topology import load_text
from tests.support.hashtags import counting
from tests.unit.spark_jobs.state.test_release import Machine
from tools.testbed.local_engine import World, tick

COUNTS = counting(
    "lead",
    """
    - name: parse
      class: reprise.spark_jobs.operators:FlatMap
      with: {explode: [hashtags], select: ["hashtags AS tag"]}
      inputs: [{from: tweets}]
    - name: count
      class: reprise.spark_jobs.operators:RunningAggregate
      with: {keys: [tag], aggregate: {"n": "count()"}}
      inputs: [{from: parse, by: [tag]}]
      output: {priority: 1}
    """,
)
INTERVAL_S = 0.125
AHEAD = round(LEAD_S / INTERVAL_S)


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest.fixture
def world(tmp_path: Path, machine: Machine) -> World:
    """Driver and hosts live by the clock of `machine`."""
    found = World(load_text(COUNTS), tmp_path, "w")
    found.engine.release = machine.release(found.checkpoints, INTERVAL_S)
    found.engine.begin(0)
    found.nodes._platform = replace(found.nodes._platform, elapsed=lambda: machine.elapsed)
    found.nodes.start("a", "b")
    found.want(1, 0, found.spread("a", "b"))
    tick(found, 5)  # all is installed, and the clock starts
    assert found.engine.release.started is not None
    return found


def test_no_batch_begins_before_it_is_due_though_hosts_know_of_it(world: World, machine: Machine) -> None:
    engine = world.engine
    for due in range(1, 12):
        machine.passes(INTERVAL_S)
        tick(world, 2)
        assert engine.horizon == due + 1 + AHEAD
        assert engine.begun == due + 1 == engine.progress.horizon == engine.progress.due
        assert set(engine.positions.values()) == {due + 1}


def test_batches_go_on_while_no_job_runs(world: World, machine: Machine) -> None:
    """What a host does between jobs, where an exchange carries the messages."""
    host = next(host for host in world.nodes.hosts.values() if "tweets.0" in host.runtimes)
    assert host.due_in() == pytest.approx(INTERVAL_S)
    for _ in range(AHEAD):
        machine.passes(INTERVAL_S * 0.9)
        before = host.runtimes["tweets.0"].position
        host.run(1.0)
        assert host.runtimes["tweets.0"].position == before
        machine.passes(INTERVAL_S * 0.1 + 1e-6)
        host.run(1.0)
        assert host.runtimes["tweets.0"].position == before + 1
    machine.passes(60.0)
    host.run(1.0)
    assert host.runtimes["tweets.0"].position == world.engine.horizon, "and no further without the driver"
    assert host.due_in() == float("inf")


def test_a_checkpoint_counts_from_when_its_batch_is_due(world: World, machine: Machine) -> None:
    engine = world.engine
    assert engine.punctuations.open == (10,), "it was announced with the batches that are not due yet"
    machine.passes(10 * INTERVAL_S)
    tick(world, 3)
    assert engine.punctuations.newest == 10
    assert engine.figures.checkpoint_s < 2 * INTERVAL_S


def test_each_checkpoint_is_announced_early_and_slow_storage_piles_up_none(
    world: World, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = world.engine
    engine.punctuations.policy = replace(engine.punctuations.policy, every_batches=3)
    tick(world)
    machine.passes(INTERVAL_S * 6)
    tick(world)
    assert engine.punctuations.open == (10, 18, 21)
    machine.passes(INTERVAL_S * 6)
    monkeypatch.setattr(Punctuations, "acknowledge", lambda *_: None)
    tick(world, 3)
    assert engine.punctuations.open == (10, 18, 21, 24, 27)
    machine.passes(INTERVAL_S * 9)
    tick(world, 3)
    assert engine.begun == 22
    assert sum(k <= engine.begun for k in engine.punctuations.open) > UNDER_WAY
    opened = engine.punctuations.open
    machine.passes(INTERVAL_S * 9)
    tick(world, 3)
    assert engine.punctuations.open == opened


def test_a_checkpoint_that_was_announced_before_a_loss_does_not_count_after_it(
    world: World, machine: Machine
) -> None:
    """It would end the incident before those that were lost have come to where the others are."""
    engine = world.engine
    machine.passes(INTERVAL_S * 3)
    tick(world, 2)
    assert engine.begun < engine.punctuations.open[0] == 10
    world.nodes.lose("b")
    tick(world)
    assert engine.punctuations.open == ()


def test_one_with_which_the_stream_ends_stays_where_a_node_is_lost(world: World, machine: Machine) -> None:
    engine = world.engine
    while engine.final is None or engine.horizon < engine.final:
        machine.passes(1.0)
        tick(world)
    assert engine.begun < engine.final == engine.punctuations.open[-1]
    world.nodes.lose("b")
    tick(world)
    assert engine.punctuations.open[-1] == engine.final


def test_what_is_shown_of_a_horizon_goes_with_the_positions_beside_it(
    world: World, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = list[tuple[int, int]]()
    refresh = Engine._refresh_progress

    def refreshed(engine: Engine, heard: bool = True) -> None:
        refresh(engine, heard)
        seen.append((engine.progress.horizon, min(engine.progress.positions.values())))

    monkeypatch.setattr(Engine, "_refresh_progress", refreshed)
    for _ in range(5):
        machine.passes(10 * INTERVAL_S)
        tick(world)
    assert len(seen) == 10
    assert {horizon - position for horizon, position in seen} == {0}


def test_an_interval_that_was_changed_is_told_from_where_it_holds(world: World, machine: Machine) -> None:
    release = world.engine.release
    release.anchors = [*release.anchors, Anchor(5, release.at(5), INTERVAL_S / 4)]
    release.interval_s = INTERVAL_S / 4
    due = world.engine.due_for_hosts()
    assert due is not None
    for batch in (5, 9):
        told = due.in_s + (batch - due.batch) * due.interval_s
        assert told == pytest.approx(release.at(batch) - release.now())


def test_where_batches_are_far_apart_one_is_released_early_as_well(world: World, machine: Machine) -> None:
    engine = world.engine
    release = engine.release
    release.anchors, release.interval_s = [Anchor(1, release.now(), 30.0)], 30.0
    engine.horizon, engine.connection.link = 1, 1
    assert engine.next_release_s == pytest.approx(30.0 - LEAD_S)
    engine.ledger.live = True
    assert engine.next_release_s == pytest.approx(30.0)
    engine.connection.link = 0
    assert engine.next_release_s == pytest.approx(30.0)


def test_hosts_are_asked_again_before_they_have_done_all_that_they_know(
    world: World, machine: Machine
) -> None:
    engine = world.engine
    tick(world)
    assert engine.rests_s == REPORT_S
    machine.passes(LEAD_S - REPORT_S)
    assert engine.rests_s == pytest.approx(REPORT_S / 2)
    machine.passes(LEAD_S)
    assert engine.rests_s == 0.0


def test_what_a_source_knows_only_when_it_is_due_is_not_released_early(
    world: World, machine: Machine
) -> None:
    machine.passes(5.0)
    world.engine.ledger.live = True
    tick(world, 2)
    assert world.engine.horizon == world.engine.begun


def test_in_a_pause_hosts_begin_what_they_know_and_nothing_is_late(world: World, machine: Machine) -> None:
    engine = world.engine
    engine.want(replace(engine.desired, seq=2, paused=True))
    last = engine.horizon
    machine.passes(60.0)
    tick(world, 2)
    assert set(engine.positions.values()) == {last} == {engine.horizon}
    assert engine.due == engine.begun == last


def test_who_follows_needs_no_job_but_to_report(world: World, machine: Machine) -> None:
    engine = world.engine
    assert not engine.steady, "jobs carry the messages"
    engine.connection.link = 1
    assert engine.steady
    machine.passes(REPORT_S)
    assert engine.steady, "so old is what is known of hosts"
    machine.passes(2 * INTERVAL_S)
    assert not engine.steady
    tick(world, 2)
    engine.connection.link = 1
    assert engine.steady
    for trouble in ("resend", "installing"):
        getattr(engine, trouble).add("count.0")
        assert not engine.steady
        getattr(engine, trouble).clear()
    engine.standbys.output_waits = frozenset({"count.0"})
    assert not engine.steady, "output waits for what the driver knows"


def test_of_very_short_batches_no_host_comes_to_its_window_between_two_jobs(
    world: World, machine: Machine
) -> None:
    engine = world.engine
    engine.connection.link, engine.release.interval_s = 1, 1e-4
    machine.passes(3600.0)
    engine.horizon = max(engine.positions.values()) + WINDOW
    assert not engine.steady
