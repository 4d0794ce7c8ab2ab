"""Waiting for what other processes do: poll with a deadline, and say what did not come."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
POLL_S = 0.02


def until(
    condition: Callable[[], T], what: str = "the condition", seconds: float = 60.0,
    report: Callable[[], object] | None = None, poll_s: float = POLL_S,
) -> T:  # fmt: skip
    """Its first true answer.  AssertionError with `report()` when the time is up."""
    deadline = time.monotonic() + seconds
    while not (answer := condition()):
        more = f"; {report()}" if report is not None and time.monotonic() >= deadline else ""
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}{more}"
        time.sleep(poll_s)
    return answer
