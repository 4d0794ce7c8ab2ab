"""How failed partitions come back: the strategies of a correlated failure, and all-or-nothing below X nodes.

One signature, `(situation, first) -> decision or None`; None means that nothing has changed since the last
plan. What runs stays where it is (O1 in docs/recovery.md): a plan adds to the assignment, and a first one may
take from it what cannot run; what it adds fits under the cap of each node (C1).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from reprise.scheduler import domains
from reprise.scheduler.eviction import Placed, plan_first, rearranged, worth_of_plan
from reprise.scheduler.incident import EventName, Incident, Kind, Phase, Trigger, some
from reprise.scheduler.model import Desired, Strategy
from reprise.scheduler.overcommit import if_better, said_of_slowdowns, slowdowns
from reprise.scheduler.planning import Planned, plan_recovery
from reprise.scheduler.scope import going_back, some_stay
from reprise.scheduler.situation import Situation, carried_out
from reprise.scheduler.steps import Decision, RuleName, WriteDesired, WriteIncident, act
from reprise.scheduler.view import View

Recovery = Callable[[Situation, bool], Decision | None]


def recover(s: Situation, first: bool) -> Decision | None:
    """The next move by the kind of the incident and the strategy of the policy."""
    if s.open.kind is Kind.BLOCKING:
        return restore_whole(s, first)
    return STRATEGIES[s.view.policy.strategy](s, first)


def plan_by_plan(s: Situation, first: bool) -> Decision | None:
    """Su and Zhou, section 4.4: the first plan rolls the survivors back, the following only add.

    Departs from that in two ways.  Survivors that cannot run give their room, where in theirs each keeps its node
    (`reprise.scheduler.eviction`).  And survivors go on, where there all go back (`reprise.scheduler.scope`)."""
    view = s.view
    lost = [p for p in view.failed if p in s.desired.assignment]
    anew = first or (bool(lost) and not view.replays_alike)
    rollback = anew and not some_stay(view)
    candidates = tuple(view.failed) if anew else view.movable
    if not anew and len(candidates) < len(view.failed):
        return _taken_off(s) if lost else None
    if not first and not lost and s.nothing_more(candidates):
        return None
    placed = _placed(s, anew, candidates)
    if all_anew := rearranged(view, s.costs, placed.planned, s.open.nodes_before, s.planner):
        rollback, placed = True, all_anew
    placed = domains.regarded(view, s.costs, placed, s.open.nodes_before)
    return _as_planned(s, placed, _trigger(s, first, bool(lost)), anew, rollback)


def _placed(s: Situation, anew: bool, candidates: Collection[str]) -> Placed:
    """What comes back where; above the cap where that is allowed and brings back more.  A first start keeps to the
    cap until it has lost a node."""

    def plan(view: View) -> Placed:
        if anew:
            return plan_first(view, s.costs, s.planner, s.open.nodes_before)
        return Placed(plan_recovery(view, s.costs, view.survivors, candidates, s.planner), view.survivors)

    def better(one: Placed, other: Placed) -> bool:
        policy = s.view.policy
        return worth_of_plan(one.planned, policy) > worth_of_plan(other.planned, policy)

    if s.open.kind is Kind.START and not s.open.lost:
        return plan(s.view)
    return if_better(s.view, plan, lambda placed: bool(placed.planned.left_out), better)


def _as_planned(s: Situation, placed: Placed, trigger: Trigger, anew: bool, rollback: bool) -> Decision:
    """Carries a plan out: with a rollback of everything, with one of what has to go back (`anew`), or with none."""
    view, before, planned, plan_id = s.view, s.desired, placed.planned, s.plan_id()
    after = before.next(
        assignment={**placed.held, **planned.added},
        retain=True,
        punctuate=False,
        plan=plan_id,
        paused=view.snapshot.paused,
    )
    note = placed.note
    # who begins anew does so with everything, where a replay may differ: if it gives up its place, or feeds one that does
    rollback = rollback or any(
        after.assignment.get(p) != n for p, n in view.survivors.items() if p in view.output_waits
    )
    if anew and view.output_waits:
        rollback = rollback or not view.output_waits.isdisjoint(going_back(view, planned.pending))
    if rollback:
        after = after.back_to(view.newest)
    elif anew:
        after, back = _with_ancestors(s, after, planned.pending)
        note = "; ".join(filter(None, (note, back)))
    elif after.assignment == before.assignment:
        after = before
    note = _with_what_follows(s, note, after)
    incident = _after_plan(s, after, planned)
    desired = None if after is before else after
    summary = "; ".join(filter(None, (_summary(planned), note)))
    return carried_out(
        RuleName(f"plan-{trigger}"),
        f"{plan_id} {summary}",
        s.record(planned, trigger, desired, planned.added, note),
        desired,
        incident.log(s.now, EventName.PLAN, f"{plan_id} {trigger}: {summary}"),
    )


def _with_ancestors(s: Situation, after: Desired, failed: Collection[str]) -> tuple[Desired, str]:
    """A first plan that lets live what need not go back, and what people should know of it."""
    # who begins anew needs nothing from before, and is no reason to make what others rest on again
    back = going_back(s.view, [p for p in failed if p not in s.desired.anew])
    usable = s.view.usable_ids
    # on a node that lives, only another generation tells a new try from the old one
    again = {p for p in s.view.failed if s.desired.assignment.get(p) in usable}
    stay = sum(after.assignment.get(p) == n for p, n in s.view.survivors.items() if p not in back)
    note = f"{stay} at work go on"
    if s.view.by_driver:
        note += ", as far as the driver's line lets them"
    if back:
        note += f", and {len(back)} go back to checkpoint {s.view.newest_checkpoint}, as what they have sent is not kept"
    return after.covered_by(s.view.newest).taking_back(back | again), note


def _with_what_follows(s: Situation, note: str, after: Desired) -> str:
    """The note of a plan, with what is above the cap after it, and what a failure domain would take."""
    above = (
        said_of_slowdowns(slowdowns(s.view, s.costs, after.assignment)) if s.view.policy.overcommit else ""
    )
    begun = [p for p in after.anew if p in after.assignment and p not in s.view.at_work]
    anew = f"{some(begun)} begin anew, as somebody has asked to skip" if begun else ""
    return "; ".join(filter(None, (note, anew, above, domains.said(s.view, after.assignment))))


def _taken_off(s: Situation) -> Decision:
    """What failed on usable nodes is taken from them. The plan follows when the driver has seen it: planned at
    once without these partitions, others would get the room that they leave."""
    lost = [p for p in s.view.failed if p in s.desired.assignment]
    after = s.desired.next(assignment=dict(s.view.survivors), retain=True, punctuate=False, plan=None)
    reason = some([f"{p}: {s.view.failed[p]}" for p in lost])
    incident = replace(s.open, phase=Phase.RECOVERING).log(s.now, EventName.TAKEN_OFF, reason)
    return act(RuleName.TAKEN_OFF, reason, WriteDesired(after), WriteIncident(incident))


def restore_whole(s: Situation, first: bool) -> Decision | None:
    """Blocking recovery: everything that is failed at once, with all that has to go back with it, or nothing yet."""
    view, before = s.view, s.desired
    candidates = tuple(view.failed)
    last = s.open.considered
    fewer = last is not None and last.waiting != frozenset(candidates)
    if not candidates or (not first and not fewer and s.nothing_more(candidates)):
        return None

    def lacks(one: Planned) -> bool:
        return set(one.added) != set(candidates)

    planned = if_better(
        view,
        lambda seen: plan_recovery(seen, s.costs, seen.survivors, candidates, s.planner),
        lacks,
        lambda one, _: not lacks(one),
    )
    if lacks(planned):
        return _not_yet(s, planned, candidates)
    planned = domains.regarded(view, s.costs, Placed(planned, view.survivors), s.open.nodes_before).planned
    scoped = some_stay(view)
    after = before.next(
        assignment={**view.survivors, **planned.added},
        retain=scoped,
        punctuate=False,
        plan=s.plan_id(),
        paused=view.snapshot.paused,
    )
    after, note = _with_ancestors(s, after, candidates) if scoped else (after.back_to(view.newest), "")
    note = _with_what_follows(s, note, after)
    incident = _after_plan(s, after, planned)
    summary = "; ".join(filter(None, (_summary(planned), note)))
    return carried_out(
        RuleName.PLAN_BLOCKING,
        f"{s.plan_id()} {summary}",
        s.record(planned, Trigger.BLOCKING, after, planned.added, note),
        after,
        incident.log(s.now, EventName.PLAN, f"{s.plan_id()} blocking: {summary}"),
    )


def stop_and_wait(s: Situation, first: bool) -> Decision | None:
    """What engines without partial recovery do: everything stops until as many nodes are there as before."""
    view = s.view
    if s.desired.assignment and (first or view.failed):
        after = s.desired.next(assignment={}, retain=False, punctuate=False, paused=view.snapshot.paused)
        incident = replace(s.open, phase=Phase.WAITING, considered=None).log(
            s.now, EventName.STOPPED, f"waits for {s.open.nodes_before} nodes"
        )
        reason = f"everything stops until {s.open.nodes_before} nodes are ready"
        return act(RuleName.STOP, reason, WriteDesired(after), WriteIncident(incident))
    if len(view.usable) < s.open.nodes_before:
        return None
    return restore_whole(s, first)


STRATEGIES: Mapping[Strategy, Recovery] = {
    Strategy.INCREMENTAL: plan_by_plan,
    Strategy.OPERATOR_CENTRIC: plan_by_plan,
    Strategy.BEST_CASE: plan_by_plan,
    Strategy.BLOCKING: stop_and_wait,
}


def _trigger(s: Situation, first: bool, lost: bool) -> Trigger:
    if first:
        return Trigger.FIRST
    last = s.open.considered
    came_back = last is not None and not frozenset(s.view.movable) <= last.waiting
    return Trigger.LOSS if lost or came_back else Trigger.ARRIVAL


def _after_plan(s: Situation, desired: Desired, planned: Planned) -> Incident:
    return replace(
        s.open,
        phase=Phase.RECOVERING if desired is not s.desired else s.open.phase,
        checkpoint=desired.checkpoint,
        generation=desired.generation,
        lines=s.open.lines if s.view.by_driver else desired.lines,
        driver_until=None,
        considered=s.considered(planned.pending, planned.added),
    )


def _not_yet(s: Situation, planned: Planned, candidates: tuple[str, ...]) -> Decision:
    """A plan that restores nothing: recorded once, until something changes."""
    reason = (
        f"{planned.needed} milli-CPU are failed and come back together; "
        f"{sum(planned.free.values())} are free on {len(planned.free)} nodes"
    )
    if sum(planned.free.values()) >= planned.needed:
        reason += ", in pieces that are too small"
    queries = [c.query for c in planned.candidates]
    planned = replace(planned, left_out={**planned.left_out, **dict.fromkeys(queries, reason)})
    incident = replace(s.open, phase=Phase.WAITING, considered=s.considered(candidates, {}))
    after = s.desired.next(punctuate=False) if s.desired.punctuate else None
    record = s.record(planned, Trigger.BLOCKING, after, {}, note=reason)
    return carried_out(
        RuleName.WAIT_FOR_CAPACITY, reason, record, after, incident.log(s.now, EventName.WAITING, reason)
    )


def _summary(planned: Planned) -> str:
    chosen, added = len(planned.plan.queries), len(planned.added)
    return (
        f"restores {added} partition{'s' if added != 1 else ''} and brings back {chosen} of "
        f"{chosen + len(planned.left_out)} queries; {sum(planned.free.values())} milli-CPU were free"
    )
