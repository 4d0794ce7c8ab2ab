"""Tables of `benchmarks.availability`, beside the figures of Hwang et al. and their simulation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from benchmarks import ha_model
from benchmarks.availability_cases import (
    CHECKPOINT,
    FIG_6,
    FIG_7,
    MODES,
    MS_A_BATCH,
    TABLE_6,
    TABLE_7,
    TABLE_8,
    TWO_OF_FOUR,
    Case,
    cases,
)
from benchmarks.availability_measure import LOSS_S, Figures
from benchmarks.ha_simulation import Query, Setting, recovery_ms
from benchmarks.recovery_show import Grid

RUNS, SEED = 400, 1
"""Of the simulation."""
TITLES = {
    TABLE_6: "Table 6: one operator, by mode",
    TABLE_7: "Table 7: windows (Table 6 has that of 100)",
    TABLE_8: "Table 8: advances (Table 6 has that of 10)",
    FIG_6: "Fig. 6: intervals of a passive standby (Table 6 has that of 50 ms)",
    FIG_7: "Fig. 7: chains of aggregates on one node (Table 6 has that of 1)",
}
NO_BYTES = "Bytes of messages by mode: there are no runs on record yet that count them."
OVERHEAD = (
    "", "theirs, %", "by their counting, %", "here, %", "rows between nodes, bytes a batch", "to standbys, bytes a batch",
    "told to nodes, bytes a batch", "runs",
)  # fmt: skip
COLUMNS = (
    "", "theirs, ms", "simulated, ms", "replay by their Table 3, ms", "replay here, ms", "detection, s", "plan, s",
    "behind the plan, s", "still, s", "CPU a batch, ms", "as promised", "runs",
)  # fmt: skip


def grids(found: Sequence[Figures]) -> list[Grid]:
    """One table for each of theirs of which something was run, that of bytes where they were counted, and that of two of
    four nodes."""
    known = {(c.table, c.row, c.mode): c for c in cases(frozenset({*TITLES, TWO_OF_FOUR}), wide=True)}
    tables = []
    for table, title in TITLES.items():
        mine = dict.fromkeys((f.table, f.row, f.mode) for f in found if f.table == table)
        rows = [_row(known[key], [f for f in found if (f.table, f.row, f.mode) == key]) for key in mine]
        if rows:
            tables.append(Grid(title, COLUMNS, tuple(rows)))
    counted = [f for f in found if f.overhead is not None]
    if counted:
        mine = dict.fromkeys((f.table, f.row, f.mode) for f in counted)
        rows = [
            _overhead(known[key], [f for f in counted if (f.table, f.row, f.mode) == key]) for key in mine
        ]
        tables.append(Grid("Bytes for availability over those of the sources' rows", OVERHEAD, tuple(rows)))
    if two := [f for f in found if f.table == TWO_OF_FOUR]:
        tables.append(_two_of_four(two))
    return tables


def _row(case: Case, runs: Sequence[Figures]) -> tuple[str, ...]:
    setting = replace(Setting(), interval_ms=float(case.interval))
    query = _query(case)
    mode = MODES[case.mode]
    simulated = recovery_ms(setting, query, RUNS, SEED)[mode] if mode else None
    replayed = [None if f.again is None else float(f.again * MS_A_BATCH) for f in runs]
    return (
        f"{case.row}, {case.mode}",
        _text(_theirs(case, mode), 2),
        _text(simulated, 1),
        _text(_replay(case, mode, setting, query), 0),
        _median(replayed, 0),
        _median([f.detection_s for f in runs], 2),
        _median([f.plan_s for f in runs], 2),
        _median([f.after_s for f in runs], 2),
        _median([f.still_s for f in runs], 2),
        _median([f.cpu_ms for f in runs], 1),
        "yes" if all(f.same for f in runs) else "**no**",
        str(len(runs)),
    )


def _overhead(case: Case, runs: Sequence[Figures]) -> tuple[str, ...]:
    setting = replace(Setting(), interval_ms=float(case.interval))
    mode = MODES[case.mode]
    return (
        f"{case.table}: {case.row}, {case.mode}",
        _text(_their_overhead(case, mode), 2),
        _text(ha_model.overhead(mode, setting, _query(case)) if mode else None, 2),
        _median([f.overhead for f in runs], 2),
        _median([f.rows_b for f in runs], 0),
        _median([f.standbys_b for f in runs], 0),
        _median([f.acknowledgements_b for f in runs], 0),
        str(len(runs)),
    )


def _their_overhead(case: Case, mode: str | None) -> float | None:
    """Their overhead in %, where it is printed."""
    if mode is not None and case.table == TABLE_6:
        return ha_model.TABLE_6[_query(case)][mode][0]
    if mode == ha_model.PS and case.table == TABLE_7:
        return ha_model.TABLE_7[case.window][0]
    return ha_model.TABLE_8[case.advance][0] if mode == ha_model.PS and case.table == TABLE_8 else None


def _query(case: Case) -> Query:
    if case.operator == "aggregate":
        return Query("aggregate", case.window, case.advance, case.chain)
    return ha_model.FILTER if case.operator == "filter" else ha_model.UNION


def _theirs(case: Case, mode: str | None) -> float | None:
    """Their recovery time in ms, where it is printed."""
    if mode is None:
        return None
    if case.table == TABLE_6:
        return ha_model.TABLE_6[_query(case)][mode][1]
    if case.table in (TABLE_7, TABLE_8):
        table, at = (
            (ha_model.TABLE_7, case.window) if case.table == TABLE_7 else (ha_model.TABLE_8, case.advance)
        )
        _, passive, upstream = table[at]
        return passive if mode == ha_model.PS else upstream
    return ha_model.FIG_7.get(case.chain) if case.table == FIG_7 and mode == ha_model.UB else None


def _replay(case: Case, mode: str | None, setting: Setting, query: Query) -> float | None:
    """Q of their Table 3, in ms of their stream."""
    if mode == ha_model.UB:
        return query.state + setting.interval_ms + 2 * setting.delay_ms
    return setting.interval_ms / 2 if mode == ha_model.PS else None


def _two_of_four(found: Sequence[Figures]) -> Grid:
    columns = (
        "top three queries", f"availability lost in {LOSS_S:.0f} s, s", "of checkpoint", "top three still, s",
        "CPU a batch, ms", "of checkpoint", "batches marked", "as promised", "runs",
    )  # fmt: skip
    usual = [f for f in found if f.mode == CHECKPOINT]
    rows = []
    for mode in dict.fromkeys(f.mode for f in found):
        runs = [f for f in found if f.mode == mode]
        rows.append(
            (
                mode,
                _median([f.lost_s for f in runs], 2),
                _ratio([f.lost_s for f in runs], [f.lost_s for f in usual]),
                _median([f.still_s for f in runs], 2),
                _median([f.cpu_ms for f in runs], 1),
                _ratio([f.cpu_ms for f in runs], [f.cpu_ms for f in usual]),
                _median([float(f.marked) for f in runs], 0),
                "yes" if all(f.same for f in runs) else "**no**",
                str(len(runs)),
            )
        )
    return Grid("Two of four nodes are lost, five queries", columns, tuple(rows))


def _text(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def _middle(values: Sequence[float | None]) -> float | None:
    seen = [v for v in values if v is not None]
    return median(seen) if seen else None


def _median(values: Sequence[float | None], digits: int) -> str:
    return _text(_middle(values), digits) or "-"


def _ratio(values: Sequence[float | None], others: Sequence[float | None]) -> str:
    value, other = _middle(values), _middle(others)
    return "-" if value is None or not other else f"{value / other:.2f}"


def markdown(found: Sequence[Figures], conditions: str) -> str:
    """All tables.  `conditions`: in which they were taken, a sentence."""
    bytes_ = [] if any(f.overhead is not None for f in found) else [NO_BYTES, ""]
    return "\n".join([conditions, "", *bytes_, *(grid.markdown() for grid in grids(found))])
