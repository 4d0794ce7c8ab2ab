"""The steady lag of queries, as it was before a failure was noticed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from samples import DESIRED, INCIDENT, PROGRESS

from controller.coordination.lag_window import CALM_S, DETECTION_S, SAMPLES, LagWindow
from scheduler import Desired, Incident, Progress

CALM = replace(DESIRED, paused=False)


def report(lag: int, **changes: object) -> Progress:
    fields = {"failed": {}, "horizon": 100, "positions": {"source.0": 100, "sink.0": 100 - lag}, **changes}
    return replace(PROGRESS, **fields)  # type: ignore[arg-type]


def watched(
    lags: list[int],
    desired: Desired = CALM,
    incident: Incident | None = None,
    window: LagWindow | None = None,
    at: float = 0.0,
) -> LagWindow:
    """One look a second."""
    window = window or LagWindow()
    for second, lag in enumerate(lags):
        window.note(at + second, ["sink.0"], report(lag), desired, incident)
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
        window.note(second, ["sink.0"], report(50, ended=True), CALM, None)
        window.note(second, ["sink.0"], report(50, failed={"source.0": "node lost"}), CALM, None)
        window.note(second, ["sink.0"], report(50, seq=CALM.seq - 1), CALM, None)
        window.note(second, ["sink.0"], report(50, positions={}), CALM, None)
    assert window.steady(60.0) == {"sink.0": 3}


def test_other_outputs_are_another_topology_and_the_memory_is_bounded() -> None:
    window = watched([3] * 500)
    assert len(window._samples) == SAMPLES
    assert all(lags.dtype == np.int32 for _, lags in window._samples)
    window.note(500.0, ["other.0"], report(3), CALM, None)
    assert window.steady(500.0) == {}
