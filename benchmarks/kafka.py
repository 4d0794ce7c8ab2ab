"""Events a second from topic to topic and latency: Reprise beside Structured Streaming with Spark's Kafka connector.

    python -m benchmarks.kafka --out DIR [--rows 600000] [--rate 2000] [--seconds 40] [--nodes 2] [--rounds 1]

One broker and one cluster serve all contestants.  Throughput: the rows are in the topic before the contestant starts.
Latency: rows come at a fixed rate, from the moment at which the first ones have come through.  Both are measured by one
reader of committed messages at the end.  The exit code is 0 also when a ratio lies outside its range: this is no test.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console

from benchmarks import command
from benchmarks import kafka_measure as measure
from benchmarks import overhead_report as report
from benchmarks import overhead_reprise as reprise
from benchmarks import overhead_structured as structured
from benchmarks.kafka_measure import Memory, MemoryWatch
from benchmarks.kafka_reprise import Limits, pipe
from benchmarks.kafka_topics import Feeder, Seen, Watcher, make_topics
from benchmarks.overhead_measure import Latency
from benchmarks.overhead_topology import FASTEST, NODE_CPU_MILLI
from benchmarks.recovery_show import Grid
from reprise.controller.local.cluster import ClusterConfig, EmbeddedCluster
from tools.kafka.jars import jar_folder
from tools.kafka.server import KafkaCluster

MEMORY_MB = 512
WORDS = {
    "reprise": "Reprise",
    "small": "Reprise, small limits",
    "structured": "Structured Streaming, as many rows a trigger",
    "large": "Structured Streaming, 16 times as many",
}
LIMITS = {"reprise": Limits(10_000, 16_384, "16Mi"), "small": Limits(1_000, 1_024, "1Mi")}
LARGE = 16


@dataclass(frozen=True, slots=True)
class Measured:
    """One run of one contestant."""

    mode: str
    rate: float | None = None
    latency: Latency | None = None
    memory: Memory | None = None
    rows: int = 0
    extra: int = 0
    """Rows that came out beyond those that went in."""


class Bench:
    """All runs, on one broker and one cluster."""

    def __init__(
        self, options: argparse.Namespace, console: Console, cluster: EmbeddedCluster, brokers: str
    ) -> None:
        self.options, self.console, self.cluster, self.brokers = options, console, cluster, brokers
        self.logs = 2 * options.nodes
        self._runs = 0

    def run(self) -> list[Measured]:
        """Rounds one after the other, so that slow changes of the machine meet every contestant."""
        found = []
        self._topics("filled")
        Feeder(self.brokers, "filled", self.logs).fill(self.options.rows)
        with suppress(KeyboardInterrupt):
            for _ in range(self.options.rounds):
                found += [self._throughput(mode) for mode in self.options.contestants]
                found += [self._latency(mode) for mode in self.options.contestants if mode != "large"]
        return found

    def _throughput(self, mode: str) -> Measured:
        target, rows = self._name("fast", mode), self.options.rows
        self._topics(target)
        watcher, memory = Watcher(self.brokers, target, self.logs, delays=False), MemoryWatch()
        watcher.start()
        memory.start()
        self._contestant(mode, "filled", target, rows, 0.0, watcher)()
        seen = watcher.stop()
        speed = measure.rate(seen, rows) or measure.whole_rate(seen, rows)
        found = Measured(mode, speed, None, memory.stop(), seen.rows, max(0, seen.rows - rows))
        self.console.print(f"{target}: {found}", highlight=False)
        return found

    def _latency(self, mode: str) -> Measured:
        origin, target = self._name("paced-in", mode), self._name("paced", mode)
        self._topics(origin, target)
        feeder = Feeder(self.brokers, origin, self.logs)
        feeder.fill(self.logs)  # what comes out first says that the contestant is at work
        rows = self.logs + round(self.options.rate * self.options.seconds)
        watcher = Watcher(self.brokers, target, self.logs, delays=True)
        watcher.start()
        work = threading.Thread(
            target=self._contestant(mode, origin, target, rows, self.options.interval, watcher)
        )
        work.start()
        while work.is_alive() and watcher.seen.rows < self.logs:
            time.sleep(0.05)
        feeder.pace(self.options.rate, self.options.seconds)
        work.join()
        seen = watcher.stop()
        late = measure.latency(Seen(seen.looks, seen.delays[self.logs :]))
        found = Measured(mode, None, late, None, seen.rows, max(0, seen.rows - rows))
        self.console.print(f"{target}: {found}", highlight=False)
        return found

    def _contestant(
        self, mode: str, origin: str, target: str, rows: int, interval_s: float, watcher: Watcher
    ) -> Callable[[], None]:
        if mode in LIMITS:
            return lambda: self._reprise(LIMITS[mode], origin, target, rows, interval_s)
        return lambda: self._structured(mode, origin, target, rows, interval_s, watcher)

    def _reprise(self, limits: Limits, origin: str, target: str, rows: int, interval_s: float) -> None:
        interval = f"{round(interval_s * 1000)}ms" if interval_s else FASTEST
        resource = pipe(
            self.brokers, origin, target, rows=rows, logs=self.logs, nodes=self.options.nodes, interval=interval,
            memory_mb=MEMORY_MB, limits=limits,
        )  # fmt: skip
        ran = reprise.guarded(resource, self.cluster, self.options.out / target, self.options.timeout)
        if ran.reason:
            self.console.print(f"{target}: {ran.reason}", style="bold red")

    def _structured(
        self, mode: str, origin: str, target: str, rows: int, interval_s: float, watcher: Watcher
    ) -> None:
        most = LIMITS["reprise"].rows * self.options.nodes * (LARGE if mode == "large" else 1)
        more = ["--brokers", self.brokers, "--origin", origin, "--target", target, "--total", str(rows)]
        jars = jar_folder("spark_kafka", lambda line: None, Path(__file__).parent)
        service = structured.process(
            self.cluster, "benchmarks.kafka_structured", [*more, "--most", str(most)], self.options.out / target,
            nodes=self.options.nodes, memory_mb=MEMORY_MB, interval_s=interval_s, class_path=f"{jars}/*",
        )  # fmt: skip
        service.start()
        deadline = time.monotonic() + self.options.timeout
        try:
            while service.alive and time.monotonic() < deadline and watcher.seen.rows < rows:
                time.sleep(0.2)
        finally:
            service.stop(10.0)

    def _topics(self, *names: str) -> None:
        make_topics(self.brokers, self.logs, *names)

    def _name(self, what: str, mode: str) -> str:
        self._runs += 1
        return f"{what}-{mode}-{self._runs}"


def table(runs: Sequence[Measured], rows: int, rate: int) -> Grid:
    """A line a contestant; medians over the rounds."""
    lines = []
    speeds, delays = _medians(runs)
    for mode, words in WORDS.items():
        mine = [run for run in runs if run.mode == mode]
        late = [run.latency for run in mine if run.latency is not None]
        memory = [run.memory for run in mine if run.memory is not None]
        lines.append(
            (
                words,
                f"{speeds[mode]:,.0f}" if mode in speeds else "-",
                _ratio(speeds, mode),
                f"{delays[mode]:.2f}" + ("" if all(x.kept_up for x in late) else " (did not keep up)")
                if mode in delays
                else "-",
                f"{statistics.median(x.p95 for x in late):.2f}" if late else "-",
                _ratio(delays, mode),
                f"{max(m.jvm for m in memory):,.0f} + {max(m.below for m in memory):,.0f}" if memory else "-",
                f"{sum(run.extra for run in mine):,}",
            )
        )
    columns = (
        "", "events/s in and out", "of SS", "latency, s", "95 %, s", "of SS", "executor: JVM + below, MiB", "rows twice",
    )  # fmt: skip
    title = (
        f"{rows:,} rows as fast as possible, and {rate:,} rows/s (SS: Structured Streaming, first line of it)"
    )
    return Grid(title, columns, tuple(lines))


def ratios(runs: Sequence[Measured]) -> dict[str, float]:
    """By the names of ranges.yaml; only those whose both sides were measured."""
    speeds, delays = _medians(runs)
    found = {}
    for what, values in (("throughput", speeds), ("latency", delays)):
        if "reprise" in values and values.get("structured"):
            found[f"{what} reprise / structured"] = values["reprise"] / values["structured"]
    if "reprise" in speeds and speeds.get("large"):
        found["throughput reprise / structured, large triggers"] = speeds["reprise"] / speeds["large"]
    return found


def _medians(runs: Sequence[Measured]) -> tuple[dict[str, float], dict[str, float]]:
    speeds = {m: measure.best([r.rate for r in runs if r.mode == m]) for m in WORDS}
    delays = {m: measure.best([r.latency.median for r in runs if r.mode == m and r.latency]) for m in WORDS}
    return (
        {m: v for m, v in speeds.items() if v is not None},
        {m: v for m, v in delays.items() if v is not None},
    )


def _ratio(values: dict[str, float], mode: str) -> str:
    return (
        f"{values[mode] / values['structured']:.2f}" if mode in values and values.get("structured") else "-"
    )


def main(arguments: list[str] | None = None) -> int:
    options = _options(arguments)
    console = Console(width=200)
    command.begin(options.out)
    config = ClusterConfig(
        nodes=options.nodes, executor_memory_mb=MEMORY_MB,
        cpu_milli=NODE_CPU_MILLI, start_timeout_s=400.0, java_options=("-XX:TieredStopAtLevel=4",),
    )  # fmt: skip
    with KafkaCluster(log_dir=options.out / "logs") as kafka, EmbeddedCluster(config) as cluster:
        runs = Bench(options, console, cluster, kafka.bootstrap).run()
    grid = table(runs, options.rows, options.rate)
    lines = report.verdicts(ratios(runs), "kafka")
    lines.append(f"load average at the end: {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")
    grid.show(console)
    command.say(console, lines)
    text = "\n".join(["# Kafka to Kafka\n", grid.markdown(), *(f"- {line}" for line in lines)])
    (options.out / "kafka.md").write_text(text + "\n")
    (options.out / "kafka.json").write_text(json.dumps([asdict(run) for run in runs], indent=1) + "\n")
    console.print(f"written: {options.out}/kafka.md and kafka.json")
    return 0


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = command.parser("kafka", __doc__, nodes=2, timeout_s=300.0)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--contestants", nargs="+", choices=tuple(WORDS), default=list(WORDS))
    parser.add_argument("--rows", type=int, default=600_000, help="as fast as possible")
    parser.add_argument("--rate", type=int, default=2000, help="rows a second where latency is measured")
    parser.add_argument("--seconds", type=float, default=40.0, help="how long there")
    parser.add_argument(
        "--interval", type=float, default=0.5, help="seconds between batches or triggers there"
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    raise SystemExit(main())
