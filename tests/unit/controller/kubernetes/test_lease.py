"""Leadership by Lease on a virtual clock, and the budget of writes."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from reprise.controller.kubernetes.budget import WriteBudget
from reprise.controller.kubernetes.lease import Leadership
from tests.support.fake_api import FakeApi

DURATION = 8.0


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class VirtualStop(threading.Event):
    """Never set; waiting for it is what lets time go on, in the test's own thread.  Others wait for it three times."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock, self._thread, self._waits = clock, threading.current_thread(), 0

    def wait(self, timeout: float | None = None) -> bool:
        if threading.current_thread() is self._thread:
            self._clock.now += timeout or 0.0
            return False
        self._waits += 1
        return self._waits > 3


def candidate(api: FakeApi, name: str, clock: Clock) -> Leadership:
    return Leadership(api, "ns", "op", name, DURATION, clock)  # type: ignore[arg-type]


def holder(api: FakeApi) -> Any:
    return api.objects["/apis/coordination.k8s.io/v1/namespaces/ns/leases/op"]["spec"]["holderIdentity"]


def test_the_first_leads_and_the_second_waits_until_it_is_silent() -> None:
    api, clock = FakeApi(), Clock()
    a, b = candidate(api, "a", clock), candidate(api, "b", clock)
    assert a._try()
    assert not b._try()
    for _ in range(5):  # renewals keep the other away for ever
        clock.now += DURATION / 2
        assert a._try()
        assert not b._try()
    clock.now += DURATION * 0.9
    assert not b._try()
    clock.now += DURATION * 0.2
    assert b._try()
    assert holder(api) == "b"
    assert not a._try()


def test_the_clock_of_the_holder_does_not_matter() -> None:
    """A candidate that has just come believes no renewal time: it waits for the whole duration itself."""
    api, clock = FakeApi(), Clock()
    candidate(api, "a", clock)._try()
    clock.now += 10 * DURATION
    late = candidate(api, "b", clock)
    assert not late._try()
    clock.now += DURATION + 0.1
    assert late._try()


def test_of_two_that_take_it_at_once_one_gets_it() -> None:
    api, clock = FakeApi(), Clock()
    a, b = candidate(api, "a", clock), candidate(api, "b", clock)
    stale = api.find("/apis/coordination.k8s.io/v1/namespaces/ns/leases/op")
    assert stale is None
    assert a._try()
    assert not b._try()
    transitions = api.objects["/apis/coordination.k8s.io/v1/namespaces/ns/leases/op"]["spec"][
        "leaseTransitions"
    ]
    assert transitions == 1


def test_a_holder_that_cannot_renew_gives_up_before_others_may_take_over() -> None:
    api, clock = FakeApi(), Clock()
    a = candidate(api, "a", clock)
    a._try()
    api.away = True
    lost: list[float] = []

    began = clock.now
    a.hold(VirtualStop(clock), lambda: lost.append(clock.now - began))
    assert lost == [pytest.approx(DURATION * 0.75, abs=DURATION / 4)]
    assert lost[0] < DURATION


def test_a_request_that_hangs_keeps_no_holder_from_giving_up() -> None:
    """The API server, or what is before it, swallows packets: a request takes 26 s until it fails."""
    clock, ended = Clock(), threading.Event()

    class Hanging(FakeApi):
        def find(self, path: str) -> Any:
            if self.away and not ended.wait(60.0):  # nobody lets time go on meanwhile
                clock.now += 26.0
            return super().find(path)

    api, lost = Hanging(), list[float]()
    other = FakeApi()
    other.objects = api.objects
    a, b = candidate(api, "a", clock), candidate(other, "b", clock)
    a._try()
    assert not b._try()
    api.away, began = True, clock.now

    def end() -> None:
        lost.append(clock.now - began)
        ended.set()

    a.hold(VirtualStop(clock), end)
    assert lost[0] <= DURATION * 0.75
    clock.now = began + DURATION
    assert not b._try()
    clock.now += 0.1
    assert b._try()


def test_who_has_lost_it_to_another_ends_at_once() -> None:
    api, clock = FakeApi(), Clock()
    a, b = candidate(api, "a", clock), candidate(api, "b", clock)
    a._try(), b._try()
    clock.now += DURATION + 1
    assert b._try()
    lost = list[str]()
    a._renew(VirtualStop(clock), lambda: lost.append("a"))
    assert (lost, holder(api)) == (["a"], "b")


def test_an_orderly_end_gives_the_lease_back() -> None:
    api, clock = FakeApi(), Clock()
    a, b = candidate(api, "a", clock), candidate(api, "b", clock)
    a._try()
    stop = threading.Event()
    stop.set()
    a.hold(stop, lambda: pytest.fail("not lost"))
    assert holder(api) == ""
    assert b._try()


def test_who_waits_knows_the_page_of_who_leads() -> None:
    api, clock = FakeApi(), Clock()
    a, b = (
        Leadership(api, "ns", "op", name, DURATION, clock, web=f"http://{name}:8082")  # type: ignore[arg-type]
        for name in "ab"
    )
    assert a.web is None
    a._try(), b._try()
    assert (a.web, b.web) == ("", "http://a:8082")
    a._give_back()
    b._try(), a._try()
    assert (a.web, b.web) == ("http://b:8082", "")
    without = candidate(api, "c", clock)
    without._try()
    assert without.web == "http://b:8082"


def test_no_more_writes_than_the_budget_allows() -> None:
    clock, slept = Clock(), list[float]()

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        clock.now += seconds

    budget, began = WriteBudget(20, clock, sleep, patient=True), clock.now
    for _ in range(220):
        budget.take()
    assert budget.taken == 220
    assert 18 < (220 - 20) / (clock.now - began) <= 20  # the first second's at once
    clock.now += 10
    slept.clear()
    for _ in range(20):
        budget.take()
    assert slept == []
