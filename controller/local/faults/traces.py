"""Spot-market traces as node losses and arrivals.

Three forms are found in public traces: events (`milliseconds,add|remove,name`) and two step series of the number of
instances (`seconds,count`, and `date,time,count`).  All become the same list of changes.  The fleet of the trace is
larger or smaller than a run's, so only what happens to as many nodes as the run has is kept, and a fleet never shrinks
below one node.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path

from reprise.controller.local.errors import FaultFileError

Change = tuple[float, tuple[str, ...], int]
"""Seconds since the start, names of the nodes lost (n1, n2, ... as a run calls them), nodes that arrive."""


@dataclass(slots=True)
class _Fleet:
    """The run's nodes as the trace goes by; `names` maps the trace's names to ours."""

    living: list[str]
    started: int
    names: dict[str, str] = field(default_factory=dict)

    def arrive(self) -> str:
        self.started += 1
        self.living.append(f"n{self.started}")
        return self.living[-1]

    def lose(self, name: str) -> bool:
        if name not in self.living or len(self.living) == 1:
            return False
        self.living.remove(name)
        return True


def read_trace(path: Path, nodes: int, start_s: float) -> list[Change]:
    """The changes after `start_s` of the trace, for a fleet that has `nodes` nodes then.  FaultFileError names the
    line."""
    try:
        rows = [
            row
            for row in csv.reader(path.read_text(encoding="utf-8").splitlines())
            if row and row[0][:1] != "#"
        ]
    except OSError as error:
        raise FaultFileError(str(path), "", f"cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise FaultFileError(str(path), "", f"is not text: {error}") from error
    fleet = _Fleet([f"n{i}" for i in range(1, nodes + 1)], nodes)
    if rows and len(rows[0]) == 3 and rows[0][1].strip() in ("add", "remove"):
        return _from_events([_event(path, i, row) for i, row in enumerate(rows)], fleet, start_s)
    return _from_counts([_count(path, i, row) for i, row in enumerate(rows)], fleet, start_s)


def _event(path: Path, index: int, row: list[str]) -> tuple[float, str, str]:
    try:
        at, kind, name = (cell.strip() for cell in row)
        if kind not in ("add", "remove"):
            raise ValueError(f"{kind!r} is neither add nor remove")
        return float(at) / 1000, kind, name
    except ValueError as error:
        raise FaultFileError(
            str(path), f"row {index + 1}", f"is not `milliseconds,add|remove,name`: {error}"
        ) from error


def _count(path: Path, index: int, row: list[str]) -> tuple[float, int]:
    try:
        *when, count = (cell.strip() for cell in row)
        if len(when) == 2:
            return datetime.fromisoformat(" ".join(when)).replace(tzinfo=UTC).timestamp(), int(count)
        (seconds,) = when
        return float(seconds), int(float(count))
    except ValueError as error:
        raise FaultFileError(
            str(path), f"row {index + 1}", f"is neither `seconds,count` nor `date,time,count`: {error}"
        ) from error


def _from_events(events: list[tuple[float, str, str]], fleet: _Fleet, start_s: float) -> list[Change]:
    present: dict[str, None] = {}
    for at, kind, name in events:
        if at <= start_s:
            if kind == "add":
                present[name] = None
            else:
                present.pop(name, None)
    fleet.names = dict(zip(present, fleet.living, strict=False))
    changes = []
    for at, group in groupby((e for e in events if e[0] > start_s), key=lambda e: e[0]):
        lost, added = [], 0
        for _, kind, name in group:
            if kind == "add":
                fleet.names[name] = fleet.arrive()
                added += 1
            elif fleet.lose(ours := fleet.names.pop(name, "")):
                lost.append(ours)
        if lost or added:
            changes.append((at - start_s, tuple(lost), added))
    return changes


def _from_counts(counts: list[tuple[float, int]], fleet: _Fleet, start_s: float) -> list[Change]:
    """Choose who is lost: of a fleet that shrinks, the nodes that came last are lost."""
    if not counts:
        return []
    zero = counts[0][0]
    before = next((c for t, c in reversed(counts) if t - zero <= start_s), counts[0][1])
    changes: list[Change] = []
    for at, count in counts:
        if at - zero <= start_s or count == before:
            continue
        step, before = count - before, count
        lost = [
            name for name in reversed(fleet.living[-max(0, -step) :] if step < 0 else []) if fleet.lose(name)
        ]
        for _ in range(max(0, step)):
            fleet.arrive()
        if lost or step > 0:
            changes.append((at - zero - start_s, tuple(lost), max(0, step)))
    return changes
