"""Waiting for what other processes do: poll so many times, and report what did not come.

The number of polls is there to end a test that hangs.  How soon something comes depends on the machine and is no verdict:
on a busy one each poll takes longer, so patience grows with the load.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
POLL_S = 0.02
HANGS_S = 150.0
"""How long the polls take on an idle machine; what has not come by then will not come."""


def until(
    condition: Callable[[], T], what: str = "the condition", seconds: float = HANGS_S,
    report: Callable[[], object] | None = None, poll_s: float = POLL_S,
) -> T:  # fmt: skip
    """Its first true answer.  AssertionError with `report()` after as many polls as an idle machine makes in `seconds`."""
    polls = math.ceil(seconds / poll_s)
    for _ in range(polls):
        if answer := condition():
            return answer
        time.sleep(poll_s)
    more = f"; {report()}" if report is not None else ""
    raise AssertionError(f"not within {polls} polls: {what}{more}")
