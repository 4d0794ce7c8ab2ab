"""What must hold of every decision, checked before it is carried out.

A decision that breaks one of these is a defect of this package. It is refused loudly rather than carried out:
the topology goes on as it is, which is always safer than a wrong assignment.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from reprise.scheduler.costs import normal_costs, over_the_cap
from reprise.scheduler.errors import InvariantViolation
from reprise.scheduler.eviction import blocked
from reprise.scheduler.incident import Phase, Trigger
from reprise.scheduler.model import Desired, Strategy
from reprise.scheduler.moves import MayMove
from reprise.scheduler.overcommit import overfilled
from reprise.scheduler.steps import CloseIncident, Decision, RuleName
from reprise.scheduler.view import View


def check(view: View, decision: Decision) -> None:
    """Raises InvariantViolation for the first invariant that carrying out `decision` would break."""
    for name, detail in _violations(view, decision):
        raise InvariantViolation(name, f"{detail} (rule {decision.rule})")


def _violations(view: View, decision: Decision) -> Iterator[tuple[str, str]]:
    after, before = decision.desired, view.snapshot.desired
    if after is None:
        return
    yield from _sequence(after, before, view.snapshot.last_seq)
    yield from _flags(view, decision, after)
    known = {p.id for p in view.snapshot.topology.partitions}
    old = before.assignment if before else {}
    standbys = before.standbys if before else {}
    usable, leaving, may_move = view.usable_ids, view.leaving, MayMove(view)
    for partition, node in after.assignment.items():
        if partition not in known:
            yield "known-partitions", f"{partition} is no partition of the topology"
        if old.get(partition) != node and node not in usable:
            yield "E3", f"{partition} is given to {node}, which is not usable"
        # a standby runs there already, and moves on later
        stays = node in (old.get(partition), standbys.get(partition))
        if not stays and node in leaving and not may_move(partition, node):
            yield "emptied", f"{partition} is given to {node}, which is to be emptied"
    for partition, node in after.standbys.items():
        if after.assignment.get(partition, node) == node:
            yield "standby", f"{partition} and its standby are both on {node}"
    yield from _survivors_stay(view, after, decision, may_move)
    yield from _cap(view, decision, after)


def _sequence(after: Desired, before: Desired | None, last: int) -> Iterator[tuple[str, str]]:
    if after.seq != last + 1:
        yield "sequence", f"seq {after.seq} does not follow {last}"
    if before and after.generation not in (before.generation, before.next_generation):
        yield "generation", f"{after.generation} does not follow {before.generation}"


def _flags(view: View, decision: Decision, after: Desired) -> Iterator[tuple[str, str]]:
    incident = decision.incident or view.snapshot.incident
    closing = any(isinstance(step, CloseIncident) for step in decision.steps)
    is_open = incident is not None and incident.phase is not Phase.CLOSED and not closing
    if after.retain and not is_open and after.moving is None:
        yield "M1", "buffering without an incident or a move"
    if after.punctuate and is_open and incident is not None and incident.phase is not Phase.VERIFYING:
        yield "flags", f"global checkpoints in phase {incident.phase}"


def _survivors_stay(
    view: View, after: Desired, decision: Decision, may_move: MayMove
) -> Iterator[tuple[str, str]]:
    """O1. A planned move takes what is to leave its node to another one.  Only the blocking strategy stops what still runs;
    after a restart of the driver that is what it goes on with.  What a first plan (also that of an incident that has become
    correlated) or a rollback takes from its node could not run, or everything is at work after the rollback."""
    if view.policy.strategy is Strategy.BLOCKING:
        return
    before = view.snapshot.desired
    rollback = before is not None and after.generation != before.generation
    everything = {p.id for p in view.snapshot.topology.partitions} <= after.assignment.keys()
    if rollback and everything and view.policy.strategy.whole_queries:
        return
    plan, moved = decision.plan, decision.rule is RuleName.MOVED
    first = plan is not None and plan.trigger == Trigger.FIRST
    idle = blocked(view) if (rollback or first) and view.policy.strategy.whole_queries else frozenset[str]()
    for partition, node in view.survivors.items():
        new = after.assignment.get(partition)
        if partition in after.anew and partition not in view.at_work:
            continue  # it is being restored, and somebody wants it to begin anew
        if new != node and partition not in idle and not (moved and new and may_move(partition, new)):
            yield "O1", f"{partition} survived on {node} and is taken from it"


def _cap(view: View, decision: Decision, after: Desired) -> Iterator[tuple[str, str]]:
    """C1, for each node that a decision adds to: what it had before is not the plan's doing."""
    incident = decision.incident or view.snapshot.incident
    costs = incident.costs if incident else normal_costs(view)
    desired = view.snapshot.desired
    old = dict(desired.assignment) if desired else {}
    standbys = desired.standbys.items() if desired else ()
    passive = view.snapshot.topology.passive  # these begin to step where they are
    there = {p: n for p, n in standbys if after.assignment.get(p) == n and p not in passive}
    if decision.plan is not None and decision.plan.slowdown:  # and it says so
        view = overfilled(view)
    before = replace(view, survivors={**old, **there})
    yield from (("C1", excess) for excess in over_the_cap(before, costs, after.assignment))
