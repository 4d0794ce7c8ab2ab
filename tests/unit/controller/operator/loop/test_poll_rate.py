"""How often one looks when there are many."""

from __future__ import annotations

import pytest

from reprise.controller.operator.loop.poll_rate import (
    LONGEST_S,
    LONGEST_WHOLE_S,
    SHARE,
    SHORTEST_S,
    SHORTEST_WHOLE_S,
    WHOLE_SHARE,
    PollKind,
    PollRate,
)


@pytest.mark.parametrize("look", PollKind)
def test_a_few_are_looked_at_as_often_as_is_useful(look: PollKind) -> None:
    pace = PollRate()
    for _ in range(3):
        pace.enter(look)
    pace.note(look, 0.002)
    assert pace.between_s(look) == SHORTEST_S[look]


@pytest.mark.parametrize("look", PollKind)
def test_many_share_what_there_is(look: PollKind) -> None:
    pace, count, cost = PollRate(), 500, 0.001
    for _ in range(count):
        pace.enter(look)
    for _ in range(200):
        pace.note(look, cost)
    between = pace.between_s(look)
    assert between == pytest.approx(min(LONGEST_S[look], count * cost / SHARE[look]), rel=0.01)
    for _ in range(count):
        pace.leave(look)
    assert pace.between_s(look) == SHORTEST_S[look]


def test_one_slow_look_does_not_slow_down_all() -> None:
    pace = PollRate()
    for _ in range(300):
        pace.enter(PollKind.POLL)
    for _ in range(100):
        pace.note(PollKind.POLL, 0.001)
    before = pace.between_s(PollKind.POLL)
    pace.note(PollKind.POLL, 0.02)
    assert pace.between_s(PollKind.POLL) < 2.5 * before


@pytest.mark.parametrize(
    ("count", "between"),
    [(3, SHORTEST_WHOLE_S), (1000, 1000 * 0.010 / WHOLE_SHARE), (10_000, LONGEST_WHOLE_S)],
)
def test_quiet_topologies_are_looked_at_as_a_whole_as_often_as_there_is_time(
    count: int, between: float
) -> None:
    pace = PollRate()
    for _ in range(count):
        pace.enter(PollKind.POLL)
    pace.note(PollKind.DECIDE, 0.004)
    pace.note(PollKind.RECONCILE, 0.006)
    assert pace.whole_s() == pytest.approx(between)
