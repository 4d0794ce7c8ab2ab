"""The model of Hwang et al.: what can be met exactly is met, the rest within a tenth or with a reason."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks import ha_model
from benchmarks.ha_model import (
    AGGREGATE,
    AS,
    EXPLAINED,
    FILTER,
    OFF_BY,
    PS,
    TOLERANCE,
    UB,
    UNION,
    Cell,
    cells,
)
from benchmarks.ha_simulation import (
    Failure,
    Query,
    Setting,
    detected,
    failure,
    in_turn,
    passive_standby,
    recovery_ms,
    replayed_from,
    upstream_backup,
)

SETTING = Setting()


@pytest.fixture(scope="module")
def compared() -> list[Cell]:
    return list(cells(SETTING, runs=120, seed=1))


def test_all_figures_of_tables_6_to_8_are_there(compared: list[Cell]) -> None:
    counts = {
        table: sum(cell.table == table for cell in compared) for table in ("Table 6", "Table 7", "Table 8")
    }
    assert counts == {"Table 6": 18, "Table 7": 15, "Table 8": 15}


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


def test_two_streams_with_a_window_are_not_simulated() -> None:
    with pytest.raises(ValueError, match="streams"):
        recovery_ms(SETTING, replace(AGGREGATE, streams=2), 1, 1)


@pytest.mark.parametrize(
    ("again", "served"), [([0, 0], 1), ([3], 4), ([2, 5], 5), ([5, 2], 6), ([2, 2], 5), ([4, 1, 3], 5)]
)
def test_streams_are_served_in_turn_up_to_the_first_new_tuple(again: list[int], served: int) -> None:
    assert in_turn(again) == served


def test_each_stream_of_a_union_is_sent_again_from_its_own_acknowledgement() -> None:
    """Counted by hand: tuple k is done at k ms, odd ones are of the first stream, even ones of the second."""
    phases = 10.0, 30.0, 20.0, 5.0
    failed = Failure(SETTING, UNION, 1000.0, np.arange(1.0, 1001.0), phases, 0.0, np.arange(1000) % 2)
    # level 1 of 980 and of 955 have arrived, which rest on level 0 of 960 and of 910
    assert [failed.result_given_up(stream) for stream in (0, 1)] == [955, 905]
    # 22 of the first and 48 of the second were done since then
    assert upstream_backup(failed) == pytest.approx(45 + (2 * 22 + 1) * 0.035)
    # the checkpoint of 970: 15 and 15
    assert passive_standby(failed) == pytest.approx(45 + (2 * 15 + 1) * 0.035)


@pytest.mark.parametrize(
    ("mode", "query", "expected"),
    [
        (PS, FILTER, 45.25),
        (PS, AGGREGATE, 47.5),
        (UB, FILTER, 45.6),
        (UB, AGGREGATE, 61.0),
        (AS, FILTER, 0.875),
    ],
)
def test_table_3_with_the_values_of_table_5(mode: str, query: Query, expected: float) -> None:
    assert ha_model.model_ms(mode, SETTING, query) == pytest.approx(expected)


def test_formula_and_filling_windows_bracket_large_states(compared: list[Cell]) -> None:
    """From windows of 300 on the state costs more to rebuild than simulated, where windows fill up, and less than by
    formula."""
    rows = {f"window {w}" for w in (300, 400, 500)}
    for cell in compared:
        if cell.row in rows and cell.what == f"{UB}, recovery":
            assert cell.simulated is not None
            assert cell.simulated < cell.theirs < cell.model


@pytest.mark.parametrize(
    ("at", "phase", "known"),
    [
        (1000.0, 90.0, 1300.0),  # the request of 990 is answered: those of 1090, 1190 and 1290 are not
        (1000.0, 96.0, 1206.0),  # the request of 996 comes too late
        (1000.0, 10.0, 1220.0),
        (3.0, 50.0, 260.0),  # it fails before it is asked at all
    ],
)
def test_third_missing_response_in_a_row_is_the_failure(at: float, phase: float, known: float) -> None:
    assert detected(at, phase, delay_ms=5.0) == pytest.approx(known)


def test_detection_takes_250_ms_and_the_network_and_is_in_no_recovery_time() -> None:
    found = recovery_ms(SETTING, FILTER, 300, 1)
    assert found["detection"] == pytest.approx(250 + SETTING.delay_ms, abs=7)  # a mean's deviation is 1.7
    assert found[AS] < 3


def test_node_serves_one_tuple_at_a_time_in_order() -> None:
    failed = failure(SETTING, replace(AGGREGATE, window=500), np.random.default_rng(3))
    service = failed.query.service_ms(SETTING, 1, failed.done)
    assert np.all(np.diff(failed.ended) >= service[1:] - 1e-9)
    assert failed.ended[-1] <= failed.at
    assert service[-1] == pytest.approx(0.525)  # 50 windows of a filter's cost, and the network


def failed_at(at: float, phases: tuple[float, float, float] = (10.0, 30.0, 20.0)) -> Failure:
    """A run of the aggregate in which tuple k is done at k ms."""
    ended = np.arange(1.0, at + 1)
    return Failure(SETTING, AGGREGATE, at, ended, phases, 0.0)


@pytest.mark.parametrize(
    ("at", "phases", "first"),
    [
        # level 1 of 980 has arrived, level 0 of 960 at 965, results up to 955 were there; 950 carried indicators
        (1000.0, (10.0, 30.0, 20.0), 851),
        (
            984.0,
            (10.0, 30.0, 20.0),
            801,
        ),  # level 1 of 980 arrives at 985: that of 930, level 0 of 910, results up to 905 -> 900
        (
            1000.0,
            (29.0, 30.0, 20.0),
            801,
        ),  # level 0 of 979 is on its way at 980: that of 929, results up to 924 -> 900
        (100.0, (10.0, 30.0, 20.0), 1),  # level 1 of 80, level 0 of 60: the state was empty
    ],
)
def test_upstream_backup_begins_with_the_oldest_tuple_of_the_window(
    at: float, phases: tuple[float, float, float], first: int
) -> None:
    """A window of 100 and an indicator each 50 tuples, counted by hand."""
    failed = failed_at(at, phases)
    assert replayed_from(failed) == first
    sent_again = int(at) // 10 * 10 + 10 - first + 1  # up to the next result
    rebuilt = np.minimum(np.arange(sent_again) // 10 + 1, 10)  # windows that each goes into
    cost = sent_again * 0.025 + 0.010 * float(rebuilt.sum())
    assert upstream_backup(failed) == pytest.approx(45 + cost, abs=0.11)


def test_seldom_acknowledgements_cost_recovery_and_save_bytes() -> None:
    often, seldom = (replace(SETTING, interval_ms=m) for m in (25.0, 200.0))
    for mode in (UB, PS):
        assert recovery_ms(often, AGGREGATE, 60, 1)[mode] < recovery_ms(seldom, AGGREGATE, 60, 1)[mode]
        assert ha_model.overhead(mode, often, AGGREGATE) > ha_model.overhead(mode, seldom, AGGREGATE)
    assert ha_model.overhead(UB, SETTING, AGGREGATE, precise=True) == pytest.approx(16.64)


def test_command_prints_json_and_draws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "ha.png"
    assert ha_model.main(["--runs", "5", "--output", "json", "--plot", str(picture)]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert len(figures["cells"]) == 49
    assert {point["figure"] for point in figures["points"]} == {"Fig. 6", "Fig. 7"}
    assert picture.stat().st_size > 10_000
