"""What is decided when a new driver goes on with what lives: it stays, and the rest is a partial loss."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reprise.scheduler import Decision, Kind, Phase, decide
from reprise.scheduler.errors import InvariantViolation
from reprise.scheduler.invariants import check
from reprise.scheduler.scope import some_stay
from reprise.scheduler.steps import WriteDesired
from reprise.scheduler.view import look
from tests.support.diamond_worlds import world
from tests.support.recovery_simulator import World


def followed(w: World, without: set[str], **changes: object) -> Decision:
    """What is decided when another driver reports that all goes on but what was on the nodes `without`, which are gone."""
    assert w.progress is not None and w.desired is not None
    w.kill(*without)
    adopted = {p: n for p, n in w.desired.assignment.items() if n.partition("#")[0] not in without}
    nodes = frozenset(adopted.values())
    w.progress = replace(w.progress, driver="9", adopted=adopted, nodes=nodes, **changes)  # type: ignore[arg-type]
    return decide(w.snapshot(), w.policy)


def test_where_everything_lives_nothing_is_failed_and_nothing_is_planned() -> None:
    w = world()
    assert w.desired is not None
    before = w.desired
    decision = followed(w, set())
    assert decision.rule == "driver-restarted"
    after, incident = decision.desired, decision.incident
    assert after is not None and incident is not None
    assert (after.assignment, after.generation) == (before.assignment, before.generation)
    assert (after.driver, after.retain, after.punctuate) == ("9", True, False)
    assert (incident.kind, incident.phase, incident.driver_until) == (Kind.DRIVER, Phase.RECOVERING, None)
    number = len(before.assignment)
    assert incident.events[-1].detail.endswith(
        f"which goes on with {number} of {number} partitions where they are"
    )
    assert incident.queries.keys() == {q.id for q in w.topology.queries}, "all have stood still"
    w.desired, w.incident = after, incident
    assert w.progress is not None
    w.progress = replace(w.progress, seq=after.seq, adopted={}, generation=after.generation)
    w.progress = replace(w.progress, positions=dict.fromkeys(after.assignment, 99), failed={})
    assert decide(w.snapshot(), w.policy).rule == "restored"


def test_what_is_gone_is_planned_for_as_after_any_partial_loss() -> None:
    w = world()
    assert w.desired is not None
    lost = {p for p, n in w.desired.assignment.items() if n.startswith(("n1#", "n2#"))}
    decision = followed(w, {"n1", "n2"})
    after, incident = decision.desired, decision.incident
    assert after is not None and incident is not None
    assert after.assignment.keys() == w.desired.assignment.keys() - lost
    assert (incident.phase, incident.driver_until) == (Phase.SETTLING, None), "no node is waited for"
    assert {entry.node.partition("#")[0] for entry in incident.lost} == {"n1", "n2"}
    w.desired, w.incident, w.now = after, incident, incident.settle_until
    assert w.progress is not None
    w.progress = replace(w.progress, seq=after.seq, adopted={}, kept_since=0, checkpoint=max(w.checkpoints))
    w.progress = replace(w.progress, positions=dict.fromkeys(after.assignment, w.progress.horizon), failed={})
    view = look(w.snapshot(), w.policy)
    assert some_stay(view)
    plan = decide(w.snapshot(), w.policy)
    assert plan.rule == "plan-first" and plan.plan is not None and plan.desired is not None
    assert not plan.plan.rollback
    assert plan.plan.added.keys() == lost


def test_a_decision_that_takes_from_the_new_driver_what_it_goes_on_with_is_refused() -> None:
    w = world()
    decision = followed(w, {"n1"})
    view = look(w.snapshot(), w.policy)
    check(view, decision)
    steps = [
        replace(step, desired=replace(step.desired, assignment={}))
        if isinstance(step, WriteDesired)
        else step
        for step in decision.steps
    ]
    with pytest.raises(InvariantViolation, match="O1"):
        check(view, replace(decision, steps=tuple(steps)))


@pytest.mark.parametrize("why", ["elsewhere", "gone"])
def test_what_is_not_where_it_is_desired_or_on_a_node_that_is_gone_is_failed(why: str) -> None:
    """The desired state may have changed since the driver has read it, and nodes may have gone."""
    w = world()
    assert w.progress is not None and w.desired is not None
    partition, node = next(iter(w.desired.assignment.items()))
    if why == "gone":
        w.kill(node.partition("#")[0])
    adopted = {**w.desired.assignment, **({partition: "n9#1"} if why == "elsewhere" else {})}
    w.progress = replace(w.progress, driver="9", adopted=adopted)
    decision = decide(w.snapshot(), w.policy)
    assert decision.rule == "driver-restarted" and decision.desired is not None
    gone = {p for p, n in w.desired.assignment.items() if why == "gone" and n == node} | {partition}
    assert decision.desired.assignment.keys() == w.desired.assignment.keys() - gone


def test_a_first_loss_after_everything_went_on_makes_a_first_plan() -> None:
    w = world()
    decision = followed(w, set())
    assert decision.desired is not None and decision.incident is not None
    w.desired, w.incident = decision.desired, decision.incident
    w.kill("n1")
    assert w.progress is not None
    lost = {p for p, n in w.desired.assignment.items() if n.startswith("n1#")}
    at_work = dict.fromkeys(w.desired.assignment.keys() - lost, w.progress.horizon)
    w.progress = replace(
        w.progress,
        seq=w.desired.seq,
        adopted={},
        positions=at_work,
        kept_since=0,
        checkpoint=max(w.checkpoints),
    )
    plan = decide(w.snapshot(), w.policy)
    assert plan.rule == "plan-first" and plan.plan is not None
    assert plan.plan.added.keys() == lost
    assert not plan.plan.rollback
