"""One share of available queries for status, simulation and reports."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from reprise.controller.local.report.latency import Series, weighted_share
from reprise.controller.status import document
from reprise.controller.status.share import priority_share
from reprise.controller.zookeeper.observation import Observation
from reprise.scheduler import Event, Incident, Kind, Phase, QueryTimeline
from reprise.scheduler.incident import EventName
from tests.support import oncall


def test_what_is_up_counts_by_its_priority() -> None:
    assert priority_share([(4, True), (3, False), (2, True), (1, False)]) == 0.6
    assert priority_share([(3, False)]) == 0.0
    assert priority_share([]) == 1.0, "where nothing can be missing nothing is"


def test_on_a_grid_it_is_the_same_at_each_time() -> None:
    up = {"a": [True, True, False], "b": [True, False, False], "c": [True, True, True]}
    priorities = {"a": 4, "b": 3, "c": 1}
    found = weighted_share(
        {q: Series(q, priorities[q], 0.0, np.zeros(3), np.array(at, np.bool_)) for q, at in up.items()}
    )
    by_time = [priority_share([(priorities[q], at[k]) for q, at in up.items()]) for k in range(3)]
    assert found.tolist() == pytest.approx(by_time)
    assert found.dtype == np.float64


def test_the_curve_never_goes_back_in_time_though_a_clock_does() -> None:
    """The second incident was opened, and closed, by a coordinator whose clock is far behind."""

    def incident(number: int, opened: float, query: str) -> Incident:
        events = (
            Event(opened, EventName.OPENED), Event(opened + 1, EventName.QUERIES_LOST, query),
            Event(opened + 5, EventName.QUERIES_CAUGHT_UP, query), Event(opened + 6, EventName.CLOSED),
        )  # fmt: skip
        times = {query: QueryTimeline(opened, opened + 4, opened + 5)}
        return Incident(
            f"inc-{number:06d}", Kind.CORRELATED, Phase.CLOSED, opened, 0, 1, 3, opened, queries=times, events=events,
            closed_at=opened + 6,
        )  # fmt: skip

    first, second = incident(3, oncall.START, "count.3"), incident(9, oncall.START - 500, "count.1")
    seen: Observation = replace(
        oncall.steady(), time=oncall.START + 2, closed={one.id: one for one in (second, first)}
    )
    points = document(oncall.TOPOLOGY, seen).availability.points
    times = [point.time for point in points]
    assert times == sorted(times) and times[-1] >= seen.time
    assert 0.6 in [point.share for point in points], "while the most valuable query was down"
    assert points[-1].share == 1.0
