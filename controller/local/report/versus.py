"""Several runs in one picture: priority-weighted availability since the failure, one curve a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from reprise.controller.pictures import save
from reprise.controller.status.actions import ARRIVED

COLOURS = ("#1f5f99", "#b03a2e", "#b7791f", "#2e8b57", "#6c3483")


@dataclass(frozen=True, slots=True)
class Curve:
    """One run: seconds since its failure, share of available queries weighted by priority (0..1), and arrivals."""

    elapsed: tuple[float, ...]
    share: tuple[float, ...]
    arrivals: tuple[float, ...]
    lost_s: float


def since_failure(report: Mapping[str, Any], lead_s: float = 5.0) -> Curve:
    """The curve of an incident.json that has series; begins `lead_s` before the failure."""
    failure = float(report["failure"] or 0.0)
    series = report["series"]
    pairs = [(t - failure, s) for t, s in zip(series["elapsed"], series["share"], strict=True)]
    pairs = [(t, s) for t, s in pairs if t >= -lead_s]
    arrivals = [float(line["elapsed"]) - failure for line in report["timeline"] if line["what"] == ARRIVED]
    return Curve(
        tuple(t for t, _ in pairs),
        tuple(s for _, s in pairs),
        tuple(arrivals),
        float(report.get("lost_s", 0.0)),
    )


def draw_versus(curves: Mapping[str, Curve], stem: Path) -> Path:
    """Write `<stem>.svg` and `<stem>.png`; returns `stem`.  Ticks at the foot: a node arrived."""
    for suffix, canvas in ((".svg", FigureCanvasSVG), (".png", FigureCanvasAgg)):
        figure = Figure(figsize=(9, 4.4), layout="constrained")
        canvas(figure)
        axes = figure.add_subplot()
        for index, (name, curve) in enumerate(curves.items()):
            colour = COLOURS[index % len(COLOURS)]
            label = f"{name} (lost {curve.lost_s:.1f} s)"
            axes.step(
                curve.elapsed, [100 * s for s in curve.share], where="post", color=colour, lw=1.8, label=label
            )
            axes.plot(
                curve.arrivals, [-2.5 - 3.5 * index] * len(curve.arrivals), "|", color=colour, ms=9, mew=1.6
            )
        axes.axvline(0.0, color="#22282e", lw=1.0, ls="--")
        axes.set_ylim(-4.0 - 3.5 * len(curves), 104)
        axes.set_yticks(range(0, 101, 20))
        axes.set_xlabel("seconds since the failure (ticks below 0 %: a node arrived)")
        axes.set_ylabel("available queries, weighted by priority, %")
        axes.grid(axis="y", lw=0.3)
        axes.legend(loc="center right", fontsize=9)
        save(figure, stem.with_suffix(suffix), dpi=120)
    return stem
