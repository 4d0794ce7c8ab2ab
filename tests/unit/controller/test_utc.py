"""Any number is a moment that has a date."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprise.controller.utc import utc


@pytest.mark.parametrize(
    ("seconds", "moment"),
    [
        (0.5, datetime(1970, 1, 1, 0, 0, 0, 500_000, UTC)),
        (1_760_000_000.0, datetime(2025, 10, 9, 8, 53, 20, tzinfo=UTC)),
        (-1.0, datetime(1970, 1, 1, tzinfo=UTC)),
        (1e300, datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)),
        (float("-inf"), datetime(1970, 1, 1, tzinfo=UTC)),
    ],
)
def test_the_nearest_moment_that_has_a_date(seconds: float, moment: datetime) -> None:
    assert utc(seconds) == moment


@given(st.floats(allow_nan=False), st.floats(allow_nan=False))
def test_later_seconds_are_no_earlier_moment(one: float, other: float) -> None:
    assert utc(min(one, other)) <= utc(max(one, other))
