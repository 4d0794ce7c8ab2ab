"""The verdict of `reprise demo`: what the failure cost each query, beside blocking recovery, and whether outputs are right.

A query is down from the detection of its loss until it is back as `reprise.scheduler.back` defines it; the coordinator
records both.  In a run with one incident, a query that was not back when the incident closed is down until its output was
normal again, by what was written.  Without a second run, blocking recovery is charged only with the time until as many nodes
as before were ready: the least that it can lose on the same arrivals of nodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from reprise.controller.analysis.postmortem.story import Story, make_story
from reprise.controller.cli.compare_command import lines
from reprise.controller.cli.recorded import heartbeats, recorded
from reprise.controller.local.report.compare import Comparison
from reprise.controller.local.run.config import RunResult
from reprise.scheduler.back import Recovery as Took

NOT_LOST = Took(0.0, True)
MOST_LATE = 7
"""Batches.  A topology runs two to seven behind its newest one while all is well; where its outputs are usually later than
this before the failure, the machine cannot follow, and downtimes measure the machine."""
VALUE = (
    "Plans maximise the summed priority of all queries that are back. Several lesser queries may come back before one that"
    " is worth more than each of them."
)


@dataclass(frozen=True, slots=True)
class Downtime:
    """Of one query; None: the run did not lose it."""

    query: str
    priority: int
    incremental: Took | None
    blocking: Took | None


@dataclass(frozen=True, slots=True)
class Verdict:
    queries: tuple[Downtime, ...]
    """The most valuable first."""
    total: int
    """Summed priority of all queries, lost or not."""
    outputs: Mapping[str, Comparison]
    """Of each run, with what its operators give in one process."""
    least_s: float | None
    """What blocking recovery loses at least (`counterfactual.blocking_loses`)."""
    compared: bool
    """A run with blocking recovery was measured, too."""
    strict: bool
    """`recovery.order: strict`: the most valuable query was to come back first."""
    busy: str
    """What shows that the machine could not follow; empty: it could."""

    @property
    def identical(self) -> bool:
        return all(found.identical and found.equal > 0 for found in self.outputs.values())

    @property
    def incremental(self) -> Took:
        return self._lost([(row.priority, row.incremental or NOT_LOST) for row in self.queries])

    @property
    def blocking(self) -> Took | None:
        """Measured where it was, else the least."""
        if self.compared:
            return self._lost([(row.priority, row.blocking or NOT_LOST) for row in self.queries])
        return None if self.least_s is None else Took(self.least_s, False)

    def _lost(self, downtimes: Sequence[tuple[int, Took]]) -> Took:
        """Seconds of the whole topology: downtime weighted by priority."""
        seconds = sum(priority * took.seconds for priority, took in downtimes) / max(1, self.total)
        return Took(seconds, all(took.measured for _, took in downtimes))

    @property
    def less(self) -> bool:
        """Incremental recovery lost less; every query of it was seen back."""
        ours, theirs = self.incremental, self.blocking
        return ours.measured and theirs is not None and ours.seconds < theirs.seconds

    @property
    def passed(self) -> bool:
        return self.identical and self.less

    @property
    def answer(self) -> str:
        """PASSED, NOT SHOWN or FAILED, with the reason."""
        if not self.identical:
            return "FAILED: outputs differ from those of a run without faults."
        if not any(row.incremental for row in self.queries) or self.blocking is None:
            return "FAILED: no query was lost in a correlated failure, so there is nothing to compare."
        if self.less:
            beside = "blocking recovery" if self.compared else "the least that blocking recovery can lose"
            return f"PASSED: every output is right in every byte, and incremental recovery lost less than {beside}."
        why = (
            "incremental recovery did not lose less"
            if self.incremental.measured
            else "a query was not seen back before its incident was closed"
        )
        if self.busy:
            return f"NOT SHOWN: every output is right in every byte, but {why}. {self.busy} Run it again on an idle machine."
        return f"FAILED: every output is right in every byte, but {why}."


def judge(
    incremental: RunResult,
    outputs: Mapping[str, Comparison],
    least_s: float | None,
    interval_s: float,
    blocking: RunResult | None = None,
) -> Verdict:
    """`interval_s`: between batches; `blocking`: the run of the same faults with `recovery.strategy: blocking`."""
    runs = {"incremental": incremental.incident}
    if blocking is not None:
        runs["blocking"] = blocking.incident
    one, other = _entries(runs["incremental"]), _entries(runs.get("blocking", {}))
    priorities = {q: int(entries[0]["priority"]) for q, entries in {**other, **one}.items()}
    every = priorities | {q: int(e["priority"]) for q, e in incremental.incident.get("queries", {}).items()}
    queries = [
        Downtime(q, p, _took(one, q, runs["incremental"]), _took(other, q, runs.get("blocking", {})))
        for q, p in priorities.items()
    ]
    return Verdict(
        queries=tuple(sorted(queries, key=lambda row: (-row.priority, row.query))),
        total=sum(every.values()),
        outputs=outputs,
        least_s=least_s,
        compared=blocking is not None,
        strict=incremental.incident.get("order") == "strict",
        busy=_busy(runs, interval_s),
    )


def stories(out: Path) -> list[Story]:
    """The incidents of the run in `out`.  ReportError for a folder without a finished run."""
    topology, incidents, plans = recorded(out)
    arrived = heartbeats(out)
    return [make_story(topology, i, plans, i.closed_at or i.opened_at, arrived) for i in incidents]


def _entries(report: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Of each query, over all incidents of a run."""
    found: dict[str, list[Any]] = {}
    for incident in report.get("incidents", []):
        for query, entry in incident["queries"].items():
            found.setdefault(query, []).append(entry)
    return found


def _took(found: Mapping[str, list[Any]], query: str, report: Mapping[str, Any]) -> Took | None:
    entries = found.get(query)
    if not entries:
        return None
    seconds = [e["at_least_s"] if e["recovery_s"] is None else e["recovery_s"] for e in entries]
    measured = all(e["recovery_s"] is not None for e in entries)
    again = report.get("queries", {}).get(query, {}).get("available_again_s")
    if not measured and len(report["incidents"]) == 1 and again is not None:
        written = report["failure"] + again - report["incidents"][0]["detected"]
        seconds, measured = [max(written, *seconds)], True
    return Took(float(sum(seconds)), measured, sum(entry["relapses"] for entry in entries))


def _busy(reports: Mapping[str, Mapping[str, Any]], interval_s: float) -> str:
    for name, report in reports.items():
        usual = [float(query["baseline_s"]) for query in report.get("queries", {}).values()]
        if usual and (late := median(usual)) > MOST_LATE * interval_s:
            return (
                f"This machine could not follow: before the failure, outputs of the {name} run were {late:.1f} s late, more"
                f" than {MOST_LATE} batches of {interval_s:g} s."
            )
    return ""


def show(console: Console, verdict: Verdict) -> None:
    """The table, the comparison in sentences, and the answer."""
    console.print("Downtime of each query, from the detection of its loss until its output had caught up:")
    table = Table(box=None, header_style="bold")
    table.add_column("query", no_wrap=True)
    for name in ("priority", "incremental", *(["blocking"] if verdict.compared else [])):
        table.add_column(name, justify="right")
    for row in verdict.queries:
        measured = [row.incremental, *([row.blocking] if verdict.compared else [])]
        table.add_row(
            row.query, str(row.priority), *("-" if took is None else str(took) for took in measured)
        )
    console.print(table)
    for line in _lines(verdict):
        console.print(line, highlight=False, soft_wrap=True)
    style = "bold green" if verdict.passed else "bold red"
    console.print(verdict.answer, style=style, highlight=False, soft_wrap=True)


def _lines(verdict: Verdict) -> list[str]:
    found = [_sooner(verdict.queries), *_times(verdict)]
    if not verdict.strict:
        found += [VALUE, _order(verdict.queries)]
    for name, outputs in verdict.outputs.items():
        found += [f"Outputs, {name}: {line}" for line in lines(outputs)]
    if verdict.busy and verdict.less:
        found.append(f"{verdict.busy} The times are rough.")
    return [line for line in found if line]


def _times(verdict: Verdict) -> list[str]:
    ours, theirs = verdict.incremental, verdict.blocking
    found = [f"Lost, downtime weighted by priority over all queries: {ours} of the whole topology."]
    if theirs is None:
        return found
    least = "" if theirs.measured else "at least "
    certain = ours.measured and ours.seconds > 0
    times = f", {least}{theirs.seconds / ours.seconds:.1f} times as much" if certain else ""
    if verdict.compared:
        return [*found, f"Blocking recovery lost {theirs}{times}."]
    return [
        *found,
        f"Blocking recovery loses {theirs}{times}: it restores nothing before as many nodes as before are ready."
        " `reprise demo --compare` measures it.",
    ]


def _sooner(queries: Sequence[Downtime]) -> str:
    """What incremental recovery had brought back before blocking recovery brought back its first query."""
    down = [row.blocking.seconds for row in queries if row.blocking]
    if not down:
        return ""
    first = min(down)
    back = [
        row
        for row in queries
        if (took := row.incremental or NOT_LOST).measured and took.seconds < first and row.blocking
    ]
    value, total = sum(row.priority for row in back), sum(row.priority for row in queries)
    return (
        f"With blocking recovery no query was back before {first:.1f} s. With incremental recovery {len(back)} of"
        f" {len(queries)} queries were, worth {value} of {total} in summed priority."
    )


def _order(queries: Sequence[Downtime]) -> str:
    """Which query worth less came back before the most valuable one."""
    times = [(row, row.incremental) for row in queries if row.incremental is not None]
    if not times:
        return ""
    first, took = times[0]
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
