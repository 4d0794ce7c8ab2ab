"""What the records of one run of `benchmarks.notice` say, and the tables that are made of several."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

from benchmarks.recovery_measure import area
from benchmarks.recovery_show import Grid
from reprise.controller.local.run.config import RunResult

UNANNOUNCED, ANNOUNCED = "unannounced", "with notice"
COLUMNS = (
    "loss", "availability lost, s", "of unannounced", "longest stand-still, s", "of the top three, s", "incidents",
    "steps of moves", "promoted", "restored by plans", "outputs as the first run's", "runs",
)  # fmt: skip
_PROMOTED = re.compile(r"event=standby-promoted partition=(\S+)")


@dataclass(frozen=True, slots=True)
class Loss:
    """One run from its first fault on; times in seconds."""

    repeat: int
    """Runs with the same number are compared with each other: they followed each other on the same nodes."""
    loss: str
    """How the nodes were lost, and what their partitions had: a row of the table."""
    outcome: str
    lost_s: float | None = None
    """Area above the priority-weighted availability.  None, here and below: the run did not come to its end."""
    still_s: float | None = None
    """The longest time between two batches of one query."""
    top_still_s: float | None = None
    """The same of the most valuable queries."""
    incidents: int = 0
    moved: int = 0
    """Steps in which partitions were moved."""
    promoted: int = 0
    """Partitions that went on where their standbys were."""
    restored: int | None = None
    """Partitions that a plan placed: of those lost with the nodes, what had neither moved nor a standby.  None, too: an
    earlier version measured it."""
    same: bool = False
    """Whether the outputs are those of the first run, byte for byte."""


def loss_of(repeat: int, name: str, result: RunResult, seconds: float, top: Set[str], same: bool) -> Loss:
    """What a run's records say of so many seconds from its first fault on; `top`: the most valuable queries."""
    if not result.ok:
        return Loss(repeat, name, f"{result.outcome.value} {result.reason}".strip())
    report = result.incident
    began = report["zero"] + report["failure"]
    writes = [json.loads(line) for line in (result.out / "events.jsonl").read_text().splitlines()]
    logs = result.out / "logs"
    moved = (logs / "coordinator.log").read_text(errors="replace").count("event=decided rule=moved ")
    restored = {p for one in report["incidents"] for plan in one.get("plans", ()) for p in plan["added"]}
    promoted = set(_PROMOTED.findall((logs / "driver.log").read_text(errors="replace")))
    return Loss(
        repeat, name, result.outcome.value,
        lost_s=round(unavailable(report, seconds), 2),
        still_s=round(stood_still(writes, began), 2),
        top_still_s=round(stood_still([w for w in writes if w["query"] in top], began), 2),
        incidents=len(report["incidents"]),
        moved=moved,
        promoted=len(promoted),
        restored=len(restored),
        same=same,
    )  # fmt: skip


def stood_still(writes: Sequence[Mapping[str, Any]], since: float) -> float:
    """The longest time between two batches of a query after `since`; `writes`: query, batch and time of each."""
    shown: dict[str, list[float]] = {}
    for write in writes:
        if write["at"] >= since:
            shown.setdefault(write["query"], [since]).append(write["at"])
    return max((b - a for at in shown.values() for a, b in pairwise(sorted(at))), default=0.0)


def unavailable(report: Mapping[str, Any], seconds: float) -> float:
    """Area above the availability of an incident.json, from the failure on for so many seconds."""
    failure, series = float(report["failure"]), report["series"]
    steps = [
        (at - failure, 1.0 - share)
        for at, share in zip(series["elapsed"], series["share"], strict=True)
        if at >= failure
    ]
    return area(steps, seconds) if steps else 0.0


def table(title: str, found: Sequence[Loss]) -> Grid:
    """A row for each kind of loss: medians, and the range where there are several runs."""
    names = list(dict.fromkeys(one.loss for one in found))
    return Grid(title, COLUMNS, tuple(_row(name, found) for name in names))


def _row(name: str, found: Sequence[Loss]) -> tuple[str, ...]:
    runs = [one for one in found if one.loss == name]
    return (
        name,
        middle((one.lost_s for one in runs), 2),
        middle(fractions(name, found), 2),
        middle((one.still_s for one in runs), 1),
        middle((one.top_still_s for one in runs), 1),
        middle((one.incidents for one in runs if one.lost_s is not None), 0),
        middle((one.moved for one in runs if one.lost_s is not None), 0),
        middle((one.promoted for one in runs if one.lost_s is not None), 0),
        middle((one.restored for one in runs), 0),
        "yes" if all(one.same for one in runs) else "**no**",
        str(len(runs)),
    )


def fractions(name: str, found: Sequence[Loss]) -> list[float]:
    """What a kind of loss cost over what the loss without notice and standbys cost, of each repetition that has both."""
    usual = {one.repeat: one.lost_s for one in found if one.loss == UNANNOUNCED}
    pairs = [(one.lost_s, usual.get(one.repeat)) for one in found if one.loss == name]
    return [cost / other for cost, other in pairs if cost is not None and other]


def middle(values: Iterable[float | None], digits: int) -> str:
    """The median, and the range where values differ; a dash where there is none."""
    seen = [value for value in values if value is not None]
    if not seen:
        return "-"
    low, mid, high = (f"{value:.{digits}f}" for value in (min(seen), median(seen), max(seen)))
    return mid if low == high else f"{mid} ({low} to {high})"
