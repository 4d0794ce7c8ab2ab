"""The records of a recovery, incident and plan, as JSON. Total parsers as in `records`."""

from __future__ import annotations

from typing import Any

from reprise.controller.zookeeper import paths
from reprise.controller.zookeeper.fields import (
    Fields,
    as_integer,
    as_number,
    as_object,
    as_text,
    dumps,
    loads,
    shallow,
)
from reprise.controller.zookeeper.records import (
    as_origin,
    as_start,
    encode_lines,
    encode_spans,
    encode_starts,
    spans_of,
)
from reprise.scheduler.incident import (
    Candidate,
    Considered,
    Event,
    Incident,
    Kind,
    LostNode,
    Phase,
    PlanRecord,
    QueryTimeline,
    Trigger,
)


def encode_incident(x: Incident) -> bytes:
    considered = x.considered and {
        "nodes": sorted(x.considered.nodes),
        "waiting": sorted(x.considered.waiting),
    }
    return dumps(
        {
            "id": x.id,
            "kind": x.kind.value,
            "phase": x.phase.value,
            "opened_at": x.opened_at,
            "closed_at": x.closed_at,
            "checkpoint": x.checkpoint,
            "lines": encode_lines(x.lines),
            "generation": x.generation,
            "nodes_before": x.nodes_before,
            "settle_until": x.settle_until,
            "driver_until": x.driver_until,
            "lost": [shallow(entry) for entry in x.lost],
            "plans": list(x.plans),
            "queries": {query: _told(entry) for query, entry in x.queries.items()},
            "costs": dict(x.costs),
            "steady": dict(x.steady),
            "horizon": x.horizon,
            "bad_checkpoints": sorted(x.bad_checkpoints),
            "considered": considered,
            "events": [_said(event) for event in x.events],
            "starts": encode_starts(x.starts),
            **encode_spans("skipped", x.skipped),
            **encode_spans("marked", x.marked),
        }
    )


def parse_incident(raw: bytes, path: str = paths.INCIDENT) -> Incident:
    f = loads(raw, path)
    considered = f.get("considered", None)
    return Incident(
        id=f.text("id"),
        kind=f.choice("kind", Kind),
        phase=f.choice("phase", Phase),
        opened_at=f.number("opened_at"),
        checkpoint=f.integer("checkpoint"),
        generation=f.integer("generation"),
        nodes_before=f.integer("nodes_before"),
        settle_until=f.number("settle_until"),
        driver_until=f.maybe_number("driver_until"),
        lost=tuple(f.items("lost", _lost)),
        plans=tuple(f.items("plans", as_text)),
        queries=f.mapping("queries", _timeline),
        costs=f.mapping("costs", as_integer),
        steady=f.mapping("steady", as_integer, {}),
        horizon=f.integer("horizon", 0),
        bad_checkpoints=frozenset(f.items("bad_checkpoints", as_integer, [])),
        considered=None if considered is None else _considered(as_object(f, "considered", considered)),
        events=tuple(f.items("events", _event)),
        closed_at=f.maybe_number("closed_at"),
        lines=f.mapping("lines", as_origin, {}),
        starts=f.mapping("starts", as_start, {}),
        skipped=spans_of(f, "skipped"),
        marked=spans_of(f, "marked"),
    )


def _told(entry: QueryTimeline) -> dict[str, Any]:
    """What differs from a query that has just been lost: a record may have thousands of them."""
    fresh = shallow(QueryTimeline(entry.lost_at))
    return {
        name: value for name, value in shallow(entry).items() if name == "lost_at" or value != fresh[name]
    }


def encode_plan(x: PlanRecord) -> bytes:
    return dumps(
        {
            "id": x.id,
            "incident": x.incident,
            "time": x.time,
            "trigger": x.trigger.value,
            "rollback": x.rollback,
            "checkpoint": x.checkpoint,
            "generation": x.generation,
            "free": dict(x.free),
            "candidates": [shallow(candidate) for candidate in x.candidates],
            "pending": list(x.pending),
            "plan": dict(x.plan),
            "added": dict(x.added),
            "seconds": x.seconds,
            "left_out": dict(x.left_out),
            "note": x.note,
            "slowdown": dict(x.slowdown),
            "anew": list(x.anew),
        }
    )


def parse_plan(raw: bytes, path: str = paths.PLANS) -> PlanRecord:
    f = loads(raw, path)
    candidates = f.items("candidates", _candidate)
    return PlanRecord(
        id=f.text("id"),
        incident=f.text("incident"),
        time=f.number("time"),
        trigger=f.choice("trigger", Trigger),
        rollback=f.flag("rollback"),
        checkpoint=f.integer("checkpoint"),
        generation=f.integer("generation"),
        free=f.mapping("free", as_integer),
        candidates=tuple(candidate for candidate, _ in candidates),
        plan=as_object(f, "plan", f.get("plan")).value,
        added=f.mapping("added", as_text),
        seconds=f.number("seconds"),
        left_out=f.mapping("left_out", as_text),
        note=f.text("note", ""),
        slowdown=f.mapping("slowdown", as_number, {}),
        pending=_pending(f, [own for _, own in candidates]),
        anew=tuple(f.items("anew", as_text, [])),
    )


def _pending(f: Fields, by_candidate: list[list[str]]) -> tuple[str, ...]:
    """Older records call them `failed`; the oldest have neither, and name them with each candidate."""
    oldest = list(dict.fromkeys(p for own in by_candidate for p in own))
    return tuple(f.items("pending", as_text, f.items("failed", as_text, oldest)))


def _lost(f: Fields, name: str, value: Any) -> LostNode:
    entry = as_object(f, name, value)
    return LostNode(entry.text("node"), entry.number("time"))


def _event(f: Fields, name: str, value: Any) -> Event:
    entry = as_object(f, name, value)
    return Event.of(entry.number("time"), entry.text("name"), entry.text("detail", ""))


def _said(event: Event) -> dict[str, object]:
    name, detail = event.written
    return {"time": event.time, "name": name, "detail": detail}


def _timeline(f: Fields, name: str, value: Any) -> QueryTimeline:
    entry = as_object(f, name, value)
    return QueryTimeline(
        lost_at=entry.number("lost_at"),
        restored_at=entry.maybe_number("restored_at"),
        caught_up_at=entry.maybe_number("caught_up_at"),
        losses=entry.integer("losses", 1),
        relapses=entry.integer("relapses", 0),
        up_s=entry.number("up_s", 0.0),
        turning_since=entry.maybe_number("turning_since"),
        turning_at=entry.integer("turning_at", 0),
    )


def _considered(f: Fields) -> Considered:
    return Considered(frozenset(f.items("nodes", as_text)), frozenset(f.items("waiting", as_text)))


def _candidate(f: Fields, name: str, value: Any) -> tuple[Candidate, list[str]]:
    """A candidate with its partitions, which the oldest records name here (`_pending`)."""
    entry = as_object(f, name, value)
    candidate = Candidate(
        query=entry.text("query"), priority=entry.integer("priority"), cost=entry.integer("cost")
    )
    return candidate, entry.items("partitions", as_text, [])
