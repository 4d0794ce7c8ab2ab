"""When a host takes batches for due, by what the driver tells it."""

from __future__ import annotations

import random

import pytest

from reprise.spark_jobs.node.command import Due
from reprise.spark_jobs.node.pacing import DRIFT, Pacing


def test_without_a_word_of_the_driver_everything_is_due() -> None:
    pacing = Pacing()
    assert pacing.due_in(1, 5.0) <= 0
    pacing.told(Due(10, 2.0, 0.5), 1, 5.0)
    assert pacing.due_in(10, 5.0) == pytest.approx(2.0)
    pacing.told(None, 1, 6.0)
    assert pacing.due_in(1000, 6.0) <= 0


@pytest.mark.parametrize("seed", range(20))
def test_orders_that_take_long_do_not_move_what_one_that_came_fast_has_told(seed: int) -> None:
    """The host's clock is `off` from the driver's, and every order takes between 0.02 and 3 s."""
    rng = random.Random(seed)
    pacing, interval_s, off = Pacing(), 0.05, rng.uniform(-1e6, 1e6)
    first = rng.uniform(0.02, 3.0)
    pacing.told(Due(40, 2.0, interval_s), 1, off + first)  # batch 40 is due at 2.0 s of the driver's clock
    late = [first]
    for second in range(1, 50):
        transit = rng.uniform(0.02, 3.0)
        late.append(transit)
        batch = 40 + 20 * second
        pacing.told(Due(batch, 2.0, interval_s), 1, off + second + transit)
        due_in = pacing.due_in(batch, off + second + 2.0)
        assert min(late) - 1e-6 <= due_in <= min(late) + DRIFT * (second + 3.0)


def test_a_clock_that_goes_slower_is_followed() -> None:
    pacing = Pacing()
    for second in range(1000):
        now = second * (1 + DRIFT / 2)
        pacing.told(Due(second + 1, 1.0, 1.0), 1, now)
        assert abs(pacing.due_in(second + 1, now) - 1.0) < 0.01


@pytest.mark.parametrize(("epoch", "interval_s"), [(2, 0.5), (1, 0.25)])
def test_another_driver_or_interval_begins_again(epoch: int, interval_s: float) -> None:
    pacing = Pacing()
    pacing.told(Due(10, 0.0, 0.5), 1, 100.0)
    pacing.told(Due(10, 7.0, interval_s), epoch, 100.0)
    assert pacing.due_in(10, 100.0) == pytest.approx(7.0)
