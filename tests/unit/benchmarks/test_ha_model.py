"""The model of Hwang et al.: overheads are met exactly, times within a tenth or with a reason."""

from __future__ import annotations

import pytest

from benchmarks.ha_model import EXPLAINED, OFF_BY, TOLERANCE, Cell, cells
from benchmarks.ha_simulation import Setting

SETTING = Setting()


@pytest.fixture(scope="module")
def compared() -> list[Cell]:
    return list(cells(SETTING, runs=120, seed=1))


def test_overheads_are_met_to_their_last_digit_or_named(compared: list[Cell]) -> None:
    """Rounded as theirs are printed; 0.005 more where Table 7 has 111.54 and 111.55 for what does not change."""
    overheads = [cell for cell in compared if cell.counted]
    assert len(overheads) == 19
    for cell in overheads:
        digits = 1 if cell.table == "Table 8" else 2
        slack = 0.5 * 10**-digits + (0.005 if cell.table == "Table 7" else 0.0) + 1e-9
        assert abs(cell.model - cell.theirs - OFF_BY.get(cell.key, 0.0)) <= slack, cell


def test_simulated_recovery_is_within_a_tenth_or_explained(compared: list[Cell]) -> None:
    times = [cell for cell in compared if cell.simulated is not None]
    assert len(times) == 30
    assert [cell for cell in compared if not cell.counted and cell.simulated is None] == []
    far = {cell.key: cell.deviation for cell in times if abs(cell.deviation or 0.0) > TOLERANCE}
    assert far.keys() == EXPLAINED.keys()
    for key, deviation in far.items():
        assert EXPLAINED[key].least <= (deviation or 0.0) <= EXPLAINED[key].most, key
