"""Myopic against anticipatory planning while nodes come back as a recorded trace says.

    python benchmarks/planners_arrivals.py TRACE [--topologies 20]

For each correlated loss in TRACE (lines "milliseconds,add|remove,node") and each topology: the area under the
priority-weighted available queries until the horizon, relative to myopic planning on the same arrivals. Two
nodes have survived, each arrival is one more, and every stage is a packing. "known" plans with the true
arrivals, "forecast" with those of the other losses of the trace, "wrong" with arrivals ten times too early.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from reprise.algorithms import NodeCapacity
from reprise.algorithms.arrivals.arrivals import Arrival, anticipatory, myopic, replanned
from reprise.algorithms.arrivals.forecast import Loss, losses, parse_trace, scenarios
from reprise.algorithms.dp import dp
from reprise.algorithms.generators import Setting, topology
from reprise.algorithms.problem import Deadline, Problem, StepClock

HORIZON = 3600.0
SETTING = Setting("arrivals", queries=12, partitions=60, max_share=4)
Forecast = Callable[[float], Sequence[Sequence[Arrival]]]


def best(problem: Problem) -> tuple[int, ...]:
    return dp(problem, Deadline(StepClock(), 1.0)).queries


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("trace", type=Path)
    parser.add_argument("--topologies", type=int, default=20)
    parser.add_argument("--most-losses", type=int, default=12, help="losses of the trace to replay")
    options = parser.parse_args(arguments)
    past = [loss for loss in losses(parse_trace(options.trace.read_text())) if loss.delays]
    ratios: dict[str, list[float]] = {"known": [], "forecast": [], "wrong": []}
    for i, loss in enumerate(past[: options.most_losses]):
        others = past[:i] + past[i + 1 :]
        for number in range(options.topologies):
            for kind, ratio in compare(loss, others, number).items():
                ratios[kind].append(ratio)
    sys.stdout.write(f"{len(past)} losses with replacements, {len(ratios['known'])} runs\n")
    sys.stdout.write("| plans with | mean area / myopic | least | greatest | better in | worse in |\n")
    sys.stdout.write("|---|--:|--:|--:|--:|--:|\n")
    for kind, found in ratios.items():
        better = sum(ratio > 1 + 1e-9 for ratio in found) / len(found)
        worse = sum(ratio < 1 - 1e-9 for ratio in found) / len(found)
        sys.stdout.write(
            f"| {kind} | {statistics.fmean(found):.4f} | {min(found):.3f} | {max(found):.3f} "
            f"| {better:.0%} | {worse:.0%} |\n"
        )
    return 0


def compare(loss: Loss, others: list[Loss], number: int) -> dict[str, float]:
    """Area over myopic area for each kind of planning, on one topology; a node brings an equal share of the
    cost."""
    instance = topology(random.Random(number), SETTING, 0.1)
    survivors = tuple(NodeCapacity(name, instance.capacity // 2) for name in ("n1", "n2"))
    instance = replace(instance, nodes=survivors)
    free = sum(p.cost for p in instance.partitions) // (2 * loss.nodes)
    arrivals = [Arrival(delay, free) for delay in loss.delays]
    early = [Arrival(delay / 10, free) for delay in loss.delays]
    forecasts: dict[str, Forecast] = {
        "forecast": lambda now: scenarios(others, loss.nodes, free, since=now, most=3),
        "wrong": lambda now: [[a for a in early if a.at > now]],
    }
    base = myopic(instance, arrivals, HORIZON, best).area or 1.0
    found = {"known": anticipatory(instance, arrivals, HORIZON, best).area / base}
    for kind, forecast in forecasts.items():
        found[kind] = replanned(instance, arrivals, HORIZON, best, forecast).area / base
    return found


if __name__ == "__main__":
    raise SystemExit(main())
