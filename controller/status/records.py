"""An observation as one JSON object, and back: for those who cannot reach ZooKeeper, and for bundles.

The records keep the form that they have in ZooKeeper (docs/recovery.md) and pass the same total parsers, so whoever reads
them from here knows exactly what one who reads ZooKeeper knows.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

from reprise.controller.zookeeper.fields import Fields, as_integer, as_object, as_text, loads, shallow
from reprise.controller.zookeeper.observation import Observation
from reprise.controller.zookeeper.records import (
    encode_checkpoint,
    encode_desired,
    encode_poison,
    encode_progress,
    encode_stats,
    parse_checkpoint,
    parse_desired,
    parse_poison,
    parse_progress,
    parse_stats,
)
from reprise.controller.zookeeper.recovery_records import (
    encode_incident,
    encode_plan,
    parse_incident,
    parse_plan,
)
from reprise.controller.zookeeper.savepoint_records import encode_savepoints, parse_savepoints
from reprise.scheduler.model import Leaving, Node, SkipWish

T = TypeVar("T")


def records(seen: Observation) -> dict[str, Any]:
    """JSON-ready."""
    return {
        "time": seen.time,
        "connected": seen.connected,
        "nodes": [
            {"node": n.name, "incarnation": n.incarnation, "cpu_milli": n.cpu_milli, "leaving": _leaving(n)}
            for n in sorted(seen.nodes.values(), key=lambda node: node.id)
        ],
        "progress": _decoded(encode_progress, seen.progress),
        "problems": list(seen.problems),
        "waits": seen.waits,
        "desired": _decoded(encode_desired, seen.desired),
        "incident": _decoded(encode_incident, seen.incident),
        "incidents": [_decoded(encode_incident, incident) for incident in seen.closed.values()],
        "plans": [_decoded(encode_plan, plan) for plan in seen.plans.values()],
        "stats": _decoded(encode_stats, seen.stats),
        "checkpoints": sorted(seen.checkpoints),
        "checkpoint": _decoded(encode_checkpoint, seen.checkpoint),
        "poison": _decoded(encode_poison, seen.poison),
        "wishes": {query: wish.id for query, wish in sorted(seen.wishes.items())},
        "savepoints": _decoded(encode_savepoints, seen.savepoints),
        "paused": seen.paused,
        "undecided": seen.undecided,
        "settle_s": seen.settle_s,
        "driver_grace_s": seen.driver_grace_s,
        "unreadable": list(seen.unreadable),
    }


def observation(raw: bytes, source: str) -> Observation:
    """The inverse of `records`.  RecordError names `source`, the record and the field."""
    f = loads(raw, source)
    nodes = f.items("nodes", _node)
    paused = f.get("paused", None)
    return Observation(
        time=f.number("time"),
        connected=f.flag("connected"),
        nodes={node.id: node for node in nodes},
        progress=_maybe(f, "progress", parse_progress),
        problems=tuple(f.items("problems", as_text, [])),
        waits=f.text("waits", ""),
        desired=_maybe(f, "desired", parse_desired),
        incident=_maybe(f, "incident", parse_incident),
        closed={incident.id: incident for incident in f.items("incidents", _each(parse_incident))},
        plans={plan.id: plan for plan in f.items("plans", _each(parse_plan))},
        stats=_maybe(f, "stats", parse_stats) or {},
        checkpoints=frozenset(f.items("checkpoints", as_integer, [])),
        checkpoint=_maybe(f, "checkpoint", parse_checkpoint),
        poison=_maybe(f, "poison", parse_poison),
        wishes={query: SkipWish(wish) for query, wish in f.mapping("wishes", as_text, {}).items()},
        savepoints=_maybe(f, "savepoints", parse_savepoints),
        paused=paused if isinstance(paused, bool) else None,
        undecided=f.text("undecided", ""),
        settle_s=f.maybe_number("settle_s"),
        driver_grace_s=f.maybe_number("driver_grace_s"),
        unreadable=tuple(f.items("unreadable", as_text, [])),
    )


def _leaving(node: Node) -> dict[str, Any] | None:
    return None if node.leaving is None else shallow(node.leaving)


def _node(f: Fields, name: str, value: Any) -> Node:
    entry = as_object(f, name, value)
    said = entry.value.get("leaving")
    leaving = None
    if said is not None:
        inner = as_object(entry, "leaving", said)
        leaving = Leaving(inner.text("reason", ""), inner.maybe_number("by"))
    return Node(entry.text("node"), entry.integer("incarnation"), entry.integer("cpu_milli"), leaving=leaving)


def _decoded(encode: Callable[[T], bytes], value: T | None) -> Any:
    return None if value is None else json.loads(encode(value))


def _each(parse: Callable[[bytes, str], T]) -> Callable[[Fields, str, Any], T]:
    def read(f: Fields, name: str, value: Any) -> T:
        return parse(json.dumps(value).encode(), f"{f.path}: {name}")

    return read


def _maybe(f: Fields, name: str, parse: Callable[[bytes, str], T]) -> T | None:
    value = f.get(name, None)
    return None if value is None else _each(parse)(f, name, value)
