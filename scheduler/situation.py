"""What a rule works with: the view, the incident as observed, and helpers that build the steps of a decision.

Invariant: whoever opens or closes an incident also writes the desired state. As every transaction checks the
version of the desired state, an incident cannot come or go unseen between a snapshot and its decision.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from reprise.algorithms import Plan, plan_to_json
from reprise.scheduler.costs import frozen_costs
from reprise.scheduler.incident import MAX_RIVALS, Considered, Incident, PlanRecord, Trigger
from reprise.scheduler.model import Desired
from reprise.scheduler.overcommit import slowdowns
from reprise.scheduler.planning import Planned
from reprise.scheduler.precomputed import Planner
from reprise.scheduler.steps import AddPlan, Decision, RuleName, WriteDesired, WriteIncident, act
from reprise.scheduler.view import View


@dataclass(frozen=True, slots=True)
class Situation:
    view: View
    incident: Incident | None
    """With what the snapshot shows already noted."""
    planner: Planner

    @property
    def desired(self) -> Desired:
        """The desired state of a topology that has been started."""
        assert self.view.snapshot.desired is not None
        return self.view.snapshot.desired

    @property
    def open(self) -> Incident:
        """The incident, where there is one."""
        assert self.incident is not None
        return self.incident

    @property
    def now(self) -> float:
        return self.view.now

    @property
    def costs(self) -> Mapping[str, int]:
        """The costs of the incident; declared ones where it does not know a partition."""
        declared = {p.id: p.cpu_milli for p in self.view.snapshot.topology.partitions}
        return frozen_costs(declared, self.open)

    def nothing_more(self, candidates: Iterable[str]) -> bool:
        """Whether the last plan of the incident looked at all of these failed partitions and usable nodes."""
        last = self.open.considered
        return last is not None and last.waiting >= frozenset(candidates) and last.nodes >= self.view.open_ids

    def plan_id(self) -> str:
        """The id of the next plan."""
        return f"{self.open.id}-p{len(self.open.plans) + 1}"

    def record(
        self,
        planned: Planned,
        trigger: Trigger,
        desired: Desired | None,
        added: Mapping[str, str],
        note: str = "",
    ) -> PlanRecord:
        """The record of a plan that adds `added` and leads to `desired` (None: to nothing new)."""
        after = desired or self.desired
        return PlanRecord(
            id=self.plan_id(),
            incident=self.open.id,
            time=self.now,
            trigger=trigger,
            rollback=after.generation > self.desired.generation,
            checkpoint=after.checkpoint,
            generation=after.generation,
            free=planned.free,
            candidates=planned.candidates,
            plan=answer_on_record(planned.plan),
            added=added,
            seconds=planned.plan.seconds,
            left_out=planned.left_out,
            note="; ".join(filter(None, (note, planned.outvalued))),
            slowdown=slowdowns(self.view, self.costs, after.assignment)
            if self.view.policy.overcommit
            else {},
            pending=planned.pending,
            anew=tuple(p for p in added if p in after.anew),
        )

    def considered(self, candidates: Iterable[str], added: Mapping[str, str]) -> Considered:
        """What a plan for `candidates` that adds `added` leaves to later ones."""
        return Considered(self.view.open_ids, frozenset(candidates) - frozenset(added))


def answer_on_record(plan: Plan) -> dict[str, object]:
    """The planner's answer less what the record says already: partitions and places are in `added`, and what a query that
    is left out misses follows from `pending` and `added`.  With all of that it would be queries times partitions."""
    excluded = [replace(e, missing=(), competes_with=e.competes_with[:MAX_RIVALS]) for e in plan.excluded]
    answer = plan_to_json(replace(plan, excluded=tuple(excluded)))
    return {name: value for name, value in answer.items() if name not in ("partitions", "placement")}


def carried_out(
    rule: RuleName, reason: str, plan: PlanRecord, desired: Desired | None, incident: Incident
) -> Decision:
    """The decision that files a plan and, where it changes something, tells the driver."""
    incident = replace(incident, plans=(*incident.plans, plan.id))
    steps = (AddPlan(plan), WriteIncident(incident))
    return act(rule, reason, *((WriteDesired(desired), *steps) if desired else steps))
