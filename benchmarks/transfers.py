"""Writes of many snapshots at the same time, simulated: all at once, and in the steps of Peace; and how far Peace is from an
optimum.

    python -m benchmarks.transfers [--writers 8 12 16] [--megabytes 128 256 512] [--runs 5] [--instances 60]
        [--seed 1] [--output text|json]

The experiment is that of Y. Kwon, M. Balazinska, A. Greenberg, "Fault-tolerant Stream Processing using a Distributed,
Replicated File System", section 6.2, figure 10: 17 nodes in racks of 8 and 9, some of them write a snapshot each, three
replicas, a step ends when 80 % of its writes have.  Nothing is written: rates are those that Table 8 gives for so many
concurrent clients, shared fairly (`benchmarks/transfers_simulation.py` says what is modelled).  Not in the text, and
chosen here: four threads a writer without Peace, five chunks a step between the racks (what a gigabit carries of writes
that share a disk with one other), and that a write which runs on when its step ends holds no capacity (`--hold`: it
does).

The second table compares steps of Peace on small random networks (two racks of two servers, capacities 1 or 2, up to three
requests) with the fewest steps and the least sum of ends that any schedule has, by integer programming.

The exit code is 0 whatever is found: this is no test.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from rich.console import Console

from benchmarks import command
from benchmarks.recovery_show import Grid
from benchmarks.transfers_optimum import optimum, steps_of_peace
from benchmarks.transfers_simulation import (
    CHUNK_MB,
    Steps,
    Summary,
    at_once,
    bound,
    in_steps,
    paper_cluster,
    summary,
)
from reprise.algorithms.peace import TWO_RACKS, Request, two_racks

REPLICAS = 3
PAPER = {(16, 512): "own 45 -> < 20, all 55 -> 75"}
"""Section 1; figure 10 itself has its values as bars, of which the text says: own half, all about 20 % more."""


@dataclass(frozen=True, slots=True)
class Point:
    """One bar of figure 10, twice."""

    writers: int
    megabytes: int
    at_once: Summary
    peace: Summary
    bound: float

    @property
    def own(self) -> float:
        """Time of a request's own write with Peace, over that without."""
        return self.peace.own / self.at_once.own

    @property
    def all_done(self) -> float:
        """Time until all have written with Peace, over that without."""
        return self.peace.all_done / self.at_once.all_done


@dataclass(frozen=True, slots=True)
class Distance:
    """Peace over the optimum, on all instances."""

    instances: int
    steps: float
    worst_steps: float
    ends: float
    worst_ends: float
    optimal: float
    """Share of the instances in which both are those of the optimum."""


def point(writers: int, megabytes: int, runs: int, seed: int, steps: Steps) -> Point:
    """Means over `runs`, each with writers of its own; the same in both ways."""
    cluster = paper_cluster()
    chunks = max(1, round(megabytes / CHUNK_MB))
    free, stepped = [], []
    for run in range(runs):
        rng = random.Random(f"{seed} {writers} {megabytes} {run}")
        requests = [Request(w, REPLICAS, chunks) for w in rng.sample(sorted(cluster.rack), writers)]
        free.append(at_once(cluster, requests, rng))
        stepped.append(in_steps(cluster, requests, rng, steps))
    return Point(writers, megabytes, summary(free), summary(stepped), bound(cluster, requests))


def distance(instances: int, seed: int) -> Distance:
    """Steps and sums of ends of Peace over the least possible, on random small instances."""
    steps, ends = [], []
    for number in range(instances):
        rng = random.Random(f"{seed} {number}")
        network = two_racks({"a": ("a0", "a1"), "b": ("b0", "b1")}, *(rng.randint(1, 2) for _ in range(3)))
        writers = rng.sample(sorted(network.rack), rng.randint(2, 3))
        requests = [Request(w, 2, rng.randint(1, 3)) for w in writers]
        found = steps_of_peace(requests, network, TWO_RACKS, rng)
        fewest, least = optimum(requests, network, TWO_RACKS, max(found))
        steps.append(max(found) / fewest)
        ends.append(sum(found) / least)
    both = sum(a == b == 1 for a, b in zip(steps, ends, strict=True))
    return Distance(instances, fmean(steps), max(steps), fmean(ends), max(ends), both / instances)


def main(arguments: list[str] | None = None) -> int:
    options = _options(arguments)
    steps = Steps(holds=options.hold)
    points = [
        point(writers, megabytes, options.runs, options.seed, steps)
        for megabytes in options.megabytes
        for writers in options.writers
    ]
    far = distance(options.instances, options.seed) if options.instances else None
    if options.output == "json":
        figures: dict[str, Any] = {"points": [asdict(p) for p in points], "distance": far and asdict(far)}
        sys.stdout.write(json.dumps(figures, indent=1) + "\n")
        return 0
    console = Console(width=None if sys.stdout.isatty() else 160)
    _fig_10(points).show(console)
    own, done = fmean(p.own for p in points), fmean(p.all_done for p in points)
    command.say(
        console,
        [
            f"**with Peace a node's own write takes {own:.2f} of the time, all together {done:.2f}** "
            "(theirs: about 0.5 and 1.2)"
        ],
    )
    if far is not None:
        _distance(far).show(console)
    return 0


def _fig_10(points: Sequence[Point]) -> Grid:
    head = (
        "writers x MB", "own, s", "own with Peace, s", "ratio", "all, s", "all with Peace, s", "ratio",
        "mean end, s", "with Peace, s", "bound, s", "theirs",
    )  # fmt: skip
    rows = tuple(
        (
            f"{p.writers} x {p.megabytes}",
            f"{p.at_once.own:.1f}",
            f"{p.peace.own:.1f}",
            f"{p.own:.2f}",
            f"{p.at_once.all_done:.1f}",
            f"{p.peace.all_done:.1f}",
            f"{p.all_done:.2f}",
            f"{p.at_once.since_asked:.1f}",
            f"{p.peace.since_asked:.1f}",
            f"{p.bound:.1f}",
            PAPER.get((p.writers, p.megabytes), ""),
        )
        for p in points
    )
    return Grid("Snapshots written at the same time (fig. 10)", head, rows)


def _distance(far: Distance) -> Grid:
    head = ("of Peace over the optimum", "mean", "worst")
    rows: Mapping[str, tuple[float, float]] = {
        "steps until all is written": (far.steps, far.worst_steps),
        "sum of the requests' ends": (far.ends, far.worst_ends),
    }
    share = ("both are the optimum's", f"{far.optimal:.0%}", "")
    title = f"Peace on {far.instances} small instances"
    return Grid(title, head, (*((name, f"{m:.2f}", f"{w:.2f}") for name, (m, w) in rows.items()), share))


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.transfers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--writers", type=int, nargs="+", default=[8, 12, 16], help="nodes that write, of 17")
    parser.add_argument("--megabytes", type=int, nargs="+", default=[128, 256, 512], help="of each snapshot")
    parser.add_argument("--runs", type=int, default=5, help="averaged")
    parser.add_argument("--instances", type=int, default=60, help="compared with the optimum; 0: none")
    parser.add_argument("--hold", action="store_true", help="writes of the step before hold their capacity")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", choices=("text", "json"), default="text")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
