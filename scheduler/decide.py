"""The coordinator's state machine: a table of rules by state, and the one interpreter of it.

In each state the rules are asked in order and the first that answers decides. The state is read off the
snapshot alone, so a coordinator that starts in the middle is in the right state at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from math import inf

from scheduler import rules, start
from scheduler.incident import Phase
from scheduler.invariants import check
from scheduler.model import Policy, Snapshot
from scheduler.observe import observe
from scheduler.planning import Clock
from scheduler.situation import Situation
from scheduler.steps import Decision, Outcome, WriteIncident, act, wait
from scheduler.view import look

Rule = Callable[[Situation], Decision | None]


class State(StrEnum):
    STARTING = "starting"
    STEADY = "steady"
    SETTLING = "settling"
    RECOVERING = "recovering"  # the phases waiting and recovering
    VERIFYING = "verifying"


TABLE: Mapping[State, tuple[Rule, ...]] = {
    State.STARTING: (start.nodes_awaited, start.placed),
    State.STEADY: (
        rules.driver_restarted,
        rules.checkpoint_damaged,
        rules.quarantine,
        rules.failure_detected,
        rules.pause_changed,
    ),
    State.SETTLING: (
        rules.driver_restarted,
        rules.checkpoint_damaged,
        rules.quarantine,
        rules.false_alarm,
        rules.settled,
    ),
    State.RECOVERING: (
        rules.driver_restarted,
        rules.checkpoint_damaged,
        rules.buffers_dropped,
        rules.quarantine,
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


def decide(snapshot: Snapshot, policy: Policy, clock: Clock = None) -> Decision:
    """What to do now. `clock` times the planner (monotonic seconds); without one, plans count work instead.

    Raises InvariantViolation instead of answering with what must not be done, and what `algorithms.solve`
    raises.
    """
    if not snapshot.session:
        return Decision(Outcome.UNKNOWN, "no-session", "read without a session: nothing is known")
    if snapshot.progress is None:
        return wait("no-driver", "no driver has reported yet")
    view = look(snapshot, policy)
    incident = observe(view, snapshot.incident) if snapshot.incident else None
    situation = Situation(view, incident, clock)
    for rule in TABLE[state_of(snapshot)]:
        decision = rule(situation)
        if decision is not None and decision.outcome is Outcome.ACT:
            check(view, decision)
            return decision
        if decision is not None:
            return _observed(situation, decision)
    until = 0.0 if incident else inf
    return _observed(situation, wait("nothing-to-do", _status(situation), until))


def _observed(s: Situation, otherwise: Decision) -> Decision:
    """What was observed is written alone when no rule has anything to write."""
    if s.incident is None or s.incident == s.view.snapshot.incident:
        return otherwise
    return act("observed", otherwise.reason, WriteIncident(s.incident), until=otherwise.until)


def _status(s: Situation) -> str:
    if s.incident is None:
        return "nothing is failed"
    failed, ready = len(s.view.failed), len(s.view.usable)
    return f"{s.incident.phase}: {failed} partitions failed, {ready} nodes ready"
