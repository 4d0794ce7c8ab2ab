"""A topology run in this process, batch by batch, without Spark, checkpoints or failures: what every output
ought to be.

This is the definition that the data plane is measured against: the same partitions, routes, inbox order and
watermarks in sixty lines.  Also handy to try a topology out.  Rules: an ended source sends nothing more and
holds back no watermark; the topology ends when all sources have; a partition's watermark is the least of its
upstreams', feedback edges left aside (a cycle would wait for itself).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from reprise.spark_jobs.contract import Inbox, Input, Operator, Range, Source, require_table
from reprise.spark_jobs.errors import NotYetError, SourceError, StepError
from reprise.spark_jobs.operators.frames import END_OF_TIME, IDLE, later, least
from reprise.spark_jobs.topology.binding import make_operator, make_source
from reprise.spark_jobs.topology.graph import Partition, Topology, expand
from reprise.spark_jobs.topology.resource import StreamTopology
from reprise.spark_jobs.topology.routing import route


@dataclass(slots=True)
class _Sent:
    """What one partition gave for one batch."""

    watermark: int | None = None
    rows: dict[str, dict[str, pa.Table]] = field(default_factory=dict)
    """By reading operator, then by target partition id."""
    output: pa.Table | None = None


def run_local(
    resource: StreamTopology,
    batches: int | None = None,
    counters: MutableMapping[str, Mapping[str, int]] | None = None,
) -> Iterator[Mapping[str, pa.Table | None]]:
    """Yield for batch 1, 2, 3, ... the rows of every partition (None: no rows), up to and with the one that follows the
    last of all sources (it closes every window), or up to `batches`.  `counters` gets what operators count, by partition.

    StepError, with operator, partition and batch, for whatever user code raises and for rows that cannot be routed.
    """
    topology = expand(resource)
    code: dict[str, Operator | Source] = {}
    state: dict[str, Any] = {}
    for pid, partition in topology.partitions.items():
        name = partition.place.operator
        if partition.is_source:
            code[pid] = source = make_source(resource.source(name))
            state[pid] = (Range(0, 0), source.initial(partition.place))
        else:
            code[pid] = operator = make_operator(resource.operator(name))
            state[pid] = operator.initial(partition.place)
    before: dict[str, _Sent] = {}
    marks: dict[str, int | None] = {}
    number = 0
    while batches is None or number < batches:
        number += 1
        now: dict[str, _Sent] = {}
        alive = False
        for pid, partition in topology.partitions.items():
            worker = code[pid]
            if isinstance(worker, Source):
                state[pid], sent, more = _read(worker, partition, number, state[pid])
                alive |= more
            else:
                inbox = _inbox(topology, partition, number, now, before)
                idle = inbox.watermark == IDLE
                if inbox.watermark is not None and not idle:  # it never goes back
                    marks[pid] = later(marks.get(pid), inbox.watermark)
                state[pid], sent = _step(
                    worker, partition, state[pid], replace(inbox, watermark=marks.get(pid))
                )
                sent.watermark = IDLE if idle else sent.watermark
                if counters is not None:
                    counters[pid] = worker.counters(state[pid])
            now[pid] = sent
        yield {pid: sent.output for pid, sent in now.items()}
        if not alive:
            return
        before = now


def _read(
    source: Source, partition: Partition, batch: int, so_far: tuple[Range, Any]
) -> tuple[tuple[Range, Any], _Sent, bool]:
    place, (before, state) = partition.place, so_far
    with _named(partition, batch):
        span = source.plan(place, batch, before)
        if span is None:
            return so_far, _Sent(watermark=END_OF_TIME), False
        table = source.read(place, batch, span)
        state, watermark = source.follow(place, state, batch, span, table)
        return (span, state), _send(partition, table, watermark), True


def _step(operator: Operator, partition: Partition, state: Any, inbox: Inbox) -> tuple[Any, _Sent]:
    with _named(partition, inbox.batch):
        state, output = operator.step(state, inbox)
        require_table(output)
        return state, _send(partition, output, inbox.watermark)


@contextmanager
def _named(partition: Partition, batch: int) -> Iterator[None]:
    """Raise the data plane's StepError for code that raised; trouble that would pass there stays what it is."""
    try:
        yield
    except (SourceError, NotYetError):
        raise
    except Exception as error:
        raise StepError(partition.place.operator, partition.id, batch, error) from error


def _send(partition: Partition, output: pa.Table | None, watermark: int | None) -> _Sent:
    if output is None or not output.num_rows:
        return _Sent(watermark, {}, None)
    sent = _Sent(watermark, {}, output)
    for edge in partition.downstream:
        parts = route(output, edge.grouping, edge.parallelism, partition.place.index)
        sent.rows[edge.operator] = {f"{edge.operator}.{index}": table for index, table in parts.items()}
    return sent


def _inbox(
    topology: Topology,
    partition: Partition,
    batch: int,
    now: Mapping[str, _Sent],
    before: Mapping[str, _Sent],
) -> Inbox:
    inputs, marks = [], []
    for upstream in partition.upstream:
        sent = (before if upstream.feedback else now).get(upstream.partition, _Sent())
        if not upstream.feedback:
            marks.append(sent.watermark)
        table = sent.rows.get(partition.place.operator, {}).get(partition.id)
        if table is not None:
            origin = topology.partitions[upstream.partition].place.operator
            inputs.append(Input(origin, upstream.partition, table))
    return Inbox(batch, least(marks), tuple(inputs))
