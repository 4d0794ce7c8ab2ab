"""Snapshots of single partitions: the coordinator says who is restored where, the driver from what; the incident tells."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reprise.algorithms.positions import Positions
from reprise.scheduler import Policy, Scope
from reprise.scheduler.incident import EventName
from reprise.scheduler.scope import going_back, some_stay
from reprise.scheduler.view import look
from tests.support.recovery_simulator import World, diamond
from tests.unit.scheduler.test_scope import after_a_burst, seen


def world(deterministic: bool = True) -> World:
    policy = Policy(nodes_wanted=4, scope=Scope.PARTITION, by_driver=True)
    return World(diamond(3, 50, deterministic), policy).started(4)


def at_work_again(w: World) -> World:
    after_a_burst(w)
    for _ in range(40):
        if w.incident is not None and w.incident.phase != "verifying":
            w.run(0.3)
    assert w.incident is not None
    return w


def test_a_plan_takes_nobody_back_and_names_no_snapshot() -> None:
    w = world()
    assert w.desired is not None
    generation = w.desired.generation
    where, _ = after_a_burst(w)
    assert w.desired.generation == generation
    assert not w.desired.lines
    (plan, *_) = w.plans
    assert not plan.rollback
    assert "at work go on, as far as the driver's line lets them" in plan.note
    lives = {p for p, node in where.items() if node in w.nodes}
    assert {p: w.desired.assignment[p] for p in lives} == {p: where[p] for p in lives}


def test_where_a_replay_may_differ_everything_goes_back() -> None:
    w = world(deterministic=False)
    assert w.desired is not None
    generation = w.desired.generation
    after_a_burst(w)
    assert w.desired.generation > generation


def test_survivors_stay_whatever_the_line_on_record_says() -> None:
    """The driver alone knows what each still holds."""
    topology = diamond()
    behind = seen(topology, {"left.0"}, kept=20)
    assert behind.snapshot.progress is not None
    progress = replace(behind.snapshot.progress, lines={"left.0": 13}, checkpoint=12)
    progress = replace(progress, positions={**progress.positions, "right.0": 11})
    snapshot = replace(behind.snapshot, progress=progress, checkpoints=frozenset({40}))
    view = look(snapshot, Policy(scope=Scope.PARTITION, by_driver=True))
    assert view.newest == Positions(12), "by name, and not by a record of another driver"
    assert some_stay(view)
    assert going_back(view, {"left.0"}) == frozenset()
    assert not some_stay(look(snapshot, Policy(scope=Scope.GLOBAL)))


def test_the_incident_says_what_went_back_to_where() -> None:
    w = at_work_again(world())
    assert w.progress is not None and w.incident is not None
    assert w.desired is not None
    w.progress = replace(w.progress, seq=w.desired.seq, restored={"left.0": 7, "sink.1": 9})
    incident = w.look()[1].incident
    assert incident is not None
    assert {p: o.position for p, o in incident.lines.items()} == {"left.0": 7, "sink.1": 9}
    (said,) = [e.detail for e in incident.events if e.name == EventName.WENT_BACK]
    assert said == "left.0 to 7; sink.1 to 9"


@pytest.mark.parametrize(("stored", "closes"), [(0, False), (1, True)])
def test_it_closes_when_those_that_went_back_have_stored_what_came_after_the_failure(
    stored: int, closes: bool
) -> None:
    """Others may have an interval of hours."""
    w = at_work_again(world())
    assert w.progress is not None and w.incident is not None and w.desired is not None
    horizon = w.incident.horizon
    low = w.progress.checkpoint
    positions = dict.fromkeys(w.progress.positions, horizon + 5)
    w.progress = replace(
        w.progress, seq=w.desired.seq, positions=positions, horizon=horizon + 5, checkpoint=low,
        lines={"left.0": horizon + stored, "sink.1": horizon + 2}, restored={"left.0": 3, "sink.1": 3},
    )  # fmt: skip
    decision = w.look()[1]
    assert (decision.rule == "closed") is closes
    if closes:
        assert decision.reason == "all 2 that went back are stored again"
        assert decision.desired is not None
        assert not decision.desired.lines, "records do not grow with the partitions"
