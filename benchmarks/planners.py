"""Figure 16 done again: value over capacity for every planner, against the optimum of the same instances.

    python benchmarks/planners.py [--topologies 100] [--out DIR]

For each setting and each share of capacity it prints the mean share of the priorities that each planner
brings back, and its ratio to the proven optimum; with --out it also writes a CSV and one plot a panel.
"""

from __future__ import annotations

import argparse
import csv
import random
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from reprise.algorithms import Instance, Plan, solve
from reprise.algorithms.generators import Setting, topology

PLANNERS = ("operator-centric", "best-density", "local-search", "ilp", "dp")
SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
SECONDS = {"local-search": 0.05, "ilp": 10.0}
"""Time limits: the search uses all of its own, the integer programme ends when it has proven its plan."""
PANELS = {
    "a": [Setting("share <= 3", max_share=3), Setting("share <= 6", max_share=6)],
    "b": [
        Setting("zipf 0.2", max_share=6, zipf=0.2),
        Setting("zipf 0.5", max_share=6, zipf=0.5),
    ],
    "c": [
        Setting("priority uniform", max_share=6, priorities="uniform"),
        Setting("priority linear", max_share=6, priorities="linear"),
    ],
}


@dataclass(frozen=True, slots=True)
class Row:
    """Means over the topologies of one setting at one share of capacity."""

    panel: str
    setting: str
    share: float
    planner: str
    recovered: float
    of_optimum: float
    worst: float
    optimal: float
    milliseconds: float


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--topologies", type=int, default=100, help="topologies a setting (default 100)")
    parser.add_argument("--shares", type=float, nargs="+", default=SHARES, help="shares of capacity")
    parser.add_argument("--out", type=Path, help="directory for planners.csv and plots")
    options = parser.parse_args(arguments)
    rows = [
        row
        for panel, settings in PANELS.items()
        for setting in settings
        for share in options.shares
        for row in measure(panel, setting, share, options.topologies)
    ]
    print_tables(rows, options.shares, sys.stdout.write)
    if options.out:
        write(rows, options.out)
    return 0


def measure(panel: str, setting: Setting, share: float, topologies: int) -> list[Row]:
    """All planners on the same topologies; the n-th topology of a setting is the same at every share."""
    plans: dict[str, list[tuple[Instance, Plan, int]]] = {name: [] for name in PLANNERS}
    for number in range(topologies):
        instance = topology(random.Random(f"{setting.name}/{number}"), setting, share)
        mine = {name: solve(instance, name, SECONDS.get(name, 1.0), time.process_time) for name in PLANNERS}
        optimum = mine["dp"].value
        for name, plan in mine.items():
            plans[name].append((instance, plan, optimum))
    return [_row(panel, setting, share, name, entries) for name, entries in plans.items()]


def _row(
    panel: str, setting: Setting, share: float, name: str, entries: list[tuple[Instance, Plan, int]]
) -> Row:
    ratios = [plan.value / optimum if optimum else 1.0 for _, plan, optimum in entries]
    total = [sum(query.priority for query in instance.queries) for instance, _, _ in entries]
    return Row(
        panel=panel,
        setting=setting.name,
        share=share,
        planner=name,
        recovered=statistics.fmean(
            plan.value / all_ for (_, plan, _), all_ in zip(entries, total, strict=True)
        ),
        of_optimum=statistics.fmean(ratios),
        worst=min(ratios),
        optimal=statistics.fmean(ratio == 1.0 for ratio in ratios),
        milliseconds=1000 * statistics.median(plan.seconds for _, plan, _ in entries),
    )


def print_tables(rows: list[Row], shares: list[float], write_text: Callable[[str], object]) -> None:
    """One table a setting with the recovered share over capacity, then one with ratios to the optimum."""
    for setting in dict.fromkeys(row.setting for row in rows):
        mine = [row for row in rows if row.setting == setting]
        write_text(f"\n({mine[0].panel}) {setting}: share of priorities recovered, by share of capacity\n")
        write_text("| planner | " + " | ".join(f"{share:.0%}" for share in shares) + " |\n")
        write_text("|---|" + "--:|" * len(shares) + "\n")
        for name in PLANNERS:
            cells = [f"{row.recovered:.3f}" for row in mine if row.planner == name]
            write_text(f"| {name} | " + " | ".join(cells) + " |\n")
    write_text("\nAll settings and capacities, against the optimum of the same instance\n")
    write_text(
        "| planner | mean of optimum | worst | optimal in | median ms (CPU) |\n|---|--:|--:|--:|--:|\n"
    )
    for name in PLANNERS:
        mine = [row for row in rows if row.planner == name]
        mean = statistics.fmean(row.of_optimum for row in mine)
        worst = min(row.worst for row in mine)
        optimal = statistics.fmean(row.optimal for row in mine)
        median = statistics.median(row.milliseconds for row in mine)
        write_text(f"| {name} | {mean:.4f} | {worst:.3f} | {optimal:.1%} | {median:.1f} |\n")


def write(rows: list[Row], out: Path) -> None:
    """planners.csv and planners-<panel>.png."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    out.mkdir(parents=True, exist_ok=True)
    fields = list(Row.__slots__)
    with (out / "planners.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(fields)
        writer.writerows([getattr(row, field) for field in fields] for row in rows)
    for panel, settings in PANELS.items():
        figure, axes = plt.subplots(figsize=(6, 4))
        for setting, style in zip(settings, ("-", "--"), strict=True):
            for colour, name in enumerate(PLANNERS):
                mine = [row for row in rows if (row.setting, row.planner) == (setting.name, name)]
                axes.plot(
                    [row.share for row in mine],
                    [row.recovered for row in mine],
                    style,
                    color=f"C{colour}",
                    label=f"{name}, {setting.name}",
                )
        axes.set_xlabel("capacity / cost of all failed partitions")
        axes.set_ylabel("recovered priority / all failed")
        axes.legend(fontsize=6)
        figure.tight_layout()
        figure.savefig(out / f"planners-{panel}.png", dpi=120)
        plt.close(figure)


if __name__ == "__main__":
    raise SystemExit(main())
