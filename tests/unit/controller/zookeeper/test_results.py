"""Results that are waited for: one at a time, and from many threads at once."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from functools import partial

import pytest
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.handlers.utils import wrap

from reprise.controller.zookeeper.handler import PollHandler
from reprise.controller.zookeeper.results import Result, TaskQueue


@pytest.fixture
def handler() -> Iterator[PollHandler]:
    handler = PollHandler()
    handler.start()
    yield handler
    handler.stop()


def test_a_value(handler: PollHandler) -> None:
    result = handler.async_result()
    assert not result.ready() and not result.successful() and result.exception is None
    for wait in (result.get_nowait, partial(result.get, timeout=0.01)):
        with pytest.raises(KazooTimeoutError):
            wait()
    assert not result.wait(0)
    result.set(3)
    assert result.ready() and result.successful() and result.wait() and result.exception is None
    assert result.get() == 3 == result.get_nowait() == result.value


def test_an_exception(handler: PollHandler) -> None:
    result = handler.async_result()
    result.set_exception(KeyError("x"))
    assert result.ready() and not result.successful() and isinstance(result.exception, KeyError)
    with pytest.raises(KeyError):
        result.get()


def test_callbacks_are_called_once_in_order_by_the_completion_worker(handler: PollHandler) -> None:
    result, seen = handler.async_result(), queue.SimpleQueue[object]()
    first, second, never = (lambda r, n=n: seen.put((n, r, threading.current_thread())) for n in (1, 2, 3))
    for callback in (first, second, never, first):
        result.rawlink(callback)
    result.unlink(never)
    result.unlink(never)
    result.set("value")
    result.rawlink(never)
    result.set("again")
    told = [seen.get(timeout=300) for _ in range(3)]
    assert [n for n, *_ in told] == [1, 2, 3] and {r for _, r, _ in told} == {result}
    assert {t for *_, t in told}.isdisjoint({threading.current_thread()})
    assert seen.empty()


def test_a_stopped_handler_leaves_nobody_uncalled() -> None:
    result, seen = PollHandler().async_result(), list[Result]()
    result.rawlink(seen.append)
    result.set()
    assert seen == [result]


def test_kazoo_passes_values_and_exceptions_on(handler: PollHandler) -> None:
    for wrong in (False, True):
        inner, outer = handler.async_result(), handler.async_result()
        inner.rawlink(wrap(outer)(lambda r: 2 * r.get()))
        inner.set_exception(ValueError("x")) if wrong else inner.set(21)
        assert outer.wait(300) and (isinstance(outer.exception, ValueError) if wrong else outer.get() == 42)


def test_those_who_wait_and_those_who_are_called_race_with_the_answer(handler: PollHandler) -> None:
    """Nobody waits for what has come, and no callback is lost or called twice."""
    called: queue.SimpleQueue[Result] = queue.SimpleQueue()
    rounds = 400
    results = [handler.async_result() for _ in range(rounds)]
    start = threading.Barrier(4)
    got: list[int] = []

    def wait() -> None:
        start.wait()
        got.extend(result.get(timeout=300) for result in results)

    def link() -> None:
        start.wait()
        for result in results:
            result.rawlink(called.put)

    threads = [threading.Thread(target=target, daemon=True) for target in (wait, wait, link)]
    for thread in threads:
        thread.start()
    start.wait()
    for number, result in enumerate(results):
        result.set(number)
    for thread in threads:
        thread.join(300)
    assert sorted(got) == sorted([*range(rounds)] * 2)
    assert {called.get(timeout=300).value for _ in range(rounds)} == set(range(rounds)) and called.empty()


def test_the_queue_is_what_workers_need() -> None:
    tasks = TaskQueue()
    tasks.put(1)
    assert tasks.get() == 1
    tasks.task_done()
    with pytest.raises(PollHandler.queue_empty):
        tasks.get(timeout=0.01)
