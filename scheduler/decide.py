"""The coordinator's state machine: a table of rules by state, and the one interpreter of it.

In each state the rules are asked in order and the first that answers decides. The state is read off the
snapshot alone, so a coordinator that starts in the middle is in the right state at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import StrEnum
from math import inf

from reprise.algorithms import PlanningError
from reprise.scheduler import moves, rebalancing, rules, skips, standbys, start
from reprise.scheduler.errors import InvariantViolation
from reprise.scheduler.incident import Incident, Phase
from reprise.scheduler.invariants import check
from reprise.scheduler.model import Policy, Snapshot
from reprise.scheduler.observe import observe
from reprise.scheduler.precomputed import Clock, Planner, PrecomputedPlan
from reprise.scheduler.situation import Situation
from reprise.scheduler.steps import Decision, Outcome, RuleName, WriteIncident, act, wait
from reprise.scheduler.view import look

Rule = Callable[[Situation], Decision | None]


class State(StrEnum):
    STARTING = "starting"
    STEADY = "steady"
    SETTLING = "settling"
    RECOVERING = "recovering"  # the phases waiting and recovering
    VERIFYING = "verifying"


TABLE: Mapping[State, tuple[Rule, ...]] = {
    State.STARTING: (start.left_open, start.nodes_awaited, start.placed),
    State.STEADY: (
        rules.driver_restarted,
        rules.checkpoint_damaged,
        rules.quarantine,
        standbys.promoted,
        skips.asked,
        rules.failure_detected,
        rules.buffers_dropped,
        rules.pause_changed,
        standbys.placed,
        moves.emptied,
        rebalancing.rebalanced,
    ),
    State.SETTLING: (
        rules.driver_restarted,
        rules.checkpoint_damaged,
        rules.quarantine,
        standbys.promoted,
        rules.false_alarm,
        standbys.handed_over,
        standbys.promotions_over,
        rules.settling,
        standbys.awaited,
        skips.asked_before_a_plan,
        rules.settled,
    ),
    State.RECOVERING: (
        rules.driver_restarted,
        rules.checkpoint_damaged,
        rules.buffers_dropped,
        rules.quarantine,
        standbys.promoted,
        standbys.handed_over,
        skips.asked,
        standbys.awaited,
        rules.upgraded,
        rules.replan,
        rules.restored,
        rules.pause_changed,
    ),
    State.VERIFYING: (
        rules.driver_restarted,
        rules.checkpoint_complete,
        rules.checkpoint_damaged,
        rules.buffers_dropped,
        rules.quarantine,
        standbys.promoted,
        standbys.handed_over,
        skips.asked,
        standbys.awaited,
        rules.upgraded,
        rules.replan,
        rules.caught_up_beside_poison,
        rules.pause_changed,
    ),
}

_BY_PHASE = {
    Phase.SETTLING: State.SETTLING,
    Phase.WAITING: State.RECOVERING,
    Phase.RECOVERING: State.RECOVERING,
    Phase.VERIFYING: State.VERIFYING,
    Phase.CLOSED: State.STEADY,
}


def state_of(snapshot: Snapshot) -> State:
    if snapshot.desired is None:
        return State.STARTING
    return State.STEADY if snapshot.incident is None else _BY_PHASE[snapshot.incident.phase]


def decide(
    snapshot: Snapshot, policy: Policy, clock: Clock = None, precomputed: PrecomputedPlan | None = None
) -> Decision:
    """What to do now. `clock` times the planner (monotonic seconds); without one, plans count work instead. `precomputed`:
    a plan that is not made again if it is the one.

    Raises InvariantViolation instead of answering with what must not be done, and what `reprise.algorithms.solve`
    raises.
    """
    return _decide(snapshot, policy, Planner(clock, precomputed))


def settling(snapshot: Snapshot, decision: Decision) -> Incident | None:
    """The incident whose burst settles after `decision` on `snapshot`."""
    incident = decision.incident or snapshot.incident
    return incident if incident is not None and incident.phase is Phase.SETTLING else None


def precompute(
    snapshot: Snapshot,
    decision: Decision,
    policy: Policy,
    clock: Clock = None,
    known: PrecomputedPlan | None = None,
) -> PrecomputedPlan | None:
    """The plan that is due when the burst has settled, should nothing more happen after `decision` on `snapshot`: `known`,
    if it is that.  None when no burst settles then, or no plan comes of it."""
    incident = settling(snapshot, decision)
    if incident is None:
        return None
    settled = replace(
        snapshot,
        # when even an answer of the driver is no longer waited for
        now=incident.settle_until + rules.ANSWER_S,
        desired=decision.desired or snapshot.desired,
        incident=incident,
    )
    planner = Planner(clock, known)
    try:
        _decide(settled, policy, planner)
    except (InvariantViolation, PlanningError):
        return None  # whoever decides in earnest will say it
    return planner.precomputed


def _decide(snapshot: Snapshot, policy: Policy, planner: Planner) -> Decision:
    if not snapshot.session:
        return Decision(Outcome.UNKNOWN, RuleName.NO_SESSION, "read without a session: nothing is known")
    if snapshot.progress is None:
        return wait(RuleName.NO_DRIVER, "no driver has reported yet")
    view = look(snapshot, policy)
    incident = observe(view, snapshot.incident) if snapshot.incident and snapshot.desired else None
    situation = Situation(view, incident, planner)
    for rule in TABLE[state_of(snapshot)]:
        decision = rule(situation)
        if decision is not None and decision.outcome is Outcome.ACT:
            decision = skips.with_void_wishes(situation, standbys.beside(view, decision))
            check(view, decision)
            return decision
        if decision is not None:
            return _observed(situation, decision)
    until = 0.0 if incident else inf
    return _observed(situation, wait(RuleName.NOTHING_TO_DO, _status(situation), until))


def _observed(s: Situation, otherwise: Decision) -> Decision:
    """What was observed is written alone when no rule has anything to write."""
    if s.incident is None or s.incident == s.view.snapshot.incident:
        return otherwise
    return act(RuleName.OBSERVED, otherwise.reason, WriteIncident(s.incident), until=otherwise.until)


def _status(s: Situation) -> str:
    if s.incident is None:
        return "nothing is failed"
    failed, ready = len(s.view.failed), len(s.view.usable)
    return f"{s.incident.phase}: {failed} partitions failed, {ready} nodes ready"
