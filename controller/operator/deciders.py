"""The threads that decide, and that plan ahead while nothing is to be decided."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, ParamSpec, TypeVar

T = TypeVar("T")
P = ParamSpec("P")
log = logging.getLogger("reprise.operator")


class Deciders(Executor):
    """An executor with a second queue: what was left for `later` is begun when nothing that was submitted waits."""

    def __init__(self, threads: int) -> None:
        self._something = threading.Condition()
        self._first: deque[tuple[Future[Any], Callable[[], None]]] = deque()
        self._later: deque[Callable[[], None]] = deque()
        self._ending = False
        self._threads = [
            threading.Thread(target=self._run, daemon=True, name=f"decide-{number}")
            for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Raises RuntimeError after `shutdown`, as any executor."""
        future: Future[T] = Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(work(*args, **kwargs))
            except BaseException as error:
                future.set_exception(error)

        with self._something:
            if self._ending:
                raise RuntimeError("the threads that decide have been told to end")
            self._first.append((future, run))
            self._something.notify()
        return future

    def later(self, work: Callable[[], None]) -> None:
        """Nobody waits for it, and it may never be done."""
        with self._something:
            if not self._ending:
                self._later.append(work)
                self._something.notify()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """What was submitted is done first, unless it is to be dropped."""
        with self._something:
            self._ending = True
            self._later.clear()
            dropped = [future for future, _ in self._first] if cancel_futures else []
            if cancel_futures:
                self._first.clear()
            self._something.notify_all()
        for future in dropped:
            future.cancel()
        for thread in self._threads if wait else ():
            thread.join()

    def _run(self) -> None:
        while True:
            with self._something:
                self._something.wait_for(lambda: self._first or self._later or self._ending)
                if self._first:
                    _, work = self._first.popleft()
                elif self._later:
                    work = self._later.popleft()
                else:
                    return
            try:
                work()
            except Exception:  # of what nobody waits for; the thread is needed for the next
                log.exception("event=planning-ahead-failed")
