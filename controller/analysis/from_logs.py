"""An incident re-read from logs alone: `python -m reprise.controller.analysis.from_logs < LOG` prints its time line.

For the day after, when ZooKeeper and the folder of the run are gone and the log store still has the lines.  Works on JSON
lines (`--log-format json`) of any number of coordinators, in any order, mixed with anything else.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

Line = tuple[float, str, str]
"""Unix seconds, what happened, detail: as in `reprise.controller.status.timeline`."""


def incidents_in(log: Iterable[str]) -> dict[str, list[Line]]:
    """The time line of each incident, by id; what was said twice counts once.

    As in incident.json, a plan is one line with its summary.
    """
    events: dict[str, dict[Line, None]] = {}
    plans: dict[str, dict[Line, None]] = {}
    for entry in _objects(log):
        try:
            at, incident = float(entry["time"]), str(entry["incident"])
            if entry["event"] == "incident" and entry["name"] != "plan":
                events.setdefault(incident, {})[at, str(entry["name"]), str(entry["detail"])] = None
            elif entry["event"] == "plan":
                plans.setdefault(incident, {})[at, "plan", f"{entry['plan']} {entry['summary']}"] = None
        except (KeyError, TypeError, ValueError):
            continue
    return {
        incident: sorted([*events.get(incident, {}), *plans.get(incident, {})], key=lambda line: line[0])
        for incident in sorted(events.keys() | plans.keys())
    }


def _objects(log: Iterable[str]) -> Iterator[dict[str, Any]]:
    for text in log:
        try:
            entry = json.loads(text)
        except ValueError:
            continue
        if isinstance(entry, dict) and entry.get("event") in ("incident", "plan"):
            yield entry


def main() -> None:
    for incident, lines in incidents_in(sys.stdin).items():
        print(incident)
        for at, what, detail in lines:
            print(
                f"  {datetime.fromtimestamp(at, UTC).isoformat(timespec='milliseconds')}  {what}  {detail}".rstrip()
            )


if __name__ == "__main__":
    main()
