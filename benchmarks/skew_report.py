"""Results of `benchmarks.skew` as a table beside what CheckMate says, and as plots."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from benchmarks.recovery_show import Grid
from benchmarks.skew_cases import HOT, SHARES, UNGUARDED, Case, Way
from benchmarks.skew_measure import Figures, Second

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
    "state +, MiB",
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
    """Figures of the same way without hot keys, with states as large."""
    way, ballast = one.case.way, one.case.ballast
    same = (m.figures for m in runs if (m.case.way, m.case.hot, m.case.ballast) == (way, 0, ballast))
    return next(same, None)


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
        str(one.case.ballast),
        "; ".join([same, *_unusual(found)]),
    )


RATES = ("query", "way", "rows/s", "of no checkpoints", "theirs (fig. 7)")
THEIRS = {
    "coordinated": "as without up to 50 workers; Q1, Q12 about 90 % with 70 and 100",
    "uncoordinated": "10 % less than coordinated",
    "communication-induced": "under 50 % with many workers",
}
"""What CheckMate says of the rate that each protocol sustains; it has the order of arrival alone."""


def rates_grid(rates: Mapping[tuple[str, Way], float]) -> Grid:
    """What each way sustains without skew, and its share of what is sustained without checkpoints."""
    body = []
    for (query, way), rate in rates.items():
        none = rates.get((query, UNGUARDED))
        share = f"{rate / none:.0%}" if none and way != UNGUARDED else "-"
        body.append((query.upper(), str(way), f"{rate:,.0f}", share, THEIRS.get(way.protocol, "")))
    return Grid("What is sustainable without skew", RATES, tuple(body))


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
    """Latency, time of a checkpoint and time to restart over the share of hot keys; a row for each share of the rate.  Of
    runs with the smallest states."""
    least = min((m.case.ballast for m in found), default=0)
    runs = [m for m in found if (m.case.query, m.case.ballast) == (query, least)]
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


def plot_states(found: Sequence[Measured], query: str, path: Path) -> Path:
    """Time to restart, and until a state is stored, by how much larger states are (CheckMate, fig. 11); without hot keys
    where there are such runs."""
    runs = [m for m in found if m.case.query == query]
    least = min((m.case.hot for m in runs), default=0.0)
    figure = Figure(figsize=(12, 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    panels: tuple[tuple[str, Callable[[Figures], float | None]], ...] = (
        ("restart, s", lambda f: f.restart),
        ("a state is stored, s", lambda f: f.stored),
    )
    for axes, (label, value) in zip(figure.subplots(1, 2), panels, strict=True):
        for way in dict.fromkeys(m.case.way for m in runs):
            line = [
                (m.case.ballast, value(m.figures)) for m in runs if (m.case.way, m.case.hot) == (way, least)
            ]
            seen = sorted((mib, seconds) for mib, seconds in line if seconds is not None)
            style, colour = STYLES[way.order], COLOURS[way.protocol]
            axes.plot(
                [mib for mib, _ in seen],
                [s for _, s in seen],
                style,
                color=colour,
                marker="o",
                ms=3,
                label=str(way),
            )
        axes.set_xlabel("MiB more in each state with hot keys")
        axes.set_ylabel(label)
        axes.grid(axis="y", lw=0.3)
        axes.legend(fontsize=7)
    figure.savefig(path, dpi=120)
    return path


def plot_seconds(found: Sequence[Measured], query: str, path: Path) -> Path:
    """Latency by the second through the failure: p50 and p99, a row for each share of hot keys (CheckMate, figs. 9, 10);
    of runs with the smallest states."""
    least = min((m.case.ballast for m in found), default=0)
    runs = [m for m in found if (m.case.query, m.case.ballast) == (query, least) and m.figures.seconds]
    shares = sorted({(m.case.share, m.case.hot) for m in runs})
    figure = Figure(figsize=(12, 3.2 * max(1, len(shares))), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(max(1, len(shares)), 2, squeeze=False)
    for (share, hot), line in zip(shares, panels, strict=False):
        chosen = [m for m in runs if (m.case.share, m.case.hot) == (share, hot)]
        _curves(line[0], chosen, "latency, p50, s", lambda second: second.p50)
        _curves(line[1], chosen, "latency, p99, s", lambda second: second.p99)
        line[0].set_title(
            f"{query.upper()}, {share:.0%} of the sustainable rate, {hot:.0%} hot", loc="left", size=10
        )
    if runs:
        panels[0][0].legend(fontsize=7)
    figure.savefig(path, dpi=120)
    return path


def _curves(axes: Axes, runs: Sequence[Measured], label: str, value: Callable[[Second], float]) -> None:
    for one in runs:
        way, seconds = one.case.way, one.figures.seconds
        axes.plot(
            [second.at for second in seconds],
            [value(second) for second in seconds],
            STYLES[way.order],
            color=COLOURS[way.protocol],
            lw=1.1,
            label=str(way),
        )
    axes.axvline(0, color="#888888", lw=0.8)
    axes.set_yscale("log")
    axes.set_xlabel("seconds from the kill")
    axes.set_ylabel(label)
    axes.grid(axis="y", lw=0.3)
