"""Standbys: where they are, who is promoted, and which give way.

An active standby is a partition's second runtime on another node, which steps as the partition does and sends nothing
(Hwang et al., "High-Availability Algorithms for Distributed Stream Processing", section 5.3).  What it costs is what its
partition costs, under the cap of its node.  A passive one has a copy of the state (section 5.1 there): it costs what it was
measured to take, and what its partition costs until then.  It is placed where there is room for the partition, too, but that
room is not held for it: several may count on the same.  While nothing is failed each partition that is to have a standby is
given one where there is room, the most valuable first.  When a partition is lost its standby becomes the partition at once:
the rest of a burst is not waited for, as there is nothing to choose between.  A passive one needs room for the partition
then; those that do not find it, the least valuable, are left to the plan.  Where the node of a partition has notice while an
incident is open, its standby becomes the partition before that is lost.

In an incident plans do not count standbys: what a node has free is its cap less what runs there, with what was promoted.
Those that are in the way of what a plan adds are taken away, first those with which least is lost
(`reprise.scheduler.standby_worth`).  Departs from Hwang et al., whose backups are machines of their own.

`reprise.scheduler.standby_placement` says on which nodes they are.

Invariants: a standby is on another node than its partition; and no decision adds to a node so much that it runs more than
its cap together with its standbys.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from reprise.scheduler.costs import frozen_costs, normal_costs
from reprise.scheduler.incident import EventName, Incident, Kind, Phase, some
from reprise.scheduler.model import Desired, Progress
from reprise.scheduler.moves import said_of, to_standbys, with_room
from reprise.scheduler.observe import lost_since_checkpoint, observe
from reprise.scheduler.rules import opened
from reprise.scheduler.situation import Situation
from reprise.scheduler.standby_placement import placement, staying
from reprise.scheduler.standby_places import is_apart
from reprise.scheduler.steps import Decision, RuleName, WriteDesired, WriteIncident, act, wait
from reprise.scheduler.view import View


def promoted(s: Situation) -> Decision | None:
    """Partitions that are lost and have a standby on a living node go on there."""
    view, desired, progress = s.view, s.desired, s.view.snapshot.progress
    if progress is None or view.driver_changed or not view.acked:
        return None
    to = promotable(view, desired, progress, s.incident)
    if not to:
        return None
    incident = s.incident or observe(view, opened(s, Kind.BLOCKING))
    said = some([f"{p} to {n} at batch {progress.standbys[p]}" for p, n in to.items()])
    incident = _noted(s, incident, said)
    after = _with_promoted(s, to)
    reason = f"{len(to)} lost partitions go on where their standbys are: {said}"
    return act(RuleName.PROMOTED, reason, WriteDesired(after), WriteIncident(incident))


def awaited(s: Situation) -> Decision | None:
    """Partitions of which a replay may differ are lost, and a standby was ready for each of them, while the driver has not
    taken over the last decision: only then is it known whether they go on there, and a plan made before that would take
    everything back."""
    view, desired, progress = s.view, s.desired, s.view.snapshot.progress
    if progress is None or view.acked or not (lost := view.output_waits & view.failed.keys()):
        return None
    if not lost <= promotable(view, desired, progress, s.incident).keys():
        return None
    return wait(
        RuleName.STANDBYS_AWAITED,
        f"the driver has not said yet whether the standbys of {some(sorted(lost))} are ready",
    )


def handed_over(s: Situation) -> Decision | None:
    """What is at work on a node that is to be emptied goes on where its standby is in an incident, too, as it does while
    nothing is failed (`reprise.scheduler.moves`), and is not lost with the node."""
    view, progress = s.view, s.view.snapshot.progress
    to = to_standbys(s, s.costs)
    if progress is None or not to:
        return None
    said = some([f"{p} to {n} at batch {progress.standbys[p]}" for p, n in to.items()])
    incident = _noted(s, s.open, f"before their nodes go: {said}")
    after = _with_promoted(s, to, retain=True)
    reason = f"{said_of(view, to)}, where their standbys are"
    return act(RuleName.MOVED, reason, WriteDesired(after), WriteIncident(incident))


def _noted(s: Situation, incident: Incident, said: str) -> Incident:
    """The incident, which has to see what was promoted at work, unless its burst has not settled yet."""
    incident = incident.log(s.now, EventName.PROMOTED, said)
    settling = incident.phase is Phase.SETTLING
    return incident if settling else replace(incident, phase=Phase.RECOVERING)


def _with_promoted(s: Situation, to: Mapping[str, str], **changes: bool) -> Desired:
    """The desired state with partitions where their standbys are; the next checkpoint waits until everything is at work."""
    desired = s.desired
    return desired.next(
        assignment={**desired.assignment, **to},
        standbys={p: n for p, n in desired.standbys.items() if p not in to},
        punctuate=False,
        plan=None,
        **changes,
    ).covered_by(s.view.newest)


def promotable(view: View, desired: Desired, progress: Progress, incident: Incident | None) -> dict[str, str]:
    """Lost partitions that could go on where their standbys are -> that node; none where a replay may differ and does not
    wait for them."""
    to = {
        p: n
        for p, n in desired.standbys.items()
        if p in view.failed and p in progress.standbys and n in view.usable_ids and view.may_be_promoted(p)
    }
    # which queries are worth most is a long question in a wide topology
    if view.snapshot.topology.passive.isdisjoint(to):
        return to
    return with_room(view, desired, to, _costs(view, incident))


def promotions_over(s: Situation) -> Decision | None:
    """All that was lost was promoted: no plan is needed, and the next checkpoint closes the incident."""
    view = s.view
    if view.failed or not view.acked or not s.open.promoted:
        return None
    if s.now < s.open.settle_until:
        return wait(RuleName.SETTLING, "the rest of the burst is waited for", s.open.settle_until)
    incident = replace(s.open, phase=Phase.RECOVERING, driver_until=None)
    count = lost_since_checkpoint(view, s.open)
    if incident.kind is Kind.BLOCKING and count >= view.policy.correlated_nodes:
        said = f"{count} nodes lost, X = {view.policy.correlated_nodes}"
        incident = replace(incident, kind=Kind.CORRELATED).log(s.now, EventName.CORRELATED, said)
    return act(RuleName.SETTLED, "all that was lost goes on where its standby was", WriteIncident(incident))


def placed(s: Situation) -> Decision | None:
    """While nothing is failed: a standby for each partition that is to have one, as far as there is room."""
    view, desired = s.view, s.desired
    if not (view.snapshot.topology.standbys or desired.standbys) or desired.moving is not None:
        return None
    if view.failed or not view.acked or not view.goes_on_at_standbys:
        return None
    found = placement(view, desired)
    if found == desired.standbys:
        return None
    new = sum(desired.standbys.get(p) != n for p, n in found.items())
    could = view.may_have_standbys & desired.assignment.keys()
    missing = len(could - view.poison.keys() - found.keys())
    near = [p for p, n in found.items() if is_apart(view, p, desired.assignment.get(p), n) is False]
    reason = f"{new} standbys are placed" + (f", and for {missing} there is no room" if missing else "")
    reason += f"; in the failure domain of their partitions: {some(near)}" if near else ""
    return act(RuleName.STANDBYS_PLACED, reason, WriteDesired(desired.next(standbys=found)))


def beside(view: View, decision: Decision) -> Decision:
    """A decision without the standbys that cannot stay beside what it places."""
    after, before = decision.desired, view.snapshot.desired
    if after is None or not after.standbys:
        return decision
    standbys = _staying(view, after, before, decision.incident or view.snapshot.incident)
    if standbys == after.standbys:
        return decision
    trimmed = replace(after, standbys=standbys)
    steps = tuple(WriteDesired(trimmed) if isinstance(x, WriteDesired) else x for x in decision.steps)
    return replace(decision, steps=steps)


def _staying(view: View, after: Desired, before: Desired | None, incident: Incident | None) -> dict[str, str]:
    costs = _costs(view, incident)
    passive = view.snapshot.topology.passive
    old = before.assignment if before is not None else {}
    was = before.standbys if before is not None else {}
    # what was there before is not this decision's doing; an active standby that becomes its partition adds nothing
    fuller = {n for p, n in after.assignment.items() if n != old.get(p) and (p in passive or n != was.get(p))}
    return staying(view, costs, after.assignment, after.standbys, fuller)


def _costs(view: View, incident: Incident | None) -> dict[str, int]:
    declared = {p.id: p.cpu_milli for p in view.snapshot.topology.partitions}
    return frozen_costs(declared, incident) if incident is not None else normal_costs(view)
