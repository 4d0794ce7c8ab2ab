"""Results as a table in the terminal, the same as Markdown, and plots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from benchmarks.recovery_measure import Curve
from reprise.scheduler.node_start import StartPhase

COLOURS = {
    "best-case": "#2e8b57", "incremental": "#1f5f99", "operator-centric": "#b7791f", "blocking": "#b03a2e",
}  # fmt: skip
FALLBACK = ("#6c3483", "#117a65", "#7b241c", "#1b4f72")


@dataclass(frozen=True, slots=True)
class Grid:
    """A titled table of texts."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def markdown(self) -> str:
        """As GitHub Markdown; the first column is left-aligned."""
        head = "| " + " | ".join(self.columns) + " |\n"
        rule = "|---|" + "--:|" * (len(self.columns) - 1) + "\n"
        return f"{self.title}\n\n{head}{rule}" + "".join("| " + " | ".join(r) + " |\n" for r in self.rows)

    def show(self, console: Console) -> None:
        """In the terminal."""
        table = Table(title=self.title, title_justify="left", box=None, header_style="bold")
        for index, name in enumerate(self.columns):
            table.add_column(name, justify="right" if index else "left", no_wrap=not index)
        for row in self.rows:
            table.add_row(*(text.replace("**", "") for text in row))
        console.print(table)


def plot(curves: Mapping[str, Curve], title: str, horizon_s: float, path: Path) -> Path:
    """Available queries above, mean relative latency of the lost queries below; ticks at the foot: a node arrived."""
    figure = Figure(figsize=(9, 6.4), layout="constrained")
    FigureCanvasAgg(figure)
    top, bottom = figure.subplots(2, 1, sharex=True)
    for index, (name, curve) in enumerate(curves.items()):
        colour = COLOURS.get(name, FALLBACK[index % len(FALLBACK)])
        top.step(curve.elapsed, curve.available, where="post", color=colour, lw=1.7, label=name)
        came = curve.nodes.get(StartPhase.HEARTBEAT, ())
        top.plot(came, [-0.6 - 0.7 * index] * len(came), "|", color=colour, ms=8, mew=1.5)
        bottom.plot(curve.elapsed, curve.relative, color=colour, lw=1.4)
    for axes in (top, bottom):
        axes.axvline(0.0, color="#22282e", lw=1.0, ls="--")
        axes.grid(axis="y", lw=0.3)
    top.set_title(title, loc="left", size=11)
    top.set_ylabel("available queries")
    top.legend(loc="lower right", fontsize=8)
    bottom.set_yscale("log")
    bottom.set_ylabel("relative latency of the lost queries, mean")
    bottom.set_xlabel("seconds since the failure")
    bottom.set_xlim(-5.0, horizon_s)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    return path


def seconds(value: float | None) -> str:
    """One decimal; a dash for what did not happen."""
    return "-" if value is None else f"{value:.1f}"


def ratio(value: float) -> str:
    """Two decimals."""
    return f"{value:.2f}"


def spread(values: Sequence[float]) -> str:
    """Mean, and the range where there are several; a dash for no value."""
    if not values:
        return "-"
    mean = sum(values) / len(values)
    return f"{mean:.2f}" + (f" ({min(values):.2f} .. {max(values):.2f})" if len(values) > 1 else "")
