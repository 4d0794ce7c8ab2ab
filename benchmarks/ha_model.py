"""Recovery time and overhead of upstream backup, active and passive standby: formulas and a simulation, beside the
figures of Hwang et al.

    python -m benchmarks.ha_model [--runs 400] [--seed 1] [--indicators 5] [--plot FILE.png] [--output text|json]

Source: J.-H. Hwang, M. Balazinska, A. Rasin, U. Cetintemel, M. Stonebraker, S. Zdonik, "High-Availability Algorithms for
Distributed Stream Processing", Tables 3 and 5 to 8, figs. 6 and 7.  "model" is Table 3 literally, with p of Table 5: K +
Q p with K = r + d; Q = M rate / 2 (passive standby), state + M rate + 2 d rate (upstream backup); active standby sends M
rate_out / 2 + 2 d rate_out results again.  "simulated" is `benchmarks/ha_simulation.py`, which says what is modelled.
Overheads are bytes of messages for availability over those of the source's tuples, by counting what an interval sends.

Recovery times leave out detection, as theirs do: three keep-alives of 100 ms, 250 ms on average and the network.  The exit
code is 0 whatever is found: this is no test.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from rich.console import Console

from benchmarks import command
from benchmarks.ha_simulation import (
    IDENTIFIER,
    MODES,
    TUPLE,
    Query,
    Setting,
    checkpoint_bytes,
    recovery_ms,
)
from benchmarks.recovery_show import COLOURS, Grid

UB, AS, PS = MODES
FILTER = Query("filter")
AGGREGATE = Query("aggregate", 100, 10)
UNION = Query("union", streams=2)
INTERVALS = (25.0, 50.0, 100.0, 150.0, 200.0)

TABLE_6: Mapping[Query, Mapping[str, tuple[float, float]]] = {
    FILTER: {UB: (0.64, 47.62), AS: (100.96, 1.80), PS: (101.27, 45.88)},
    AGGREGATE: {UB: (0.64, 69.86), AS: (100.96, 0.07), PS: (111.55, 48.88)},
    UNION: {UB: (1.28, 50.92), AS: (101.91, 1.82), PS: (101.90, 47.24)},
}
"""Overhead in %, recovery in ms."""
TABLE_7 = {
    100: (111.55, 48.9, 69.9), 200: (111.55, 51.7, 98.9), 300: (111.54, 54.6, 138.7),
    400: (111.54, 60.0, 188.5), 500: (111.54, 63.9, 248.3),
}  # fmt: skip
"""Window: overhead of passive standby in %, its recovery and that of upstream backup in ms."""
TABLE_8 = {
    100: (102.6, 47.5, 62.6), 50: (103.6, 47.5, 61.4), 25: (105.6, 47.6, 61.3), 10: (111.6, 48.8, 69.9),
    5: (121.5, 51.6, 83.8),
}  # fmt: skip
"""Advance: as in Table 7."""
FIG_7 = {5: 170.0}
"""Operators in a chain: recovery of upstream backup in ms, the only one that the text names."""

TOLERANCE = 0.10


@dataclass(frozen=True, slots=True)
class Explained:
    """Why a figure is further than `TOLERANCE` from theirs, and the deviations that this may have."""

    least: float
    most: float
    why: str


EXPLAINED: Mapping[tuple[str, str, str], Explained] = {
    ("Table 6", "aggregate", f"{AS}, recovery"): Explained(
        1.3,
        2.4,
        "0.07 ms is less than the network takes for three results; from the 1.80 ms of the filter, which has ten times "
        "the results, 0.18 ms would follow, and a little more is simulated",
    ),
    ("Fig. 7", "5 aggregates", f"{UB}, recovery"): Explained(
        -0.22,
        -0.17,
        "which windows the aggregates behind the first one have is not said; here 100 ms each, on results that come every "
        "10 ms",
    ),
}
OFF_BY: Mapping[tuple[str, str, str], float] = {
    ("Table 6", "filter", f"{PS}, overhead"): 0.01,
    ("Table 6", "union", f"{AS}, overhead"): 0.01,
    ("Table 6", "union", f"{PS}, overhead"): 0.02,
}
"""Overheads that are not theirs to the last digit printed: ours less theirs, in points of %."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One figure of theirs, the model's and the simulation's; in % or ms.  An overhead is counted and not simulated."""

    table: str
    row: str
    what: str
    theirs: float
    model: float
    simulated: float | None = None

    @property
    def key(self) -> tuple[str, str, str]:
        """What `EXPLAINED` names it by."""
        return self.table, self.row, self.what

    @property
    def counted(self) -> bool:
        """Whether this is an overhead."""
        return self.what.endswith("overhead")

    @property
    def deviation(self) -> float | None:
        """Of the simulated time or the counted overhead from their figure, as a share of it; None: not simulated."""
        found = self.model if self.counted else self.simulated
        return None if found is None else found / self.theirs - 1


def overhead(mode: str, setting: Setting, query: Query, precise: bool = False) -> float:
    """Bytes for availability over bytes of the source's tuples, in %.

    Upstream backup: two acknowledgements an interval and stream.  Active standby: all tuples again, these
    acknowledgements, and an identifier from primary to secondary.  `precise`: with upstream backup each tuple carries an
    identifier (section 7.2).
    """
    tuples = setting.tuples * TUPLE
    acknowledgement = 100 * query.streams * IDENTIFIER / tuples
    if mode == UB:
        return 2 * acknowledgement + (100 * IDENTIFIER / TUPLE if precise else 0.0)
    if mode == AS:
        return 100 + 3 * acknowledgement
    return 100 * checkpoint_bytes(setting, query) / tuples


def model_ms(mode: str, setting: Setting, query: Query) -> float:
    """Recovery time by Table 3."""
    if mode == AS:
        return (
            (setting.tuples / 2 + 2 * setting.delay_ms * setting.rate)
            * query.selectivity
            * setting.transmission_ms
        )
    again = setting.tuples / 2
    if mode == UB:
        again = query.state + setting.tuples + 2 * setting.delay_ms * setting.rate
    return setting.redirect_ms + setting.delay_ms + again * query.processing_ms(setting)


def cells(setting: Setting, runs: int, seed: int) -> Iterator[Cell]:
    """Tables 6 to 8, and what the text says of fig. 7."""
    simulate = partial(recovery_ms, setting, runs=runs, seed=seed)
    for query, modes in TABLE_6.items():
        found = simulate(query)
        for mode, (bytes_, ms) in modes.items():
            yield Cell("Table 6", query.name, f"{mode}, overhead", bytes_, overhead(mode, setting, query))
            yield Cell(
                "Table 6",
                query.name,
                f"{mode}, recovery",
                ms,
                model_ms(mode, setting, query),
                found[mode],
            )
    varied = [("Table 7", f"window {w}", replace(AGGREGATE, window=w), TABLE_7[w]) for w in TABLE_7]
    varied += [("Table 8", f"advance {a}", replace(AGGREGATE, advance=a), TABLE_8[a]) for a in TABLE_8]
    for table, row, query, (bytes_, passive, upstream) in varied:
        found = simulate(query)
        yield Cell(table, row, f"{PS}, overhead", bytes_, overhead(PS, setting, query))
        for mode, ms in ((PS, passive), (UB, upstream)):
            yield Cell(table, row, f"{mode}, recovery", ms, model_ms(mode, setting, query), found[mode])
    for operators, ms in FIG_7.items():
        query = replace(AGGREGATE, operators=operators)
        model = model_ms(UB, setting, query)
        yield Cell("Fig. 7", f"{operators} aggregates", f"{UB}, recovery", ms, model, simulate(query)[UB])


@dataclass(frozen=True, slots=True)
class Point:
    """One point of a curve of fig. 6 or 7: overhead in %, recovery in ms, simulated."""

    figure: str
    at: str
    mode: str
    overhead: float
    recovery: float


def points(setting: Setting, runs: int, seed: int) -> Iterator[Point]:
    """Curves of figs. 6 and 7: rollback recovery, and precise recovery where it costs more."""
    varied = [("Fig. 6", f"{m:g} ms", replace(setting, interval_ms=m), AGGREGATE) for m in INTERVALS]
    varied += [("Fig. 7", f"{n} aggregates", setting, replace(AGGREGATE, operators=n)) for n in range(1, 6)]
    for figure, at, changed, query in varied:
        found = recovery_ms(changed, query, runs, seed)
        for mode in MODES:
            yield Point(figure, at, mode, overhead(mode, changed, query), found[mode])
        yield Point(figure, at, f"{UB}, precise", overhead(UB, changed, query, precise=True), found[UB])
        yield Point(
            figure, at, f"{AS}, precise", overhead(AS, changed, query), found[AS] + setting.redirect_ms
        )


def main(arguments: list[str] | None = None) -> int:
    options = _options(arguments)
    setting = Setting(indicators_every=options.indicators)
    compared = list(cells(setting, options.runs, options.seed))
    curves = list(points(setting, options.runs, options.seed))
    if options.plot is not None:
        plot(curves, options.plot)
    if options.output == "json":
        figures = {"cells": [asdict(c) for c in compared], "points": [asdict(p) for p in curves]}
        sys.stdout.write(json.dumps(figures, indent=1) + "\n")
        return 0
    console = Console(width=None if sys.stdout.isatty() else 140)
    for table in dict.fromkeys(cell.table for cell in compared):
        _table(table, [cell for cell in compared if cell.table == table]).show(console)
    for figure in dict.fromkeys(point.figure for point in curves):
        _curves(figure, [point for point in curves if point.figure == figure]).show(console)
    times = [cell for cell in compared if cell.simulated is not None]
    far = [cell for cell in times if abs(cell.deviation or 0.0) > TOLERANCE]
    command.say(
        console,
        [
            f"**{len(times) - len(far)} of {len(times)} simulated recovery times within {TOLERANCE:.0%} of theirs**",
            *(
                f"{' / '.join(c.key)}: {EXPLAINED[c.key].why if c.key in EXPLAINED else 'not explained'}"
                for c in far
            ),
        ],
    )
    return 0


def _table(title: str, compared: Sequence[Cell]) -> Grid:
    head = ("", "theirs", "model", "simulated", "deviation")
    rows = tuple(
        (
            f"{cell.row}: {cell.what}, {'%' if cell.counted else 'ms'}",
            f"{cell.theirs:.2f}",
            f"{cell.model:.2f}",
            "" if cell.simulated is None else f"{cell.simulated:.2f}",
            "" if cell.deviation is None else f"{cell.deviation:+.1%}",
        )
        for cell in compared
    )
    return Grid(title, head, rows)


def _curves(title: str, found: Sequence[Point]) -> Grid:
    modes = tuple(dict.fromkeys(point.mode for point in found))
    at = {(point.at, point.mode): point for point in found}
    rows = tuple(
        (where, *(f"{at[where, mode].overhead:.1f} / {at[where, mode].recovery:.1f}" for mode in modes))
        for where in dict.fromkeys(point.at for point in found)
    )
    return Grid(f"{title}: overhead in % / recovery in ms, simulated", ("", *modes), rows)


def plot(found: Sequence[Point], path: Path) -> None:
    """Both figures beside each other, as they are printed there: recovery time over overhead."""
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    names = dict.fromkeys(point.figure for point in found)
    for axes, name in zip(figure.subplots(1, len(names), squeeze=False)[0], names, strict=True):
        mine = [point for point in found if point.figure == name]
        for colour, mode in zip(
            (*COLOURS.values(), "#6c3483"), dict.fromkeys(p.mode for p in mine), strict=True
        ):
            line = [point for point in mine if point.mode == mode]
            axes.plot(
                [p.overhead for p in line], [p.recovery for p in line], "o-", color=colour, ms=4, label=mode
            )
        axes.set(xlabel="overhead, %", ylabel="recovery, ms", ylim=(0, None), xlim=(-5, None))
        axes.set_title(f"{name}, simulated", loc="left", size=11)
        axes.grid(lw=0.3)
    axes.legend(fontsize=8)
    figure.savefig(path, dpi=110)


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.ha_model",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--runs", type=int, default=400, help="failures for each figure")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--indicators",
        type=int,
        default=Setting().indicators_every,
        help="results from one with identifiers to the next",
    )
    parser.add_argument("--plot", type=Path, help="figs. 6 and 7 as a picture")
    parser.add_argument("--output", choices=("text", "json"), default="text")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
