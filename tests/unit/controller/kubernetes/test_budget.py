"""Writes: no more than the budget, the urgent ones first, and nobody sleeps for an Event."""

from __future__ import annotations

import random
from bisect import bisect_left

import pytest

from reprise.controller.kubernetes.budget import Urgency, WriteBudget
from reprise.controller.kubernetes.errors import BudgetError
from reprise.controller.kubernetes.events import EventReason, Events
from tests.support.fake_api import FakeApi

ABOUT = {"apiVersion": "reprise.dev/v1alpha1", "kind": "StreamTopology", "name": "minimal", "uid": "u1"}


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def drained(budget: WriteBudget, urgency: Urgency) -> int:
    """How many of this urgency are let through one after the other."""
    for count in range(1000):
        try:
            budget.take(urgency)
        except BudgetError:
            return count
    raise AssertionError("no end")


@pytest.mark.parametrize("rate", [1, 2, 5, 20])
def test_each_urgency_gets_through_when_nothing_else_is_written(rate: int) -> None:
    for urgency in Urgency:
        clock = Clock()
        budget = WriteBudget(rate, clock)
        clock.now += 10
        assert budget.allows(urgency)
        assert drained(budget, urgency) >= 1


def test_the_less_urgent_leave_some_to_the_more_urgent() -> None:
    clock = Clock()
    budget = WriteBudget(20, clock)
    counts = [drained(budget, u) for u in (Urgency.ROUTINE, Urgency.TELL, Urgency.SHOW, Urgency.ACT)]
    assert all(count > 0 for count in counts)
    assert sum(counts) == budget.taken == 20
    assert not budget.allows(Urgency.ACT)


def test_in_a_storm_the_rate_holds_and_the_urgent_take_it_all() -> None:
    clock = Clock()
    budget, taken = WriteBudget(20, clock), dict.fromkeys(Urgency, 0)
    for _ in range(6000):
        clock.now += 0.01
        for urgency in (Urgency.ROUTINE, Urgency.TELL, Urgency.SHOW, Urgency.ACT):
            if budget.allows(urgency):
                budget.take(urgency)
                taken[urgency] += 1
    assert sum(taken.values()) <= 20 * 60 + 20
    assert taken[Urgency.ACT] > 0.9 * 20 * 60
    assert budget.refused == 0


def test_routine_alone_takes_a_third() -> None:
    clock = Clock()
    budget, taken = WriteBudget(20, clock), 0
    for _ in range(6000):
        clock.now += 0.01
        if budget.allows(Urgency.ROUTINE):
            budget.take(Urgency.ROUTINE)
            taken += 1
    assert taken == pytest.approx(6 * 60, rel=0.1)


@pytest.mark.parametrize("seconds", [1, 5])
def test_a_server_that_requests_reach_sooner_or_later_counts_no_more(seconds: int) -> None:
    clock, late = Clock(), random.Random(7)
    budget, seen = WriteBudget(20, clock), list[float]()
    for _ in range(20_000):
        clock.now += 0.002
        while budget.allows(Urgency.ACT):
            budget.take()
            seen.append(clock.now + late.uniform(0.0, 0.05))
    seen.sort()
    most = max(bisect_left(seen, at + seconds) - first for first, at in enumerate(seen))
    assert 18 * seconds < most <= 20 * seconds


def test_an_event_without_a_write_to_spare_is_kept_and_written_later() -> None:
    api = FakeApi()
    events = Events(api, "default", ABOUT)  # type: ignore[arg-type]
    api.spent = True
    events.say(EventReason.NODE_LOST, "e1")
    events.say(EventReason.NODE_LOST, "e2")
    assert events.waiting
    assert api.calls == []
    api.spent = False
    events.flush()
    assert [body["message"] for _, _, body in api.calls] == ["e1", "e2"]
    assert not events.waiting


def test_a_flood_of_events_keeps_the_newest() -> None:
    api = FakeApi()
    events = Events(api, "default", ABOUT)  # type: ignore[arg-type]
    api.spent = True
    for number in range(200):
        events.say(EventReason.NODE_LOST, f"e{number}")
    api.spent = False
    events.flush()
    assert [body["message"] for _, _, body in api.calls] == [f"e{number}" for number in range(150, 200)]


def test_an_event_that_the_api_server_does_not_take_is_let_go() -> None:
    api = FakeApi()
    events = Events(api, "default", ABOUT)  # type: ignore[arg-type]
    api.away = True
    events.say(EventReason.NODE_LOST, "e1")
    assert not events.waiting
