"""The verdict on an expired session, told with a virtual clock."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprise.controller.agent.fencing import LifeRecord, Verdict

TIMEOUT = 3.0
TICK = 0.25


class Clock:
    """An agent's life: `live` ticks, `sleep` does not."""

    def __init__(self) -> None:
        self.now = 100.0
        self.record = LifeRecord(TIMEOUT, self.now)

    def live(self, seconds: float) -> None:
        for _ in range(round(seconds / TICK)):
            self.now += TICK
            self.record.tick(self.now)

    def freeze(self, seconds: float) -> None:
        self.now += seconds

    def suspend(self) -> None:
        self.record.suspended(self.now)

    def lost(self) -> Verdict:
        self.record.tick(self.now)
        return self.record.judge(self.now)


def test_frozen_node_is_fenced() -> None:
    clock = Clock()
    clock.live(10)
    clock.freeze(5)
    clock.suspend()  # the thawed agent finds its connection closed
    assert clock.lost() is Verdict.FENCE


def test_freeze_seen_by_the_verdict_before_the_ticker_counts() -> None:
    clock = Clock()
    clock.live(10)
    clock.suspend()
    clock.freeze(5)
    assert clock.lost() is Verdict.FENCE


def test_outage_of_zookeeper_is_forgiven() -> None:
    clock = Clock()
    clock.live(10)
    clock.suspend()
    clock.live(20)
    assert clock.lost() is Verdict.REGISTER_AGAIN


def test_frozen_during_an_outage_is_fenced() -> None:
    clock = Clock()
    clock.suspend()
    clock.live(10)
    clock.freeze(2)
    clock.live(10)
    assert clock.lost() is Verdict.FENCE


def test_expired_while_zookeeper_was_there_is_fenced() -> None:
    """Starved, not frozen: the others have seen the node leave all the same."""
    clock = Clock()
    clock.live(10)
    clock.suspend()
    clock.live(0.5)
    assert clock.lost() is Verdict.FENCE


def test_a_freeze_survived_long_ago_does_not_count() -> None:
    clock = Clock()
    clock.freeze(2)
    clock.live(30)
    clock.suspend()
    clock.live(20)
    assert clock.lost() is Verdict.REGISTER_AGAIN


def test_a_second_outage_is_measured_afresh() -> None:
    clock = Clock()
    clock.suspend()
    clock.live(20)
    clock.record.connected()
    clock.live(5)
    clock.suspend()
    clock.live(0.5)
    assert clock.lost() is Verdict.FENCE


@pytest.mark.parametrize(
    ("gap", "frozen"), [(TICK, False), (TIMEOUT / 2 - 0.01, False), (TIMEOUT / 2, True), (60, True)]
)
def test_tick_tells_a_freeze(gap: float, frozen: bool) -> None:
    record = LifeRecord(TIMEOUT, 0.0)
    assert record.tick(gap) is frozen


@given(st.lists(st.tuples(st.sampled_from(["live", "freeze"]), st.floats(0.5, 10)), max_size=12))
def test_a_freeze_longer_than_the_session_is_never_forgiven(during_outage: list[tuple[str, float]]) -> None:
    clock = Clock()
    clock.live(5)
    clock.suspend()
    for what, seconds in during_outage:
        getattr(clock, what)(seconds)
        if what == "freeze":
            clock.live(TICK)
    verdict = clock.lost()
    if any(what == "freeze" and seconds >= TIMEOUT for what, seconds in during_outage):
        assert verdict is Verdict.FENCE
