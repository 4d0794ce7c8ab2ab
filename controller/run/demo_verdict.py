"""The demo's verdict: identical outputs, and what each strategy lost; from the files of the three runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from controller.report.compare import Comparison, compare
from controller.report.versus import draw_versus, since_failure
from controller.run.config import RunResult
from scheduler.back import Recovery as Took


@dataclass(frozen=True, slots=True)
class Recovery:
    """How long one query was down in each run; None: it was not lost."""

    query: str
    priority: int
    incremental: Took | None
    blocking: Took | None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the demo shows."""

    ended: bool
    """All three runs ended with everything done."""
    pieces: int
    incremental: Comparison
    blocking: Comparison
    queries: tuple[Recovery, ...]
    lost_incremental_s: float
    """Area over the priority-weighted availability."""
    lost_blocking_s: float
    plot: Path | None
    strict: bool = False
    """The most valuable query was to come back first."""

    @property
    def identical(self) -> bool:
        return self.incremental.identical and self.blocking.identical and self.pieces > 0

    @property
    def good(self) -> bool:
        return self.ended and self.identical and self.lost_incremental_s < self.lost_blocking_s


def judge(incremental: RunResult, reference: RunResult, blocking: RunResult) -> Verdict:
    """From the folders of the three runs."""
    one, other = (_recoveries(result.incident) for result in (incremental, blocking))
    priorities = {q: entries[0]["priority"] for q, entries in {**other, **one}.items()}
    queries = [Recovery(q, p, _took(one, q), _took(other, q)) for q, p in priorities.items()]
    queries.sort(key=lambda r: (-r.priority, r.query))
    mine, theirs = (compare(reference.out, result.out) for result in (incremental, blocking))
    curves = {
        name: since_failure(result.incident)
        for name, result in (("incremental", incremental), ("blocking", blocking))
        if "series" in result.incident
    }
    return Verdict(
        ended=incremental.ok and reference.ok and blocking.ok,
        pieces=mine.equal + len(mine.missing) + len(mine.different),
        incremental=mine,
        blocking=theirs,
        queries=tuple(queries),
        lost_incremental_s=float(incremental.incident.get("lost_s", 0.0)),
        lost_blocking_s=float(blocking.incident.get("lost_s", 0.0)),
        plot=draw_versus(curves, incremental.out.parent / "comparison") if curves else None,
        strict=incremental.incident.get("order") == "strict",
    )


def _recoveries(report: Any) -> dict[str, list[Any]]:
    """The entries of each query in all incidents of a run."""
    found: dict[str, list[Any]] = {}
    for incident in report.get("incidents", []):
        for query, entry in incident["queries"].items():
            found.setdefault(query, []).append(entry)
    return found


def _took(found: dict[str, list[Any]], query: str) -> Took | None:
    """All downtime of a query; at least that, where an incident closed before it had been seen back."""
    entries = found.get(query)
    if not entries:
        return None
    measured = all(entry["recovery_s"] is not None for entry in entries)
    seconds = sum(
        entry["at_least_s"] if entry["recovery_s"] is None else entry["recovery_s"] for entry in entries
    )
    return Took(float(seconds), measured, sum(entry["relapses"] for entry in entries))


def show(console: Console, verdict: Verdict, out: Path) -> None:
    """The table, the answer, and where to look."""
    table = Table(
        title="downtime of each query, from its loss until its output held its steady lag again",
        title_justify="left",
        box=None,
        header_style="bold",
    )
    table.add_column("query", no_wrap=True)
    for name in ("priority", "incremental", "blocking"):
        table.add_column(name, justify="right")
    for row in verdict.queries:
        table.add_row(row.query, str(row.priority), _text(row.incremental), _text(row.blocking))
    console.print(table)
    if not verdict.strict and (note := _order(verdict.queries)):
        console.print(note, highlight=False)
    for name, found in (("incremental", verdict.incremental), ("blocking", verdict.blocking)):
        same = "identical" if found.identical else "NOT IDENTICAL"
        problems = (
            f" (missing {len(found.missing)}, extra {len(found.extra)}, different {len(found.different)})"
        )
        text = f"{name} against no faults: {same}, {found.equal} of {verdict.pieces} output files equal in every byte"
        style = "green" if found.identical else "bold red"
        console.print(text + ("" if found.identical else problems), style=style, highlight=False)
    ours, theirs = verdict.lost_incremental_s, verdict.lost_blocking_s
    ratio = f", {theirs / ours:.1f} times as much" if ours > 0 else ""
    text = (
        f"availability lost, weighted by priority: incremental {ours:.1f} s, blocking {theirs:.1f} s{ratio}"
    )
    console.print(text, highlight=False)
    if verdict.plot is not None:
        console.print(f"plots: {verdict.plot}.png, {out / 'incremental' / 'queries.png'}", highlight=False)
    console.print("PASSED" if verdict.good else "FAILED", style="bold green" if verdict.good else "bold red")


def _text(took: Took | None) -> str:
    return "-" if took is None else str(took)


def _order(queries: Sequence[Recovery]) -> str:
    """Whether the most valuable query came back after lesser ones, in words; empty where it did not."""
    times = [(row, row.incremental) for row in queries if row.incremental is not None]
    if not times:
        return ""
    first, took = max(times, key=lambda entry: entry[0].priority)
    before = [
        row
        for row, one in times
        if row.priority < first.priority and one.measured and one.seconds < took.seconds
    ]
    if not before:
        return ""
    return (
        f"{first.query}, the most valuable (priority {first.priority}), was down for longer than {len(before)} lesser ones"
        f" worth {sum(row.priority for row in before)} together: plans maximise the summed priority of what comes back, not"
        " the order; `recovery.order: strict` brings the most valuable back first"
    )
