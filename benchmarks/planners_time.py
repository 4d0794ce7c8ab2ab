"""How long BestDensity takes, by size and shape of the instance.

    python -m benchmarks.planners_time [--seeds 3]

CPU seconds of one core for the choice of queries alone and for the whole plan with its explanation, kernels loaded
before.  Shapes: topologies as in fig. 16 (Su and Zhou, 7.3) and the dense instances of He et al. (2018), where each
query needs a tenth or a seventh of all partitions.  This is no test: the exit code is 0 whatever comes out.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable

from reprise.algorithms import Instance, compiled, solve
from reprise.algorithms.candidate_run import all_candidates
from reprise.algorithms.generators import Setting, sukp, topology
from reprise.algorithms.problem import compile_problem

SIZES = (100, 500)
SHARES = (0.3, 0.7)
TARGET = {100: 0.1, 500: 5.0}
"""Seconds that a plan may take."""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.planners_time")
    parser.add_argument("--seeds", type=int, default=3, help="instances a shape")
    options = parser.parse_args(arguments)
    compiled.load()
    print("| queries x partitions | shape | choice, s | whole plan, s | slowest plan, s | target, s |")
    print("|---|---|--:|--:|--:|--:|")
    for size in SIZES:
        for name, draw in _shapes(size).items():
            choice, plan = [], []
            for seed in range(options.seeds):
                instance = draw(random.Random(f"{name}/{size}/{seed}"))
                problem = compile_problem(instance)
                choice.append(_cpu(lambda p=problem: all_candidates(p, wait=True)))
                plan.append(_cpu(lambda i=instance: solve(i, "best-density", 60.0, time.monotonic)))
            print(
                f"| {size} x {size} | {name} | {statistics.median(choice):.3f} | {statistics.median(plan):.3f} "
                f"| {max(plan):.3f} | {TARGET[size]:g} |",
                flush=True,
            )
    return 0


def _shapes(size: int) -> dict[str, Callable[[random.Random], Instance]]:
    found: dict[str, Callable[[random.Random], Instance]] = {}
    for most, zipf in ((3, 0.0), (6, 0.0), (6, 0.5)):
        setting = Setting("", queries=size, partitions=size, max_share=most, zipf=zipf)
        for share in SHARES:
            name = (
                f"topology, shared by up to {most}{f', Zipf {zipf:g}' if zipf else ''}, {share:.0%} capacity"
            )
            found[name] = lambda rng, s=setting, c=share: topology(rng, s, c)
    for density, ratio in ((0.10, 0.75), (0.15, 0.85)):
        found[f"dense {density:g}, capacity {ratio:g}"] = lambda rng, d=density, r=ratio: sukp(
            rng, size, size, d, r
        )
    return found


def _cpu(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


if __name__ == "__main__":
    raise SystemExit(main())
