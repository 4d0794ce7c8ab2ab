"""The results of the recovery benchmark: tables for each room, the causes of losses, and what is wrong."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks import recovery_measure as measure
from benchmarks.overhead_report import verdicts
from benchmarks.recovery_runs import PEERS, Run, cpu_milli, topology
from benchmarks.recovery_show import Grid, plot, ratio, seconds, spread
from reprise.controller.local.report.compare import compare
from reprise.scheduler.node_start import StartPhase

LAST_S = 10.0
"""A run whose last output is so long before the horizon did not get there."""
BOUNDS = {"requested": StartPhase.REQUESTED, "heartbeat": StartPhase.HEARTBEAT}
"""Bounds that areas are divided by."""


@dataclass(frozen=True, slots=True)
class Report:
    """Tables, sentences, and the figures behind them."""

    title: str
    grids: tuple[Grid, ...]
    lines: tuple[str, ...]
    figures: list[dict[str, Any]]

    def markdown(self) -> str:
        """All of it as one page."""
        parts = [f"# {self.title}\n", *(g.markdown() for g in self.grids), *(f"{x}\n" for x in self.lines)]
        return "\n".join(parts)


@dataclass(frozen=True, slots=True)
class _Measured:
    run: Run
    curve: measure.Curve | None
    entry: dict[str, Any]


def report(runs: Sequence[Run], options: argparse.Namespace) -> Report:
    """What these runs have shown."""
    figures: list[dict[str, Any]] = []
    grids: list[Grid] = []
    wrong: list[str] = []
    lines: list[str] = []
    title = f"{options.work}, {options.kill} of {options.nodes} nodes lost ({options.order})"
    for room in dict.fromkeys(run.room for run in runs):
        resource = topology(options, room, "incremental", 0)
        share = measure.greatest_share(resource, cpu_milli(resource))
        found = [_measured(run, share, options) for run in runs if run.room == room]
        for seed in sorted({one.run.seed for one in found}):
            mine = [one for one in found if one.run.seed == seed]
            wrong += [f"**{room}, seed {seed}: {text}**" for text in _problems(mine, options.horizon)]
            curves = {one.run.contestant: one.curve for one in mine if one.curve is not None}
            name = f"{title}, {room} room, seed {seed}"
            plot(curves, name, options.horizon, options.out / f"recovery-{room}-{seed}.png")
        entries = [one.entry for one in found]
        grids += [_table(room, entries), _means(room, entries), _ladders(room, entries)]
        if room == "scarce" or options.work == "counts":
            lines += [
                f"{room} room:",
                *verdicts(_ratios(entries), f"recovery, {options.work}", options.contestants),
            ]
        figures += entries
    if len(runs) == len(options.rooms) * options.seeds * len(options.contestants) and not wrong:
        compared = options.work == "counts" or len(options.contestants) > 1
        lines.append(
            "All runs ended" + (", and no output was wrong." if compared else "; outputs were not compared.")
        )
    return Report(title, tuple(grids), (*wrong, *lines), figures)


def _measured(run: Run, share: measure.Share, options: argparse.Namespace) -> _Measured:
    entry: dict[str, Any] = {
        "room": run.room,
        "seed": run.seed,
        "contestant": run.contestant,
        "reason": run.reason,
        "load": run.load,
    }
    if run.evidence is None:
        return _Measured(run, None, entry)
    curve = measure.curve_of(run.evidence, options.interval, options.horizon)
    known = None if run.contestant in PEERS else share
    ladder = measure.ladder(curve, run.nodes, known, options.horizon)
    areas = dict(ladder)
    area = areas[measure.MEASURED]
    bounds = {key: bound for key, phase in BOUNDS.items() if (bound := areas.get(measure.BOUNDS[phase]))}
    return _Measured(
        run,
        curve,
        entry
        | {f"bound_{key}_s": bound for key, bound in bounds.items()}
        | {f"of_{key}": area / bound for key, bound in bounds.items()}
        | {
            "area_s": area,
            "lost_s": options.horizon - area,
            "horizon_s": options.horizon,
            "usual_s": curve.usual_s,
            "first_s": curve.first_s,
            "again_s": curve.again_s,
            "relapses": run.relapses,
            "lost_nodes": curve.lost_nodes,
            "nodes": {phase.value: at for phase, at in curve.nodes.items()},
            "ladder": ladder,
        },
    )


def _problems(found: Sequence[_Measured], horizon_s: float) -> list[str]:
    """What is wrong with the runs of a seed: ends, lengths, outputs."""
    wrong = [f"{one.run.contestant}: {one.run.reason}" for one in found if one.run.reason]
    wrong += [
        f"the last output of {one.run.contestant} was {one.curve.last_s:.0f} s after the failure, before the horizon"
        for one in found
        if one.curve is not None and one.curve.last_s < horizon_s - LAST_S
    ]
    ended = [one.run for one in found if not one.run.reason and one.run.contestant not in PEERS]
    for run in ended[1:]:
        same = compare(ended[0].out, run.out)
        if not same.identical:
            wrong.append(
                f"output of {run.contestant} differs from that of {ended[0].contestant}: {len(same.missing)} missing, "
                f"{len(same.extra)} extra, {len(same.different)} different"
            )
    return wrong


def _ratios(figures: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Areas of two contestants over the seeds in which both were measured, by the names of ranges.yaml."""
    areas: dict[str, dict[int, float]] = {}
    for entry in figures:
        if "area_s" in entry:
            areas.setdefault(entry["contestant"], {})[entry["seed"]] = entry["area_s"]
    found = {}
    for a, b in (
        ("incremental", "best-case"),
        *((other, "incremental") for other in areas if other != "incremental"),
    ):
        both = areas.get(a, {}).keys() & areas.get(b, {}).keys()
        if both and (base := sum(areas[b][seed] for seed in both)):
            found[f"{a} / {b}"] = sum(areas[a][seed] for seed in both) / base
    return found


def _table(room: str, figures: Sequence[dict[str, Any]]) -> Grid:
    columns = (
        "contestant", "seed", "usual latency, s", "first output of any query, s", "all back, s", "relapses", "lost, s",
        "area / bound from heartbeats", "from requests", "load",
    )  # fmt: skip
    rows = tuple(
        (
            str(e["contestant"]),
            str(e["seed"]),
            ratio(e["usual_s"]) if "usual_s" in e else "-",
            seconds(e.get("first_s")),
            seconds(e.get("again_s")),
            "-" if e.get("relapses") is None else str(e["relapses"]),
            seconds(e.get("lost_s")),
            ratio(e["of_heartbeat"]) if "of_heartbeat" in e else "-",
            ratio(e["of_requested"]) if "of_requested" in e else "-",
            f"{e['load'][0]:g} -> {e['load'][1]:g}",
        )
        for e in figures
    )
    return Grid(f"{room} room: availability, weighted by priority, until the horizon", columns, rows)


def _means(room: str, figures: Sequence[dict[str, Any]]) -> Grid:
    columns = ("contestant", "runs", "lost, s", "area / bound from heartbeats", "from requests")
    rows = []
    for contestant in dict.fromkeys(str(e["contestant"]) for e in figures):
        mine = [e for e in figures if e["contestant"] == contestant and "area_s" in e]
        if mine:
            spreads = (
                spread([float(e[key]) for e in mine if key in e])
                for key in ("lost_s", "of_heartbeat", "of_requested")
            )
            rows.append((contestant, str(len(mine)), *spreads))
    return Grid(f"{room} room: mean over seeds (range)", columns, tuple(rows))


def _ladders(room: str, figures: Sequence[dict[str, Any]]) -> Grid:
    """Area with one cause of loss after the other, mean over seeds, and what each takes."""
    found: dict[str, dict[str, list[float]]] = {}
    for entry in figures:
        for cause, value in entry.get("ladder", ()):
            found.setdefault(cause, {}).setdefault(entry["contestant"], []).append(value)
    contestants = list(dict.fromkeys(e["contestant"] for e in figures))
    rows, before = [], dict[str, float]()
    for cause in (cause for cause in measure.CAUSES if cause in found):
        cells = []
        for contestant in contestants:
            values = found[cause].get(contestant)
            if not values:
                cells.append("-")
                continue
            mean = sum(values) / len(values)
            step = f" ({mean - before[contestant]:+.1f})" if contestant in before else ""
            cells.append(f"{mean:.1f}{step}")
            before[contestant] = mean
        rows.append((cause, *cells))
    return Grid(
        f"{room} room: area, s, with one cause after the other", ("counted", *contestants), tuple(rows)
    )
