"""The demo's verdict: identical outputs, and what each strategy lost; from the files of the three runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from controller.report.compare import Comparison, compare
from controller.report.versus import draw_versus, since_failure
from controller.run.config import RunResult


@dataclass(frozen=True, slots=True)
class Recovery:
    """One query's times, seconds after it was lost; None: not lost, or not back."""

    query: str
    priority: int
    incremental_s: float | None
    blocking_s: float | None


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

    @property
    def identical(self) -> bool:
        return self.incremental.identical and self.blocking.identical and self.pieces > 0

    @property
    def good(self) -> bool:
        return self.ended and self.identical and self.lost_incremental_s < self.lost_blocking_s


def judge(incremental: RunResult, reference: RunResult, blocking: RunResult) -> Verdict:
    """From the folders of the three runs."""
    one, other = (_recoveries(result.incident) for result in (incremental, blocking))
    priorities = {q: e["priority"] for q, e in {**other, **one}.items()}
    queries = [Recovery(q, p, _time(one, q), _time(other, q)) for q, p in priorities.items()]
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
    )


def _recoveries(report: Any) -> dict[str, Any]:
    """The last entry of each query over all incidents of a run."""
    found: dict[str, Any] = {}
    for incident in report.get("incidents", []):
        found |= incident["queries"]
    return found


def _time(found: dict[str, Any], query: str) -> float | None:
    value = found.get(query, {}).get("recovery_s")
    return None if value is None else float(value)


def show(console: Console, verdict: Verdict, out: Path) -> None:
    """The table, the answer, and where to look."""
    table = Table(
        title="seconds from loss until caught up", title_justify="left", box=None, header_style="bold"
    )
    table.add_column("query", no_wrap=True)
    for name in ("priority", "incremental", "blocking"):
        table.add_column(name, justify="right")
    for row in verdict.queries:
        table.add_row(row.query, str(row.priority), _text(row.incremental_s), _text(row.blocking_s))
    console.print(table)
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


def _text(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"
