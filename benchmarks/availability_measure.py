"""What the records of one run of `benchmarks.availability` say, the CPU that its partition hosts have taken, and the bytes
that they have sent."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.availability_cases import AMNESIA, CHECKPOINT, TOP_QUERIES, TWO_OF_FOUR, Case
from benchmarks.notice_figures import unavailable
from reprise.controller.agent import processes
from reprise.controller.local.report.compare import Comparison
from reprise.controller.local.report.expected import verify
from reprise.controller.local.report.history import Writes, read_events
from reprise.controller.local.run.config import RunResult
from reprise.controller.status.query_state import RunState
from reprise.spark_jobs.contract import Place, Range
from reprise.spark_jobs.node.wire import encode_table
from reprise.spark_jobs.sinks.files import marked_by
from reprise.spark_jobs.topology import StreamTopology, make_source

HOST = b"reprise.spark_jobs.node.host_process"
_BEGAN = re.compile(r"event=(?:upstream-backup|standby-promoted) partition=lost\.0 .*?position=(\d+)")
LOSS_S = 30.0
"""Seconds from the loss on over which availability is summed up; a stream that has ended is available."""
STEADY = 10
"""Batches of a run after which CPU is measured, up to the loss."""


@dataclass(frozen=True, slots=True)
class Figures:
    """One run; seconds.  None: it was not seen."""

    table: str
    row: str
    mode: str
    outcome: str
    detection_s: float | None = None
    """From the kill until the incident is opened."""
    plan_s: float | None = None
    """From then until the plan, or until standbys are promoted."""
    after_s: float | None = None
    """From the plan, or the promotion, until the longest time without a new batch is over."""
    still_s: float | None = None
    """The longest time without a new batch after the kill; of two of four nodes, that of the queries that may not wait."""
    again: int | None = None
    """Batches that were made again, of those that had been shown."""
    cpu_ms: float | None = None
    """CPU time of all partition hosts for one batch before the loss, in milliseconds."""
    same: bool = False
    """Whether all that is not marked is as without a failure."""
    marked: int = 0
    """Batches that are marked, as they may lack rows."""
    lost_s: float | None = None
    """Area above the priority-weighted availability in the `LOSS_S` seconds from the loss on (two of four nodes)."""
    source_b: float | None = None
    """Rows of the sources, encoded as messages are, bytes a batch; None of two of four nodes, where five operators read
    them."""
    rows_b: float | None = None
    """Rows that went between nodes before the loss, bytes a batch."""
    standbys_b: float | None = None
    """What went to standbys on other nodes, bytes a batch."""
    acknowledgements_b: float | None = None
    """What nodes were told of standbys and of output that need not be kept, bytes a batch."""

    @property
    def overhead(self) -> float | None:
        """Bytes for availability over those of the sources' rows, in %, as theirs."""
        if self.source_b is None or self.standbys_b is None or self.acknowledgements_b is None:
            return None
        return 100 * (self.standbys_b + self.acknowledgements_b) / self.source_b

    @property
    def recovery_s(self) -> float | None:
        """From detection on, as theirs."""
        return None if self.plan_s is None or self.after_s is None else self.plan_s + self.after_s


SENT = ("message_bytes", "standby_bytes", "acknowledgement_bytes")
"""What a driver counts of the bytes that were sent: rows, for standbys, and what nodes are told for availability."""


@dataclass(slots=True)
class CpuWatch:
    """Samples the CPU time of the partition hosts below this process, and what they have sent, while a run goes on."""

    until: int
    """The batch at which nodes are killed."""
    _first: tuple[int, float] | None = None
    _last: tuple[int, float] | None = None
    _sent: list[tuple[int, tuple[float, ...]]] = field(default_factory=list)
    """Of the first look and of the last: the batch that all have applied, and the counters of `SENT`.  What was released is
    ahead of them, at the begin by more than later."""
    _looked: float = field(default=0.0)

    def __call__(self, state: RunState, _actions: object) -> None:
        progress, now = state.observation.progress, time.monotonic()
        if progress is None or not STEADY <= progress.horizon < self.until - 2 or now - self._looked < 0.9:
            return
        self._looked, self._last = now, (progress.horizon, hosts_cpu_s())
        self._first = self._first or self._last
        if progress.stored:
            applied = min(progress.positions.values(), default=0)
            self._sent = [*self._sent[:1], (applied, tuple(progress.stored[name] for name in SENT))]

    @property
    def ms_a_batch(self) -> float | None:
        """None: too short a time was seen."""
        if self._first is None or self._last is None or self._last[0] - self._first[0] < STEADY:
            return None
        return 1000 * (self._last[1] - self._first[1]) / (self._last[0] - self._first[0])

    @property
    def sent(self) -> tuple[float | None, ...]:
        """Bytes a batch of each of `SENT`; None: too short a time was seen."""
        if len(self._sent) < 2 or self._sent[-1][0] - self._sent[0][0] < STEADY:
            return (None,) * len(SENT)
        (begin, before), (end, after) = self._sent
        return tuple(round((b - a) / (end - begin), 1) for a, b in zip(before, after, strict=True))


def source_bytes(resource: StreamTopology) -> float:
    """Rows of all sources, encoded as messages are: bytes a batch, of the first `STEADY`."""
    total = 0
    for spec in resource.sources:
        source, before = make_source(spec), Range(0, 0)
        for batch in range(1, STEADY + 1):
            place = Place(spec.name, 0, spec.parallelism)
            span = source.plan(place, batch, before)
            assert span is not None, "the stream is longer than that"
            total, before = total + len(encode_table(source.read(place, batch, span))), span
    return total / STEADY


def hosts_cpu_s() -> float:
    """CPU seconds that the living partition hosts below this process have taken."""
    parents = {process.pid: process.parent for process in processes.living()}
    return sum(_cpu_s(pid) for pid in _below(os.getpid(), parents) if _is_host(pid))


def _below(root: int, parents: dict[int, int]) -> Iterator[int]:
    for pid in parents:
        at, steps = pid, 0
        while at in parents and at != root and steps < 64:
            at, steps = parents[at], steps + 1
        if at == root and pid != root:
            yield pid


def _is_host(pid: int) -> bool:
    try:
        return HOST in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def _cpu_s(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def figures(case: Case, result: RunResult, watch: CpuWatch) -> Figures:
    """What a run's records say, and whether its output is that of the same topology without Spark and faults."""
    at: dict[str, float] = {}
    for line in result.incident.get("timeline", ()):
        at.setdefault(line["what"], float(line["time"]))
    killed, opened = at.get("kill"), at.get("opened")
    decided = min((at[what] for what in ("plan", "promoted") if what in at), default=None)
    writes = read_events(result.out / "events.jsonl")
    two = case.table == TWO_OF_FOUR
    waiting = [w for query, w in writes.items() if not two or query in TOP_QUERIES]
    ends = [standstill(w, killed) for w in waiting] if killed is not None else []
    seen = [end for end in ends if end is not None]
    end, still = max(seen, key=lambda one: one[1], default=(None, None))
    found, marks = verify(case.resource, result.out, True) if result.ok else None, marked(result.out)
    area = two and "series" in result.incident
    cpu_ms, (rows, standbys, acknowledgements) = watch.ms_a_batch, watch.sent
    return Figures(
        case.table, case.row, case.mode, result.outcome.value,
        detection_s=_between(killed, opened),
        plan_s=_between(opened, decided),
        after_s=_between(decided, end),
        still_s=None if still is None else round(still, 2),
        again=again(case, result, writes.get("out.0"), killed),
        cpu_ms=None if cpu_ms is None else round(cpu_ms, 2),
        same=found is not None and as_promised(found, marks),
        marked=len(marks),
        lost_s=round(unavailable(result.incident, LOSS_S), 2) if area else None,
        source_b=None if two else source_bytes(case.resource),
        rows_b=rows,
        standbys_b=standbys,
        acknowledgements_b=acknowledgements,
    )  # fmt: skip


def marked(out: Path) -> set[tuple[str, int]]:
    """Output partitions and batches that are marked, as they may lack rows."""
    found = set()
    for path in out.glob("sink/*/*/*"):
        if (batch := marked_by(path.name)) is not None:
            found.add((f"{path.parents[1].name}.{path.parent.name}", batch))
    return found


def as_promised(found: Comparison, marks: Set[tuple[str, int]]) -> bool:
    """Whether nothing differs from what it should be but batches that are marked."""
    return not (found.missing or found.extra or found.twice or found.silent or set(found.different) - marks)


def again(case: Case, result: RunResult, writes: Writes | None, killed: float | None) -> int | None:
    """How many batches the lost partition has made again that had been shown when its node was killed."""
    if writes is None or killed is None or case.table == TWO_OF_FOUR:
        return None
    shown = max(
        (int(b) for b, t in zip(writes.batches, writes.written, strict=True) if t <= killed), default=0
    )
    if case.mode == AMNESIA:
        return 0
    if case.mode == CHECKPOINT:
        incidents: Sequence[Any] = result.incident["incidents"]
        return max(0, shown - int(incidents[0]["checkpoint"])) if incidents else None
    log = result.out / "logs" / "driver.log"
    began = _BEGAN.search(log.read_text(errors="replace")) if log.exists() else None
    return None if began is None else max(0, shown - int(began[1]))


def standstill(writes: Writes, killed: float) -> tuple[float, float] | None:
    """When the longest time without a new batch after the kill was over (unix seconds), and how long that was; it begins
    with the last batch before the kill, or later.  None: nothing was shown before, or after."""
    times = sorted(float(t) for t in writes.written)
    before = [t for t in times if t <= killed]
    after = [t for t in times if t > killed]
    if not before or not after:
        return None
    gaps = [(b - a, b) for a, b in zip([before[-1], *after], after, strict=False)]
    longest, end = max(gaps)
    return end, longest


def _between(begin: float | None, end: float | None) -> float | None:
    return None if begin is None or end is None else round(max(0.0, end - begin), 2)
