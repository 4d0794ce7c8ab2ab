"""A picture of a topology: operators as boxes of their partitions, subscriptions as arrows, queries by colour
of priority."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from matplotlib import colormaps
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Rectangle
from matplotlib.path import Path as MplPath

from reprise.controller.pictures import save
from reprise.spark_jobs.topology.graph import Partition, Topology
from reprise.spark_jobs.topology.layout import CELLS_A_ROW, Box, Edge, Layout, by_operator, edges, place

_LAYER_WIDTH = 3.4
_BOX_WIDTH = 2.1
_CELL_HEIGHT = 0.3
_GAP = 0.06
_GRAY, _RED, _INK, _SOURCE, _PLAIN = "#8a939c", "#b03a2e", "#22282e", "#d9e6f2", "#ffffff"
_CANVAS = {".svg": FigureCanvasSVG, ".png": FigureCanvasAgg}


def draw(topology: Topology, path: str | Path) -> None:
    """Write the picture as SVG or PNG, by the suffix of `path`.  ValueError for another suffix."""
    path = Path(path)
    if path.suffix not in _CANVAS:
        raise ValueError(f"cannot draw {path.name}: write a name that ends in {' or '.join(_CANVAS)}")
    layout = place(topology)
    layers = 1 + max((b.layer for b in layout.boxes.values()), default=0)
    half = max((abs(b.y) + b.rows / 2 + 1 for b in layout.boxes.values()), default=1) * _CELL_HEIGHT
    figure = Figure(figsize=(layers * _LAYER_WIDTH, 2 * half + 1.3))
    _CANVAS[path.suffix](figure)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_xlim(-_LAYER_WIDTH / 2, (layers - 0.5) * _LAYER_WIDTH)
    axes.set_ylim(half + 0.75, -half - 0.55)
    axes.axis("off")
    _arrows(axes, topology, layout)
    for name, partitions in by_operator(topology).items():
        _box(axes, topology, name, partitions, layout.boxes[name])
    _legend(axes, topology, half)
    save(figure, path, dpi=130)


def _middle(box: Box) -> tuple[float, float]:
    return box.layer * _LAYER_WIDTH, box.y * _CELL_HEIGHT


def _box(axes: Any, topology: Topology, name: str, partitions: list[Partition], box: Box) -> None:
    x, y = _middle(box)
    height = (box.rows + 0.95) * _CELL_HEIGHT
    left, top = x - _BOX_WIDTH / 2, y - height / 2
    face = _SOURCE if partitions[0].is_source else _PLAIN
    style = "round,pad=0,rounding_size=0.06"
    axes.add_patch(
        FancyBboxPatch(
            (left, top), _BOX_WIDTH, height, boxstyle=style, facecolor=face, edgecolor=_INK, lw=0.9, zorder=3
        )
    )
    axes.text(
        x,
        top + 0.45 * _CELL_HEIGHT,
        name,
        ha="center",
        va="center",
        size=9,
        weight="bold",
        color=_INK,
        zorder=5,
    )
    columns = min(len(partitions), CELLS_A_ROW)
    width = (_BOX_WIDTH - _GAP) / columns
    for i, partition in enumerate(partitions):
        row, column = divmod(i, CELLS_A_ROW)
        cell = (left + _GAP + column * width, top + (row + 0.85) * _CELL_HEIGHT)
        _cell(axes, topology, partition, cell, width - _GAP)


def _cell(
    axes: Any, topology: Topology, partition: Partition, corner: tuple[float, float], width: float
) -> None:
    query = topology.queries.get(partition.id)
    text, (face, ink) = str(partition.place.index), ("#eef1f4", _INK)
    if query is not None:
        text, (face, ink) = f"{text}: p{query.priority}", _colours(query.priority)
    height = _CELL_HEIGHT * 0.86
    axes.add_patch(Rectangle(corner, width, height, facecolor=face, edgecolor=_GRAY, lw=0.5, zorder=4))
    middle = (corner[0] + width / 2, corner[1] + height / 2)
    axes.text(*middle, text, ha="center", va="center", size=6.5, color=ink, zorder=5)


def _colours(priority: int) -> tuple[Any, str]:
    """Face and ink of a priority."""
    red, green, blue, _ = face = colormaps["YlOrRd"](0.05 + 0.09 * priority)
    return face, _INK if 0.3 * red + 0.6 * green + 0.1 * blue > 0.5 else "white"


def _arrows(axes: Any, topology: Topology, layout: Layout) -> None:
    incoming: dict[str, list[Edge]] = {}
    for edge in edges(topology):
        if edge.feedback:
            _feedback(axes, edge, layout.boxes)
        else:
            incoming.setdefault(edge.target, []).append(edge)
    for target, some in incoming.items():
        # Arrows end side by side, from top to bottom as they come.
        some.sort(key=lambda e: layout.gaps[e][-1] if layout.gaps[e] else layout.boxes[e.origin].y)
        for i, edge in enumerate(some):
            shift = (i - (len(some) - 1) / 2) * min(0.2, 0.5 / len(some))
            _forward(axes, edge, layout, _middle(layout.boxes[target])[1] + shift)


def _forward(axes: Any, edge: Edge, layout: Layout, y1: float) -> None:
    (x, y), x1 = _middle(layout.boxes[edge.origin]), _middle(layout.boxes[edge.target])[0] - _BOX_WIDTH / 2
    points = [(x + _BOX_WIDTH / 2, y)]
    for k, gap in enumerate(layout.gaps[edge], layout.boxes[edge.origin].layer + 1):
        height = gap * _CELL_HEIGHT
        points += [(k * _LAYER_WIDTH - _BOX_WIDTH / 2, height), (k * _LAYER_WIDTH + _BOX_WIDTH / 2, height)]
    points.append((x1, y1))
    vertices, codes = [points[0]], [MplPath.MOVETO]
    for (xa, ya), (xb, yb) in pairwise(points):
        bend = 0.45 * (xb - xa)
        vertices += [(xa + bend, ya), (xb - bend, yb), (xb, yb)]
        codes += [MplPath.CURVE4] * 3
    _line(axes, path=MplPath(vertices, codes), color=_GRAY)
    _label(axes, edge.label, (x1 - 0.12, y1 - 0.075), "right", _GRAY)


def _feedback(axes: Any, edge: Edge, boxes: Mapping[str, Box]) -> None:
    """Draw a line from bottom to bottom, below the boxes between."""
    (x0, y0), (x1, y1) = _middle(boxes[edge.origin]), _middle(boxes[edge.target])
    y0 += (boxes[edge.origin].rows + 0.95) * _CELL_HEIGHT / 2
    y1 += (boxes[edge.target].rows + 0.95) * _CELL_HEIGHT / 2
    bend = -0.25 if x1 <= x0 else 0.25
    style = {"connectionstyle": f"arc3,rad={bend}", "linestyle": "--", "color": _RED}
    _line(axes, posA=(x0, y0), posB=(x1, y1), **style)
    spot = ((x0 + x1) / 2, max(y0, y1) + 0.12 * abs(x0 - x1) + 0.1)
    _label(axes, f"{edge.label} (feedback)".strip(), spot, "center", _RED)


def _line(axes: Any, **style: Any) -> None:
    axes.add_patch(
        FancyArrowPatch(arrowstyle="-|>", mutation_scale=8, lw=0.9, shrinkA=0, shrinkB=0, zorder=1, **style)
    )


def _label(axes: Any, text: str, spot: tuple[float, float], align: str, colour: str) -> None:
    if text:
        box = {"facecolor": "white", "edgecolor": "none", "pad": 0.4, "alpha": 0.75}
        axes.text(*spot, text, ha=align, va="center", size=6, color=colour, bbox=box, zorder=2)


def _legend(axes: Any, topology: Topology, half: float) -> None:
    left = -_BOX_WIDTH / 2
    title = f"{topology.name}: {len(topology.partitions)} partitions, {len(topology.queries)} queries"
    axes.text(left, -half - 0.25, title, size=11, weight="bold", color=_INK, va="center")
    axes.text(left, half + 0.45, "output partition, by priority", size=7, color=_INK, va="center")
    for priority in range(1, 11):
        corner = (left + 1.55 + priority * 0.26, half + 0.35)
        face, ink = _colours(priority)
        axes.add_patch(Rectangle(corner, 0.25, 0.2, facecolor=face, edgecolor=_GRAY, lw=0.5))
        middle = (corner[0] + 0.125, corner[1] + 0.1)
        axes.text(*middle, str(priority), size=6, ha="center", va="center", color=ink)
