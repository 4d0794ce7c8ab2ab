"""The steady lag of queries, as it was before a failure was noticed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from reprise.algorithms.failure import Failure
from reprise.controller.coordinator.lag_window import CALM_S, DETECTION_S, MOST, SAMPLES, LagWindow
from reprise.scheduler import Desired, Incident, Progress
from tests.support.record_samples import DESIRED, INCIDENT, PROGRESS

CALM = replace(DESIRED, paused=False)


def report(lag: int, horizon: int = 100, **changes: object) -> Progress:
    positions = {"source.0": horizon, "sink.0": horizon - lag}
    fields = {"failed": {}, "horizon": horizon, "positions": positions, **changes}
    return replace(PROGRESS, **fields)  # type: ignore[arg-type]


def watched(
    lags: list[int],
    desired: Desired = CALM,
    incident: Incident | None = None,
    window: LagWindow | None = None,
    at: float = 0.0,
) -> LagWindow:
    """One look a second, at two batches a second if the lag stays."""
    window = window or LagWindow()
    horizon = 1000 + 2 * int(at)
    for second, lag in enumerate(lags):
        horizon += 2 + max(0, lag - lags[second - 1] if second else 0)
        window.note(at + second, ["sink.0"], report(lag, horizon), desired, incident)
    return window


def test_nothing_is_known_before_the_topology_is_calm() -> None:
    assert LagWindow().steady(0.0) == {}
    assert watched([9] * int(CALM_S)).steady(CALM_S) == {}


def test_a_query_that_swings_is_known_by_the_upper_end_of_its_swing() -> None:
    assert watched([2, 7] * 20).steady(40.0) == {"sink.0": 7}


def test_what_a_failure_does_to_lags_before_it_is_noticed_does_not_count() -> None:
    lags = [3] * 30 + [10 * k for k in range(1, int(DETECTION_S))]
    assert watched(lags).steady(float(len(lags) - 1)) == {"sink.0": 3}


def test_lags_of_an_incident_and_of_the_catching_up_after_it_do_not_count() -> None:
    window = watched([3] * 30)
    watched([80] * 40, incident=INCIDENT, window=window, at=30.0)
    watched([80] * int(CALM_S), replace(CALM, seq=9), window=window, at=70.0)
    assert window.steady(90.0) == {"sink.0": 3}


def test_what_is_paused_ended_or_failed_says_nothing_of_a_steady_lag() -> None:
    window = watched([3] * 30)
    for second in range(30, 60):
        newest = 1200 + 2 * second
        window.note(second, ["sink.0"], report(20, newest, ended=True), CALM, None)
        window.note(
            second,
            ["sink.0"],
            report(20, newest, failed={"source.0": Failure.parse("node lost")}),
            CALM,
            None,
        )
        window.note(second, ["sink.0"], report(20, newest, seq=CALM.seq - 1), CALM, None)
        window.note(second, ["sink.0"], report(20, newest, driver="2", seq=CALM.seq + 7), CALM, None)
        window.note(second, ["sink.0"], report(20, newest, positions={}), CALM, None)
    assert window.steady(60.0) == {"sink.0": 3}


def test_a_new_driver_has_to_come_to_rest_although_its_number_is_the_same() -> None:
    """Numbers begin anew where the records were lost: what was decided for another driver is another state."""
    window = watched([3] * 30)
    other = replace(CALM, driver="2")
    for second in range(30, 30 + int(CALM_S)):
        window.note(second, ["sink.0"], report(20, 1200 + 2 * second, driver="2"), other, None)
    assert window.steady(60.0) == {"sink.0": 3}


def test_an_output_that_stands_still_says_nothing_of_a_steady_lag() -> None:
    window = watched([3] * 30)
    last = 1000 + 2 * 30 - 3
    for second in range(30, 70):
        positions = {"source.0": last + 2 * second, "sink.0": last}
        window.note(second, ["sink.0"], report(0, last + 2 * second, positions=positions), CALM, None)
    assert window.steady(70.0) == {"sink.0": 3}


def test_an_output_that_has_shown_all_that_there_is_need_not_move() -> None:
    """With a minute between two batches most looks find it where it was."""
    window = LagWindow()
    for second in range(60):
        window.note(second, ["sink.0"], report(0, 100), CALM, None)
    assert window.steady(60.0) == {"sink.0": 0}


def test_a_topology_that_is_too_slow_for_its_input_has_no_large_steady_lag() -> None:
    assert watched([256] * 60).steady(60.0) == {"sink.0": MOST}


def test_other_outputs_are_another_topology_and_the_memory_is_bounded() -> None:
    window = watched([3] * 500)
    assert len(window._samples) == SAMPLES
    assert all(lags.dtype == np.int32 for _, lags in window._samples)
    window.note(500.0, ["other.0"], report(3), CALM, None)
    assert window.steady(500.0) == {}
