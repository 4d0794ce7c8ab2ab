"""Waiting for what other processes do: poll with a deadline, and say what did not come.

A deadline is there to end a test that hangs.  How soon something comes is a matter of the machine and no verdict.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
POLL_S = 0.02
HANGS_S = 150.0
"""What has not come by then will not come, however busy the machine is."""


def until(
    condition: Callable[[], T], what: str = "the condition", seconds: float = HANGS_S,
    report: Callable[[], object] | None = None, poll_s: float = POLL_S,
) -> T:  # fmt: skip
    """Its first true answer.  AssertionError with `report()` when the time is up."""
    deadline = time.monotonic() + seconds
    while not (answer := condition()):
        more = f"; {report()}" if report is not None and time.monotonic() >= deadline else ""
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}{more}"
        time.sleep(poll_s)
    return answer
