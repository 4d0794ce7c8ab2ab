"""The executor with a second queue: real threads."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from reprise.controller.operator.loop.priority_executor import PriorityExecutor


@pytest.fixture
def one() -> Iterator[PriorityExecutor]:
    deciders = PriorityExecutor(1)
    yield deciders
    deciders.shutdown(cancel_futures=True)


def hold(deciders: PriorityExecutor) -> threading.Event:
    """Its only thread is busy until the event is set."""
    busy, go = threading.Event(), threading.Event()

    def work() -> None:
        busy.set()
        assert go.wait(300)

    deciders.submit(work)
    assert busy.wait(300)
    return go


def test_what_was_left_for_later_comes_after_all_that_was_submitted(one: PriorityExecutor) -> None:
    done: list[str] = []
    go, last = hold(one), threading.Event()
    one.later(lambda: done.append("ahead"))
    one.later(last.set)
    futures = [one.submit(done.append, f"decide {k}") for k in range(3)]
    go.set()
    for future in futures:
        future.result(10)
    assert last.wait(300)
    assert done == ["decide 0", "decide 1", "decide 2", "ahead"]


def test_results_and_errors_come_back_and_the_thread_goes_on(one: PriorityExecutor) -> None:
    assert one.submit(max, 3, 5).result(10) == 5
    with pytest.raises(ZeroDivisionError):
        one.submit(lambda: 1 / 0).result(10)
    with pytest.raises(KeyError):
        one.later(lambda: {}["nothing"]).result(10)
    assert one.submit(max, 1, 2).result(10) == 2


def test_at_the_end_nobody_is_left_waiting(one: PriorityExecutor) -> None:
    go, done = hold(one), list[str]()
    dropped = one.submit(done.append, "dropped")
    later = one.later(lambda: done.append("later"))
    one.shutdown(wait=False, cancel_futures=True)
    go.set()
    one.shutdown()
    assert dropped.cancelled()
    assert later.cancelled()
    assert done == []
    with pytest.raises(RuntimeError, match="end"):
        one.submit(max, 1, 2)


def test_what_was_submitted_is_done_before_an_orderly_end() -> None:
    deciders = PriorityExecutor(2)
    futures = [deciders.submit(pow, k, 2) for k in range(50)]
    deciders.shutdown()
    assert [future.result(0) for future in futures] == [k * k for k in range(50)]
