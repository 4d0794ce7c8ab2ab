"""The local search against the best values known and its own bound, on set-union knapsack instances.

    python benchmarks/planners_search.py [--seconds 1 10] [--files DIR]

Without --files it draws instances of the family of He et al. (2018); with it, it reads instance files of the
published form (".txt": a line "m=.. n=.. knapsack size=..", profits, weights, relation matrix) from a
directory. A public copy of the 60 instances is in the repository elofamomo/SUKP_python, folder
SUKP_instances_60; it states no licence, so it is not part of this one.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import time
from pathlib import Path

from reprise.algorithms import FailedQuery, Instance, PartitionCost, compiled, solve
from reprise.algorithms.generators import sukp

FAMILY = [
    (items, elements, density, ratio)
    for items, elements in [(85, 100), (100, 85), (200, 185), (285, 300), (400, 400), (500, 485), (585, 600)]
    for density, ratio in [(0.10, 0.75), (0.15, 0.85)]
]
HEADER = re.compile(r"m=(\d+)\s+n=(\d+)\s+knapsack size=(\d+)")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, nargs="+", default=[1.0, 10.0], help="CPU seconds a plan")
    parser.add_argument("--files", type=Path, help="directory of published instance files")
    parser.add_argument(
        "--only", default="", help="instances whose name contains this, or one of several by commas"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the generated instances")
    options = parser.parse_args(arguments)
    compiled.load()
    named = [
        (name, instance)
        for name, instance in (read(options.files) if options.files else generated(options.seed))
        if any(part in name for part in options.only.split(","))
    ]
    columns = [f"{seconds:g} s" for seconds in options.seconds]
    sys.stdout.write("| instance | " + " | ".join(columns) + " | best known | bound |\n")
    sys.stdout.write("|---|" + "--:|" * (len(columns) + 2) + "\n")
    found: list[tuple[str, list[int]]] = []
    best = best_known()
    for name, instance in named:
        plans = [solve(instance, "local-search", seconds, time.process_time) for seconds in options.seconds]
        found.append((name, [plan.value for plan in plans]))
        cells = " | ".join(str(plan.value) for plan in plans)
        sys.stdout.write(f"| {name} | {cells} | {best.get(name, '-')} | {plans[-1].bound} |\n")
        sys.stdout.flush()
    summary(columns, [(best[name], values) for name, values in found if name in best])
    return 0


def summary(columns: list[str], rows: list[tuple[int, list[int]]]) -> None:
    """Best known values reached and mean gap, a time limit a line."""
    if not rows:
        return
    sys.stdout.write(
        "\n| CPU seconds a plan | best known reached | mean gap | greatest gap |\n|---|--:|--:|--:|\n"
    )
    for column, name in enumerate(columns):
        gaps = [(best - values[column]) / best for best, values in rows]
        reached = sum(gap <= 0 for gap in gaps)
        sys.stdout.write(
            f"| {name} | {reached} of {len(gaps)} | {sum(gaps) / len(gaps):.3%} | {max(gaps):.2%} |\n"
        )


def best_known() -> dict[str, int]:
    """Published best values by the name of the instance file without its ending."""
    lines = (Path(__file__).parent / "sukp_best.csv").read_text().splitlines()
    pairs = [line.split(",") for line in lines if not line.startswith(("#", "name"))]
    return {f"sukp_{name}": int(value) for name, value in pairs}


def generated(seed: int) -> list[tuple[str, Instance]]:
    return [
        (f"{m} x {n}, {density}, {ratio}", sukp(random.Random(f"{seed}/{m}/{n}"), m, n, density, ratio))
        for m, n, density, ratio in FAMILY
    ]


def read(directory: Path) -> list[tuple[str, Instance]]:
    return [(path.stem, parse(path.read_text())) for path in sorted(directory.rglob("*.txt"))]


def parse(text: str) -> Instance:
    """An instance of the published text form. Raises ValueError when the counts do not add up."""
    header = HEADER.search(text)
    if header is None:
        raise ValueError("no line 'm=.. n=.. knapsack size=..'")
    items, elements, capacity = map(int, header.groups())
    rows = [line.split() for line in text[header.end() :].splitlines()]
    numbers = [int(field) for row in rows if row and all(f.isdigit() for f in row) for field in row]
    if len(numbers) != items + elements + items * elements:
        raise ValueError(f"{len(numbers)} numbers do not make {items} items of {elements} elements")
    profits, weights, cells = numbers[:items], numbers[items : items + elements], numbers[items + elements :]
    names = [f"e{k:04}" for k in range(elements)]
    return Instance(
        capacity,
        tuple(map(PartitionCost, names, weights)),
        tuple(
            FailedQuery(
                f"i{q:04}",
                profit,
                tuple(names[k] for k in range(elements) if cells[q * elements + k]),
            )
            for q, profit in enumerate(profits)
        ),
    )


if __name__ == "__main__":
    raise SystemExit(main())
