"""No more than so many writes a second, and the urgent ones first: one budget that all threads share.

What a failure needs (the end of a lost pod, a new driver) may take the last write; what people look at leaves some, what
happened leaves more, and numbers that only grow leave most.  So in a storm the less urgent wait, without a queue: a write
that there is none to spare for is refused, and the next look writes what is true by then.  Nothing that waits holds old
data, and no thread that could decide something sleeps for the sake of an Event.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from enum import Enum

from reprise.controller.kubernetes.errors import BudgetError


class Urgency(Enum):
    """Share of a second's writes that is left to more urgent ones."""

    ACT = 0.0  # pods, drivers, finalizers
    SHOW = 0.25  # Incidents, RecoveryPlans, conditions
    TELL = 0.5  # Events
    ROUTINE = 0.7  # positions, checkpoint ages


_WINDOW_S = 1.05
"""A second, and what one request is later than another when it reaches the server, which counts by its own clock."""


class WriteBudget:
    """Lets through at most `rate` writes in any second, whatever was saved up before.  `patient`: wait until one is
    possible, where others are refused."""

    def __init__(
        self, rate: float, clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep, *, patient: bool = False,
    ) -> None:  # fmt: skip
        self._rate, self._clock, self._sleep, self._patient = max(1, int(rate)), clock, sleep, patient
        self._lock = threading.Lock()
        self._last: deque[float] = deque()
        """When those of the last second were made."""
        self.taken = self.refused = 0

    def take(self, urgency: Urgency = Urgency.ACT) -> None:
        """One write.  Raises BudgetError when there is none to spare for this."""
        while True:
            with self._lock:
                now = self._expire()
                if self._enough(urgency):
                    self._last.append(now)
                    self.taken += 1
                    return
                if not self._patient:
                    self.refused += 1
                    raise BudgetError(f"no write to spare for {urgency.name.lower()}")
                wait = self._last[0] + _WINDOW_S - now
            self._sleep(max(wait, 0.001))

    def allows(self, urgency: Urgency) -> bool:
        """Whether `take` would be let through now: before something is computed that could not be written."""
        with self._lock:
            self._expire()
            return self._enough(urgency)

    def _expire(self) -> float:
        now = self._clock()
        while self._last and self._last[0] <= now - _WINDOW_S:
            self._last.popleft()
        return now

    def _enough(self, urgency: Urgency) -> bool:
        spare = min(urgency.value * self._rate, self._rate - 1)
        return self._rate - len(self._last) - 1 >= spare
