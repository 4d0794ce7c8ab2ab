"""The pictures of a post-mortem: availability as it was against its bound and the other courses, and the queries as rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from reprise.controller.analysis.postmortem.counterfactual import Counterfactuals, Course, Curve
from reprise.controller.analysis.postmortem.story import Story
from reprise.controller.pictures import save
from reprise.controller.status.model import AvailabilityPoint

BLUE, ORANGE, GREEN, GREY, RED = "#1f5f99", "#c46210", "#2e8b57", "#8a8f94", "#b03a2e"
"""Told apart by the colour-blind; each line has a pattern of its own besides."""


def draw(
    story: Story, curve: Sequence[AvailabilityPoint], otherwise: Counterfactuals | None, folder: Path
) -> list[str]:
    """Write `availability.svg` and `queries.svg`; their names."""
    found = {"availability.svg": _availability(story, curve, otherwise), "queries.svg": _queries(story)}
    for name, figure in found.items():
        save(figure, folder / name)
    return list(found)


def _availability(
    story: Story, curve: Sequence[AvailabilityPoint], otherwise: Counterfactuals | None
) -> Figure:
    figure, axes = _figure(4.2)
    opened, span = story.incident.opened_at, max(0.1, story.end - story.incident.opened_at)
    mine = [p for p in curve if opened <= p.time <= story.end]
    times = [p.time - opened for p in mine] + [span]
    shares = [100 * p.share for p in mine]
    if mine:
        axes.step(times, [*shares, shares[-1]], where="post", color=BLUE, lw=2.2, label="as it happened")
        bounds = [float("nan") if p.bound is None else 100 * p.bound for p in mine]
        axes.step(
            times,
            [*bounds, bounds[-1]],
            where="post",
            color=GREY,
            ls=":",
            lw=1.8,
            label="the capacity allowed",
        )
    for other, colour, style in _others(otherwise):
        x, y = _steps(story, other, span)
        axes.step(x, y, where="post", color=colour, ls=style, lw=1.5, label=other.name.value)
    for at, _, _ in story.arrivals:
        axes.axvline(at - opened, color=GREEN, ls=":", lw=0.8)
    axes.set_ylim(0, 105)
    axes.set_xlim(0, span)
    axes.set_ylabel("available queries, weighted by priority, %")
    axes.set_xlabel("seconds since the detection; green: a node arrived")
    axes.legend(loc="lower right", fontsize=8)
    return figure


def _others(otherwise: Counterfactuals | None) -> list[tuple[Curve, str, Any]]:
    if otherwise is None:
        return []
    found = [(otherwise.blocking, ORANGE, "--"), (otherwise.one_more, GREEN, "-.")]
    return [(curve, colour, style) for curve, colour, style in found if curve is not None]


def _steps(story: Story, curve: Curve, span: float) -> tuple[list[float], list[float]]:
    """Share of available queries: what was not lost is up, but for the blocking course, in which all is named."""
    priorities = story.priorities
    total = sum(priorities.values()) or 1
    lost = set(priorities) if curve.name is Course.BLOCKING else set(story.incident.queries)
    up = sum(p for q, p in priorities.items() if q not in lost)
    x, y = [0.0], [100 * up / total]
    for query, at in sorted(curve.back.items(), key=lambda item: item[1]):
        if query in lost and at <= span:
            up += priorities.get(query, 0)
            x.append(at)
            y.append(100 * up / total)
    return [*x, span], [*y, y[-1]]


def _queries(story: Story) -> Figure:
    rows = story.downtimes
    figure, axes = _figure(1.4 + 0.24 * max(3, len(rows)))
    opened, end = story.incident.opened_at, story.end
    for row, d in enumerate(rows):
        restored = d.restored_at if d.restored_at is not None else end
        back = d.caught_up_at if d.caught_up_at is not None else end
        axes.barh(
            row, restored - d.lost_at, left=d.lost_at - opened, color=RED, hatch="//", edgecolor="white"
        )
        axes.barh(row, max(0.0, back - restored), left=restored - opened, color=ORANGE, edgecolor="white")
    axes.set_yticks(range(len(rows)), [f"{d.query}  p{d.priority}" for d in rows], size=7)
    axes.invert_yaxis()
    axes.set_xlim(0, max(0.1, end - opened))
    axes.set_xlabel("seconds since the detection; hatched: lost, plain: catching up")
    return figure


def _figure(height: float) -> tuple[Figure, Any]:
    figure = Figure(figsize=(9.5, height), layout="constrained")
    FigureCanvasSVG(figure)
    axes = figure.subplots()
    axes.grid(axis="x", lw=0.3)
    return figure, axes
