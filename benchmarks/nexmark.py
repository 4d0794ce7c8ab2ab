"""NexMark's Q1, Q3, Q8 and Q12 from Kafka to Kafka: Reprise beside Flink and Structured Streaming.

    python -m benchmarks.nexmark --out DIR [--queries q1 q3 q8 q12] [--engines reprise flink structured realtime]

The sender first gives 2,000 events a second, and DuckDB checks their results.  The rate then doubles until results are late.
A bisection finds the greatest rate at which they are not.  Latency and CPU time are measured at half of it.  `--rates`
measures at given rates instead.  The real-time mode of Structured Streaming does Q1 alone.

Latency is the age of a result when a reader of committed messages has it.  Age counts from when the event was due, or from
the end of its window.  Sender, broker and reader run on the same cores as the engine.
The exit code is 1 where an engine has failed or gave other results, and where the benchmark was interrupted.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from itertools import product

import numpy as np
import pyarrow as pa
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from rich.console import Console

from benchmarks import command
from benchmarks import overhead_report as report
from benchmarks.flink_cluster import FlinkError
from benchmarks.nexmark_engines import COMPILED, ENGINES, MEMORY_MB, REALTIME, Problem, cpu_s
from benchmarks.nexmark_feed import Feed, Sent, events
from benchmarks.nexmark_queries import QUERIES, RESULTS, wrong
from benchmarks.nexmark_watch import Watcher
from benchmarks.recovery_show import Grid
from reprise.controller.errors import EmbeddedError, RunError
from reprise.controller.local.cluster import ClusterConfig, EmbeddedCluster
from tools.kafka.server import KafkaCluster

WORDS = {
    "reprise": "Reprise",
    "flink": "Flink",
    "structured": "Structured Streaming",
    "realtime": "the same, real-time mode",
}
SLOW, SLOW_S, CHECKED_S = 2_000, 25.0, 18.0
"""Events a second at first, for how long, and the part of it whose results are checked."""
FASTEST = 1_280_000
NEAR = 1.15
"""The bisection ends when its two rates are at most so many times apart."""
GROWTH_S, LATE_S = 0.5, 10.0
"""An engine does not follow when the median age of its results grows so much from the second third of a step to the last,
or is so great."""
SENDER_S = 0.5
"""The sender, or the broker, does not follow when it is so late."""
START_S, DRAIN_S = 120.0, 120.0
SLOW_EACH_S, SETTLED_S = 4.0, 0.5


@dataclass(frozen=True, slots=True)
class Step:
    """One rate: events a second, ages in seconds, CPU seconds of the engine for a million events."""

    rate: int
    p50: float
    p99: float
    growth: float
    """Of the median age, from the second third to the last."""
    cpu: float
    sender_late: bool

    @property
    def kept_up(self) -> bool:
        return self.growth <= GROWTH_S and self.p50 <= LATE_S and not self.sender_late


@dataclass(slots=True)
class Trial:
    """One engine and one query; `reason`: what went wrong, empty: nothing."""

    query: str
    engine: str
    slow: Step | None = None
    steps: list[Step] = field(default_factory=list)
    half: Step | None = None
    reason: str = ""

    @property
    def sustained(self) -> int | None:
        """The greatest rate at which results were not late; None: it was not measured."""
        return max((step.rate for step in self.steps if step.kept_up), default=None)

    @property
    def sender_was_late(self) -> bool:
        """Whether the sender was late at the least rate that was too much, or no rate was."""
        late = [step for step in self.steps if not step.kept_up]
        return not late or min(late, key=lambda step: step.rate).sender_late


class Failed(Exception):
    """The engine has ended, or gives nothing."""


def step_of(rate: int, before: np.ndarray, after: np.ndarray, cpu: float, sender_late: bool) -> Step:
    """`before`, `after`: ages of the results of the second third and of the last."""
    if not (before.size and after.size):
        return Step(rate, math.inf, math.inf, math.inf, cpu, sender_late)
    p50, p99 = np.percentile(np.concatenate([before, after]), (50, 99))
    return Step(rate, float(p50), float(p99), float(np.median(after) - np.median(before)), cpu, sender_late)


def search(kept_up: Callable[[int], bool], first: int) -> None:
    """Call `kept_up` until its greatest rate is known: doubled or halved from `first`, then bisected."""
    low, high = first, first
    if kept_up(first):
        while high < FASTEST and kept_up(high := high * 2):
            low = high
    else:
        while low > SLOW and not kept_up(low := low // 2):
            high = low
    while low < high / NEAR:
        middle = round(math.sqrt(low * high))
        if kept_up(middle):
            low = middle
        else:
            high = middle


class Bench:
    """All trials; each has a broker and a cluster of its own."""

    def __init__(self, options: argparse.Namespace, console: Console) -> None:
        self.options, self.console, self.trials = options, console, list[Trial]()

    def run(self) -> None:
        for query, engine in product(self.options.queries, self.options.engines):
            if engine == "realtime" and query not in REALTIME:
                continue
            trial = Trial(query, engine, reason="interrupted")
            self.trials.append(trial)
            try:
                trial.reason = self._trial(trial)
            except (Failed, EOFError, OSError, EmbeddedError, RunError, FlinkError, KafkaException) as error:
                trial.reason = str(error)
            if trial.reason:
                self.console.print(f"{query}, {engine}: {trial.reason}", style="bold red", highlight=False)

    def _trial(self, trial: Trial) -> str:
        """What is wrong with the results."""
        kinds, out = QUERIES[trial.query].kinds, (self.options.out / trial.query / trial.engine).resolve()
        config = ClusterConfig(
            nodes=self.options.nodes, cpu_milli=1000, executor_memory_mb=MEMORY_MB, start_timeout_s=300.0,
            java_options=(COMPILED,),
        )  # fmt: skip
        with ExitStack() as ends:
            brokers = ends.enter_context(KafkaCluster(log_dir=out.with_suffix(".kafka"))).bootstrap
            make_topics(brokers, [*kinds, RESULTS], self.options.nodes)
            cluster = ends.enter_context(EmbeddedCluster(config))
            feed = ends.enter_context(Feed(brokers, self.options.nodes, kinds))
            problem = ends.enter_context(ENGINES[trial.engine](trial.query, brokers, cluster, out))
            logs = range(self.options.nodes)
            with Watcher(brokers, RESULTS, logs, whole=True) as watcher:
                run = Run(trial, feed, watcher, cluster, problem, self.console)
                run.warm()
                trial.slow = run.step(SLOW, SLOW_S)
                wrong = run.wrong()
            with Watcher(brokers, RESULTS, logs[:1], whole=False) as watcher:
                run.watcher = watcher
                if self.options.rates:
                    trial.steps += [run.settled(rate, self.options.seconds) for rate in self.options.rates]
                    return wrong

                def kept_up(rate: int) -> bool:
                    trial.steps.append(run.settled(rate, self.options.seconds))
                    return trial.steps[-1].kept_up

                search(kept_up, self.options.first)
                if trial.sustained is not None:
                    trial.half = run.settled(trial.sustained // 2, self.options.seconds)
        return wrong


def make_topics(brokers: str, names: Sequence[str], logs: int) -> None:
    """Topics with so many partitions each."""
    admin = AdminClient({"bootstrap.servers": brokers})
    for future in admin.create_topics([NewTopic(name, logs, 1) for name in names]).values():
        future.result(START_S)


@dataclass(slots=True)
class Run:
    """A trial while its engine runs."""

    trial: Trial
    feed: Feed
    watcher: Watcher
    cluster: EmbeddedCluster
    problem: Problem
    console: Console
    paces: list[Sent] = field(default_factory=list)

    def warm(self) -> None:
        """Send slowly until results are there and young."""
        self._slow_until(LATE_S, START_S)

    def step(self, rate: int, seconds: float) -> Step:
        """Ages and CPU time are those of the last two thirds."""
        self.watcher.forget()
        self.feed.begin(rate, seconds)
        self._wait(seconds / 3)
        second, before_s = time.time(), cpu_s(self.cluster)
        self._wait(seconds / 3)
        third = time.time()
        self._wait(seconds / 3)
        end, cpu = time.time(), 0.0
        for pid, used in cpu_s(self.cluster).items():
            cpu += used - before_s.get(pid, used)
        sent = self._sent()
        before, after = self.watcher.ages(second, third), self.watcher.ages(third, end)
        a_million = cpu / (rate * (end - second)) * 1e6
        found = step_of(rate, before, after, a_million, sender_late=sent.behind_s > SENDER_S)
        self.console.print(f"{self.trial.query}, {self.trial.engine}: {_line(found)}", highlight=False)
        return found

    def settled(self, rate: int, seconds: float) -> Step:
        """A step from the moment on at which what came before is done."""
        assert self.trial.slow is not None
        self._slow_until(self.trial.slow.p99 + SETTLED_S, DRAIN_S)
        return self.step(rate, seconds)

    def wrong(self) -> str:
        """Compare the results so far, but for those of the last seconds, which some engines give later."""
        kinds = QUERIES[self.trial.query].kinds
        tables = [events(kinds, pace, pace.first, pace.end) for pace in self.paces]
        whole = {kind: pa.concat_tables([one[kind] for one in tables]) for kind in kinds}
        until = self.paces[-1].ended_us - round((SLOW_S - CHECKED_S) * 1e6)
        return wrong(self.trial.query, whole, self.watcher.rows, until)

    def _slow_until(self, age_s: float, most_s: float) -> None:
        deadline = time.monotonic() + most_s
        while time.monotonic() < deadline:
            began = time.time()
            self.watcher.forget()
            self.feed.begin(SLOW, SLOW_EACH_S)
            self._wait(SLOW_EACH_S)
            self._sent()
            ages = self.watcher.ages(began, math.inf)
            if ages.size and float(np.median(ages)) < age_s:
                return
        raise Failed(
            f"no results younger than {age_s:.1f} s within {most_s:g} s, with {SLOW:,} events a second"
        )

    def _sent(self) -> Sent:
        self.paces.append(self.feed.sent())
        return self.paces[-1]

    def _wait(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if reason := self.problem():
                raise Failed(reason)
            time.sleep(min(left, 0.5))


def _line(step: Step) -> str:
    late = ", the sender does not follow" if step.sender_late else "" if step.kept_up else ", late"
    used = f", {step.cpu:.1f} CPU s a million" if step.kept_up else ""
    return f"{step.rate:,} events/s: age {1000 * step.p50:,.0f} / {1000 * step.p99:,.0f} ms{used}{late}"


def grid(trials: Sequence[Trial]) -> Grid:
    """A line for each trial."""
    lines = []
    for trial in trials:
        sustained, half = trial.sustained, trial.half
        lines.append(
            (
                f"{trial.query.upper()}, {WORDS[trial.engine]}",
                "-" if sustained is None else f"{'≥ ' if trial.sender_was_late else ''}{sustained:,}",
                f"{half.cpu:.1f}" if half else "-",
                _ages(half),
                _ages(trial.slow),
                trial.reason or "right",
            )
        )
    columns = (
        "query, engine", "events/s", "CPU s a million", "latency at half, ms", f"at {SLOW:,} events/s, ms",
        f"results at {SLOW:,} events/s",
    )  # fmt: skip
    return Grid("Latency: median / 99 %. CPU: at half of the events/s.", columns, tuple(lines))


def _ages(step: Step | None) -> str:
    return f"{1000 * step.p50:,.0f} / {1000 * step.p99:,.0f}" if step else "-"


def ratios(trials: Sequence[Trial]) -> dict[str, float]:
    """By the names of ranges.yaml: the least of all queries, of engines that did all of them."""
    good = {(trial.query, trial.engine): trial for trial in trials if trial.half and not trial.reason}
    queries, found = {trial.query for trial in trials}, {}
    for engine in WORDS:
        both = [(good.get((query, "reprise")), good.get((query, engine))) for query in queries]
        pairs = [(own, other) for own, other in both if own and other]
        if engine == "reprise" or len(pairs) < len(queries):
            continue
        name = f"reprise / {engine}"
        found[f"events/s {name}"] = min((own.sustained or 0) / (other.sustained or 1) for own, other in pairs)
        found[f"events a CPU second {name}"] = min(
            other.half.cpu / own.half.cpu for own, other in pairs if own.half and other.half
        )
    return found


def main(arguments: list[str] | None = None) -> int:
    """Measure and print."""
    options = _options(arguments)
    console = Console(width=200)
    command.begin(options.out)
    bench = Bench(options, console)
    with suppress(KeyboardInterrupt):
        bench.run()
    table = grid(bench.trials)
    lines = report.verdicts(ratios(bench.trials), "nexmark")
    lines.append(f"load average at the end: {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")
    table.show(console)
    command.say(console, lines)
    (options.out / "nexmark.md").write_text(
        "\n".join([table.markdown(), *(f"- {line}" for line in lines)]) + "\n"
    )
    steps = json.dumps([asdict(one) for one in bench.trials], indent=1).replace("Infinity", "null")
    (options.out / "nexmark.json").write_text(steps + "\n")
    console.print(f"written: {options.out}/nexmark.md and nexmark.json")
    return 1 if any(trial.reason for trial in bench.trials) else 0


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = command.parser("nexmark", __doc__, nodes=2)
    parser.add_argument("--queries", nargs="+", choices=QUERIES, default=list(QUERIES))
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=list(ENGINES))
    parser.add_argument("--seconds", type=float, default=20.0, help="of each rate (default: 20)")
    parser.add_argument("--first", type=int, default=80_000, help="where the search begins, events a second")
    parser.add_argument("--rates", nargs="+", type=int, help="measure at these, instead of a search")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    raise SystemExit(main())
