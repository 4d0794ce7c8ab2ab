"""The demo's verdict: whether the outputs are right, and what each way of recovery cost; from the files of the three runs.

A query is down from the moment at which its loss is noticed until it is back as `reprise.scheduler.back` defines it,
which is what the coordinator has on record.  Invariant: nothing is claimed that was not measured.  Where a query was not
seen back, its time is a least one, and incremental recovery is called better only if all of its times were measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from examples.demo.pace import MOST_LATE
from reprise.controller.local.report.compare import Comparison, compare
from reprise.controller.local.report.versus import draw_versus, since_failure
from reprise.controller.local.run.config import RunResult
from reprise.scheduler.back import Recovery as Took

NONE = Took(0.0, True)
"""Of a query that was not lost."""
VALUE = (
    "What is maximised is summed value: the priorities of all queries that are back, added up, and not their order. So"
    " several lesser queries may come back before one that is worth more than each of them."
)


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
    total: int
    """The summed priority of all queries, lost or not."""
    plot: Path | None
    strict: bool = False
    """The most valuable query was to come back first."""
    busy: str = ""
    """How one sees that the machine could not follow; empty: it could."""

    @property
    def identical(self) -> bool:
        return self.incremental.identical and self.blocking.identical and self.pieces > 0

    @property
    def lost_incremental(self) -> Took:
        return _lost([(row.priority, row.incremental or NONE) for row in self.queries], self.total)

    @property
    def lost_blocking(self) -> Took:
        return _lost([(row.priority, row.blocking or NONE) for row in self.queries], self.total)

    @property
    def benefit(self) -> bool:
        """Less was lost with incremental recovery, and that is certain."""
        ours = self.lost_incremental
        return ours.measured and ours.seconds < self.lost_blocking.seconds

    @property
    def good(self) -> bool:
        return self.ended and self.identical and self.benefit

    @property
    def answer(self) -> str:
        """PASSED, FAILED or NOT SHOWN, with the reason in words."""
        if not self.ended:
            return "FAILED: not all three runs came to their end."
        if not self.identical:
            return "FAILED: outputs are not those of the run without faults."
        if not any(row.incremental and row.blocking for row in self.queries):
            return "FAILED: no query was lost in both runs, so there is nothing to compare."
        if self.benefit:
            return "PASSED: outputs are right in every byte, and less was lost with incremental recovery."
        why = (
            "less was not lost with incremental recovery"
            if self.lost_incremental.measured
            else "with incremental recovery not every query was seen back before its incident was closed"
        )
        if self.busy:
            return f"NOT SHOWN: outputs are right in every byte, but {why}. {self.busy} Try again when less runs beside it."
        return f"FAILED: outputs are right in every byte, but {why}."


def judge(incremental: RunResult, reference: RunResult, blocking: RunResult, interval_s: float) -> Verdict:
    """From the folders of the three runs; `interval_s`: between batches of those with faults, seconds."""
    one, other = (_recoveries(result.incident) for result in (incremental, blocking))
    priorities = {q: int(entries[0]["priority"]) for q, entries in {**other, **one}.items()}
    queries = [Recovery(q, p, _took(one, q), _took(other, q)) for q, p in priorities.items()]
    queries.sort(key=lambda r: (-r.priority, r.query))
    every = priorities | {q: int(e["priority"]) for q, e in incremental.incident.get("queries", {}).items()}
    mine, theirs = (compare(reference.out, result.out) for result in (incremental, blocking))
    runs = {"incremental": incremental, "blocking": blocking}
    curves = {name: since_failure(r.incident) for name, r in runs.items() if "series" in r.incident}
    return Verdict(
        ended=incremental.ok and reference.ok and blocking.ok,
        pieces=mine.equal + len(mine.missing) + len(mine.different),
        incremental=mine,
        blocking=theirs,
        queries=tuple(queries),
        total=sum(every.values()),
        plot=draw_versus(curves, incremental.out.parent / "comparison") if curves else None,
        strict=incremental.incident.get("order") == "strict",
        busy=_busy({name: r.incident for name, r in runs.items()}, interval_s),
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


def _lost(downtimes: Sequence[tuple[int, Took]], total: int) -> Took:
    """Seconds of the whole topology lost: downtime weighted by priority."""
    seconds = sum(priority * took.seconds for priority, took in downtimes) / max(1, total)
    return Took(seconds, all(took.measured for _, took in downtimes))


def _busy(reports: Mapping[str, Any], interval_s: float) -> str:
    """What of the time before the failure says that this machine did not follow, in words."""
    for name, report in reports.items():
        usual = [float(query["baseline_s"]) for query in report.get("queries", {}).values()]
        if usual and (late := median(usual)) > MOST_LATE * interval_s:
            return (
                f"This machine could not follow: before anything had failed, outputs of the {name} run were more than"
                f" {MOST_LATE} batches late ({late:.1f} s, with a batch every {interval_s:g} s)."
            )
    return ""


def show(console: Console, verdict: Verdict, out: Path) -> None:
    """The table, what follows from it, where to look, and the answer."""
    console.print(
        "Downtime of each query, from when its loss was noticed until its output had caught up for good:"
    )
    table = Table(box=None, header_style="bold")
    table.add_column("query", no_wrap=True)
    for name in ("priority", "incremental", "blocking"):
        table.add_column(name, justify="right")
    for row in verdict.queries:
        table.add_row(row.query, str(row.priority), _text(row.incremental), _text(row.blocking))
    console.print(table)
    for line in _lines(verdict):
        console.print(line, highlight=False, soft_wrap=True)
    for name, found in (("incremental", verdict.incremental), ("blocking", verdict.blocking)):
        _show_outputs(console, name, found, verdict.pieces)
    if verdict.plot is not None:
        files = f"{verdict.plot}.png, {out / 'incremental' / 'queries.png'}"
        console.print(f"plots, by how late outputs were written: {files}", highlight=False, soft_wrap=True)
    style = "bold green" if verdict.good else "bold red"
    console.print(verdict.answer, style=style, highlight=False, soft_wrap=True)


def _lines(verdict: Verdict) -> list[str]:
    """The comparison in sentences."""
    ours, theirs = verdict.lost_incremental, verdict.lost_blocking
    certain = ours.measured and ours.seconds > 0
    least = "" if theirs.measured else "at least "
    ratio = f": blocking lost {least}{theirs.seconds / ours.seconds:.1f} times as much" if certain else ""
    found = [
        sooner(verdict.queries),
        f"Downtime weighted by priority, over all queries: incremental {ours}, blocking {theirs}{ratio}.",
    ]
    if not verdict.strict:
        found += [VALUE, _order(verdict.queries)]
    if verdict.busy and verdict.benefit:
        found.append(f"{verdict.busy} So the times are rough.")
    return [line for line in found if line]


def sooner(queries: Sequence[Recovery]) -> str:
    """What incremental recovery had brought back when blocking recovery had nothing yet, in words; empty: nothing to say."""
    down = [row.blocking.seconds for row in queries if row.blocking]
    if not down:
        return ""
    first = min(down)
    back = [
        row
        for row in queries
        if (took := row.incremental or NONE).measured and took.seconds < first and row.blocking
    ]
    value, total = sum(row.priority for row in back), sum(row.priority for row in queries)
    return (
        f"With blocking recovery no query was back before {first:.1f} s. With incremental recovery {len(back)} of"
        f" {len(queries)} queries were, worth {value} of {total} in summed priority ({100 * value / max(1, total):.0f} %)."
    )


def _show_outputs(console: Console, name: str, found: Comparison, pieces: int) -> None:
    same = "identical" if found.identical else "NOT IDENTICAL"
    problems = f" (missing {len(found.missing)}, extra {len(found.extra)}, different {len(found.different)})"
    text = f"{name} against no faults: {same}, {found.equal} of {pieces} output files equal in every byte"
    style = "green" if found.identical else "bold red"
    console.print(text + ("" if found.identical else problems), style=style, highlight=False, soft_wrap=True)


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
        f"Here {first.query}, the most valuable (priority {first.priority}), was down for longer than {len(before)} lesser"
        f" ones worth {sum(row.priority for row in before)} together; `recovery.order: strict` brings the most valuable back"
        " first."
    )
