"""Blocking recovery, its upgrade, and all that is no loss of a node."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reprise.scheduler import Kind, Phase, Policy, Scope, Strategy
from tests.support.diamond_worlds import rules, world
from tests.support.recovery_simulator import World, diamond


def test_one_node_is_recovered_whole_with_a_rollback_and_without_buffering() -> None:
    w = world(scope=Scope.GLOBAL)
    w.kill("n1")
    w.run(6.0)
    assert rules(w) == ["start", "failure-detected", "plan-blocking", "restored", "closed"]
    assert w.plans[0].rollback
    assert w.desired is not None
    assert (w.desired.generation, w.desired.retain) == (2, False)
    assert w.healthy()


def test_blocking_waits_until_everything_fits_and_says_what_is_missing() -> None:
    w = world(cpu=200)
    w.kill("n1")
    w.run(30.0)
    assert rules(w)[-1] == "wait-for-capacity"
    assert w.plans[0].added == {}
    assert "800 milli-CPU are failed and come back together; 600 are free on 3 nodes" in w.plans[0].note
    assert len(w.plans) == 1
    w.add("n5")
    w.run(5.0)
    assert w.healthy(), w.log


@pytest.mark.parametrize(
    ("window_s", "apart", "kind"),
    [(120.0, 5.0, Kind.CORRELATED), (120.0, 200.0, Kind.BLOCKING), (None, 86400.0, Kind.CORRELATED)],
)
def test_a_second_loss_without_a_checkpoint_between_makes_it_correlated(
    window_s: float | None, apart: float, kind: Kind
) -> None:
    w = world(cpu=200, window_s=window_s)
    w.kill("n1")
    w.run(2.0)
    w.now += apart
    w.kill("n2")
    w.run(3.0)
    assert w.incident is not None
    assert w.incident.kind is kind
    assert w.desired is not None
    assert w.desired.retain is (kind is Kind.CORRELATED)


def test_losses_before_a_global_checkpoint_do_not_count() -> None:
    w = world()
    w.kill("n1")
    w.run(6.0)
    w.kill("n2")
    w.run(6.0)
    assert [i.kind for i in w.closed] == [Kind.BLOCKING, Kind.BLOCKING]


def test_a_node_that_comes_back_as_it_was_is_a_false_alarm() -> None:
    w = world()
    node = w.nodes.pop("n1#1")
    w.coordinate()
    assert w.incident is not None
    assert not w.desired.punctuate  # type: ignore[union-attr]
    w.nodes[node.id] = node
    w.coordinate()
    assert not w.closed, "the driver has not said yet that it still has everything"
    w.drive()
    w.coordinate()
    assert w.closed[0].events[-1].name == "false-alarm"
    assert w.desired.punctuate  # type: ignore[union-attr]
    assert w.desired.generation == 1  # type: ignore[union-attr]


def test_an_executor_that_the_driver_lost_counts_before_the_heartbeat_ends() -> None:
    w = world()
    for name in ("n1#1", "n2#1"):
        for p, node in w.desired.assignment.items():  # type: ignore[union-attr]
            if node == name:
                w.lose_state(p)
    assert w.driver is not None
    w.progress = w.driver.progress()
    w.progress = type(w.progress)(
        **{
            **{f: getattr(w.progress, f) for f in w.progress.__dataclass_fields__},
            "nodes": frozenset({"n3#1", "n4#1"}),
        }
    )
    w.coordinate()
    assert w.incident is not None
    assert {entry.node for entry in w.incident.lost} == {"n1#1", "n2#1"}


def test_a_new_driver_waits_for_its_nodes_and_everything_is_restored() -> None:
    w = world()
    w.start_driver()
    w.drive()
    w.coordinate()
    assert w.incident is not None
    assert w.incident.kind is Kind.DRIVER
    assert w.desired.assignment == {}  # type: ignore[union-attr]
    assert w.desired.driver == "2"  # type: ignore[union-attr]
    w.run(5.0)
    assert w.healthy(), w.log
    assert w.desired.generation == 2  # type: ignore[union-attr]


@pytest.mark.parametrize("strategy", [Strategy.INCREMENTAL, Strategy.BLOCKING])
def test_a_new_driver_with_too_few_nodes_gives_up_waiting(strategy: Strategy) -> None:
    w = world(cpu=200, strategy=strategy, driver_grace_s=10.0)
    w.kill("n1", "n2")
    w.start_driver()
    w.run(8.0)
    assert not w.plans
    w.run(5.0)
    assert w.incident is not None
    assert len(w.incident.lost) == 2
    if strategy is Strategy.BLOCKING:
        assert (w.plans, w.incident.phase) == ([], Phase.WAITING)
    else:
        assert w.plans[0].added
    w.add("n5")
    w.add("n6")
    w.run(8.0)
    assert w.healthy(), w.log


def test_a_new_driver_without_any_node_is_given_more_time() -> None:
    w = world(driver_grace_s=10.0)
    w.start_driver()
    w.kill("n1", "n2", "n3", "n4")
    w.run(25.0)
    assert w.incident is not None
    assert w.incident.phase is Phase.SETTLING
    for k in range(4):
        w.add(f"n{k + 5}")
        w.run(1.0)
    w.run(4.0)
    assert len(w.plans) == 1  # one plan on all nodes, not one that crowds the first
    assert w.healthy()


def test_a_driver_that_restarts_in_the_middle_of_an_incident() -> None:
    w = world(cpu=200)
    w.kill("n1", "n2")
    w.run(3.0)
    generation = w.desired.generation  # type: ignore[union-attr]
    w.start_driver()
    w.add("n5")
    w.run(35.0)
    assert w.incident is not None
    assert w.incident.kind is Kind.CORRELATED
    assert w.desired.generation > generation  # type: ignore[union-attr]
    w.add("n6")
    w.run(5.0)
    assert w.healthy()
    assert len(w.closed) == 1


def test_damaged_checkpoints_lead_to_older_ones_and_to_the_initial_state_at_last() -> None:
    w = world()
    w.run(3.0)
    w.damaged |= w.checkpoints
    newest = max(w.checkpoints)
    w.kill("n1", "n2")
    w.run(15.0)
    assert rules(w).count("checkpoint-damaged") >= 2
    assert w.healthy(), w.log
    assert w.closed[0].checkpoint == 0
    assert newest in w.closed[0].bad_checkpoints


def test_buffers_that_were_full_cost_a_rollback_of_all_and_nothing_else() -> None:
    w = world(cpu=200)
    w.may_drop = True
    w.kill("n1", "n2")
    w.run(3.0)
    assert w.desired is not None
    generation = w.desired.generation
    waiting = set(w.incident.considered.waiting)  # type: ignore[union-attr]
    assert waiting
    w.full = True
    w.run(0.6)
    w.full = False
    w.add("n5")
    w.run(3.0)
    assert "buffers-dropped" in rules(w)
    assert w.desired.generation == generation + 1
    w.add("n6")
    w.run(10.0)
    assert rules(w).count("buffers-dropped") == 1
    assert w.healthy(), w.log


def test_poison_is_set_aside_and_opens_no_incident() -> None:
    w = world()
    w.poison_at["sink.0"] = w.driver.horizon + 2  # type: ignore[union-attr]
    w.run(3.0)
    assert rules(w)[-1] == "quarantine"
    assert w.incident is None
    assert w.poison is not None
    assert set(w.poison.partitions) == {"sink.0"}
    assert "sink.0" not in w.desired.assignment  # type: ignore[union-attr]
    assert not w.desired.punctuate  # type: ignore[union-attr]


def test_an_incident_ends_without_the_poisoned_and_says_why_their_queries_stay_down() -> None:
    w = world()
    w.poison_at["sink.0"] = w.driver.horizon + 2  # type: ignore[union-attr]
    w.run(3.0)
    w.kill("n1", "n2")
    w.run(10.0)
    assert rules(w)[-1] == "closed"
    assert w.plans[0].left_out["sink.0"].startswith("poison: batch")
    assert "sink.0" not in w.desired.assignment  # type: ignore[union-attr]
    assert not w.desired.retain  # type: ignore[union-attr]


def test_a_new_driver_may_run_repaired_code() -> None:
    w = world()
    w.poison_at["sink.0"] = w.driver.horizon + 2  # type: ignore[union-attr]
    w.run(3.0)
    w.poison_at.clear()
    w.start_driver()
    w.run(6.0)
    assert w.healthy()
    assert w.poison is not None
    assert w.poison.partitions == {}


def test_sources_that_have_ended_leave_nothing_to_checkpoint() -> None:
    w = world()
    w.paused = True  # no further batch, so no further checkpoint
    w.run(1.0)
    w.kill("n1")
    w.run(5.0)
    assert w.progress is not None
    assert w.incident is not None
    assert w.incident.phase is Phase.VERIFYING
    fields = {f: getattr(w.progress, f) for f in w.progress.__dataclass_fields__}
    final = {**fields, "ended": True, "horizon": w.progress.checkpoint}
    w.progress = type(w.progress)(**final)
    w.coordinate()
    assert w.incident is None


def test_pause_and_resume() -> None:
    w = world()
    w.paused = True
    w.run(1.0)
    assert w.desired.paused  # type: ignore[union-attr]
    w.paused = False
    w.run(1.0)
    assert not w.desired.paused  # type: ignore[union-attr]
    assert rules(w) == ["start", "pause", "resume"]


@pytest.mark.parametrize("behind", [0.0, 300.0])
def test_a_leader_whose_clock_is_behind_waits_no_longer_for_the_rest_of_a_burst(behind: float) -> None:
    w = world()
    w.kill("n1")
    w.drive()
    assert w.coordinate().rule == "failure-detected"
    w.now -= behind
    w.run(6.0)
    assert w.healthy(), w.log


def test_a_leader_whose_clock_is_behind_waits_no_longer_for_the_nodes_of_a_new_driver() -> None:
    w = world(cpu=200, driver_grace_s=10.0)
    w.kill("n1", "n2")
    w.start_driver()
    w.drive()
    assert w.coordinate().rule == "driver-restarted"
    w.now -= 3600.0
    w.run(9.0)
    assert not w.plans, "still within the grace"
    w.run(6.0)
    assert w.plans, w.log


def test_a_refused_rollback_to_the_initial_state_goes_forward() -> None:
    """The driver has a newer checkpoint than the coordinator knew of: what it cannot go back to may be 0, too."""
    w = World(diamond(), Policy(nodes_wanted=2)).started(2)
    newest = max(w.checkpoints)
    assert w.desired is not None and w.driver is not None
    w.desired = replace(w.desired, seq=w.desired.seq + 1, generation=w.desired.generation + 1, checkpoint=0)
    w.driver.bad.add(0)
    w.progress = w.driver.progress()
    _, decision = w.look()
    assert decision.rule == "checkpoint-damaged"
    assert decision.desired is not None
    assert decision.desired.checkpoint == newest
