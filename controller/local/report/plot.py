"""The picture of a recovery: available queries and their weight over time, and each query as a row.

Queries are rows, the most valuable on top: one sees at a poll whether the valuable ones came back first, which is the
point of the whole.  No pyplot: nothing global is touched, so a report can be drawn in any thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from reprise.controller.local.report.latency import Series
from reprise.controller.local.report.output_availability import OutputAvailability
from reprise.controller.pictures import save
from reprise.controller.status.timeline import Mark, MarkKind

MARKS: dict[MarkKind, tuple[str, str, str]] = {
    "fault": ("#b03a2e", "-", "nodes fail"),
    "arrival": ("#2471a3", ":", "node arrives"),
    "plan": ("#7d8a2e", "--", "plan"),
}
"""Colour, line and words of each."""
_UP, _DOWN, _BLUE, _INK = "#2e8b57", "#e8b4ae", "#1f5f99", "#22282e"
_CANVAS = {".svg": FigureCanvasSVG, ".png": FigureCanvasAgg}


def draw(found: OutputAvailability, marks: Sequence[Mark], title: str, stem: Path) -> list[Path]:
    """Write `<stem>.svg` and `<stem>.png`."""
    written = []
    for suffix, canvas in _CANVAS.items():
        rows = len(found.queries)
        figure = Figure(figsize=(10.5, 5.2 + 0.19 * rows), layout="constrained")
        canvas(figure)
        top, middle, bottom = figure.subplots(
            3, 1, sharex=True, gridspec_kw={"height_ratios": [2.0, 1.6, max(0.9, 0.17 * rows)]}
        )
        _share(top, found)
        _latency(middle, found)
        _rows(bottom, found)
        for axes in (top, middle, bottom):
            _vertical(axes, marks)
        _legend(top, marks)
        top.set_title(title, loc="left", size=11, color=_INK)
        bottom.set_xlabel("seconds since the stream began")
        bottom.set_xlim(0, float(found.elapsed[-1]))
        path = stem.with_suffix(suffix)
        save(figure, path, dpi=120)
        written.append(path)
    return written


def _share(axes: Any, found: OutputAvailability) -> None:
    total = len(found.queries)
    axes.step(found.elapsed, found.count, where="post", color=_BLUE, lw=1.6, label="available queries")
    axes.set_ylim(0, total * 1.08 + 0.2)
    axes.yaxis.get_major_locator().set_params(integer=True)
    axes.set_ylabel(f"available queries (of {total})", color=_BLUE)
    right = axes.twinx()
    right.fill_between(found.elapsed, 100 * found.share, step="post", color=_UP, alpha=0.18, lw=0)
    right.step(found.elapsed, 100 * found.share, where="post", color=_UP, lw=1.1)
    right.set_ylim(0, 100 * (1.08 + 0.2 / total))
    right.set_ylabel("weighted by priority, %", color=_UP)


def _latency(axes: Any, found: OutputAvailability) -> None:
    """The slowest, the median and the fastest query."""
    values = np.stack([s.latency_s for s in found.queries.values()])
    axes.fill_between(found.elapsed, values.min(axis=0), values.max(axis=0), color=_BLUE, alpha=0.15, lw=0)
    axes.plot(found.elapsed, np.median(values, axis=0), color=_BLUE, lw=1.2)
    axes.set_ylabel("latency, s\n(median, range)")
    axes.set_ylim(0, max(1.0, float(values.max()) * 1.05))
    axes.grid(axis="y", lw=0.3)


def _rows(axes: Any, found: OutputAvailability) -> None:
    ordered: list[Series] = sorted(found.queries.values(), key=lambda s: -s.priority)
    picture = np.stack([s.available for s in ordered]).astype(float)
    edges = np.append(found.elapsed, found.elapsed[-1])
    from matplotlib.colors import ListedColormap

    axes.pcolormesh(
        edges, np.arange(len(ordered) + 1), picture, cmap=ListedColormap([_DOWN, _UP]), vmin=0, vmax=1, shading="flat",
        rasterized=True,
    )  # fmt: skip
    for edge in range(1, len(ordered)):
        axes.axhline(edge, color="white", lw=0.8)
    axes.invert_yaxis()
    axes.set_yticks(np.arange(len(ordered)) + 0.5, [f"{s.query}  p{s.priority}" for s in ordered], size=6.5)
    axes.set_ylabel("available\n(green)")


def _vertical(axes: Any, marks: Sequence[Mark]) -> None:
    for elapsed, kind, _ in marks:
        colour, style, _ = MARKS[kind]
        axes.axvline(elapsed, color=colour, ls=style, lw=1.8 if kind == "fault" else 0.9, alpha=0.9)


def _legend(axes: Any, marks: Sequence[Mark]) -> None:
    from matplotlib.lines import Line2D

    shown = [kind for kind in MARKS if any(mark[1] == kind for mark in marks)]
    handles = [Line2D([], [], color=MARKS[k][0], ls=MARKS[k][1], lw=1.5) for k in shown]
    if handles:
        words = [f"{MARKS[k][2]} ({sum(m[1] == k for m in marks)})" for k in shown]
        axes.legend(handles, words, loc="lower right", ncols=len(shown), fontsize=7.5, framealpha=0.9)
