"""Where a stream stops that is drained: at a checkpoint that covers all that may have been shown."""

from __future__ import annotations

import pytest

from reprise.spark_jobs.engine.drain import Drain
from reprise.spark_jobs.engine.punctuation import Punctuations
from reprise.spark_jobs.topology.resource import CheckpointPolicy

POLICY = CheckpointPolicy(None, 10, None, 3)


@pytest.fixture
def drain() -> Drain:
    return Drain(asked=True)


def test_the_next_batch_is_the_last_and_a_punctuation(drain: Drain) -> None:
    punctuations = Punctuations(POLICY, newest=10)
    assert drain.release(20, 14, True, punctuations) == 15
    assert punctuations.open == (15,)
    assert drain.holds(14, 10)
    assert drain.release(30, 15, True, punctuations) == 15, "and it stays so"


def test_a_punctuation_that_was_released_last_is_waited_for(drain: Drain) -> None:
    punctuations = Punctuations(POLICY, newest=10)
    punctuations.demand(14)
    assert drain.release(20, 14, True, punctuations) == 14
    assert punctuations.open == (14,)


def test_nothing_more_is_released_where_the_newest_checkpoint_covers_everything(drain: Drain) -> None:
    punctuations = Punctuations(POLICY, newest=14)
    assert drain.release(20, 14, True, punctuations) == 14
    assert punctuations.open == ()
    assert drain.holds(14, 14) and drain.reached(14, 14)


def test_while_something_is_failed_batches_go_on(drain: Drain) -> None:
    punctuations = Punctuations(POLICY, newest=10)
    assert drain.release(20, 14, False, punctuations) == 20
    assert punctuations.open == ()
    assert not drain.holds(14, 10)


def test_after_a_rollback_it_stops_only_behind_all_that_was_shown_before(drain: Drain) -> None:
    punctuations = Punctuations(POLICY, newest=10)
    assert drain.release(20, 14, True, punctuations) == 15
    drain.back_from(15)
    punctuations.back_to(10)
    assert not drain.holds(10, 10), "batches up to 15 may have been shown"
    assert drain.release(20, 14, True, punctuations) == 20
    assert punctuations.open == ()
    assert drain.release(20, 15, True, punctuations) == 16, "all of them have been made again"
    assert punctuations.open == (16,)
    drain.back_from(3)
    assert drain.shown_by == 15
