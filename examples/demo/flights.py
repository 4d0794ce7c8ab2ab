"""`python -m examples.demo.flights`: lose eight of ten nodes, watch the queries come back, and check every byte.

Three runs of one topology on one cluster: without faults, for the outputs that must be and for the pace that this machine
can follow; with the faults and incremental recovery; with the same faults and blocking recovery, for the time that is
saved.  The verdict is computed from the files that the runs wrote, and the exit code says it: 0 when both faulty runs wrote
exactly the outputs of the fault-free one and queries were down for less time with incremental recovery (`demo_verdict`).

Pace: a batch a second, or slower where the fault-free run shows that this machine cannot follow (`demo_pace`).
"""

from __future__ import annotations

import argparse
import shutil
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from examples.demo.pace import LEAST_S, measured, stretched
from examples.demo.verdict import Verdict, judge, show
from reprise.algorithms.cpu import milli_cpu
from reprise.controller.cli.live import display_for
from reprise.controller.errors import EmbeddedError, ReportError, RunError
from reprise.controller.local.cluster.cluster import EmbeddedCluster
from reprise.controller.local.cluster.config import ClusterConfig
from reprise.controller.local.faults.faults import Fault, load_faults
from reprise.controller.local.report.history import read_events
from reprise.controller.local.run.config import Outcome, RunConfig, RunResult, load
from reprise.controller.local.run.supervisor import Watcher, run_topology
from reprise.controller.status.query_state import RunState
from reprise.spark_jobs.topology import StreamTopology, override

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
STEP = "156h"
"""Event time of a batch: the year in 57 batches."""
HURRIED = "250ms"
"""Between batches of the fault-free run where nothing is measured."""
RUN_TIMEOUT_S = 600.0
"""Of one run at a batch a second; on two idle cores each takes a fifth of it."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The demo's parameters, all overrides applied."""

    resource: StreamTopology
    """As it runs without faults."""
    interval: str | None
    """Between batches of the runs with faults; None: measured in the run without."""
    faults: tuple[Fault, ...]
    out: Path
    python_path: str


def main() -> int:
    """Parse, run, judge."""
    options = _options()
    console = Console()
    signal.signal(signal.SIGTERM, interrupt)
    plan = _plan(options)
    began = time.monotonic()
    try:
        verdict = play(console, plan, quiet=options.quiet)
    except KeyboardInterrupt:
        console.print("interrupted; everything that was started has ended")
        return 130
    except (RunError, EmbeddedError, ReportError, OSError) as error:
        console.print(f"error: {error}", style="bold red", highlight=False, soft_wrap=True)
        return 1
    show(console, verdict, plan.out)
    console.print(f"The demo took {time.monotonic() - began:.0f} s.")
    return 0 if verdict.good else 1


def play(console: Console, plan: Plan, quiet: bool) -> Verdict:
    """The three runs on one cluster."""
    out, path, interval = plan.out, plan.python_path, plan.interval
    console.print(f"{plan.resource.name} on {plan.resource.nodes.count} nodes (processes on this machine).")
    cluster = EmbeddedCluster(cluster_config(plan.resource))
    try:
        cluster.start(lambda line: console.print(line, style="dim", highlight=False))
        _title(console, "1 of 3: no faults, for the right outputs and this machine's pace")
        reference = run(console, plan.resource, (), out / "no-faults", cluster, quiet, path)
        if not reference.ok:
            raise RunError(
                f"without the outputs of this run there is nothing to compare with; see {reference.out}"
            )
        faults = plan.faults
        if interval is None:
            pace = measured(read_events(out / "no-faults" / "events.jsonl"))
            console.print(pace.describe(), style="bold", highlight=False, soft_wrap=True)
            interval, faults = f"{round(pace.interval_s * 1000)}ms", stretched(faults, pace.stretch)
        resource = override(plan.resource, {"batch.interval": interval})
        patience_s = RUN_TIMEOUT_S * max(1.0, resource.batch_interval_s)
        _title(console, "2 of 3: incremental recovery, queries come back as nodes arrive")
        announce(console, resource, faults)
        incremental = run(console, resource, faults, out / "incremental", cluster, quiet, path, patience_s)
        _title(console, "3 of 3: the same faults with blocking recovery")
        resource = override(resource, {"recovery.strategy": "blocking"})
        blocking = run(console, resource, faults, out / "blocking", cluster, quiet, path, patience_s)
    finally:
        cluster.stop()
    return judge(incremental, reference, blocking, resource.batch_interval_s)


def run(
    console: Console,
    resource: StreamTopology,
    faults: tuple[Fault, ...],
    out: Path,
    cluster: EmbeddedCluster,
    quiet: bool,
    python_path: str = "",
    timeout_s: float = RUN_TIMEOUT_S,
    watch: Watcher = lambda _state, _actions: None,
) -> RunResult:
    """One run on a cluster that is there, shown as it goes; KeyboardInterrupt when it was interrupted."""
    config = RunConfig(
        resource=resource,
        out=out,
        faults=faults,
        cluster=cluster,
        timeout_s=timeout_s,
        python_path=python_path,
    )
    began = time.monotonic()
    with display_for(console, f"{resource.name} ({out.name})", quiet) as display:

        def both(state: RunState, actions: list[dict[str, Any]]) -> None:
            display.watch(state, actions)
            watch(state, actions)

        result = run_topology(config, both, display.progress)
    if result.outcome is Outcome.INTERRUPTED:
        raise KeyboardInterrupt
    reason = f": {result.reason}" if result.reason else ""
    console.print(
        f"{out.name}: {result.outcome.value}{reason} after {time.monotonic() - began:.0f} s", highlight=False
    )
    return result


def _plan(options: argparse.Namespace) -> Plan:
    asked = load(options.file)
    # the same capacity on fewer nodes, or the topology would not fit
    cpu_milli = round(1000 * asked.nodes.cpu_cores * asked.nodes.count / options.nodes)
    changes = {f"sources[{name}].with.step": options.step for name in options.sources}
    first = f"{LEAST_S:g}s" if options.interval is None else HURRIED
    changes |= {"batch.interval": first, "nodes.cpu": f"{cpu_milli}m"}
    resource = load(options.file, nodes=options.nodes, overrides=changes)
    out = options.out
    if out.exists():
        shutil.rmtree(out)
    out.mkdir(parents=True)
    return Plan(
        resource=resource,
        interval=options.interval,
        faults=load_faults(options.faults, resource.nodes.count),
        out=out,
        python_path=str(options.file.resolve().parent),
    )


def cluster_config(resource: StreamTopology) -> ClusterConfig:
    """A cluster of the resource's own size."""
    memory = resource.spark.executor_memory_bytes // 2**20
    return ClusterConfig(
        nodes=resource.nodes.count,
        executor_memory_mb=memory,
        cpu_milli=milli_cpu(resource.nodes.cpu_cores),
        start_timeout_s=240.0,
    )


def announce(console: Console, resource: StreamTopology, faults: Sequence[Fault]) -> None:
    """What is going to happen."""
    console.print(
        f"{resource.name} on {resource.nodes.count} nodes, a batch every {resource.batch_interval_s:g} s.",
        highlight=False,
    )
    for fault in faults:
        if fault.action == "kill":
            text = f"{len(fault.nodes)} nodes will be killed at once {fault.trigger.describe()}."
            console.print(text, style="bold", highlight=False)
    adds = [fault for fault in faults if fault.action == "add"]
    if not adds:
        return
    delays = ", ".join(f"{fault.trigger.delay_s:.0f}" for fault in adds)
    console.print(
        f"{sum(fault.count for fault in adds)} new nodes are asked for one after the other, {delays} s after that, as they"
        " came in a spot market.",
        highlight=False,
        soft_wrap=True,
    )


def _title(console: Console, text: str) -> None:
    console.rule(text, align="left")


def _options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m examples.demo.flights", description=__doc__)
    parser.add_argument("--file", type=Path, default=EXAMPLES / "flights.yaml", help="topology")
    parser.add_argument("--faults", type=Path, default=EXAMPLES / "faults" / "demo.yaml")
    parser.add_argument("--nodes", type=int, default=10)
    parser.add_argument(
        "--sources", nargs="*", default=["flights", "weather"], help="sources that take --step"
    )
    parser.add_argument("--step", default=STEP, help="event time of a batch")
    parser.add_argument(
        "--interval", help="between batches in the runs with faults; default: what this machine can follow"
    )
    parser.add_argument("--out", type=Path, default=Path("out/demo"), help="replaced when it is there")
    parser.add_argument("--quiet", action="store_true")
    return parser.parse_args(arguments)


def interrupt(*_: object) -> None:
    """SIGTERM is the wish to end, as Ctrl-C is."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    raise SystemExit(main())
