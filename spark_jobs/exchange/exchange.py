"""One exchange: a Spark job that runs until it is stopped, or until a node of it is lost.

Each node has two tasks, pinned to its executor; all of them end with any one of them, as Spark knows no partial repair of
such a job.  What was on its way is gone then: hosts keep what they sent until its receiver has confirmed it, and send it
again over the next exchange.
"""

from __future__ import annotations

import contextlib
import re
import struct
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from pyspark import SparkContext

from reprise.spark_jobs.errors import JobError
from reprise.spark_jobs.exchange.relays import Relays
from reprise.spark_jobs.exchange.settings import READER_BYTES

STOP_S = 15.0
"""How long a cancelled job is waited for."""
_TASK = re.compile(r"Lost task \S+ in stage \S+ \([^)]*\) \([^)]*\): ")
_RAISED = re.compile(r"(?:[\w$]+\.)*[\w$]*(?:Exception|Error): ")
_BROKEN = re.compile(r"[\w.$]*(?:I[oO]Exception|ClosedChannelException): |.*\(\.\.\) failed with error\(")
_LENGTH = struct.Struct(">i")
LONGEST = 300


class ExchangeError(JobError):
    """An exchange that cannot begin, or does not answer."""


def window_bytes(nodes: int) -> int:
    """What a host may have unconfirmed on its way to each other one.  With no more than that, one that does not read holds
    up nobody else: all of it fits into what the node takes in unread, and nothing waits in the outlets."""
    return READER_BYTES // max(nodes, 1) // 2


class Exchange:
    """Carries frames between the partition hosts of `hosts`, whose slots are numbered in that order.

    `number` is greater than that of any exchange before it; hosts refuse the relays of an older one.
    """

    def __init__(
        self,
        context: SparkContext,
        relays: Relays,
        hosts: Sequence[str],
        number: int,
        ended: Callable[[], None] = lambda: None,
    ) -> None:
        """`ended`: called when it has ended, on a thread of its own."""
        self.hosts, self.number, self._ended = tuple(hosts), number, ended
        self.group = f"reprise-exchange-{number}"
        self._context, self._relays = context, relays
        self.desk = Desk(relays.desk(number, len(hosts)), len(hosts))
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._failure: str | None = None
        self._stopped = False

    def start(self) -> None:
        """Submit the job, on a thread of its own; whether it could begin is told by `failure`."""
        self._thread.start()

    @property
    def failure(self) -> str | None:
        """Why it ended, in a line; None while it runs.  It is what Spark heard first, which may be that a connection has
        ended, and not why."""
        return self._failure

    def stop(self) -> None:
        """Cancel the job and wait for its end, `STOP_S` at most."""
        self._stopped = True
        cancel(self._context, self.group, self._thread, STOP_S)

    def _run(self) -> None:
        try:
            java = self._relays.exchange(self.hosts, executor_ids(self._context, self.hosts), self.number)
            in_group(self._context, self.group)
            java.count()
            self._failure = "its tasks have ended"
        except Exception as error:
            self._failure = "it was stopped" if self._stopped else first_line(error)
        finally:
            self.desk.close()
            self._ended()


class Desk:
    """Sends each host of an exchange something, and collects what they answer, over Spark's RPC.  All but `close` raise
    ExchangeError where Spark is ending."""

    def __init__(self, java: Any, slots: int) -> None:
        self._java, self._slots, self._number = java, slots, 0

    def ready(self, within_s: float) -> bool:
        """Whether all hosts can be reached; waits for so long at most."""
        return bool(_called(self._java.ready, round(1000 * within_s)))

    def ask(self, questions: Callable[[int], Sequence[bytes]]) -> None:
        """Send what belongs to the next round, given its number, to each slot."""
        self._number += 1
        parts = [part for one in questions(self._number) for part in (_LENGTH.pack(len(one)), one)]
        _called(self._java.begin, self._number, b"".join(parts))

    def answered(self, within_s: float) -> bool:
        """Whether all have answered; waits for so long at most."""
        return bool(_called(self._java.all, round(1000 * within_s)))

    def answers(self) -> list[bytes]:
        """What each slot has answered so far; empty: nothing."""
        data, found, at = bytes(_called(self._java.answers)), list[bytes](), 0
        for _ in range(self._slots):
            (length,) = _LENGTH.unpack_from(data, at)
            at += _LENGTH.size + length
            found.append(data[at - length : at])
        return found

    def close(self) -> None:
        """Nobody is reached by it any more."""
        with contextlib.suppress(Exception):  # Spark has ended with all that it had
            self._java.close()


def _called(method: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return method(*arguments)
    except Exception as error:
        raise ExchangeError(first_line(error)) from error


def cancel(context: SparkContext, group: str, job: threading.Thread, within_s: float) -> None:
    """Cancel the jobs of a group until the thread that runs one has ended, as it may not have submitted it yet."""
    deadline = time.monotonic() + within_s
    while job.is_alive() and time.monotonic() < deadline:
        context.cancelJobGroup(group)
        job.join(0.1)


def in_group(context: SparkContext, group: str) -> None:
    """Jobs of this thread are of that group, and what Spark's pipelined shuffle asks for: the name of a query."""
    context.setJobGroup(group, group, interruptOnCancel=True)
    context.setLocalProperty("sql.streaming.queryId", group)


def executor_ids(context: SparkContext, hosts: Sequence[str]) -> list[str]:
    """Spark's id of the executor at each of these addresses; the newest, where one has just taken another's place.

    Raises ExchangeError where there is none.
    """
    java: Any = context._jsc
    scheduler = java.sc().taskScheduler()
    found = [scheduler.getExecutorsAliveOnHost(host) for host in hosts]
    if missing := [
        host for host, here in zip(hosts, found, strict=True) if here.isEmpty() or here.get().isEmpty()
    ]:
        raise ExchangeError(f"there is no executor at {', '.join(missing)}")
    return [str(max(str(here.get().mkString(",")).split(","), key=int)) for here in found]


def first_line(error: BaseException) -> str:
    """What ended a job, out of Spark's page of traces."""
    if isinstance(error, ExchangeError):
        return str(error)
    lines = [line.strip(" :") for line in str(error).splitlines() if line.strip(" :")]
    told = next((line for line in lines if "Exception: " in line), "") or (lines or [type(error).__name__])[0]
    told = told.rpartition("most recent failure: ")[2]
    told = _TASK.sub("", told, count=1)
    raised = _RAISED.match(told)
    if raised is None:
        return told[:LONGEST]
    broke = "a connection between relays broke: " if _BROKEN.match(told) else ""
    return (broke + told[raised.end() :])[:LONGEST]
