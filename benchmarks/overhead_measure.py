"""Throughput, latency and the parts of a superstep, from what the runs wrote.

Only the steady part of a run counts: behind the batches that fill the state and the first quarter of the others, and before
the last tenth, where the stream runs dry.  A batch is complete when its last output partition has written it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.overhead_data import Data
from benchmarks.overhead_reprise import Sample
from benchmarks.overhead_structured import Trigger
from reprise.controller.local.report.history import read_events

HEAD, TAIL = 0.25, 0.1


@dataclass(frozen=True, slots=True)
class Latency:
    """Seconds from the moment a batch is complete at the source until its results are there."""

    median: float
    p95: float
    kept_up: bool
    """False: batches came faster than they were taken, and the figures grow with the length of the run."""


@dataclass(frozen=True, slots=True)
class Parts:
    """Where the time of a job goes, seconds a job."""

    job_s: float
    batches: float
    operators_cpu_s: float
    """CPU time of all partitions' steps, summed over the nodes."""


def steady(data: Data) -> tuple[int, int]:
    """First and last batch that count."""
    first = data.fill + max(1, math.ceil(HEAD * data.batches))
    return first, max(first + 1, data.total - math.ceil(TAIL * data.batches))


def completed(out: Path) -> dict[int, tuple[float, float]]:
    """Batch -> (due, time at which the last output partition had written it); ReportError as `read_events`."""
    found: dict[int, tuple[float, float]] = {}
    for writes in read_events(out / "events.jsonl").values():
        for batch, due, at in zip(writes.batches, writes.due, writes.written, strict=True):
            found[int(batch)] = (float(due), max(float(at), found.get(int(batch), (0.0, 0.0))[1]))
    return found


def throughput(done: Mapping[int, tuple[float, float]], data: Data) -> float | None:
    """Tweets a second over the steady part; None when that part was not reached.

    A job completes many batches in one go, so the rate is the slope of the line through all of them, not that between two.
    """
    first, last = steady(data)
    ends = sorted((at, batch) for batch, (_, at) in done.items() if first <= batch <= last)
    if len(ends) < 2 or ends[-1][0] <= ends[0][0]:
        return None
    at = np.array([at for at, _ in ends]) - ends[0][0]
    return float(np.polyfit(at, np.array([batch for _, batch in ends], dtype=float), 1)[0]) * data.rows


def latency(done: Mapping[int, tuple[float, float]], data: Data) -> Latency | None:
    """Due to written, of the steady part."""
    first, last = steady(data)
    return _latency([at - due for batch, (due, at) in sorted(done.items()) if first <= batch <= last])


def structured_throughput(triggers: Sequence[Trigger], data: Data) -> float | None:
    """Tweets a second from the end of one steady trigger to the end of the last steady one."""
    first, last = steady(data)
    seen, ends = 0, []
    for trigger in triggers:
        seen += trigger.rows
        if first * data.rows <= seen <= last * data.rows:
            ends.append((trigger.ended, seen))
    if len(ends) < 2:
        return None
    return (ends[-1][1] - ends[0][1]) / (ends[-1][0] - ends[0][0])


def structured_latency(triggers: Sequence[Trigger], data: Data, interval_s: float) -> Latency | None:
    """As Reprise's: a file is due one interval after the one before, and its results are there when its trigger ends.

    The clock begins with the first steady trigger, when the filling of the state is over.
    """
    first, last = steady(data)
    steadily = list(triggers)[first - 1 : last]
    if not steadily:
        return None
    zero = steadily[0].began
    return _latency(
        [max(t.ended - (zero + k * interval_s), t.ended - t.began) for k, t in enumerate(steadily)]
    )


def fed_latency(triggers: Sequence[Trigger], data: Data, due: Mapping[int, float]) -> Latency | None:
    """As Reprise's, for files that appeared when they were due: until the trigger that took the file has ended."""
    first, last = steady(data)
    ended: dict[int, float] = {}
    rows = 0
    for trigger in triggers:
        begun, rows = rows // data.rows, rows + trigger.rows
        ended.update(dict.fromkeys(range(begun + 1, rows // data.rows + 1), trigger.ended))
    return _latency([ended[batch] - due[batch] for batch in range(first, last + 1) if batch in ended])


def _latency(values: Sequence[float]) -> Latency | None:
    if not values:
        return None
    third = max(1, len(values) // 3)
    start, end = float(np.median(values[:third])), float(np.median(values[-third:]))
    return Latency(float(np.median(values)), float(np.quantile(values, 0.95)), end < 2 * start + 0.5)


def parts(samples: Sequence[Sample], first: int, last: int) -> Parts | None:
    """From the looks at a bare driver while its slowest partition was between two batches."""
    inside = [s for s in samples if first <= s.position <= last]
    if len(inside) < 2 or inside[-1].jobs == inside[0].jobs:
        return None
    jobs = inside[-1].jobs - inside[0].jobs
    job_s = (inside[-1].time - inside[0].time) / jobs
    cpu = sum(s.cpu_milli for s in inside) / len(inside) / 1000
    return Parts(job_s, (inside[-1].position - inside[0].position) / jobs, cpu * job_s)
