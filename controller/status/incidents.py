"""Incidents and plans as people read them: what happened when, what was chosen, and why the rest was not."""

from __future__ import annotations

from collections.abc import Mapping

from reprise.algorithms import Plan, PlanFormatError, plan_from_json
from reprise.algorithms.spans import whole
from reprise.controller.plan_summary import plan_summary
from reprise.controller.status.model import (
    ChosenView,
    EventView,
    IncidentView,
    LeftOutView,
    LostNodeView,
    NodeStartView,
    PlanView,
)
from reprise.controller.status.timeline import entries, query_times
from reprise.controller.zookeeper.observation import Observation
from reprise.scheduler import back
from reprise.scheduler.incident import Incident, PlanRecord
from reprise.scheduler.missing import Missing
from reprise.scheduler.node_start import NodeStart, StartPhase, eldest_first
from reprise.spark_jobs.topology import Query

MAX_MISSING = 50
"""Partitions that are listed for a query that is down, or that a plan leaves out; the sums count all of them."""

Answers = Mapping[str, Plan | None]
"""What the planner said, by plan; None where the record does not hold it."""


def planner_answers(seen: Observation) -> Answers:
    """The planner's answers of every plan on record; parsed once for a whole document."""
    return {plan.id: _planner_answer(plan) for plan in seen.plans.values()}


def incident_view(
    incident: Incident, seen: Observation, queries: Mapping[str, Query], answers: Answers
) -> IncidentView:
    """An incident with its plans and its time line; `queries` are those of the topology."""
    priorities = {query.id: query.priority for query in queries.values()}
    plans = seen.plans_of(incident)
    return IncidentView(
        id=incident.id,
        kind=incident.kind.value,
        phase=incident.phase.value,
        opened_at=incident.opened_at,
        closed_at=incident.closed_at,
        checkpoint=incident.checkpoint,
        nodes_before=incident.nodes_before,
        lost=tuple(LostNodeView(entry.node, entry.time) for entry in incident.lost),
        queries_lost=len(incident.queries),
        queries_back=sum(times.caught_up_at is not None for times in incident.queries.values()),
        queries=query_times(incident, priorities, seen.time),
        plans=tuple(_plan_view(plan, answers[plan.id], seen, queries) for plan in plans),
        events=tuple(EventView(*entry) for entry in entries([incident], plans)),
        recovery=back.summary(incident, seen.time),
        starts=tuple(_start_view(node, start) for node, start in eldest_first(incident.starts)),
        skipped={partition: whole(spans) for partition, spans in incident.skipped.items()},
        marked={query: whole(spans) for query, spans in incident.marked.items()},
        skipped_spans=dict(incident.skipped),
        marked_spans=dict(incident.marked),
    )


def _start_view(node: str, start: NodeStart) -> NodeStartView:
    ended = {phase.value: start.at[phase] for phase in StartPhase if phase in start.at}
    seconds = {phase.value: round(took, 3) for phase, took in start.seconds.items()}
    return NodeStartView(node, ended, seconds)


def _plan_view(
    record: PlanRecord, answer: Plan | None, seen: Observation, queries: Mapping[str, Query]
) -> PlanView:
    """A plan with the reason for every query; what a damaged record does not say is None."""
    progress = seen.progress
    working = set(progress.positions) - set(progress.failed) if progress else set()
    return PlanView(
        id=record.id,
        time=record.time,
        trigger=record.trigger.value,
        summary=plan_summary(record),
        rollback=record.rollback,
        checkpoint=record.checkpoint,
        algorithm=answer.algorithm if answer else None,
        why=answer.why if answer else "",
        value=answer.value if answer else None,
        bound=answer.bound if answer else None,
        optimal=answer.optimal if answer else None,
        seconds=record.seconds,
        free=dict(record.free),
        added=dict(record.added),
        at_work=len(working & set(record.added)),
        chosen=_chosen(answer),
        left_out=_left_out(record, answer, queries),
        note=record.note,
    )


def _planner_answer(record: PlanRecord) -> Plan | None:
    try:
        return plan_from_json(record.plan)
    except PlanFormatError:
        return None


def _chosen(answer: Plan | None) -> tuple[ChosenView, ...]:
    chosen = answer.chosen if answer else ()
    return tuple(ChosenView(c.query, c.priority, c.cost, c.restores) for c in chosen)


def _left_out(
    record: PlanRecord, answer: Plan | None, queries: Mapping[str, Query]
) -> tuple[LeftOutView, ...]:
    """The most valuable first.  The planner's account where there is one, else the scheduler's reason."""
    accounts = {e.query: e for e in answer.excluded} if answer else {}
    lacking = frozenset(record.pending) - record.added.keys()
    missing = Missing({partition: k for k, partition in enumerate(record.pending)}, lacking)
    found = []
    for query, reason in record.left_out.items():
        account, known = accounts.get(query), queries.get(query)
        found.append(
            LeftOutView(
                query=query,
                priority=known.priority if known else 1,
                reason=reason,
                code=account.code if account else None,
                missing=missing.first(known.partitions, MAX_MISSING) if account and known else (),
                missing_capacity=account.missing_capacity if account else None,
                competes_with=account.competes_with if account else (),
                enters_at=account.enters_at if account else None,
                entry_exact=account.entry_exact if account else False,
            )
        )
    return tuple(sorted(found, key=lambda entry: (-entry.priority, entry.query)))
