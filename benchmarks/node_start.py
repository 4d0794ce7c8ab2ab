"""From the request for a node to its first work: how long each phase takes, and the CPU seconds of a start.

    python -m benchmarks.node_start --out DIR [--losses 6] [--together 1] [--output text|json]

A cluster of two nodes more than `--together`, with a partition on each and no room for a second one.  Again and again the
`--together` nodes that count are killed at once, and as many are requested together a second later; when the incident is
closed, the next ones are killed.  Printed are the median and the range of the seconds from the request until each phase of
a start was over (`docs/recovery.md`, How a node starts), the median of what the phase added to the one before, the seconds
until the last node of a loss worked, and the CPU seconds that the processes of a node had used at its first work.  All of it
is beside a stream of two batches a second.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import psutil
from rich.console import Console

from benchmarks import command
from benchmarks.recovery_show import Grid
from reprise.controller.agent import processes
from reprise.controller.errors import EmbeddedError
from reprise.controller.local.faults.faults import parse_faults
from reprise.controller.local.run.config import Outcome, RunConfig, load
from reprise.controller.local.run.supervisor import run_topology
from reprise.controller.status.query_state import RunState
from reprise.scheduler.node_start import LATER, StartPhase

TOPOLOGY = Path(__file__).with_name("node_start.yaml")
BESIDE = 2
"""Nodes that are never killed."""
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
    """As many losses as were asked for: the run is to end as if somebody had interrupted it."""


@dataclass(slots=True)
class _Cpu:
    """CPU seconds of the processes of each node, when its first work was on record."""

    spent: dict[str, float] = field(default_factory=dict)

    def look(self, state: RunState) -> None:
        incident = state.observation.incident
        for instance, start in incident.starts.items() if incident is not None else ():
            if StartPhase.WORK in start.at and instance not in self.spent:
                with suppress(EmbeddedError):  # it has been lost meanwhile
                    self.spent[instance] = _cpu_seconds(instance.rpartition("#")[0])


def _cpu_seconds(node: str) -> float:
    """User and system time of all living processes of a node, and of their children that have ended.  EmbeddedError: the
    node is gone."""
    seconds = 0.0
    for member in processes.members([_session(node)]):
        with suppress(psutil.NoSuchProcess):
            seconds += sum(psutil.Process(member.pid).cpu_times()[:4])
    return seconds


def _session(node: str) -> processes.Session:
    for process in psutil.process_iter(["cmdline"]):
        line = process.info["cmdline"] or []
        if "reprise.controller.agent.agent" in line and line[line.index("--node") + 1] == node:
            return processes.Session.of(process.pid)
    raise EmbeddedError(f"node {node} has no agent")


def main(arguments: list[str] | None = None) -> int:
    options = _options(arguments)
    console = Console(width=None if sys.stdout.isatty() else 160, stderr=options.output == "json")
    command.begin(options.out)
    load_before = os.getloadavg()[0]
    losses, cpu, end = _losses(options, console)
    starts = [start for loss in losses for start in loss]
    figures = {
        "together": options.together,
        "losses": losses,
        "phases": [asdict(times) for times in phases(starts)],
        "last_work_s": last_work(losses),
        "cpu_s": cpu,
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
            console,
            [
                f"the last of {options.together} worked after {_spread(last_work(losses))} s",
                f"CPU seconds of a node until its first work: {_spread(cpu)}",
                f"{len(losses)} losses of {options.losses}; load average {figures['load_average']}",
            ],
        )
    return 0 if starts else 1


def schedule(losses: int, together: int = 1) -> list[dict[str, Any]]:
    """A loss after the first checkpoint and after each incident; after each loss a request for `together` other nodes."""
    found: list[dict[str, Any]] = []
    for number in range(losses):
        when = {"on": "closed", "count": number} if number else {"on": "checkpoint"}
        found.append({**when, "delay": CALM_S, "kill": ["@count"], "name": f"loss-{number}"})
        found.append({"after": f"loss-{number}", "delay": ASKED_AFTER_S, "add": together})
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


def last_work(losses: Sequence[Sequence[Mapping[str, float]]]) -> list[float]:
    """Seconds from the request until the last node of each loss worked; left out where one of them is not known to work."""
    done = [[start.get(StartPhase.WORK) for start in loss] for loss in losses]
    return [max(s for s in loss if s is not None) for loss in done if loss and None not in loss]


def _losses(
    options: argparse.Namespace, console: Console
) -> tuple[list[list[dict[str, float]]], list[float], str]:
    """The starts after each loss, the CPU seconds of all nodes that worked, and how the run ended."""
    nodes = BESIDE + options.together
    resource = load(TOPOLOGY, nodes=nodes, overrides={"operators[count].parallelism": options.together})
    cpu = _Cpu()

    def watch(state: RunState, _actions: list[dict[str, Any]]) -> None:
        cpu.look(state)
        if len(state.observation.closed) >= options.losses:
            raise _Enough

    config = RunConfig(
        resource=resource,
        out=options.out / "run",
        faults=parse_faults(schedule(options.losses, options.together), "schedule", nodes),
        timeout_s=options.timeout,
    )
    result = run_topology(config, watch, lambda line: console.print(line, highlight=False))
    incidents = result.incident.get("incidents", [])
    losses = [[dict(s["seconds"]) for s in i["node_starts"].values() if s["seconds"]] for i in incidents]
    whole = result.outcome is Outcome.INTERRUPTED and len(incidents) >= options.losses
    end = "all" if whole else f"{result.outcome.value} {result.reason}".strip()
    return losses, [round(s, 2) for s in cpu.spent.values()], end


def _spread(seconds: Sequence[float]) -> str:
    if not seconds:
        return "an unknown number of"
    return f"{median(seconds):.2f} ({min(seconds):.2f} .. {max(seconds):.2f})"


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
    parser.add_argument("--losses", type=int, default=6, help="one after the other")
    parser.add_argument("--together", type=int, default=1, help="nodes that are lost and requested at once")
    parser.add_argument("--output", choices=("text", "json"), default="text")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
