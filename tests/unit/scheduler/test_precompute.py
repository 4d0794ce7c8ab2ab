"""Plans that are made while a burst settles."""

from __future__ import annotations

from typing import Any

import pytest

from reprise.algorithms import Plan, solve
from reprise.scheduler import Decision, Policy, PrecomputedPlan, Strategy, decide
from reprise.scheduler import precomputed as precomputed_module
from reprise.scheduler.decide import precompute
from reprise.scheduler.situation import answer_on_record
from tests.support.recovery_simulator import World, diamond

PLANNING = [s for s in Strategy if s is not Strategy.BLOCKING]


@pytest.fixture
def solved(monkeypatch: pytest.MonkeyPatch) -> list[Plan]:
    """All plans that were computed, in order."""
    found: list[Plan] = []

    def counted(*args: Any) -> Plan:
        found.append(solve(*args))
        return found[-1]

    monkeypatch.setattr(precomputed_module, "solve", counted)
    return found


def world(strategy: Strategy = Strategy.INCREMENTAL) -> World:
    return World(diamond(3, 200, True), Policy(nodes_wanted=5, strategy=strategy)).started(5)


def burst(w: World, *names: str) -> tuple[Decision, PrecomputedPlan | None]:
    """These nodes are lost; the detection, and what is precomputed with it."""
    w.kill(*names)
    while True:
        w.now += 0.1
        w.drive()
        before = w.snapshot()
        decision = w.coordinate()
        if decision.rule == "failure-detected":
            return decision, precompute(before, decision, w.policy)


def settled(w: World, precomputed: PrecomputedPlan | None) -> Decision:
    """The first decision after the burst has settled."""
    while True:
        w.now += 0.1
        w.drive()
        version, _ = w.look()
        decision = decide(w.snapshot(), w.policy, precomputed=precomputed)
        w.basis[id(decision)] = (decision, w.progress)
        w.commit(version, decision)
        if decision.rule.startswith(("plan-", "wait-", "stop")):
            return decision


@pytest.mark.parametrize("strategy", PLANNING)
def test_a_plan_made_ahead_is_the_plan(strategy: Strategy, solved: list[Plan]) -> None:
    w = world(strategy)
    _, precomputed = burst(w, "n1", "n2")
    assert precomputed is not None
    asked = len(solved)
    # with the room of all survivors that cannot run, and of those that the plan does not want again
    assert asked == (1 if strategy is Strategy.OPERATOR_CENTRIC else 2)
    twin = world(strategy)
    burst(twin, "n1", "n2")
    del solved[:]
    decision = settled(w, precomputed)
    assert decision.plan is not None
    ahead, solved[:] = list(solved), []
    assert settled(twin, None) == decision
    assert len(solved) == len(ahead) + asked  # the simulator's own looks apart, nothing was computed again


def test_a_loss_while_the_burst_settles_makes_another_plan(solved: list[Plan]) -> None:
    w = world()
    _, precomputed = burst(w, "n1", "n2")
    w.kill("n3")
    decision = settled(w, precomputed)
    assert decision.plan is not None
    assert {node.rpartition("#")[0] for node in decision.plan.free} == {"n4", "n5"}
    assert decision.plan.plan == answer_on_record(solved[-1]) != answer_on_record(solved[0])


def test_what_is_known_is_not_planned_again(solved: list[Plan]) -> None:
    w = world()
    _, precomputed = burst(w, "n1", "n2")
    w.now += 0.1
    w.drive()
    before = w.snapshot()
    decision = w.coordinate()
    assert decision.rule in ("settling", "observed")
    del solved[:]
    assert precompute(before, decision, w.policy, known=precomputed) is precomputed
    assert not solved


def test_nothing_is_foreseen_where_no_burst_settles() -> None:
    w = world()
    before = w.snapshot()
    assert precompute(before, w.coordinate(), w.policy) is None


def test_a_strategy_that_waits_for_all_nodes_needs_no_plan(solved: list[Plan]) -> None:
    _, precomputed = burst(world(Strategy.BLOCKING), "n1", "n2")
    assert precomputed is None
    assert not solved
