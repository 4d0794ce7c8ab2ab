"""Figures of one run of `benchmarks.skew`, from its records, its files, and the notes of its operators."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from benchmarks.checkpoints import place_of
from benchmarks.skew_cases import INTERVAL_MS, Query, Way
from benchmarks.skew_probe import APPLIED, FROZEN, read_notes
from reprise.controller.local.report.compare import compare, pieces
from reprise.controller.local.run.config import RunResult
from reprise.controller.status.query_state import RunState
from reprise.spark_jobs.state.checkpoints import CheckpointStore

Weighted = Sequence[tuple[float, int]]
"""(seconds, how many rows were as late)"""
Done = Mapping[int, tuple[float, float]]
"""Batch -> (when it was due, when the last output partition had shown it), unix seconds."""


@dataclass(frozen=True, slots=True)
class Second:
    """Latency of the rows that the output applied in one second; `at`: its begin, seconds from the kill, less than 0 before
    it.  CheckMate, figs. 9 and 10.  A second in which nothing came out has none."""

    at: int
    p50: float
    p99: float
    rows: int


@dataclass(frozen=True, slots=True)
class Figures:
    """One run.  Seconds, but `pause_ms`; None: it was not seen.  Before: of rows that were due in the second half of the
    time until the kill, and applied before it; after: in the second half of what followed it."""

    outcome: str
    p50_before: float | None = None
    p99_before: float | None = None
    p50_after: float | None = None
    p99_after: float | None = None
    """Until the output partition has applied the row, from when its batch was due."""
    shown_before: float | None = None
    """The same until its output batch can be read, of output batches; the median."""
    pause_ms: float | None = None
    """For which a state with hot keys was frozen, before the kill; the median, as of the following two."""
    stored: float | None = None
    """From freezing such a state until its file is complete."""
    complete: float | None = None
    """From announcing a checkpoint of all partitions until it is complete; None by own clocks."""
    behind: int | None = None
    """Batches that were due and that the last output partition had not applied, when the kill came."""
    restart: float | None = None
    """From the incident until every lost query has all of its partitions at work; of the first incident."""
    recovery: float | None = None
    """From the incident until every lost query is back near the newest batch and stays there; None where one was not seen
    there before the incident was closed."""
    not_before: float | None = None
    """For how long such a one was seen not to be there."""
    incidents: int = 0
    """More than one: the machine was so busy that a node that lives was taken for lost, or a query was lost again."""
    seconds: tuple[Second, ...] = ()
    """Latency over time, through the failure."""


@dataclass(slots=True)
class Watch:
    """What the records of a running topology say, several times a second."""

    rounds: dict[int, tuple[float, float]] = field(default_factory=dict)
    """Position -> (when it was complete, seconds from its announcement until then)."""
    lags: list[tuple[float, int]] = field(default_factory=list)
    """(unix seconds, batches from the least position of an output partition to the newest that is due)"""
    outputs: tuple[str, ...] = ()

    def __call__(self, state: RunState, _actions: list[dict[str, Any]]) -> None:
        seen = state.observation
        if seen.checkpoint is not None:
            self.rounds[seen.checkpoint.position] = (seen.checkpoint.time, seen.checkpoint.seconds)
        if seen.progress is not None:
            there = [seen.progress.positions[p] for p in self.outputs if p in seen.progress.positions]
            if there and len(there) == len(self.outputs):
                self.lags.append((seen.progress.time, max(0, seen.progress.due - min(there))))


def figures(result: RunResult, notes: Path, watch: Watch, way: Way, done: Done) -> Figures:
    """What the records of a run say."""
    timeline = result.incident.get("timeline", [])
    killed = next((float(line["time"]) for line in timeline if line["what"] == "kill"), None)
    if killed is None or not done:
        return Figures(result.outcome.value)
    due = {batch: at for batch, (at, _) in done.items()}
    applied = [line for _, line in read_notes(notes, APPLIED)]
    before, after = halves(due, killed)
    early = lateness((n for n in applied if n["at"] < killed), due, before)
    late = lateness((n for n in applied if n["at"] >= killed), due, after)
    frozen = [(p, n) for p, n in read_notes(notes, FROZEN) if n["at"] < killed]
    shown = [(at - was, 1) for batch, (was, at) in done.items() if batch in before]
    rounds = [seconds for at, seconds in watch.rounds.values() if at < killed]
    incidents = result.incident.get("incidents", [])
    return Figures(
        outcome=result.outcome.value,
        p50_before=quantile(early, 0.5),
        p99_before=quantile(early, 0.99),
        p50_after=quantile(late, 0.5),
        p99_after=quantile(late, 0.99),
        shown_before=quantile(shown, 0.5),
        pause_ms=_milli(quantile([(n["pause_s"], 1) for _, n in frozen], 0.5)),
        stored=quantile([(s, 1) for s in stored(frozen, state_files(result.out))], 0.5),
        complete=quantile([(s, 1) for s in rounds], 0.5) if way.protocol == "coordinated" else None,
        behind=next((lag for at, lag in reversed(watch.lags) if at < killed), None),
        restart=slowest(incidents, "restored_after_s"),
        recovery=slowest(incidents, "recovery_s"),
        not_before=longest(incidents, "at_least_s"),
        incidents=len(incidents),
        seconds=by_second(applied, due, killed),
    )


def _milli(seconds: float | None) -> float | None:
    return None if seconds is None else 1000 * seconds


def slowest(incidents: Sequence[Mapping[str, Any]], what: str) -> float | None:
    """The longest of these times among the queries of the first incident; None where one of them has none."""
    return longest(incidents, what) if None not in _times(incidents, what) else None


def longest(incidents: Sequence[Mapping[str, Any]], what: str) -> float | None:
    """The same among those that have one."""
    return max((float(t) for t in _times(incidents, what) if t is not None), default=None)


def _times(incidents: Sequence[Mapping[str, Any]], what: str) -> list[float | None]:
    return [one[what] for one in incidents[0]["queries"].values()] if incidents else []


def halves(due: Mapping[int, float], killed: float) -> tuple[frozenset[int], frozenset[int]]:
    """Batches that were due in the second half of the time until the kill, and of that from it to the last one."""
    begin, end = min(due.values()), max(due.values())
    first, second = (begin + killed) / 2, (killed + end) / 2
    return (
        frozenset(b for b, at in due.items() if first <= at < killed),
        frozenset(b for b, at in due.items() if second <= at),
    )


def lateness(
    applied: Iterable[Mapping[str, Any]], due: Mapping[int, float], batches: frozenset[int]
) -> Weighted:
    """Of rows that came in these batches of the sources: until the output had applied them."""
    return [(n["at"] - due[b], rows) for n in applied for b, rows in n["rows"] if b in batches]


def by_second(
    applied: Iterable[Mapping[str, Any]], due: Mapping[int, float], killed: float
) -> tuple[Second, ...]:
    """Latency of rows by the second in which the output applied them."""
    found: dict[int, list[tuple[float, int]]] = {}
    for note in applied:
        late = found.setdefault(math.floor(note["at"] - killed), [])
        late += [(note["at"] - due[b], rows) for b, rows in note["rows"] if b in due]
    told = []
    for at, late in sorted(found.items()):
        p50, p99 = quantile(late, 0.5), quantile(late, 0.99)
        if p50 is not None and p99 is not None:
            told.append(Second(at, p50, p99, sum(rows for _, rows in late)))
    return tuple(told)


def quantile(values: Weighted, share: float) -> float | None:
    """The least value that at least this share of all does not exceed."""
    if not values:
        return None
    ordered = sorted(values)
    reached = np.cumsum([n for _, n in ordered])
    return float(ordered[int(np.searchsorted(reached, share * reached[-1]))][0])


def stored(
    frozen: Sequence[tuple[str, Mapping[str, Any]]], files: Mapping[tuple[str, int], float]
) -> list[float]:
    """Seconds from freezing each state until its file was written; `files`: (partition, position) -> when."""
    return [files[p, n["batch"]] - n["at"] for p, n in frozen if n["at"] <= files.get((p, n["batch"]), 0.0)]


def state_files(out: Path) -> dict[tuple[str, int], float]:
    """(partition, position) -> when its state file was complete, unix seconds."""
    return {place_of(file): file.stat().st_mtime for file in (out / "checkpoints").glob("cp-*/*.state")}


@dataclass(frozen=True, slots=True)
class Late:
    """How late output was in the two halves of a run that tries a rate: medians, seconds."""

    first: float
    second: float

    @property
    def holds(self) -> bool:
        """Whether it keeps up: it gets later by no more than two batches."""
        return self.second <= self.first + 2 * INTERVAL_MS / 1000


def late_in_halves(done: Done, first: int) -> Late | None:
    """Of output from batch `first` on.  None where there was hardly any."""
    late = [at - due for batch, (due, at) in sorted(done.items()) if batch >= first]
    half = len(late) // 2
    return Late(float(np.median(late[:half])), float(np.median(late[half:]))) if half > 1 else None


# -- outputs -----------------------------------------------------------------------------------------------------------


def same(query: Query, ways: tuple[Way, Way], runs: tuple[Path, Path]) -> bool | str:
    """Whether two runs over the same input gave the same: to the byte, or, where one of them applied input in the order of
    its arrival, as a set of rows.  A sentence where that could be asked of some windows only, and they were the same."""
    if all(way.order == "aligned" for way in ways):
        return compare(*runs).identical
    if query.window is None:
        return rows(runs[0], query.identity) == rows(runs[1], query.identity)
    if any(way.order == "arrival" and way.protocol != "coordinated" for way in ways):
        return "not compared: by own clocks no window ends with even inputs"
    uneven = sorted(
        {end for run, way in zip(runs, ways, strict=True) for end in uneven_ends(run, way, query.window)}
    )
    beside = {start for end in uneven for start in (end - query.window, end)}
    left_out = [start * INTERVAL_MS * 1000 for start in sorted(beside)]
    found = rows(runs[0], query.identity, left_out) == rows(runs[1], query.identity, left_out)
    if not found or not uneven:
        return found
    return f"yes, without the windows beside batch {', '.join(map(str, uneven))}, where no checkpoint was"


def uneven_ends(run: Path, way: Way, window: int) -> list[int]:
    """Batches at which a window ended, where no checkpoint made all inputs even: which rows it had depends on when they
    came."""
    if way.order == "aligned":
        return []
    complete = set(CheckpointStore(str(run / "checkpoints")).positions())
    last = max((batch for _, batch in pieces(run)[0]), default=0)
    return [end for end in range(window, last, window) if end not in complete]


def rows(run: Path, columns: Sequence[str], left_out: Sequence[int] = ()) -> tuple[int, int]:
    """How many rows the output has, and the sum of their hashes: two outputs that agree in both have the same rows, in any
    order and any batches.  `columns`: of which a row is made; none: all.  `left_out`: begins of windows that are not
    counted."""
    count, total = 0, 0
    for path in pieces(run)[0].values():
        if path.stat().st_size == 0:
            continue
        table = pl.read_ndjson(path)
        if left_out:
            table = table.filter(~pl.col("window_start").is_in(list(left_out)))
        table = table.select(sorted(columns or table.columns))
        count += table.height
        total += int(table.hash_rows().to_numpy().sum(dtype=np.uint64))
    return count, total % 2**64
