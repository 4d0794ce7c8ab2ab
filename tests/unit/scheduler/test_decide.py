"""The interpreter of the table: which state a snapshot is in, and what is said when no rule decides."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from math import inf

import pytest

from reprise.algorithms import PlanningError
from reprise.scheduler import Outcome, Phase, decide
from reprise.scheduler.decide import State, precompute, settling, state_of
from tests.support.diamond_worlds import world


@pytest.mark.parametrize(
    ("phase", "state"),
    [
        (Phase.SETTLING, State.SETTLING),
        (Phase.WAITING, State.RECOVERING),
        (Phase.RECOVERING, State.RECOVERING),
        (Phase.VERIFYING, State.VERIFYING),
        (Phase.CLOSED, State.STEADY),
    ],
)
def test_the_state_is_read_off_the_snapshot(phase: Phase, state: State) -> None:
    w = world(200)
    assert state_of(w.snapshot()) is State.STEADY
    assert state_of(replace(w.snapshot(), desired=None)) is State.STARTING
    w.kill("n1")
    w.coordinate()
    assert w.incident is not None
    assert state_of(replace(w.snapshot(), incident=replace(w.incident, phase=phase))) is state


def test_without_a_session_nothing_is_known_and_without_a_report_nothing_is_decided() -> None:
    w = world(200)
    w.kill("n1", "n2")
    unknown = decide(replace(w.snapshot(), session=False), w.policy)
    assert (unknown.outcome, unknown.rule) == (Outcome.UNKNOWN, "no-session")
    assert unknown.reason == "read without a session: nothing is known"
    none = decide(replace(w.snapshot(), progress=None), w.policy)
    assert (none.outcome, none.rule, none.reason) == (
        Outcome.WAIT,
        "no-driver",
        "no driver has reported yet",
    )


def test_with_nothing_to_do_it_says_what_is_waited_for_and_when_to_look_again() -> None:
    w = world(200)
    quiet = w.look()[1]
    assert (quiet.rule, quiet.reason, quiet.until) == ("nothing-to-do", "nothing is failed", inf)
    w.kill("n1", "n2")
    w.run(5.0)
    waits = w.look()[1]
    failed = len({p.id for p in w.topology.partitions} - set(w.desired.assignment))  # type: ignore[union-attr]
    assert failed > 0
    assert (waits.rule, waits.until) == ("nothing-to-do", 0.0)
    assert waits.reason == f"waiting: {failed} partitions failed, 2 nodes ready"


def test_what_is_seen_is_written_alone_where_no_rule_writes_and_only_once() -> None:
    w = world(200)
    w.kill("n1")
    w.coordinate()
    w.kill("n2")
    seen = w.look()[1]
    assert w.incident is not None and seen.incident is not None
    assert (seen.outcome, seen.rule) == (Outcome.ACT, "observed")
    assert seen.reason.endswith("s more for the rest of the burst")
    assert seen.until == w.incident.settle_until
    assert [entry.node for entry in seen.incident.lost] == ["n1#1", "n2#1"]
    assert seen.desired is None
    w.commit(w.version, seen)
    assert w.look()[1].rule == "settling"


def test_a_burst_settles_after_a_decision_that_opens_it_and_after_one_that_leaves_it() -> None:
    w = world(200)
    assert settling(w.snapshot(), w.look()[1]) is None
    w.kill("n1")
    opens = w.look()[1]
    assert settling(w.snapshot(), opens) == opens.incident
    w.commit(w.version, opens)
    leaves = w.look()[1]
    assert leaves.incident is None
    assert settling(w.snapshot(), leaves) == w.incident
    w.run(4.0)
    assert settling(w.snapshot(), w.look()[1]) is None


def test_a_plan_that_cannot_be_made_ahead_is_no_plan_and_whoever_decides_in_earnest_says_why() -> None:
    w = world(200)
    w.kill("n1", "n2")
    w.drive()
    before, detected = w.snapshot(), w.coordinate()
    assert detected.rule == "failure-detected"
    wrong = replace(w.policy, algorithm="none-of-this-name")
    assert precompute(before, detected, wrong) is None
    assert precompute(before, detected, w.policy) is not None
    w.drive()
    assert w.incident is not None
    w.now = w.incident.settle_until
    with pytest.raises(PlanningError, match="none-of-this-name"):
        decide(w.snapshot(), wrong)


def test_what_is_foreseen_rests_on_what_the_decision_leaves_even_before_the_driver_has_answered() -> None:
    w = world(200)
    w.kill("n1", "n2")
    before = (
        w.snapshot()
    )  # the driver's report is of before the loss, and has not seen the newest desired state
    precomputed = precompute(before, w.look()[1], w.policy)
    assert precomputed is not None
    for answer in precomputed.answers:
        assert {node.id for node in answer.question.instance.nodes} == {"n3#1", "n4#1"}
    w.coordinate()
    w.drive()
    waits = w.look()[1]
    assert (waits.rule, waits.desired) == ("settling", None)
    again = precompute(w.snapshot(), waits, w.policy)
    assert again is not None and again == precomputed


def test_plans_are_timed_by_the_clock_that_is_given_and_count_work_without_one() -> None:
    w = world(200)
    w.kill("n1", "n2")
    w.drive()
    w.coordinate()
    w.drive()
    assert w.incident is not None
    w.now = w.incident.settle_until
    ticks = count(7.0, 0.25)
    timed, untimed = (decide(w.snapshot(), w.policy, clock) for clock in (lambda: next(ticks), None))
    assert timed.plan is not None and untimed.plan is not None
    assert timed.plan.seconds > 0.0
    assert timed.plan.seconds % 0.25 == 0.0
    assert untimed.plan.seconds == 0.0
