"""Hot keys and checkpoints: NexMark with a straggler, by protocol and by the order of input (CheckMate, figs. 12 and 13).

    python -m benchmarks.skew --out DIR [--all] [--queries q1 q3 q8 q12] [--hot 0 0.1 0.2 0.3] [--shares 0.5 0.8] [...]
    python -m benchmarks.skew --out DIR --rates [--queries q1 q3 q8 q12]

Source: G. Siachamis et al., "CheckMate: Evaluating Checkpointing Protocols for Streaming Dataflows", section VII, "Skewed
NexMark".  One cluster of real processes; each run is one query with a share of hot keys, and the node with the first
partition of its join (in Q12: of its count) is killed half-way by SIGKILL, where the others have room for what it had.

- Rates are shares of what the query sustains without skew, which is measured first: as fast as it goes, then by bisection.
  With `--own` each way of guarding has the rate that it sustains itself, as in CheckMate; without it all have that of the
  first way, so that all read the same input and their outputs can be compared.
- With `--rates` these rates are all that is measured, each way's own and that without checkpoints (fig. 7).
- Latency by the second through the failure is drawn, too, and in `skew.json` (figs. 9, 10); those of CheckMate are with
  `--shares 0.8 --own`.
- With `--states` each state of the join, or of the count, is larger by so many MiB of random bytes, which are stored and
  read with it: the time to restart by the size of the state (fig. 11).
- A rate is sustained when output is no more than two batches later in the second half of a run than in the first.
- Latencies are of rows, until the output partition has applied them: `skew_probe`.  In the order of arrival output is shown
  with the checkpoint that covers it, so that has a column of its own.
- Outputs are compared with those of the first run over the same input: to the byte where input is aligned, as a set of rows
  where it is not.  There, of Q12, where a count depends on the order, which bids came out is compared, and of Q8 the windows
  that begin and end with a checkpoint.
- Ways that the engine refuses are in the table, with what it says.

The exit code is 0 whatever comes out: this is no test.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from dataclasses import asdict
from pathlib import Path

from rich.console import Console

from benchmarks import command
from benchmarks import overhead_measure as overhead
from benchmarks.overhead_data import Data
from benchmarks.overhead_topology import NODE_CPU_MILLI
from benchmarks.skew_cases import (
    HOT,
    INTERVAL_MS,
    ORDERS,
    PROTOCOLS,
    QUERIES,
    SHARES,
    UNGUARDED,
    Case,
    Size,
    Way,
    cases,
    refusals,
    resource,
    sustainable,
    unpaced,
)
from benchmarks.skew_measure import Done, Watch, figures, late_in_halves, same
from benchmarks.skew_report import Measured, grids, plot, plot_seconds, plot_states, rates_grid
from reprise.controller.local.cluster import ClusterConfig, EmbeddedCluster
from reprise.controller.local.faults.faults import Fault, parse_faults
from reprise.controller.local.run.config import Outcome, RunConfig, RunResult
from reprise.controller.local.run.supervisor import run_topology
from reprise.spark_jobs.topology import StreamTopology, expand

GIVEN = "are taken for sustained, as --rate says; that was not measured"
PROJECT = Path(__file__).resolve().parents[1]
DEFAULT = {"queries": ["q3"], "hot": [0.0, 0.3], "shares": [0.5]}
ALL = {
    "queries": [name for name, query in QUERIES.items() if query.noted],
    "hot": list(HOT),
    "shares": list(SHARES),
}


def main(arguments: list[str] | None = None) -> int:
    options = _options(arguments)
    console = Console(width=None if sys.stdout.isatty() else 240)
    command.begin(options.out)
    bench = Bench(options, console)
    try:
        bench.run()
    except KeyboardInterrupt:
        console.print("interrupted; what was measured until then:")
    finally:
        bench.write()
    return 0


class Bench:
    """All runs on one cluster, and what they came to."""

    def __init__(self, options: argparse.Namespace, console: Console) -> None:
        self.options, self.console = options, console
        self.size = Size(options.nodes, options.every)
        self.ways = [Way(order, protocol) for order in options.orders for protocol in options.protocols]
        self.refused = refusals(options.queries, self.ways, self.size)
        self.ways = [way for way in self.ways if way not in self.refused]
        if options.rates:
            self.ways = [UNGUARDED, *self.ways]
        self.rates: dict[tuple[str, Way], float] = {}
        self.found: list[Measured] = []
        self._first: tuple[tuple[str, float, int], Way, Path] | None = None
        self._loads: list[float] = []

    def run(self) -> None:
        """Measure what is sustained, then all cases."""
        for way, reason in self.refused.items():
            self._say(f"{way}: refused: {reason}")
        if not self.ways:
            return
        config = ClusterConfig(nodes=self.options.nodes, cpu_milli=NODE_CPU_MILLI, start_timeout_s=300.0)
        with EmbeddedCluster(config) as cluster:
            for query in self.options.queries:
                self._measure_rates(cluster, query)
            shares = [] if self.options.rates else self.options.shares
            todo = list(
                cases(self.options.queries, shares, self.options.hot, self.rates, self.options.states)
            )
            for number, case in enumerate(todo, 1):
                self._say(
                    f"{number} of {len(todo)}: {case.query}, {case.hot:.0%} hot, {case.way}, {case.rate:,} rows/s, "
                    f"states + {case.ballast} MiB ..."
                )
                self.found.append(self._measured(cluster, case))

    # -- rates -------------------------------------------------------------------------------------------------------

    def _measure_rates(self, cluster: EmbeddedCluster, query: str) -> None:
        for way in self.ways if self.options.own or self.options.rates else self.ways[:1]:
            rate = float(self.options.rate or self._sustained(cluster, query, way))
            if rate:
                own = self.options.own or self.options.rates
                self.rates |= {(query, w): rate for w in ([way] if own else self.ways)}
            told = f"{rate:,.0f} rows/s " + (GIVEN if self.options.rate else "are sustained without skew")
            none = "no rate is sustained, so it is left out: the machine is too busy, or give a --rate"
            self._say(f"{query}, {way}: {told if rate else none}")

    def _sustained(self, cluster: EmbeddedCluster, query: str, way: Way) -> float:
        upper = unpaced(self.options.probe, lambda rate: self._unpaced(cluster, query, way, rate))
        return sustainable(upper, self.options.precision, lambda rate: self._holds(cluster, query, way, rate))

    def _unpaced(self, cluster: EmbeddedCluster, query: str, way: Way, rate: int) -> float:
        self._say(f"{query}, {way}: as fast as it goes, batches of {rate * INTERVAL_MS // 1000:,} rows ...")
        out, batches = self._rate_folder(query, way), self.options.probe_batches
        done = self._plain(cluster, resource(query, way, rate, 0.0, batches, self.size, fastest=True), out)
        found = overhead.throughput(done, Data(out, rate * INTERVAL_MS // 1000, 0, batches)) or 0.0
        self._say(f"  {found:,.0f} rows/s")
        return found

    def _rate_folder(self, query: str, way: Way) -> Path:
        return Path(self.options.out / f"rate-{query}-{way.order}-{way.protocol}")

    def _holds(self, cluster: EmbeddedCluster, query: str, way: Way, rate: float) -> bool:
        warm, batches = (round(s * 1000 / INTERVAL_MS) for s in (self.options.warm, self.options.hold))
        found = resource(query, way, round(rate), 0.0, warm + batches, self.size)
        done = self._plain(cluster, found, self._rate_folder(query, way))
        late = late_in_halves(done, warm + 1) if len(done) >= warm + batches else None
        held = late is not None and late.holds
        told = (
            "it did not come to its end"
            if late is None
            else f"{late.first:.1f} s late, then {late.second:.1f} s"
        )
        self._say(f"  {rate:,.0f} rows/s: {'sustained' if held else 'not sustained'} ({told})")
        return held

    def _plain(self, cluster: EmbeddedCluster, found: StreamTopology, out: Path) -> Done:
        if out.exists():
            shutil.rmtree(out)
        result = self._ran(cluster, found, out, (), Watch())
        if result.outcome is not Outcome.DONE:
            self._say(f"  {result.outcome.value} {result.reason}")
        done = overhead.completed(out)
        if not self.options.keep:
            shutil.rmtree(out)
        return done

    # -- runs --------------------------------------------------------------------------------------------------------

    def _measured(self, cluster: EmbeddedCluster, case: Case) -> Measured:
        before, out = os.getloadavg()[0], self.options.out / case.folder
        notes = self.options.out / f"notes-{case.folder}"
        size = Size(self.size.workers, self.size.every, notes, case.ballast)
        found = resource(case.query, case.way, case.rate, case.hot, self.options.batches, size)
        outputs = tuple(expand(found).queries)
        kill = {"batch": self.options.batches // 2, "kill": [f"@{QUERIES[case.query].stateful}.0"]}
        faults = parse_faults([kill], "faults", self.options.nodes)
        watch = Watch(outputs=outputs)
        result = self._ran(cluster, found, out, faults, watch)
        one = figures(result, notes, watch, case.way, overhead.completed(out))
        compared = self._compared(case, result)
        measured = Measured(case, one, compared, (round(before, 1), round(os.getloadavg()[0], 1)))
        self._say(f"  {result.outcome.value} {result.reason}; same rows: {compared}; load {measured.load}")
        return measured

    def _compared(self, case: Case, result: RunResult) -> bool | str:
        """Compare with the first run over the same input, which stays until there is another input."""
        if result.outcome is not Outcome.DONE:
            return "not compared: it did not come to its end"
        if self._first is None or self._first[0] != case.same_input:
            self._drop(self._first[2] if self._first else None)
            self._first = (case.same_input, case.way, result.out)
            return "the first of its input"
        found = same(QUERIES[case.query], (self._first[1], case.way), (self._first[2], result.out))
        self._drop(result.out)
        return found

    def _drop(self, out: Path | None) -> None:
        for name in ("sink", "checkpoints") if out is not None and not self.options.keep else ():
            shutil.rmtree(Path(out or "") / name, ignore_errors=True)

    def _ran(
        self,
        cluster: EmbeddedCluster,
        found: StreamTopology,
        out: Path,
        faults: tuple[Fault, ...],
        watch: Watch,
    ) -> RunResult:
        self._loads.append(os.getloadavg()[0])
        config = RunConfig(
            resource=found,
            out=out,
            faults=faults,
            timeout_s=self.options.timeout,
            cluster=cluster,
            python_path=str(PROJECT),
        )
        result = run_topology(config, watch)
        if result.outcome is Outcome.INTERRUPTED:
            raise KeyboardInterrupt
        return result

    # -- what is shown -----------------------------------------------------------------------------------------------

    def _say(self, text: str) -> None:
        self.console.print(text, highlight=False, soft_wrap=True)

    def write(self) -> None:
        """Tables, plots and figures of all that was measured."""
        out = self.options.out
        tables = (
            [rates_grid(self.rates)] if self.options.rates else grids(self.found, self.refused, self.rates)
        )
        loads = self._loads or [os.getloadavg()[0]]
        lines = [f"{way}: refused: {reason}" for way, reason in self.refused.items()]
        lines += [f"rates: {self.options.rate:,} rows/s {GIVEN}"] if self.options.rate else []
        lines.append(
            f"load average of the machine while this ran: {min(loads):.1f} .. {max(loads):.1f}, {os.cpu_count()} cores"
        )
        for table in tables:
            table.show(self.console)
        command.say(self.console, lines)
        text = ["# Hot keys\n", *(t.markdown() for t in tables), *(f"- {line}" for line in lines)]
        (out / "skew.md").write_text("\n".join(text) + "\n")
        (out / "skew.json").write_text(json.dumps(self._figures(), indent=1) + "\n")
        queries = {m.case.query for m in self.found}
        drawn = [plot(self.found, q, out / f"skew-{q}.png").name for q in queries]
        if len(self.options.states) > 1:
            drawn += [plot_states(self.found, q, out / f"states-{q}.png").name for q in queries]
        drawn += [plot_seconds(self.found, q, out / f"seconds-{q}.png").name for q in queries]
        self._say(f"written: {out}/skew.md, skew.json {' '.join(sorted(drawn))}")

    def _figures(self) -> dict[str, object]:
        return {
            "runs": [asdict(m) for m in self.found],
            "sustainable": [
                {"query": query, **asdict(way), "rows_s": rate} for (query, way), rate in self.rates.items()
            ],
            "refused": [{**asdict(way), "reason": reason} for way, reason in self.refused.items()],
            "rate_given": self.options.rate is not None,
            "loads": self._loads,
        }


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = command.parser("skew", __doc__, nodes=3, timeout_s=300.0)
    parser.add_argument(
        "--all", action="store_true", help="all queries, shares of hot keys and rates of CheckMate"
    )
    parser.add_argument("--queries", nargs="+", choices=list(QUERIES), help="default: q3")
    parser.add_argument("--hot", nargs="+", type=float, help="shares of hot keys, 0 to 1; default: 0 0.3")
    parser.add_argument("--shares", nargs="+", type=float, help="of the sustainable rate; default: 0.5")
    parser.add_argument(
        "--states",
        nargs="+",
        type=int,
        default=[0],
        help="MiB by which states of the join, or of the count, are larger (fig. 11)",
    )
    parser.add_argument("--orders", nargs="+", choices=ORDERS, default=list(ORDERS))
    parser.add_argument("--protocols", nargs="+", choices=list(PROTOCOLS), default=list(PROTOCOLS))
    parser.add_argument("--batches", type=int, default=80, help=f"of a run, {INTERVAL_MS} ms each")
    parser.add_argument("--every", type=int, default=10, help="batches between two checkpoints")
    parser.add_argument("--own", action="store_true", help="each way at shares of its own sustainable rate")
    parser.add_argument(
        "--rates",
        action="store_true",
        help="measure only which rate each way sustains, and aligned order without checkpoints (fig. 7)",
    )
    parser.add_argument("--rate", type=int, help="rows a second that are sustained; default: measured")
    parser.add_argument("--precision", type=float, default=0.25, help="of the rate; each halving is a run")
    parser.add_argument(
        "--warm", type=float, default=10.0, help="seconds of a run that tries a rate, not looked at"
    )
    parser.add_argument("--hold", type=float, default=20.0, help="seconds for which a rate has to hold")
    parser.add_argument(
        "--probe",
        type=int,
        default=40_000,
        help="rows of two batches in the first run that goes as fast as it can",
    )
    parser.add_argument("--probe-batches", type=int, default=80)
    parser.add_argument("--keep", action="store_true", help="leave output and checkpoints of all runs")
    options = parser.parse_args(arguments)
    for name, values in (ALL if options.all else DEFAULT).items():
        setattr(options, name, getattr(options, name) or values)
    return _checked(parser, options)


def _checked(parser: argparse.ArgumentParser, options: argparse.Namespace) -> argparse.Namespace:
    if not all(0 <= hot <= 1 for hot in options.hot):
        parser.error("--hot: a share lies between 0 and 1")
    if not all(0 < share <= 1 for share in options.shares):
        parser.error("--shares: a share of the sustainable rate lies above 0, and is at most 1")
    if not 0 < options.precision < 1:
        parser.error("--precision: must lie between 0 and 1")
    if options.batches < 8 or options.every < 1 or options.batches <= 2 * options.every:
        parser.error("--batches: must be at least 8, and more than two checkpoints take (--every)")
    if (options.rate is not None and options.rate < 1) or options.nodes < 2:
        parser.error("--rate: must be at least 1; --nodes: at least 2, as one is lost")
    if min(options.states) < 0 or (
        any(options.states) and not all(QUERIES[q].noted for q in options.queries)
    ):
        parser.error("--states: must not be negative, and q1 has no state that could be larger")
    if options.rates and options.rate is not None:
        parser.error("--rates: measures what --rate would give")
    options.out = options.out.resolve()
    return options


if __name__ == "__main__":
    sys.exit(main())
