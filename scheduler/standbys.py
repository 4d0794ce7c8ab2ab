"""Standbys: where they are, who is promoted, and which give way.

An active standby is a partition's second runtime on another node, which steps as the partition does and sends nothing
(Hwang et al., "High-Availability Algorithms for Distributed Stream Processing", section 5.3).  What it costs is what its
partition costs, under the cap of its node.  A passive one has a copy of the state (section 5.1 there): it costs what it was
measured to take, and what its partition costs until then.  It is placed where there is room for the partition, too, but that
room is not held for it: several may count on the same.  While nothing is failed each partition that is to have a standby is
given one where there is room, the most valuable first.  When a partition is lost its standby becomes the partition at once:
the rest of a burst is not waited for, as there is nothing to choose between.  A passive one needs room for the partition
then; those that do not find it, the least valuable, are left to the plan.

In an incident plans do not count standbys: what a node has free is its cap less what runs there, with what was promoted.
Those that are in the way of what a plan adds are taken away, the least valuable first.  Departs from Hwang et al., whose
backups are machines of their own.

`reprise.scheduler.standby_placement` says on which nodes they are.

Invariants: a standby is on another node than its partition; and no decision adds to a node so much that it runs more than
its cap together with its standbys.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from reprise.scheduler.costs import free_on, frozen_costs, normal_costs
from reprise.scheduler.incident import EventName, Incident, Kind, Phase, some
from reprise.scheduler.model import Desired, Progress
from reprise.scheduler.observe import lost_within_window, observe
from reprise.scheduler.rules import opened
from reprise.scheduler.situation import Situation
from reprise.scheduler.standby_placement import by_worth, is_apart, placement, standby_costs
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
    incident = incident.log(s.now, EventName.PROMOTED, said)
    if incident.phase is not Phase.SETTLING:
        incident = replace(incident, phase=Phase.RECOVERING)
    after = desired.next(
        assignment={**desired.assignment, **to},
        standbys={p: n for p, n in desired.standbys.items() if p not in to},
        punctuate=False,
        plan=None,
    ).covered_by(view.newest)
    reason = f"{len(to)} lost partitions go on where their standbys are: {said}"
    return act(RuleName.PROMOTED, reason, WriteDesired(after), WriteIncident(incident))


def promotable(view: View, desired: Desired, progress: Progress, incident: Incident | None) -> dict[str, str]:
    """Lost partitions that could go on where their standbys are -> that node; none where a replay may differ."""
    if not view.snapshot.topology.deterministic:
        return {}
    to = {
        p: n
        for p, n in desired.standbys.items()
        if p in view.failed and p in progress.standbys and n in view.usable_ids
    }
    return _with_room(view, desired, to, incident)


def _with_room(
    view: View, desired: Desired, to: Mapping[str, str], incident: Incident | None
) -> dict[str, str]:
    """Promotions but those of passive standbys for whose partitions there is no room, the least valuable."""
    passive = view.snapshot.topology.passive
    if passive.isdisjoint(to):  # which queries are worth most is a long question in a wide topology
        return dict(to)
    costs = _costs(view, incident)
    stays = {p: n for p, n in desired.assignment.items() if p not in to}
    room = free_on(view.usable, view.policy, costs, stays)
    for partition, node in to.items():
        if partition not in passive:
            room[node] -= costs[partition]
    found = {p: n for p, n in to.items() if p not in passive}
    for partition in by_worth(view):
        if partition in passive and partition in to and room[to[partition]] >= costs[partition]:
            room[to[partition]] -= costs[partition]
            found[partition] = to[partition]
    return {p: n for p, n in to.items() if p in found}


def promotions_over(s: Situation) -> Decision | None:
    """All that was lost was promoted: no plan is needed, and the next checkpoint closes the incident."""
    view = s.view
    if view.failed or not view.acked or not s.open.promoted:
        return None
    if s.now < s.open.settle_until:
        return wait(RuleName.SETTLING, "the rest of the burst is waited for", s.open.settle_until)
    incident = replace(s.open, phase=Phase.RECOVERING, driver_until=None)
    count = lost_within_window(view, s.open)
    if incident.kind is Kind.BLOCKING and count >= view.policy.correlated_nodes:
        said = f"{count} nodes lost, X = {view.policy.correlated_nodes}"
        incident = replace(incident, kind=Kind.CORRELATED).log(s.now, EventName.CORRELATED, said)
    return act(RuleName.SETTLED, "all that was lost goes on where its standby was", WriteIncident(incident))


def placed(s: Situation) -> Decision | None:
    """While nothing is failed: a standby for each partition that is to have one, as far as there is room."""
    view, desired = s.view, s.desired
    if not (view.snapshot.topology.standbys or desired.standbys) or desired.moving is not None:
        return None
    if view.failed or not view.acked or not view.snapshot.topology.deterministic:
        return None
    found = placement(view, desired)
    if found == desired.standbys:
        return None
    new = sum(desired.standbys.get(p) != n for p, n in found.items())
    could = view.snapshot.topology.standbys & desired.assignment.keys()
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
    taken, passive = standby_costs(view, costs), view.snapshot.topology.passive
    old = before.assignment if before is not None else {}
    was = before.standbys if before is not None else {}
    # what was there before is not this decision's doing; an active standby that becomes its partition adds nothing
    fuller = {n for p, n in after.assignment.items() if n != old.get(p) and (p in passive or n != was.get(p))}
    room = free_on(view.usable, view.policy, costs, after.assignment)
    found: dict[str, str] = {}
    for partition in by_worth(view):
        node = after.standbys.get(partition)
        if node is None or partition not in after.assignment or after.assignment[partition] == node:
            continue
        if node not in view.alive:
            continue
        if node in fuller:
            if room.get(node, 0) < taken[partition]:
                continue
            room[node] -= taken[partition]
        found[partition] = node
    return found


def _costs(view: View, incident: Incident | None) -> dict[str, int]:
    declared = {p.id: p.cpu_milli for p in view.snapshot.topology.partitions}
    return frozen_costs(declared, incident) if incident is not None else normal_costs(view)
