"""The threads that decide, and that look ahead or around while nothing is to be decided."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any, ParamSpec, TypeVar

T = TypeVar("T")
P = ParamSpec("P")
_Job = tuple["Future[Any]", Callable[[], Any]]


class PriorityExecutor(Executor):
    """An executor with a second queue: what was left for `later` is begun when nothing that was submitted waits."""

    def __init__(self, threads: int) -> None:
        self._something = threading.Condition()
        self._first: deque[_Job] = deque()
        self._later: deque[_Job] = deque()
        self._ending = False
        self._threads = [
            threading.Thread(target=self._run, daemon=True, name=f"decide-{number}")
            for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Raises RuntimeError after `shutdown`, as any executor."""
        return self._put(self._first, partial(work, *args, **kwargs))

    def later(self, work: Callable[[], T]) -> Future[T]:
        """Like `submit`, but for what can wait until no decision does."""
        return self._put(self._later, work)

    def _put(self, queue: deque[_Job], work: Callable[[], T]) -> Future[T]:
        future: Future[T] = Future()
        with self._something:
            if self._ending:
                raise RuntimeError("the threads that decide have been told to end")
            queue.append((future, work))
            self._something.notify()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """What waits is done first, unless it is to be dropped."""
        dropped: list[_Job] = []
        with self._something:
            self._ending = True
            if cancel_futures:
                dropped = [*self._first, *self._later]
                self._first.clear()
                self._later.clear()
            self._something.notify_all()
        for future, _ in dropped:
            future.cancel()
        for thread in self._threads if wait else ():
            thread.join()

    def _run(self) -> None:
        while True:
            with self._something:
                self._something.wait_for(lambda: self._first or self._later or self._ending)
                queue = self._first or self._later
                if not queue:
                    return
                future, work = queue.popleft()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(work())
            except BaseException as error:
                future.set_exception(error)
