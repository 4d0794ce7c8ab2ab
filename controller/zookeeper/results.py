"""Answers that are waited for, and the queue of those who are told: kazoo's, without a condition a request.

kazoo makes a lock, a condition and its waiters for every request and takes them for every look at it.  Most answers of
pipelined requests are there when somebody asks.  Here a lock is made by who really waits.

Invariant: a callback is dispatched once, and nobody waits for what has come.  Whoever comes second sees the first: the
answer is written before callbacks and waiters are taken, and they are added before the answer is looked for; and one
alone can take each off its list.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler

_NOT_YET = object()
Callback = Callable[["Result"], object]


class TaskQueue(queue.SimpleQueue[Any]):
    """What kazoo's workers need of a queue."""

    def task_done(self) -> None:
        """Nobody joins a queue of kazoo."""


class Result:
    """Implements kazoo's IAsyncResult.  Callbacks are run by the handler's completion worker, or at once if it is
    stopped."""

    __slots__ = ("_callbacks", "_exception", "_handler", "_waiting", "value")

    def __init__(self, handler: SequentialThreadingHandler) -> None:
        self._handler = handler
        self._exception: Any = _NOT_YET
        self._callbacks: list[Callback] = []
        self._waiting: list[threading.Lock] = []
        self.value: Any = None

    def ready(self) -> bool:
        """Whether there is a value or an exception."""
        return self._exception is not _NOT_YET

    def successful(self) -> bool:
        """Whether there is a value."""
        return self._exception is None

    @property
    def exception(self) -> BaseException | None:
        """The exception; None if there is a value, or nothing yet."""
        found: BaseException | None = self._exception if self._exception is not _NOT_YET else None
        return found

    def set(self, value: Any = None) -> None:
        """Store the value, tell those who wait."""
        self.value = value
        self._exception = None
        self._tell()

    def set_exception(self, exception: BaseException) -> None:
        """Store the exception, tell those who wait."""
        self._exception = exception
        self._tell()

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """The value, or raises the exception; KazooTimeoutError if there is neither within `timeout`
        seconds."""
        if not (self.wait(timeout) if block else self.ready()):
            raise KazooTimeoutError
        if self._exception is None:
            return self.value
        raise self._exception

    def get_nowait(self) -> Any:
        """Like `get`, but without waiting."""
        return self.get(block=False)

    def wait(self, timeout: float | None = None) -> bool:
        """Whether there is an answer within `timeout` seconds (None: for ever)."""
        if not self.ready():
            lock = threading.Lock()
            lock.acquire()
            self._waiting.append(lock)
            if self.ready() or not lock.acquire(timeout=-1 if timeout is None else max(0.0, timeout)):
                with suppress(ValueError):  # it is being told just now
                    self._waiting.remove(lock)
        return self.ready()

    def rawlink(self, callback: Callback) -> None:
        """Have it called with this result once there is an answer."""
        if callback not in self._callbacks:
            self._callbacks.append(callback)
        if self.ready():
            self._call_back()

    def unlink(self, callback: Callback) -> None:
        """Forget a callback that was not called yet."""
        with suppress(ValueError):
            self._callbacks.remove(callback)

    def _tell(self) -> None:
        self._call_back()
        while self._waiting:
            try:
                self._waiting.pop().release()
            except IndexError:  # another thread told the last one
                return

    def _call_back(self) -> None:
        while self._callbacks:
            try:
                call = partial(self._callbacks.pop(0), self)
            except IndexError:
                return
            if self._handler.running:
                self._handler.completion_queue.put(call)
            else:
                call()
