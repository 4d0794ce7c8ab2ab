"""What guarding a topology costs while nothing fails, with Spark Structured Streaming beside it.

    python -m benchmarks.overhead --out DIR [--keys 10k|1m] [--nodes 4] [--rounds 1]

Hashtags are counted on one cluster from the same files by: Reprise with coordinator, checkpoints and statistics idle; its
data plane alone; the same with buffering on throughout; Structured Streaming.  The exit code is 0 also when a
ratio lies outside its range: this is no test.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

from rich.console import Console

from benchmarks import command
from benchmarks import overhead_measure as measure
from benchmarks import overhead_report as report
from benchmarks import overhead_reprise as reprise
from benchmarks import overhead_structured as structured
from benchmarks.overhead_data import Data, write
from benchmarks.overhead_feed import Feed
from benchmarks.overhead_report import Measured
from benchmarks.overhead_topology import FASTEST, NEVER, NODE_CPU_MILLI, counting, files, nearly_empty
from reprise.controller.local.cluster import ClusterConfig, EmbeddedCluster
from reprise.spark_jobs.engine.engine import WINDOW
from reprise.spark_jobs.topology import StreamTopology

KEYS = {"10k": 10_000, "1m": 1_000_000}
MEMORY = {"10k": 512, "1m": 1024}
"""MiB of an executor's JVM: Structured Streaming keeps its state there, Reprise in a process beside it."""
CHECKPOINT = "20s"
"""As in Su and Zhou, appendix C."""
THROUGHPUT_MODES = ("idle", "off", "ordered", "structured", "large", "empty")
LATENCY_MODES = ("idle", "off", "ordered", "structured", "large")


def main(arguments: list[str] | None = None) -> int:
    options = _options(arguments)
    console = Console(width=None if sys.stdout.isatty() else 200)
    command.begin(options.out)
    runs = Bench(options, console).run()
    grids = [report.table(runs), report.superstep(runs)]
    lines = report.verdicts(report.ratios(runs))
    lines += [f"**{run.mode}, round {run.round}: {run.reason}**" for run in runs if run.reason]
    loads = [load for run in runs for load in run.load] or [os.getloadavg()[0]]
    lines.append(
        f"load average of the machine while this ran: {min(loads):g} .. {max(loads):g}, {os.cpu_count()} cores"
    )
    for grid in grids:
        grid.show(console)
    command.say(console, lines)
    title = f"# Overhead, {options.keys} keys, {options.nodes} nodes\n"
    (options.out / "overhead.md").write_text(
        "\n".join([title, *(g.markdown() for g in grids), *(f"- {line}" for line in lines)]) + "\n"
    )
    (options.out / "overhead.json").write_text(json.dumps([asdict(run) for run in runs], indent=1) + "\n")
    console.print(f"written: {options.out}/overhead.md and overhead.json")
    return 0


class Bench:
    """All runs on one cluster."""

    def __init__(self, options: argparse.Namespace, console: Console) -> None:
        self.options, self.console = options, console
        keys = KEYS[options.keys]
        self.fast = write(options.out / "data-fast", keys, options.rows, options.batches)
        rows = max(1, round(options.rate * options.interval))
        self.paced = write(options.out / "data-paced", keys, rows, options.paced)
        self.assignment: Mapping[str, str] | None = None

    def run(self) -> list[Measured]:
        """Rounds one after the other, so that slow changes of the machine meet every contestant."""
        memory = MEMORY[self.options.keys]
        config = ClusterConfig(
            nodes=self.options.nodes,
            executor_memory_mb=memory,
            cpu_milli=NODE_CPU_MILLI,
            start_timeout_s=400.0,
            java_options=("-XX:TieredStopAtLevel=4",),
        )
        plan = [(mode, False) for mode in THROUGHPUT_MODES]
        plan += [(mode, True) for mode in LATENCY_MODES if self.options.paced]
        found: list[Measured] = []
        try:
            with EmbeddedCluster(config) as cluster:
                for number in range(1, self.options.rounds + 1):
                    for mode, paced in plan:
                        if mode in self.options.contestants:
                            found.append(self._measured(cluster, mode, number, paced=paced))
        except KeyboardInterrupt:
            self.console.print("interrupted; what was measured until then:")
        return found

    def _measured(self, cluster: EmbeddedCluster, mode: str, number: int, paced: bool) -> Measured:
        what = "latency" if paced else "throughput"
        self.console.print(f"round {number}: {what}, {mode} ...", highlight=False)
        before = os.getloadavg()[0]
        out = self.options.out / f"{what}-{mode}-{number}"
        if mode in ("structured", "large"):
            found = self._structured(cluster, mode, out, paced)
        else:
            found = self._reprise(cluster, mode, out, paced)
        found = replace(found, round=number, load=(round(before, 1), round(os.getloadavg()[0], 1)))
        self.console.print(f"  {_brief(found)}", highlight=False)
        return found

    def _reprise(self, cluster: EmbeddedCluster, mode: str, out: Path, paced: bool) -> Measured:
        data = self.paced if paced else self.fast
        resource = self._resource(mode, data, paced)
        timeout = self.options.timeout
        if mode == "idle":
            ran = reprise.guarded(resource, cluster, out, timeout)
            self.assignment = ran.assignment
        else:
            ran = reprise.bare(resource, cluster, out, timeout, self.assignment, retain=mode == "ordered")
        empty = Measured(mode, 0, (0.0, 0.0), reason=ran.reason)
        if mode == "empty":
            return replace(empty, parts=measure.parts(ran.samples, *measure.steady(data)))
        done = measure.completed(out)
        if paced:
            return replace(empty, latency=measure.latency(done, data))
        parts = measure.parts(ran.samples, *measure.steady(data)) if mode == "off" else None
        return replace(empty, throughput=measure.throughput(done, data), parts=parts)

    def _resource(self, mode: str, data: Data, paced: bool) -> StreamTopology:
        return counting(
            f"{mode}-{'paced' if paced else 'fast'}",
            nearly_empty(data.total) if mode == "empty" else files(data),
            self.options.nodes,
            f"{round(self.options.interval * 1000)}ms" if paced else FASTEST,
            CHECKPOINT if mode == "idle" else NEVER,
            f"{MEMORY[self.options.keys]}Mi",
        )

    def _structured(self, cluster: EmbeddedCluster, mode: str, out: Path, paced: bool) -> Measured:
        data = self.paced if paced else self.fast
        if mode == "structured" and not paced:  # one file a trigger needs fewer of them for a steady rate
            data = replace(data, batches=min(data.batches, self.options.triggers))
        peer = partial(
            structured.run,
            cluster,
            out=out,
            nodes=self.options.nodes,
            memory_mb=MEMORY[self.options.keys],
            files_a_batch=WINDOW if mode == "large" else 1,
            total=data.total * data.rows,
            timeout_s=self.options.timeout,
        )
        due: dict[int, float] = {}
        if paced and mode == "large":
            with Feed(
                data, self.options.out / "fed", self.options.interval, partial(structured.rows, out)
            ) as feed:
                triggers, due = peer(data=feed.folder, interval_s=0.0), feed.due
            shutil.rmtree(feed.folder)
        else:
            triggers = peer(data=data.folder, interval_s=self.options.interval if paced else 0.0)
        seen = structured.rows(out)
        wanted = data.total * data.rows
        reason = "" if seen >= wanted else f"{seen} of {wanted} tweets within {self.options.timeout:g} s"
        empty = Measured(mode, 0, (0.0, 0.0), reason=reason)
        if due:
            return replace(empty, latency=measure.fed_latency(triggers, data, due))
        if paced:
            return replace(empty, latency=measure.structured_latency(triggers, data, self.options.interval))
        return replace(empty, throughput=measure.structured_throughput(triggers, data))


def _brief(found: Measured) -> str:
    parts = []
    if found.throughput is not None:
        parts.append(f"{found.throughput:,.0f} tweets/s")
    if found.latency is not None:
        parts.append(f"{found.latency.median:.2f} s, kept up: {found.latency.kept_up}")
    if found.parts is not None:
        parts.append(f"{found.parts.job_s:.2f} s a job of {found.parts.batches:.1f} batches")
    return "; ".join(
        [*parts, *([found.reason] if found.reason else []), f"load {found.load[0]:g} -> {found.load[1]:g}"]
    )


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = command.parser("overhead", __doc__, nodes=4, timeout_s=600.0)
    parser.add_argument("--keys", choices=sorted(KEYS), default="10k", help="hashtags in the state")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--contestants", nargs="+", choices=THROUGHPUT_MODES, default=list(THROUGHPUT_MODES))
    parser.add_argument("--rows", type=int, default=2000, help="tweets a batch, as fast as possible")
    parser.add_argument("--batches", type=int, default=800, help="as fast as possible")
    parser.add_argument("--triggers", type=int, default=60, help="of Structured Streaming with a batch each")
    parser.add_argument("--rate", type=int, default=2000, help="tweets a second where latency is measured")
    parser.add_argument("--interval", type=float, default=0.5, help="seconds between batches there")
    parser.add_argument("--paced", type=int, default=80, help="batches there; 0 leaves latency out")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    raise SystemExit(main())
