"""The records that coordinator and driver exchange: JSON in the znodes, frozen values inside.

Each kind has one type, one parser and one encoder, here or in the module that docs/messages.md names beside it; nobody
else reads or writes its bytes.  Parsers are total: any bytes lead to a value or to a RecordError that names znode and field.
`parse(encode(x)) == x`.  Encoders give JSON; who writes it packs it (`znode`), and parsers unpack.

How records may change: docs/decisions/0018-records-in-zookeeper.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from sys import intern
from typing import Any

from reprise.algorithms.failure import Failure
from reprise.algorithms.outside import Outside
from reprise.algorithms.positions import Origin, Positions
from reprise.algorithms.recovery_time import Aim, RestoreWork
from reprise.algorithms.spans import Span, Spans, joined, whole
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
from reprise.controller.zookeeper.node_record import NodeRecord
from reprise.scheduler.model import Desired, Moving, Node, PartitionStats, Poison, Progress, Rebalancing
from reprise.scheduler.node_start import NodeStart, StartPhase

_OUTPUT_WAITS = "holds_back"
"""The key of `Progress.output_waits`, as coordinators and drivers of earlier versions know it."""
_NOT_KEPT = "gaps"
"""The key of `Progress.not_kept`, from before batches that lack rows were called gaps: an earlier coordinator that did not
find it would wait for partitions that nobody can feed."""


@dataclass(frozen=True, slots=True)
class CheckpointRecord:
    """A complete global checkpoint, as the driver announces it."""

    position: int
    time: float
    """When it was complete, unix seconds."""
    size_bytes: int = 0
    seconds: float = 0.0
    """From announcing to completing it."""
    offsets: Mapping[str, int] = field(default_factory=dict)
    """Of each source partition, behind the last row that it holds; for people."""
    lines: Mapping[str, int] = field(default_factory=dict)
    """Partition -> batch of its snapshot, of those that are not at `position`."""

    @property
    def covers(self) -> Positions:
        """Up to which batch each partition is stored."""
        return Positions(self.position, self.lines)


def encode_checkpoint(x: CheckpointRecord) -> bytes:
    return dumps(
        {
            "position": x.position,
            "time": x.time,
            "bytes": x.size_bytes,
            "seconds": x.seconds,
            "offsets": dict(x.offsets),
            "lines": dict(x.lines),
        }
    )


def parse_checkpoint(raw: bytes, path: str = paths.CHECKPOINTS) -> CheckpointRecord:
    f = loads(raw, path)
    return CheckpointRecord(
        position=f.integer("position"),
        time=f.number("time"),
        size_bytes=f.integer("bytes", 0),
        seconds=f.number("seconds", 0.0),
        offsets=f.mapping("offsets", as_integer, {}),
        lines=f.mapping("lines", as_integer, {}),
    )


def encode_lines(lines: Mapping[str, Origin]) -> dict[str, list[int]]:
    """Partition -> [generation, position]: what records say of those that do not go on from where all others do."""
    return {partition: list(origin) for partition, origin in lines.items()}


def as_origin(f: Fields, name: str, value: Any) -> Origin:
    match value:
        case [int(generation), int(position)] if not isinstance(generation, bool) and not isinstance(
            position, bool
        ):
            return Origin(generation, position)
    raise f.wrong(name, "must be [generation, position], two whole numbers")


def encode_spans(name: str, found: Mapping[str, Spans], newest: bool = False) -> dict[str, Any]:
    """Batches by partition or query, as two fields: `name` has one span of each, which is all that versions before several
    were told know of, and `name`_spans all of those that have more.  `newest`: the one is the newest; else it goes from the
    first batch to the last."""
    one = {key: list(spans[-1] if newest else whole(spans)) for key, spans in found.items()}
    more = {key: [list(span) for span in spans] for key, spans in found.items() if len(spans) > 1}
    return {name: one, f"{name}_spans": more}


def spans_of(f: Fields, name: str) -> dict[str, Spans]:
    """The inverse of `encode_spans`."""
    one, more = f.mapping(name, _as_span, {}), f.mapping(f"{name}_spans", _as_spans, {})
    return {key: more.get(key) or (span,) for key, span in one.items()}


def _as_spans(f: Fields, name: str, value: Any) -> Spans:
    if not isinstance(value, list):
        raise f.wrong(name, "must be a list of [first, last]")
    return joined(_as_span(f, name, span) for span in value)


def _as_span(f: Fields, name: str, value: Any) -> Span:
    """First and last batch."""
    match value:
        case [int(first), int(last)] if not isinstance(first, bool) and not isinstance(last, bool):
            return first, last
    raise f.wrong(name, "must be [first, last], two whole numbers")


def node_of(x: NodeRecord) -> Node:
    """What decisions know of a node."""
    said = {
        StartPhase.REQUESTED: x.requested,
        StartPhase.AGENT: x.started,
        StartPhase.HEARTBEAT: x.heartbeat,
    }
    start = NodeStart({phase: at for phase, at in said.items() if at is not None})
    return Node(x.node, x.incarnation, x.cpu_milli, start, labels=x.labels)


def encode_starts(starts: Mapping[str, NodeStart]) -> dict[str, dict[str, float]]:
    """Node -> phase -> when it was over."""
    return {node: {phase.value: at for phase, at in start.at.items()} for node, start in starts.items()}


def as_start(f: Fields, name: str, value: Any) -> NodeStart:
    """Phases of a newer version are left aside."""
    told = as_object(f, name, value)
    return NodeStart({phase: told.number(phase) for phase in StartPhase if phase in told.value})


def encode_progress(x: Progress) -> bytes:
    told = shallow(x)
    del told["not_kept"], told["output_waits"]  # by keys of their own
    return dumps(
        {
            **told,
            "lines": dict(x.lines),
            "restored": dict(x.restored),
            "nodes": sorted(x.nodes),
            "bad_checkpoints": sorted(x.bad_checkpoints),
            _NOT_KEPT: sorted(x.not_kept),
            "positions": dict(x.positions),
            "failed": {partition: str(failure) for partition, failure in x.failed.items()},
            "buffers": dict(x.buffers),
            "problems": list(x.problems),
            "counters": {operator: dict(counted) for operator, counted in x.counters.items()},
            "starts": encode_starts(x.starts),
            **encode_spans("skipped", x.skipped, newest=True),
            **encode_spans("marked", x.marked, newest=True),
            "standbys": dict(x.standbys),
            "backed": sorted(x.backed),
            "unbacked": sorted(x.unbacked),
            "overhead": dict(x.overhead),
            "stored": dict(x.stored),
            "deterministic": x.deterministic,
            _OUTPUT_WAITS: sorted(x.output_waits),
            "adopted": dict(x.adopted),
            "waits": {partition: kind.value for partition, kind in x.waits.items()},
            "refused": dict(x.refused),
        }
    )


def parse_progress(raw: bytes, path: str = paths.PROGRESS) -> Progress:
    f = loads(raw, path)
    horizon = f.integer("horizon", 0)
    return Progress(
        driver=f.text("driver"),
        seq=f.integer("seq", 0),
        generation=f.integer("generation", 0),
        nodes=frozenset(f.items("nodes", as_text, [])),
        positions=f.mapping("positions", as_integer, {}),
        failed=f.mapping("failed", _failure, {}),
        horizon=horizon,
        due=f.integer("due", horizon),
        punctuation=f.integer("punctuation", 0),
        ended=f.flag("ended", False),
        done=f.flag("done", False),
        checkpoint=f.integer("checkpoint", 0),
        lines=f.mapping("lines", as_integer, {}),
        bad_checkpoints=frozenset(f.items("bad_checkpoints", as_integer, [])),
        trimmed=f.integer("trimmed", 0),
        kept_since=f.maybe_integer("kept_since"),
        restored=f.mapping("restored", as_integer, {}),
        not_kept=frozenset(f.items(_NOT_KEPT, as_text, [])),
        buffers=f.mapping("buffers", as_integer, {}),
        stuck=f.text("stuck", ""),
        drained=f.maybe_integer("drained"),
        time=f.number("time", 0.0),
        turns=f.integer("turns", 0),
        turn_limit_s=f.number("turn_limit_s", 0.0),
        jobs=f.integer("jobs", 0),
        chained=f.text("chained", ""),
        problems=tuple(f.items("problems", as_text, [])),
        counters=f.mapping("counters", _counted, {}),
        starts=f.mapping("starts", as_start, {}),
        skipped=spans_of(f, "skipped"),
        marked=spans_of(f, "marked"),
        standbys=f.mapping("standbys", as_integer, {}),
        backed=frozenset(f.items("backed", as_text, [])),
        unbacked=frozenset(f.items("unbacked", as_text, [])),
        overhead=f.mapping("overhead", as_number, {}),
        stored=f.mapping("stored", as_number, {}),
        settings=f.text("settings", ""),
        deterministic=f.flag("deterministic", True),
        output_waits=frozenset(f.items(_OUTPUT_WAITS, as_text, [])),
        adopted=f.mapping("adopted", as_text, {}),
        waits={
            p: Outside(kind) for p, kind in f.mapping("waits", as_text, {}).items() if kind in list(Outside)
        },
        refused=f.mapping("refused", as_text, {}),
    )


def encode_stats(x: Mapping[str, PartitionStats]) -> bytes:
    return dumps({partition: _stats(stats) for partition, stats in x.items()})


def _stats(x: PartitionStats) -> dict[str, object]:
    """What is not known of what it would have to do is left out: a record may have ten thousand of them."""
    told: dict[str, object] = {"cpu_milli": x.cpu_milli, "state_bytes": x.state_bytes}
    if x.input_rows_s is not None:
        told["input_rows_s"] = x.input_rows_s
    if x.watermark is not None:
        told["watermark"] = x.watermark
    if x.input_ended:
        told["input_ended"] = True
    if x.restore is not None:
        restore = {name: value for name, value in shallow(x.restore).items() if value is not None}
        told["restore"] = restore if x.restore.aim is None else {**restore, "aim": shallow(x.restore.aim)}
    return told


def _restore(f: Fields, partition: str, value: Mapping[str, Any]) -> RestoreWork | None:
    match value.get("restore"):
        case None:
            return None
        case {"rows": int(rows), "rows_s": float(rows_s), "bytes_s": float(bytes_s)} if (
            rows >= 0
            and 0 < rows_s < inf
            and 0 < bytes_s < inf
            and not isinstance(rows, bool)
            and "aim" not in value["restore"]
        ):
            return RestoreWork(rows, rows_s, bytes_s)
    inner = as_object(as_object(f, partition, value), "restore", value["restore"])
    aim = None if inner.get("aim", None) is None else _aim(as_object(inner, "aim", inner.value["aim"]))
    return RestoreWork(inner.integer("rows"), _rate(inner, "rows_s"), _rate(inner, "bytes_s"), aim)


def _coming(f: Fields, partition: str, value: Mapping[str, Any]) -> float | None:
    match value.get("input_rows_s"):
        case None:
            return None
        case float(rows_s) if 0 <= rows_s < inf:
            return rows_s
    return _not_negative(as_object(f, partition, value), "input_rows_s")


def _watermark(f: Fields, partition: str, value: Mapping[str, Any]) -> int | None:
    found = value.get("watermark")
    return (
        found if found is None or type(found) is int else as_object(f, partition, value).integer("watermark")
    )


def _aim(f: Fields) -> Aim:
    return Aim(f.integer("extent"), f.integer("replay"), f.number("least_s"), f.number("within_s"))


def _rate(f: Fields, name: str) -> float | None:
    found = f.maybe_number(name)
    if found is not None and found <= 0:
        raise f.wrong(name, f"must be positive, but is {found}")
    return found


def parse_stats(raw: bytes, path: str = paths.STATS) -> dict[str, PartitionStats]:
    top = loads(raw, path)
    found: dict[str, PartitionStats] = {}
    for partition, value in top.value.items():
        match (
            value
        ):  # as it always is: a thousand topologies fail at once with the statistics of minutes unread
            case {"cpu_milli": float(cpu), "state_bytes": int(size)} if 0 <= cpu < inf and not isinstance(
                size, bool
            ):
                found[intern(partition)] = PartitionStats(
                    cpu, size, _restore(top, partition, value), _coming(top, partition, value),
                    _watermark(top, partition, value), value.get("input_ended") is True,
                )  # fmt: skip
                continue
        f = as_object(top, partition, value)
        found[intern(partition)] = PartitionStats(
            cpu_milli=_not_negative(f, "cpu_milli"),
            state_bytes=f.integer("state_bytes", 0),
            restore=_restore(top, partition, f.value),
            input_rows_s=_coming(top, partition, f.value),
            watermark=_watermark(top, partition, f.value),
            input_ended=f.flag("input_ended", False),
        )
    return found


def encode_desired(x: Desired) -> bytes:
    # `ordered`: drivers of version 0.1.0 do not read a record without it; others know it from `retain` (batch.order)
    lines = encode_lines(x.lines)
    moving = None
    if x.moving is not None:
        moving = {
            **shallow(x.moving),
            "to": dict(x.moving.to),
            "considered": sorted(x.moving.considered),
        }
    return dumps(
        {
            **shallow(x),
            "assignment": dict(x.assignment),
            "standbys": dict(x.standbys),
            "anew": dict(x.anew),
            "skips": dict(x.skips),
            "demand": dict(x.demand),
            "lines": lines,
            "ordered": x.retain,
            "moving": moving,
            "rebalancing": x.rebalancing
            and {
                **shallow(x.rebalancing),
                "nodes": sorted(x.rebalancing.nodes),
                "to": dict(x.rebalancing.to),
            },
        }
    )


def parse_desired(raw: bytes, path: str = paths.DESIRED) -> Desired:
    f = loads(raw, path)
    return Desired(
        seq=f.integer("seq"),
        generation=f.integer("generation"),
        checkpoint=f.integer("checkpoint"),
        driver=f.text("driver"),
        assignment=f.mapping("assignment", _node_id),
        retain=f.flag("retain"),
        punctuate=f.flag("punctuate"),
        plan=f.maybe_text("plan"),
        paused=f.flag("paused", False),
        lines=f.mapping("lines", as_origin, {}),
        moving=_moving(f, f.value.get("moving")),
        standbys=f.mapping("standbys", _node_id, {}),
        anew=f.mapping("anew", as_text, {}),
        demand=f.mapping("demand", as_integer, {}),
        rebalancing=_rebalancing(f, f.value.get("rebalancing")),
        skips=f.mapping("skips", as_text, {}),
    )


def _moving(f: Fields, value: Any) -> Moving | None:
    if value is None:
        return None
    inner = as_object(f, "moving", value)
    return Moving(
        inner.mapping("to", _node_id, {}),
        inner.integer("after", 0),
        inner.flag("begun", False),
        frozenset(inner.items("considered", as_text, [])),
        inner.flag("rebalances", False),
    )


def _rebalancing(f: Fields, value: Any) -> Rebalancing | None:
    if value is None:
        return None
    inner = as_object(f, "rebalancing", value)
    return Rebalancing(
        frozenset(inner.items("nodes", as_text, [])),
        inner.number("at"),
        inner.integer("rounds", 0),
        inner.mapping("to", _node_id, {}),
    )


def encode_poison(x: Poison) -> bytes:
    return dumps({"driver": x.driver, "partitions": dict(x.partitions)})


def parse_poison(raw: bytes, path: str = paths.POISON) -> Poison:
    f = loads(raw, path)
    return Poison(f.text("driver"), f.mapping("partitions", as_text))


def _not_negative(f: Fields, name: str) -> float:
    value = f.number(name)
    if value < 0:
        raise f.wrong(name, f"must not be negative, but is {value}")
    return value


def _failure(f: Fields, name: str, value: Any) -> Failure:
    return Failure.parse(as_text(f, name, value))


def _counted(f: Fields, name: str, value: Any) -> dict[str, int]:
    inner = as_object(f, name, value)
    return {intern(counter): as_integer(inner, counter, number) for counter, number in inner.value.items()}


def _node_id(f: Fields, name: str, value: Any) -> str:
    text = as_text(f, name, value)
    node, mark, incarnation = text.rpartition("#")
    if not (node and mark and incarnation.isdigit()):
        raise f.wrong(name, f"{text!r} is not written node#incarnation")
    return intern(text)
