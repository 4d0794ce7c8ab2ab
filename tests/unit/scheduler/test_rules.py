"""Each rule alone: when it applies, what it tells the driver, and what it leaves in the record."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reprise.algorithms.failure import Failure, FailureKind
from reprise.algorithms.positions import Origin, Positions
from reprise.scheduler import (
    Decision,
    Desired,
    Incident,
    Kind,
    LostNode,
    Outcome,
    Phase,
    Poison,
    Policy,
    Snapshot,
    Strategy,
    decide,
)
from reprise.scheduler.back import behind
from reprise.scheduler.incident import Considered
from reprise.scheduler.rules import ANSWER_S
from reprise.scheduler.view import look
from tests.support.diamond_worlds import world
from tests.support.recovery_simulator import World, diamond


def told(decision: Decision) -> Desired:
    assert decision.desired is not None
    return decision.desired


def record(decision: Decision) -> Incident:
    assert decision.incident is not None
    return decision.incident


def opened(w: World) -> World:
    """A node is lost, and the driver has answered what it lost with it; the burst settles."""
    w.kill("n1")
    w.drive()
    assert w.coordinate().rule == "failure-detected"
    w.drive()
    return w


def edited(w: World, **changes: object) -> Decision:
    """The next decision, with the open incident as changed."""
    assert w.incident is not None
    return decide(replace(w.snapshot(), incident=replace(w.incident, **changes)), w.policy)  # type: ignore[arg-type]


def reported(w: World, **changes: object) -> Decision:
    """The next decision, with the driver's report as changed."""
    assert w.progress is not None
    return decide(replace(w.snapshot(), progress=replace(w.progress, **changes)), w.policy)  # type: ignore[arg-type]


def planned(w: World) -> World:
    """The driver has been told of a plan."""
    assert w.desired is not None
    w.desired = replace(w.desired, plan="inc-000001-p1")
    return w


def test_a_failure_opens_an_incident_with_all_that_held_before_it() -> None:
    w = planned(world(settle_s=3.0))
    before = w.desired
    assert before is not None and w.progress is not None
    newest = max(w.checkpoints)
    w.kill("n1")
    w.drive()
    now = replace(w.snapshot(), steady={"sink.0": 4})
    decision = decide(now, w.policy)
    incident, after = record(decision), told(decision)
    gone = [p for p, n in before.assignment.items() if n == "n1#1"]
    assert decision.reason == f"{len(gone)} partitions failed, 1 nodes lost"
    assert incident.id == f"inc-{before.seq + 1:06d}"
    assert (incident.kind, incident.phase) == (Kind.BLOCKING, Phase.SETTLING)
    assert (incident.opened_at, incident.settle_until) == (w.now, w.now + 3.0)
    assert (incident.checkpoint, incident.generation) == (newest, before.generation)
    assert incident.nodes_before == 4
    assert incident.driver_until is None
    assert (incident.steady, incident.horizon) == ({"sink.0": 4}, w.progress.horizon)
    assert incident.costs == {p.id: 50 for p in w.topology.partitions}
    assert incident.lost == (LostNode("n1#1", w.now),)
    assert [(e.time, e.name) for e in incident.events[:2]] == [(w.now, "opened"), (w.now, "node-lost")]
    assert [e.detail for e in incident.events[:2]] == [f"newest checkpoint {incident.checkpoint}", "n1#1"]
    assert after.punctuate is False
    assert after.plan is None
    assert after.assignment == before.assignment


def test_a_failure_of_what_ran_nowhere_counts_the_nodes_that_are_wanted() -> None:
    w = world()
    assert w.desired is not None
    nothing = replace(w.snapshot(), desired=replace(w.desired, assignment={}))
    assert record(decide(nothing, w.policy)).nodes_before == 4


def test_a_new_driver_is_told_to_wait_at_the_newest_checkpoint() -> None:
    w = world(settle_s=2.0, driver_grace_s=20.0)
    before = w.desired
    assert before is not None
    w.start_driver()
    w.drive()
    decision = w.look()[1]
    after, incident = told(decision), record(decision)
    assert decision.reason == "driver 2 has started"
    assert (after.driver, after.assignment, after.checkpoint) == ("2", {}, max(w.checkpoints))
    assert after.punctuate is False
    assert after.plan is None
    assert (incident.kind, incident.phase, incident.considered) == (Kind.DRIVER, Phase.SETTLING, None)
    assert (incident.settle_until, incident.driver_until) == (w.now + 2.0, w.now + 20.0)
    line = incident.events[-1]
    assert (line.time, line.name, line.detail) == (w.now, "driver-started", "1 is replaced by 2")


@pytest.mark.parametrize(
    ("kind", "expected"),
    [(Kind.BLOCKING, Kind.DRIVER), (Kind.CORRELATED, Kind.CORRELATED), (Kind.START, Kind.START)],
)
def test_a_new_driver_in_an_open_incident_looks_for_itself(kind: Kind, expected: Kind) -> None:
    w = opened(world())
    assert w.incident is not None
    w.start_driver()
    w.drive()
    w.now += 60.0
    planned(w)
    everything = Considered(frozenset({"n2#1"}), frozenset({"sink.0"}))
    decision = edited(w, kind=kind, bad_checkpoints=frozenset({1}), considered=everything)
    incident = record(decision)
    assert (incident.id, incident.kind) == (w.incident.id, expected)
    assert (incident.bad_checkpoints, incident.considered) == (frozenset(), None)
    assert (incident.settle_until, incident.driver_until) == (w.now + 1.0, w.now + 30.0)
    assert told(decision).plan is None, "what it was told before is no plan for it"


def restoring(w: World, checkpoint: int, *checkpoints: int) -> Desired:
    """The driver has been told to restore from `checkpoint`; `checkpoints` are complete beside it."""
    assert w.desired is not None
    w.desired = replace(w.desired, checkpoint=checkpoint)
    w.checkpoints = {checkpoint, *checkpoints}
    return w.desired


def test_a_damaged_checkpoint_without_an_incident_leads_to_one_that_is_whole() -> None:
    w = world()
    before = restoring(w, 7, 2, 5)
    decision = reported(w, bad_checkpoints=frozenset({5, 7}), checkpoint=7)
    after = told(decision)
    assert (decision.rule, decision.incident) == ("checkpoint-damaged", None)
    assert (after.checkpoint, after.generation) == (2, before.generation + 1)
    assert after.assignment == before.assignment  # what survived begins again where it is
    assert decision.reason == "checkpoint 7 cannot be used: everything begins again at 2"
    assert reported(w, bad_checkpoints=frozenset({5}), checkpoint=7).rule == "nothing-to-do"


def test_a_damaged_checkpoint_is_noted_in_the_open_incident() -> None:
    w = opened(world())
    before = restoring(w, 7)
    assert w.incident is not None
    w.incident = replace(w.incident, bad_checkpoints=frozenset({5}))
    decision = reported(w, bad_checkpoints=frozenset({7}), checkpoint=7)
    incident = record(decision)
    assert decision.rule == "checkpoint-damaged"
    assert (incident.checkpoint, incident.generation) == (0, before.generation + 1)
    left = {p: n for p, n in before.assignment.items() if n != "n1#1"}
    assert told(decision).assignment == left, "nothing is given to the node that is lost"
    assert incident.bad_checkpoints == {5, 7}
    line = incident.events[-1]
    assert (line.time, line.name, line.detail) == (w.now, "checkpoint-damaged", decision.reason)
    assert decision.reason.endswith("at 0, the initial state: no complete checkpoint is whole")


def test_behind_input_that_was_given_up_nothing_is_decided_and_that_is_said() -> None:
    w = world()
    before = w.desired
    assert before is not None and w.progress is not None
    every = frozenset({0, before.checkpoint, w.progress.checkpoint}) | w.checkpoints
    decision = reported(w, bad_checkpoints=every, trimmed=1)
    assert (decision.outcome, decision.rule) == (Outcome.WAIT, "no-whole-checkpoint")
    assert decision.reason.startswith(f"checkpoint {before.checkpoint} cannot be used and no other is whole")
    assert decision.reason.endswith("up to batch 1 was given up, so the stream cannot begin again")


def recovering(w: World) -> World:
    """Two of four nodes are lost, and the first plan is carried out."""
    w.kill("n1", "n2")
    w.run(3.0)
    assert w.incident is not None and w.incident.phase in (Phase.WAITING, Phase.RECOVERING)
    return w


def test_dropped_buffers_send_everything_back_to_the_newest_checkpoint() -> None:
    w = recovering(world(cpu=200))
    before = w.desired
    assert before is not None and w.progress is not None
    not_kept = frozenset({"sink.1", "left.0"})
    decision = reported(w, not_kept=not_kept)
    after, incident = told(decision), record(decision)
    assert decision.rule == "buffers-dropped"
    assert decision.reason == "buffers were full: no output is left for left.0, sink.1"
    assert (after.checkpoint, after.generation) == (max(w.checkpoints), before.generation + 1)
    assert after.assignment == before.assignment
    assert after.punctuate is False
    assert (incident.phase, incident.checkpoint, incident.generation) == (
        Phase.RECOVERING,
        after.checkpoint,
        after.generation,
    )
    assert (incident.events[-1].name, incident.events[-1].detail) == ("buffers-dropped", decision.reason)
    assert w.look()[1].rule != "buffers-dropped", "nothing of this report is missing"
    old = [{"generation": before.generation - 1}, {"seq": before.seq - 1}]
    assert all(reported(w, not_kept=not_kept, **late).rule != "buffers-dropped" for late in old), (
        "it speaks of before"
    )


def test_code_that_raises_is_taken_off_its_node_once_and_the_rest_is_planned_anew() -> None:
    w = recovering(world(cpu=200))
    before = w.desired
    assert before is not None and w.progress is not None
    bad = next(p for p in before.assignment if p.startswith("sink"))
    why = {bad: Failure(FailureKind.POISON, "batch 7")}
    decision = reported(w, failed={**w.progress.failed, **why})
    incident = record(decision)
    assert decision.rule == "quarantine"
    assert decision.reason == f"{bad}: poison: batch 7"
    assert told(decision).assignment == {p: n for p, n in before.assignment.items() if p != bad}
    assert told(decision).punctuate is False
    assert incident.considered is None
    assert (incident.events[-1].name, incident.events[-1].detail) == ("poison", decision.reason)
    w.commit(w.version, decision)
    assert w.poison is not None
    assert (w.poison.driver, w.poison.partitions) == ("1", {bad: "poison: batch 7"})
    assert reported(w, failed={**w.progress.failed, **why}).rule != "quarantine"


def test_a_new_driver_is_told_of_no_poison_of_the_one_before() -> None:
    w = world()
    w.poison = Poison("1", {"sink.0": "poison: batch 7"})
    w.start_driver()
    w.drive()
    w.coordinate()
    assert w.poison == Poison("2")


@pytest.mark.parametrize(("paused", "rule"), [(True, "pause"), (False, "resume")])
def test_a_pause_of_the_resource_goes_to_the_driver(paused: bool, rule: str) -> None:
    w = world()
    assert w.desired is not None
    w.desired, w.paused = replace(w.desired, paused=not paused), paused
    decision = w.look()[1]
    assert (decision.rule, decision.reason) == (rule, f"paused={paused}")
    assert told(decision) == w.desired.next(paused=paused)


def test_what_came_back_as_it_was_is_no_false_alarm_once_something_was_done() -> None:
    w = world()
    node = w.nodes.pop("n1#1")
    w.coordinate()
    w.nodes[node.id] = node
    w.drive()
    planned(w)
    closed = edited(w)
    assert closed.rule == "false-alarm"
    assert (record(closed).phase, record(closed).closed_at) == (Phase.CLOSED, w.now)
    assert record(closed).events[-1].detail == closed.reason == "nothing is failed any more"
    assert told(closed).punctuate is True
    assert told(closed).plan is None
    assert edited(w, plans=("inc-1-p1",)).rule != "false-alarm"
    assert edited(w, kind=Kind.DRIVER).rule != "false-alarm"


def test_a_burst_settles_when_its_time_is_over_and_the_driver_has_answered() -> None:
    w = opened(world())
    assert w.incident is not None and w.desired is not None
    until = w.incident.settle_until
    w.now = until - 0.25
    waits = edited(w)
    assert (waits.rule, waits.until) == ("settling", until)
    assert waits.reason == "0.2 s more for the rest of the burst"
    w.now = until
    assert edited(w).rule == "plan-blocking"  # it has said what it lost
    unanswered = {"seq": w.desired.seq - 1}
    waits = reported(w, **unanswered)
    assert (waits.rule, waits.reason) == ("settling", "the driver has not said yet what it lost")
    w.now = until + ANSWER_S
    assert reported(w, **unanswered).rule == "plan-blocking"


def test_a_blocking_plan_is_known_by_its_number_and_says_where_everything_begins_again() -> None:
    w = opened(world())
    assert w.incident is not None
    w.now = w.incident.settle_until
    decision = w.look()[1]
    plan, after = decision.plan, told(decision)
    assert plan is not None and after.checkpoint == max(w.checkpoints)
    assert (plan.id, plan.checkpoint, plan.generation) == (
        f"{w.incident.id}-p1", after.checkpoint, after.generation,
    )  # fmt: skip
    assert after.plan == plan.id
    assert record(decision).plans == (plan.id,)
    assert {"partitions", "placement"}.isdisjoint(plan.plan), "they are in what is added"
    second = edited(w, plans=("inc-000001-p1",)).plan
    assert second is not None and second.id == f"{w.incident.id}-p2"


def test_blocking_recovery_plans_anew_when_less_is_failed_than_at_the_last_plan() -> None:
    w = world(cpu=200)
    w.kill("n1")
    w.run(6.0)
    assert w.incident is not None and w.incident.considered is not None
    last = w.incident.considered
    assert w.look()[1].rule == "nothing-to-do"
    more = replace(last, waiting=last.waiting | {"another.0"})
    assert edited(w, considered=more).rule == "wait-for-capacity"


def test_the_nodes_of_a_new_driver_are_waited_for_until_they_are_there_or_the_grace_is_over() -> None:
    w = opened(world(driver_grace_s=10.0))
    assert w.incident is not None
    w.now = w.incident.settle_until + 1.0
    later = w.now + 0.5
    waits = edited(w, driver_until=later)
    assert (waits.rule, waits.reason) == ("settling", "3 of 4 nodes are back with the new driver")
    assert edited(w, driver_until=later, nodes_before=3).outcome is Outcome.ACT
    assert edited(w, driver_until=w.now).outcome is Outcome.ACT
    w.kill("n2", "n3", "n4")
    w.drive()
    none = edited(w, driver_until=w.now)
    assert (none.rule, none.reason) == ("settling", "no node is back with the new driver")
    assert record(none).driver_until == w.now + 10.0


@pytest.mark.parametrize(("x", "kind"), [(1, Kind.CORRELATED), (2, Kind.BLOCKING)])
def test_a_settled_burst_is_correlated_from_x_nodes_on(x: int, kind: Kind) -> None:
    w = opened(world(correlated_nodes=x))
    assert w.incident is not None
    w.now = w.incident.settle_until
    decision = edited(w)
    incident = record(decision)
    assert incident.kind is kind
    line = next(e for e in incident.events if e.name == kind.value)
    assert (line.time, line.detail) == (w.now, f"1 nodes lost, X = {x}")
    assert edited(w, kind=Kind.DRIVER).incident.kind is Kind.DRIVER  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("window_s", "ago", "kind"),
    [(120.0, 120.0, Kind.CORRELATED), (120.0, 120.5, Kind.BLOCKING), (None, 86400.0, Kind.CORRELATED)],
)
def test_a_loss_counts_until_the_window_is_over(window_s: float | None, ago: float, kind: Kind) -> None:
    w = opened(world(correlated_nodes=1, window_s=window_s))
    assert w.incident is not None
    w.now = w.incident.settle_until
    assert record(edited(w, lost=(LostNode("n1#1", w.now - ago),))).kind is kind


def test_a_blocking_recovery_becomes_correlated_when_more_is_lost() -> None:
    w = World(diamond(3, 200), Policy(nodes_wanted=4)).started(4)
    w.kill("n1")
    w.run(3.0)
    w.kill("n2")
    w.drive()
    decision = w.look()[1]
    incident = record(decision)
    assert decision.rule == "plan-first"
    assert incident.kind is Kind.CORRELATED
    line = next(e for e in incident.events if e.name == "correlated")
    assert (line.time, line.detail) == (w.now, "2 nodes lost, X = 2")


def at_work_again(w: World) -> Decision:
    """A node is lost and its partitions are restored elsewhere: the decision that says so."""
    w.kill("n1")
    for _ in range(40):
        w.now += 0.3
        w.drive()
        if (decision := w.coordinate()).rule == "restored":
            return decision
    raise AssertionError(w.log)


def verifying(w: World) -> World:
    """Everything is at work again, and no global checkpoint has been complete since."""
    at_work_again(w)
    return w


def test_a_report_of_before_the_last_order_is_not_believed_about_failures_and_restorations() -> None:
    """It tells of the partitions as they were under another order: one lost then may have been installed again since."""
    w = world()
    assert w.desired is not None
    lost = {"sink.0": Failure.parse("its host is another one")}
    assert reported(w, failed=lost).rule == "failure-detected"
    assert reported(w, failed=lost, seq=w.desired.seq - 1).rule != "failure-detected"
    w.kill("n1")
    for _ in range(40):
        w.now += 0.3
        w.drive()
        assert w.desired is not None
        older = reported(w, seq=w.desired.seq - 1)
        assert older.rule != "restored"
        if w.coordinate().rule == "restored":
            return
    raise AssertionError(w.log)


def test_restored_is_said_and_global_checkpoints_go_on() -> None:
    w = world()
    decision = at_work_again(w)
    incident = record(decision)
    assert decision.reason == incident.events[-1].detail == "everything is at work"
    assert incident.phase is Phase.VERIFYING
    assert (incident.events[-1].name, incident.events[-1].time) == ("restored", w.now)
    assert told(decision).punctuate is True
    assert set(told(decision).assignment) == {p.id for p in w.topology.partitions}


def test_buffers_that_are_dropped_before_a_new_checkpoint_is_complete_call_it_off() -> None:
    """Global checkpoints are on again then, and the incident may be of an older one than there is by now."""
    w = verifying(world())
    assert w.incident is not None and w.desired is not None and w.progress is not None
    assert w.desired.punctuate
    w.progress = replace(w.progress, seq=w.desired.seq, not_kept=frozenset({"sink.0"}))
    newest = max(w.checkpoints)
    w.incident = replace(w.incident, checkpoint=newest + 1)  # so none that is there closes it
    decision = w.look()[1]
    assert decision.rule == "buffers-dropped"
    assert told(decision).punctuate is False
    assert (record(decision).checkpoint, record(decision).phase) == (newest, Phase.RECOVERING)


def test_where_everything_stops_a_new_driver_without_enough_nodes_settles_and_waits() -> None:
    w = world(strategy=Strategy.BLOCKING, driver_grace_s=10.0)
    w.start_driver()
    w.kill("n1")
    w.drive()
    assert w.coordinate().rule == "driver-restarted"
    w.drive()
    assert w.incident is not None and w.incident.driver_until is not None
    w.now = w.incident.driver_until
    decision = edited(w, kind=Kind.CORRELATED)
    assert (decision.rule, decision.reason) == ("settled", "correlated: 3 of 4 nodes are ready")
    assert decision.desired is None
    assert (record(decision).phase, record(decision).driver_until) == (Phase.WAITING, None)


def test_a_newer_checkpoint_closes_the_incident_and_switches_everything_off() -> None:
    w = verifying(world())
    assert w.incident is not None and w.desired is not None
    old, horizon = w.incident.checkpoint, w.incident.horizon
    assert old < horizon
    assert reported(w, checkpoint=old).rule != "closed"
    assert reported(w, checkpoint=horizon).rule != "closed", "it may have been announced before the failure"
    w.paused = True
    planned(w)
    late = reported(w, checkpoint=horizon + 1, seq=w.desired.seq - 1)
    assert late.rule != "closed", "it says nothing yet of how queries stand"
    decision = reported(w, checkpoint=horizon + 1, seq=w.desired.seq)
    after, incident = told(decision), record(decision)
    assert decision.rule == "closed"
    assert decision.reason == incident.events[-1].detail == f"global checkpoint {horizon + 1} is complete"
    assert incident.events[-1].name == "closed"
    assert (incident.phase, incident.closed_at) == (Phase.CLOSED, w.now)
    assert (after.retain, after.punctuate) == (False, True)
    assert (after.checkpoint, after.plan, after.paused) == (horizon + 1, None, True)
    assert after.generation == w.desired.generation


@pytest.mark.parametrize(
    ("change", "closes"),
    [({}, True), ({"ended": False}, False), ({"horizon": 1_000}, False), ({"seq": 0}, False)],
)
def test_where_the_sources_have_ended_the_checkpoint_of_the_end_is_enough(
    change: dict[str, object], closes: bool
) -> None:
    w = verifying(world())
    assert w.incident is not None
    newest = w.incident.checkpoint
    assert w.desired is not None
    final = {"checkpoint": newest, "horizon": newest, "ended": True, "seq": w.desired.seq}
    w.checkpoints = {newest}
    assert (reported(w, **{**final, **change}).rule == "closed") is closes


# -- partitions that go on from another snapshot than the others --------------------------------------------------------


@pytest.mark.parametrize(
    ("stored", "restored", "closes"),
    [(0, 0, True), (-5, 0, False), (-4, 0, True), (0, 5, False), (0, 4, True)],
)
def test_an_incident_closes_when_each_partition_is_stored_beyond_what_it_was_restored_from(
    stored: int, restored: int, closes: bool
) -> None:
    """By how much one partition differs from the others: `stored` in the newest checkpoint, `restored` in the incident's."""
    w = verifying(world())
    assert w.incident is not None and w.progress is not None and w.desired is not None
    recovered, one = w.incident.checkpoint, w.topology.partitions[0].id
    newest = recovered + 5
    incident = replace(w.incident, lines={one: Origin(1, recovered + restored)} if restored else {})
    lines = {one: newest + stored} if stored else {}
    progress = replace(w.progress, checkpoint=newest, lines=lines, seq=w.desired.seq)
    snapshot = replace(w.snapshot(), incident=incident, progress=progress)
    assert (decide(snapshot, w.policy).rule == "closed") is closes


def test_a_rollback_of_all_ends_every_line_and_a_newer_checkpoint_takes_nobody_back() -> None:
    desired = Desired(7, 3, 10, "1", lines={"a": Origin(5, 4)})
    assert desired.origin("a") == (5, 4)
    assert desired.origin("b") == (3, 10)
    back = desired.back_to(Positions(20))
    assert (back.lines, back.origin("a"), back.origin("b")) == ({}, (6, 20), (6, 20))
    covered = desired.covered_by(Positions(20))
    assert (covered.origin("a"), covered.origin("b")) == ((5, 20), (3, 20))
    assert covered.restored_from == Positions(20)


def test_a_damaged_snapshot_of_one_partition_is_a_damaged_checkpoint() -> None:
    w = world()
    assert w.desired is not None and w.progress is not None
    one = w.topology.partitions[0].id
    desired = replace(w.desired, checkpoint=15, lines={one: Origin(w.desired.generation, 13)})
    progress = replace(w.progress, checkpoint=15, bad_checkpoints=frozenset({13}))
    decision = decide(replace(w.snapshot(), desired=desired, progress=progress), w.policy)
    assert decision.rule == "checkpoint-damaged"
    assert (told(decision).checkpoint, told(decision).lines) == (15, {})
    assert told(decision).generation == w.desired.generation + 1


def test_what_a_reader_misses_of_a_lost_partition_counts_from_its_own_snapshot() -> None:
    w = world()
    assert w.progress is not None
    progress = replace(w.progress, horizon=50, due=50, positions={}, checkpoint=40, lines={"a": 30})
    assert [behind(progress, None, p) for p in ("a", "b")] == [20, 10]
    w.kill("n1")
    incident = replace(record(w.coordinate()), checkpoint=20, lines={"a": Origin(1, 15)}, horizon=0)
    assert [behind(progress, incident, p) for p in ("a", "b")] == [35, 30]


# -- a newest checkpoint that is a line: the driver has it, and whoever goes back to it goes back to all of it ------------


def line_checkpoint(w: World, one: str) -> Snapshot:
    """The world with a newest checkpoint 15 in which `one` stands at 13."""
    assert w.progress is not None
    progress = replace(w.progress, horizon=18, checkpoint=15, lines={one: 13})
    return replace(w.snapshot(), progress=progress, checkpoints=frozenset({10, 15}))


def test_everybody_goes_back_to_its_own_snapshot_of_the_newest_checkpoint() -> None:
    """Taken for one at 15, the partition would never make the batches 14 and 15 again, and its readers wait for ever."""
    w = world()
    one = w.topology.partitions[0].id
    snapshot = line_checkpoint(w, one)
    assert snapshot.desired is not None and snapshot.progress is not None
    desired = replace(snapshot.desired, checkpoint=10)
    snapshot = replace(
        snapshot, desired=desired, progress=replace(snapshot.progress, bad_checkpoints=frozenset({10}))
    )
    after = told(decide(snapshot, w.policy))
    generation = desired.generation + 1
    assert (after.generation, after.checkpoint) == (generation, 15)
    assert after.lines == {one: Origin(generation, 13)}
    assert after.restored_from == Positions(15, {one: 13})


def test_an_incident_is_recovered_from_what_the_newest_checkpoint_has_of_each_partition() -> None:
    """It closes by a checkpoint that is newer for every partition, so it must not claim more than there is of one."""
    w = world()
    one = w.topology.partitions[0].id
    w.kill("n1")
    decision = decide(line_checkpoint(w, one), w.policy)
    assert decision.rule == "failure-detected"
    assert record(decision).restored_from == Positions(15, {one: 13})


def test_a_newer_line_is_what_lost_partitions_are_restored_from_and_takes_nobody_back() -> None:
    desired = Desired(7, 3, 10, "1", lines={"a": Origin(5, 4)})
    covered = desired.covered_by(Positions(20, {"b": 18}))
    assert [covered.origin(p) for p in "abc"] == [(5, 20), (3, 18), (3, 20)]
    assert desired.covered_by(desired.restored_from) == desired


def test_a_checkpoint_of_which_one_partition_stands_behind_input_that_was_given_up_is_not_gone_back_to() -> (
    None
):
    w = world()
    one = w.topology.partitions[0].id
    snapshot = line_checkpoint(w, one)
    assert snapshot.progress is not None
    for trimmed, newest in ((13, Positions(15, {one: 13})), (14, Positions(14))):
        progress = replace(snapshot.progress, trimmed=trimmed)
        seen = replace(snapshot, progress=progress, checkpoints=frozenset({10, 14, 15}))
        assert look(seen, w.policy).newest == newest
