"""An incident re-read from logs alone: `python -m reprise.controller.analysis.from_logs < LOG` prints its time line.

For the day after, when ZooKeeper and the folder of the run are gone and the log store still has the lines.  Works on JSON
lines (`--log-format json`) of any number of coordinators, in any order, mixed with anything else.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from reprise.controller.status.timeline import Entry, in_order, plan_entry_of
from reprise.controller.utc import utc


def incidents_in(log: Iterable[str]) -> dict[str, list[Entry]]:
    """The time line of each incident, by id; what was said twice counts once.

    As in incident.json, a plan is one line with its summary.
    """
    events: dict[str, dict[Entry, None]] = {}
    plans: dict[str, dict[Entry, None]] = {}
    for entry in _objects(log):
        try:
            at, incident = float(entry["time"]), str(entry["incident"])
            if not math.isfinite(at):
                continue
            if entry["event"] == "incident" and entry["name"] != "plan":
                events.setdefault(incident, {})[at, str(entry["name"]), str(entry["detail"])] = None
            elif entry["event"] == "plan":
                said = plan_entry_of(at, str(entry["plan"]), str(entry["summary"]))
                plans.setdefault(incident, {})[said] = None
        except (KeyError, TypeError, ValueError, OverflowError):
            continue
    return {
        incident: in_order([*events.get(incident, {}), *plans.get(incident, {})])
        for incident in sorted(events.keys() | plans.keys())
    }


def _objects(log: Iterable[str]) -> Iterator[dict[str, Any]]:
    for text in log:
        try:
            entry = json.loads(text)
        except (ValueError, RecursionError):
            continue
        if isinstance(entry, dict) and entry.get("event") in ("incident", "plan"):
            yield entry


def main() -> None:
    for incident, lines in incidents_in(sys.stdin).items():
        print(incident)
        for at, what, detail in lines:
            print(f"  {utc(at).isoformat(timespec='milliseconds')}  {what}  {detail}".rstrip())


if __name__ == "__main__":
    main()
