"""Results of `benchmarks.skew` as a table beside what CheckMate says, and as plots."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from benchmarks.recovery_show import Grid
from benchmarks.skew_cases import HOT, SHARES, Case, Way
from benchmarks.skew_measure import Figures

COLOURS = {"coordinated": "#b03a2e", "uncoordinated": "#1f5f99", "communication-induced": "#2e8b57"}
STYLES = {"aligned": "-", "arrival": "--"}
COLUMNS = (
    "way",
    "hot",
    "p50, s",
    "of no skew",
    "theirs (fig. 12)",
    "p99, s",
    "p50 / p99 after, s",
    "shown, s",
    "pause, ms",
    "stored, s",
    "complete, s",
    "of no skew",
    "restart, s",
    "theirs (fig. 13)",
    "recovery, s",
    "behind",
    "same rows",
)


@dataclass(frozen=True, slots=True)
class Measured:
    """One run.  `same`: a sentence where it cannot be asked."""

    case: Case
    figures: Figures
    same: bool | str
    load: tuple[float, float]
    """Load average of the machine before and after it."""


def theirs(case: Case) -> tuple[str, str]:
    """What CheckMate says of latency and checkpointing time (fig. 12), and of the time to restart (fig. 13, at half of the
    rate); nothing of what it has not run.

    Its figures are drawn, not printed; these are the sentences of section VII about them.
    """
    if case.hot == 0 or case.hot not in HOT or case.share not in SHARES:
        return "", ""
    step, half = HOT.index(case.hot), case.share == SHARES[0]
    if case.way.protocol != "coordinated":
        latency = "stays low"
    elif half:
        latency = f"x {10**step:,} or more"
    else:
        latency = "the worst, on Q3 already at 10%" if case.query == "q3" else "the worst"
    restart = "alike for all; no recovery in 60 s" if step > 1 else "alike for all"
    return latency, restart if half else ""


def grids(
    found: Sequence[Measured], refused: Mapping[Way, str], rates: Mapping[tuple[str, Way], float]
) -> list[Grid]:
    """One table for each query and share."""
    tables = []
    for query, share in dict.fromkeys((m.case.query, m.case.share) for m in found):
        runs = [m for m in found if (m.case.query, m.case.share) == (query, share)]
        body = [row(m, without_skew(m, runs)) for m in runs]
        body += [(str(way), *[""] * (len(COLUMNS) - 2), "refused") for way in refused]
        used = sorted({m.case.rate for m in runs})
        most = sorted({round(rates[query, m.case.way]) for m in runs})
        title = (
            f"{query.upper()}, {share:.0%} of what is sustainable without skew "
            f"({_list(used)} of {_list(most)} rows/s)"
        )
        tables.append(Grid(title, COLUMNS, tuple(body)))
    return tables


def without_skew(one: Measured, runs: Sequence[Measured]) -> Figures | None:
    """Figures of the same way without hot keys."""
    return next((m.figures for m in runs if m.case.way == one.case.way and m.case.hot == 0), None)


def row(one: Measured, base: Figures | None) -> tuple[str, ...]:
    """One run as texts."""
    found = one.figures
    latency, restart = theirs(one.case)
    waits = "stored" if found.complete is None else "complete"
    same = one.same if isinstance(one.same, str) else "yes" if one.same else "**no**"
    return (
        str(one.case.way),
        f"{one.case.hot:.0%}",
        number(found.p50_before),
        growth(found.p50_before, base.p50_before if base else None),
        latency,
        number(found.p99_before),
        f"{number(found.p50_after)} / {number(found.p99_after)}",
        number(found.shown_before),
        number(found.pause_ms),
        number(found.stored),
        number(found.complete),
        growth(getattr(found, waits), getattr(base, waits) if base else None),
        number(found.restart),
        restart,
        number(found.recovery) if found.not_before is None else f"over {number(found.not_before)}",
        "-" if found.behind is None else str(found.behind),
        "; ".join([same, *_unusual(found)]),
    )


def _unusual(found: Figures) -> list[str]:
    ended = [] if found.outcome == "done" else [found.outcome]
    return [*ended, *([f"{found.incidents} incidents"] if found.incidents > 1 else [])]


def number(value: float | None) -> str:
    """Two decimals; a dash for what was not seen."""
    return "-" if value is None else f"{value:.2f}"


def growth(value: float | None, base: float | None) -> str:
    """How many times as much."""
    return f"x {value / base:.1f}" if value is not None and base else "-"


def _list(values: Sequence[int]) -> str:
    return f"{values[0]:,}" if len(values) == 1 else f"{values[0]:,} to {values[-1]:,}"


def plot(found: Sequence[Measured], query: str, path: Path) -> Path:
    """Latency, time of a checkpoint and time to restart over the share of hot keys; a row for each share of the rate."""
    runs = [m for m in found if m.case.query == query]
    shares = sorted({m.case.share for m in runs})
    figure = Figure(figsize=(12, 3.6 * len(shares)), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(len(shares), 3, squeeze=False)
    for share, line in zip(shares, panels, strict=True):
        chosen = [m for m in runs if m.case.share == share]
        _panel(line[0], chosen, "latency before the loss, p50, s", lambda f: f.p50_before)
        _panel(line[1], chosen, "a checkpoint, s", lambda f: f.stored if f.complete is None else f.complete)
        _panel(line[2], chosen, "restart, s", lambda f: f.restart)
        line[0].set_title(f"{query.upper()}, {share:.0%} of the sustainable rate", loc="left", size=10)
    panels[0][0].legend(fontsize=7)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    return path


def _panel(
    axes: Axes, runs: Sequence[Measured], label: str, value: Callable[[Figures], float | None]
) -> None:
    for way in dict.fromkeys(m.case.way for m in runs):
        points = [(100 * m.case.hot, value(m.figures)) for m in runs if m.case.way == way]
        seen = [(hot, seconds) for hot, seconds in points if seconds is not None and seconds > 0]
        axes.plot(
            [hot for hot, _ in seen],
            [seconds for _, seconds in seen],
            STYLES[way.order],
            color=COLOURS[way.protocol],
            marker="o",
            ms=3,
            lw=1.3,
            label=str(way),
        )
    axes.set_yscale("log")
    axes.set_xlabel("hot items, %")
    axes.set_ylabel(label)
    axes.grid(axis="y", lw=0.3)
