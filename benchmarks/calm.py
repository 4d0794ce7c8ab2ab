"""Half of a topology restores and catches up: what the other half notices of it.

    python -m benchmarks.calm --out DIR [--state-mb 512] [--sleep 60] [--calm 30] [--output text|json]

Two halves share three nodes and their jobs, and nothing else.  The node of a partition with half of `--state-mb` is killed;
what it had fits on the nodes that are left, beside the healthy half.  From the loss on each read of the checkpoint store
sleeps for `--sleep` seconds (0: it answers as fast as the disk), so the lost half is that far behind, in batches of 0.2 s,
when it has its state, and catches up from there.

Printed is, for each phase, how late the healthy query's batches were and the greatest time between two of them, and both as
multiples of what they were before the loss: the 99th percentile of lateness, and of the time between two batches.  A batch
belongs to the phase in which it was due.  `loss` ends when the plan is made; until then a job may wait for a node that is
gone.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks import command
from benchmarks.calm_parts import ASLEEP, PROTOCOL, make_known
from benchmarks.recovery_show import Grid
from reprise.controller.local.cluster import ClusterConfig, EmbeddedCluster
from reprise.controller.local.faults.faults import parse_faults
from reprise.controller.local.run.config import RunConfig, RunResult, load
from reprise.controller.local.run.supervisor import run_topology
from reprise.controller.status.query_state import RunState

TOPOLOGY = Path(__file__).with_name("calm.yaml")
PROJECT = Path(__file__).parents[1]
NODES = 3
HEALTHY, LOST = "calm.0", "heavy.0"
SETTLED_S = 5.0
"""After the stream began lateness is that of a start."""


@dataclass(frozen=True, slots=True)
class Write:
    """One batch of the healthy query: its number, when it was shown and when it was due, unix seconds."""

    batch: int
    at: float
    due: float


@dataclass(frozen=True, slots=True)
class Phase:
    """The healthy query between two moments, seconds.  Ratios are to the steady 99th percentiles; None without batches."""

    phase: str
    seconds: float
    batches: int
    late_p50: float | None
    late_p99: float | None
    late_worst: float | None
    gap_worst: float | None
    late_ratio: float | None = None
    gap_ratio: float | None = None


class _Enough(KeyboardInterrupt):
    """The lost half is back: the run is to end as if somebody had interrupted it."""


def quantile(values: Sequence[float], share: float) -> float:
    """The least value that so many are not above; there must be one."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def phase(
    name: str, writes: Sequence[Write], begin: float, end: float, steady: tuple[float, float] | None
) -> Phase:
    """The batches that were due from `begin` to `end`, whenever they were shown, and the times between two that were shown
    then; a longer time counts as far as it lies in the phase."""
    late = [w.at - w.due for w in writes if begin <= w.due < end]
    gaps = [b - a for a, b in pairwise([begin, *(w.at for w in writes if begin <= w.at < end), end])]
    if not late:
        return Phase(name, round(end - begin, 1), 0, None, None, None, round(max(gaps), 3))
    worst, gap = max(late), max(gaps)
    ratios = (round(worst / steady[0], 2), round(gap / steady[1], 2)) if steady else (None, None)
    return Phase(
        name, round(end - begin, 1), len(late), round(quantile(late, 0.5), 3), round(quantile(late, 0.99), 3),
        round(worst, 3), round(gap, 3), *ratios,
    )  # fmt: skip


def phases(
    writes: Sequence[Write], began: float, lost: float, planned: float, restored: float, back: float
) -> list[Phase]:
    """The phases of a run; times are unix seconds."""
    before = [w for w in writes if began + SETTLED_S <= w.at < lost]
    steady = (
        quantile([w.at - w.due for w in before], 0.99),
        quantile([b.at - a.at for a, b in pairwise(before)], 0.99),
    )
    bounds = [("steady", began + SETTLED_S, lost), ("loss", lost, planned), ("restoring", planned, restored),
              ("catching up", restored, back)]  # fmt: skip
    return [phase(name, writes, begin, end, steady) for name, begin, end in bounds]


def missing(writes: Sequence[Write]) -> list[int]:
    """Batches between the first and the last that were never shown."""
    seen = {w.batch for w in writes}
    return sorted(set(range(min(seen), max(seen) + 1)) - seen)


def main(arguments: list[str] | None = None) -> int:
    options = _options(arguments)
    console = Console(width=None if sys.stdout.isatty() else 160, stderr=options.output == "json")
    command.begin(options.out)
    result = _run(options, console)
    (incident, *_) = result.incident["incidents"]
    zero, query = result.incident["zero"], incident["queries"][LOST]
    if query["caught_up"] is None:
        command.say(console, [f"the lost half did not come back: {result.outcome.value} {result.reason}"])
        return 1
    writes = _writes(result.out, HEALTHY)
    kill = next(line["elapsed"] for line in result.incident["timeline"] if line["what"] == "kill")
    found = phases(
        writes,
        zero,
        zero + kill,
        zero + incident["plans"][0]["elapsed"],
        zero + query["restored"],
        zero + query["caught_up"],
    )
    figures: dict[str, Any] = {
        "state_mb": options.state_mb,
        "sleep_s": options.sleep,
        "behind_batches": _behind(result.out, zero + query["restored"]),
        "missing": missing(writes),
        "failed_jobs": _failed_jobs(result.out),
        "phases": [asdict(one) for one in found],
        "load_average": round(os.getloadavg()[0], 1),
    }
    text = json.dumps(figures, indent=1) + "\n"
    (options.out / "calm.json").write_text(text)
    if options.output == "json":
        sys.stdout.write(text)
    else:
        _show(figures, found, console)
    return 0


def _run(options: argparse.Namespace, console: Console) -> RunResult:
    store, known = (options.out / "store").resolve(), (options.out / "known").resolve()
    make_known(known)
    store.mkdir()
    # before any process of the cluster begins: all of them are to know the store
    inherited = [entry for entry in (os.environ.get("PYTHONPATH", ""),) if entry]
    os.environ["PYTHONPATH"] = os.pathsep.join([str(known), str(PROJECT), *inherited])
    changes = {
        "operators[heavy].with.megabytes": options.state_mb // 2,
        "checkpoint.location": f"{PROTOCOL}://{store}/checkpoints",
    }
    resource = load(TOPOLOGY, overrides=changes)
    asleep, back = store / ASLEEP, False

    def look(state: RunState, _actions: list[dict[str, Any]]) -> None:
        nonlocal back
        incident = state.observation.incident
        if incident is not None and LOST in incident.queries:
            back = back or bool(incident.queries[LOST].caught_up_at)
            if back:
                asleep.unlink(missing_ok=True)
            elif options.sleep and not asleep.exists():
                asleep.write_text(str(options.sleep))
        if state.observation.closed:
            raise _Enough

    faults = [{"on": "checkpoint", "delay": options.calm, "kill": [f"@{LOST}"]}]
    with EmbeddedCluster(ClusterConfig(nodes=NODES, cpu_milli=1000)) as cluster:
        config = RunConfig(
            resource=resource,
            out=options.out / "run",
            faults=parse_faults(faults, "schedule", NODES),
            timeout_s=options.timeout,
            cluster=cluster,
        )
        return run_topology(config, look, lambda line: console.print(line, highlight=False))


def _writes(out: Path, query: str) -> list[Write]:
    lines = map(json.loads, (out / "events.jsonl").read_text().splitlines())
    return sorted(
        (Write(x["batch"], x["at"], x["due"]) for x in lines if x["query"] == query), key=lambda w: w.at
    )


def _behind(out: Path, restored: float) -> int:
    """How many batches the lost half was behind the healthy one when it had its state."""
    last = [max((w.batch for w in _writes(out, q) if w.at <= restored), default=0) for q in (HEALTHY, LOST)]
    return last[0] - last[1]


def _failed_jobs(out: Path) -> int:
    """Jobs that failed or were cancelled, the one that the node was lost in with them."""
    return (out / "logs" / "driver.log").read_text(errors="replace").count("event=job-failed")


def _show(figures: dict[str, Any], found: Sequence[Phase], console: Console) -> None:
    def text(value: float | None, unit: str = "") -> str:
        return "-" if value is None else f"{value:.2f}{unit}"

    rows = [
        (p.phase, f"{p.seconds:.1f}", str(p.batches), text(p.late_p50), text(p.late_p99), text(p.late_worst),
         text(p.late_ratio, "x"), text(p.gap_worst), text(p.gap_ratio, "x"))
        for p in found
    ]  # fmt: skip
    head = (
        "phase",
        "s",
        "batches",
        "late p50, s",
        "p99",
        "worst",
        "/ steady p99",
        "greatest gap, s",
        "/ steady p99",
    )
    Grid("The healthy half", head, tuple(rows)).show(console)
    command.say(
        console,
        [
            f"{figures['state_mb']} MB of state in two partitions, reads sleep {figures['sleep_s']:g} s; the lost half was "
            f"{figures['behind_batches']} batches behind when it had its state; {len(figures['missing'])} batches of the "
            f"healthy half missing, {figures['failed_jobs']} jobs failed; load average {figures['load_average']}"
        ],
    )


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.calm",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--out", type=Path, required=True, help="replaced when it is there")
    parser.add_argument("--timeout", type=float, default=600.0, help="of the run, seconds")
    parser.add_argument(
        "--state-mb", type=int, default=512, help="MB in both partitions together; disk takes ten times that"
    )
    parser.add_argument(
        "--sleep", type=float, default=60.0, help="seconds that a read of the store sleeps, after the loss"
    )
    parser.add_argument(
        "--calm", type=float, default=30.0, help="seconds from the first checkpoint to the loss"
    )
    parser.add_argument("--output", choices=("text", "json"), default="text")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
