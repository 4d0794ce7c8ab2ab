"""The first start of a topology: wait for its nodes, then place everything.

So does a topology whose desired state is gone from ZooKeeper, or was not put back at a second site.  What else is on record
may have stayed: an incident that was open is over with this, numbers go on after those of the incidents that are closed,
whose records are never written again, and a driver that lives goes back to the checkpoint with all that it has.

Where the cap does not let everything in, the start is a recovery with everything failed: the most valuable
queries begin, the others follow when nodes arrive, and the record says how much is missing.
"""

from __future__ import annotations

from dataclasses import replace

from reprise.scheduler import domains
from reprise.scheduler.costs import free_capacity, normal_costs
from reprise.scheduler.eviction import Placed
from reprise.scheduler.incident import Event, EventName, Incident, Kind, Phase, Trigger, incident_id
from reprise.scheduler.model import Desired
from reprise.scheduler.placement import spread
from reprise.scheduler.planning import plan_recovery
from reprise.scheduler.situation import Situation
from reprise.scheduler.steps import (
    AddPlan,
    CloseIncident,
    Decision,
    RuleName,
    WriteDesired,
    WriteIncident,
    act,
    wait,
)
from reprise.scheduler.view import View
from reprise.scheduler.wishes import void


def left_open(s: Situation) -> Decision | None:
    """The desired state that an open incident was about is gone: nothing of what its plans have placed is known."""
    incident = s.view.snapshot.incident
    if incident is None:
        return None
    reason = "the desired state is gone from the records: everything begins again at the newest checkpoint"
    closed = replace(incident, phase=Phase.CLOSED, closed_at=s.now).log(s.now, EventName.CLOSED, reason)
    return act(RuleName.CLOSED, reason, CloseIncident(closed))


def nodes_awaited(s: Situation) -> Decision | None:
    """Not before the wanted number of nodes is ready."""
    ready, wanted = len(s.view.open_nodes), s.view.policy.nodes_wanted
    return wait(RuleName.START_WAITS, f"{ready} of {wanted} nodes are ready") if ready < wanted else None


def placed(s: Situation) -> Decision | None:
    """Everything, on the first nodes; those beyond the wanted number stand by."""
    view, progress = s.view, s.view.snapshot.progress
    assert progress is not None
    few = replace(view, usable=view.open_nodes[: view.policy.nodes_wanted])
    costs = normal_costs(few)
    free = free_capacity(few, costs, {})
    generation = max(progress.generation, 0) + 1
    skips, taken = void(view.snapshot.wishes)
    start = Desired(
        seq=s.view.snapshot.last_seq + 1,
        generation=generation,
        checkpoint=view.newest.everybody,
        lines=view.newest.origins(generation),
        driver=progress.driver,
        paused=view.snapshot.paused,
        punctuate=not view.poison,
        skips=skips,
    )
    everything = tuple(p.id for p in view.snapshot.topology.partitions if p.id not in view.poison)
    assignment = spread(everything, costs, free)
    if assignment is not None:
        assignment = domains.at_start(few, costs, assignment)
        reason = "; ".join(
            filter(
                None, (f"{len(assignment)} partitions on {len(free)} nodes", domains.said(few, assignment))
            )
        )
        return act(RuleName.START, reason, WriteDesired(replace(start, assignment=assignment)), *taken)
    decision = _partial(replace(s, view=_all_failed(few)), costs, start)
    return replace(decision, steps=(*decision.steps, *taken))


def _all_failed(view: View) -> View:
    everything = {p.id: "not started" for p in view.snapshot.topology.partitions if p.id not in view.poison}
    return replace(view, failed=everything)


def _partial(s: Situation, costs: dict[str, int], start: Desired) -> Decision:
    planned = plan_recovery(s.view, costs, {}, s.view.failed, s.planner)
    planned = domains.regarded(s.view, costs, Placed(planned, {}), s.view.policy.nodes_wanted).planned
    start = replace(start, assignment=dict(planned.added))
    if len(planned.added) == len(s.view.failed):
        return act(RuleName.START, "everything fits, by an exact packing", WriteDesired(start))
    reason = (
        f"the topology needs {planned.needed} milli-CPU; {len(planned.free)} nodes have "
        f"{sum(planned.free.values())} under the cap: {len(planned.added)} partitions start"
    )
    snapshot = replace(s.view.snapshot, desired=start)
    incident = Incident(
        id=incident_id(start.seq),
        kind=Kind.START,
        phase=Phase.RECOVERING,
        opened_at=s.now,
        checkpoint=start.checkpoint,
        lines=start.lines,
        generation=start.generation,
        nodes_before=s.view.policy.nodes_wanted,
        settle_until=s.now,
        costs=costs,
        events=(Event(s.now, EventName.OPENED, reason),),
    )
    s = replace(s, incident=incident, view=replace(s.view, snapshot=snapshot))
    incident = replace(incident, considered=s.considered(s.view.failed, planned.added))
    plan = s.record(planned, Trigger.START, start, planned.added, note=reason)
    start = replace(start, retain=True, punctuate=False, plan=plan.id)
    incident = replace(incident, plans=(plan.id,))
    return act(RuleName.START_PARTIAL, reason, WriteDesired(start), AddPlan(plan), WriteIncident(incident))
