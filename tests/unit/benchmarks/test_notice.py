"""What `make bench-notice` makes of a run's report and of the times at which batches were shown."""

from __future__ import annotations

import pytest

from benchmarks.notice import horizon, stood_still, unavailable

REPORT = {
    "failure": 10.0,
    "series": {"elapsed": [0.0, 5.0, 10.0, 12.0, 14.0, 20.0], "share": [0.2, 1.0, 1.0, 0.5, 0.75, 1.0]},
}


def test_the_area_is_that_above_the_availability_from_the_fault_on() -> None:
    assert horizon(REPORT) == 10.0
    assert unavailable(REPORT, 10.0) == pytest.approx(2 * 0.5 + 6 * 0.25)
    assert unavailable(REPORT, 3.0) == pytest.approx(1 * 0.5)


def test_a_query_stands_still_from_the_fault_or_its_last_batch_to_its_next() -> None:
    writes = [
        {"query": q, "at": at} for q, at in [("a", 9.0), ("a", 11.0), ("a", 14.5), ("b", 13.0), ("b", 13.5)]
    ]
    assert stood_still(writes, 10.0) == pytest.approx(3.5)
    assert stood_still(writes[:1], 10.0) == 0.0
