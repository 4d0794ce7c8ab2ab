"""From the request for a node to its first work: how long each phase takes.

    python -m benchmarks.node_start --out DIR [--starts 8] [--output text|json]

One cluster of three nodes, with a partition on each and no room for a second one.  Again and again the node that counts is
killed, and another one is asked for a second later; when the incident is closed, the next one is killed.  Printed are the
median and the range of the seconds from the request until each phase of the start was over (`docs/recovery.md`, How a node
starts), and the median of what the phase added to the one before.  One start goes on at a time, beside a stream of two
batches a second.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console

from benchmarks import command
from benchmarks.recovery_show import Grid
from reprise.controller.local.faults.faults import parse_faults
from reprise.controller.local.run.config import Outcome, RunConfig, load
from reprise.controller.local.run.supervisor import run_topology
from reprise.controller.status.query_state import RunState
from reprise.scheduler.node_start import LATER

TOPOLOGY = Path(__file__).with_name("node_start.yaml")
NODES = 3
CALM_S = 2.0
"""Between the end of an incident and the next loss."""
ASKED_AFTER_S = 1.0
"""From a loss until the request for another node."""


@dataclass(frozen=True, slots=True)
class PhaseTimes:
    """Seconds from the request until a phase was over, over all starts of which that is known."""

    phase: str
    starts: int
    median_s: float
    least_s: float
    greatest_s: float
    step_s: float | None
    """Median of what it took after the phase before had ended; None where the two are never known together."""


class _Enough(KeyboardInterrupt):
    """As many starts as were asked for: the run is to end as if somebody had interrupted it."""


def main(arguments: list[str] | None = None) -> int:
    options = _options(arguments)
    console = Console(width=None if sys.stdout.isatty() else 160, stderr=options.output == "json")
    command.begin(options.out)
    load_before = os.getloadavg()[0]
    starts, end = _starts(options, console)
    figures = {
        "starts": starts,
        "phases": [asdict(times) for times in phases(starts)],
        "load_average": [round(load_before, 1), round(os.getloadavg()[0], 1)],
        "ended": end,
    }
    text = json.dumps(figures, indent=1) + "\n"
    (options.out / "node-start.json").write_text(text)
    if options.output == "json":
        sys.stdout.write(text)
    else:
        _show(phases(starts), console)
        command.say(
            console, [f"{len(starts)} starts of {options.starts}; load average {figures['load_average']}"]
        )
    return 0 if starts else 1


def schedule(starts: int) -> list[dict[str, Any]]:
    """A loss after the first checkpoint and after each incident, and a request for another node after each loss."""
    found: list[dict[str, Any]] = []
    for number in range(starts):
        when = {"on": "closed", "count": number} if number else {"on": "checkpoint"}
        found.append({**when, "delay": CALM_S, "kill": ["@count"], "name": f"loss-{number}"})
        found.append({"after": f"loss-{number}", "delay": ASKED_AFTER_S, "add": 1})
    return found


def phases(starts: Sequence[Mapping[str, float]]) -> list[PhaseTimes]:
    """`starts`: of each, phase -> seconds from the request.  Phases in their order; one that no start knows is left out."""
    found: list[PhaseTimes] = []
    before: str | None = None
    for phase in LATER:
        seconds = [start[phase] for start in starts if phase in start]
        if not seconds:
            continue
        steps = [s[phase] - s[before] for s in starts if before is not None and phase in s and before in s]
        if before is None:
            steps = seconds
        step = round(median(steps), 3) if steps else None
        low, high = round(min(seconds), 3), round(max(seconds), 3)
        found.append(PhaseTimes(phase.value, len(seconds), round(median(seconds), 3), low, high, step))
        before = phase
    return found


def _starts(options: argparse.Namespace, console: Console) -> tuple[list[dict[str, float]], str]:
    resource = load(TOPOLOGY)

    def enough(state: RunState, _actions: list[dict[str, Any]]) -> None:
        if len(state.observation.closed) >= options.starts:
            raise _Enough

    config = RunConfig(
        resource=resource,
        out=options.out / "run",
        faults=parse_faults(schedule(options.starts), "schedule", NODES),
        timeout_s=options.timeout,
    )
    result = run_topology(config, enough, lambda line: console.print(line, highlight=False))
    incidents = result.incident.get("incidents", [])
    starts = [dict(s["seconds"]) for i in incidents for s in i["node_starts"].values() if s["seconds"]]
    whole = result.outcome is Outcome.INTERRUPTED and len(incidents) >= options.starts
    return starts, "all" if whole else f"{result.outcome.value} {result.reason}".strip()


def _show(found: Sequence[PhaseTimes], console: Console) -> None:
    rows = [
        (t.phase, str(t.starts), f"{t.median_s:.2f}", f"{t.least_s:.2f} .. {t.greatest_s:.2f}",
         "-" if t.step_s is None else f"{t.step_s:+.2f}")
        for t in found
    ]  # fmt: skip
    head = ("phase", "starts", "over after, s, median", "range", "after the phase before, median")
    Grid("From the request for a node to its first work", head, tuple(rows)).show(console)


def _options(arguments: list[str] | None) -> argparse.Namespace:
    description = (__doc__ or "").partition("\n")[0]
    parser = argparse.ArgumentParser(prog="python -m benchmarks.node_start", description=description)
    parser.add_argument("--out", type=Path, required=True, help="replaced when it is there")
    parser.add_argument("--timeout", type=float, default=900.0, help="of the run, seconds")
    parser.add_argument("--starts", type=int, default=8)
    parser.add_argument("--output", choices=("text", "json"), default="text")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
