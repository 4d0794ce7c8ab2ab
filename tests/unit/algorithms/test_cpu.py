"""CPU as plans count it."""

from __future__ import annotations

import pytest

from reprise.algorithms.cpu import milli_cpu, under_cap


@pytest.mark.parametrize(
    ("cores", "milli"),
    [(0.0, 1), (0.0004, 1), (0.001, 1), (0.2, 200), (0.29, 290), (1.0006, 1001), (64.0, 64_000)],
)
def test_cores_are_whole_thousandths_and_nothing_has_its_place(cores: float, milli: int) -> None:
    assert milli_cpu(cores) == milli


@pytest.mark.parametrize(
    ("share", "of", "room"),
    [
        (0.8, 1000, 800),
        (0.29, 100, 29),
        (0.7, 999, 699),
        (1.0, 1999, 1999),
        (0.000001, 999_999, 0),
        (0.9, 1, 0),
    ],
)
def test_of_a_node_no_more_is_used_than_its_cap_and_no_rounding_takes_from_it(
    share: float, of: int, room: int
) -> None:
    assert under_cap(share, of) == room
