"""No more than so many writes a second, and the urgent ones first: a bucket of tokens that all threads share.

What a failure needs (the end of a lost pod, a new driver) may take the last token; what people look at leaves some, what
happened leaves more, and numbers that only grow leave most.  So in a storm the less urgent wait, without a queue: a write
that gets no token is refused, and the next look writes what is true by then.  Nothing that waits holds old data, and no
thread that could decide something sleeps for the sake of an Event.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from controller.operator.errors import BudgetError


class Urgency(Enum):
    """Share of the bucket that a write must leave to more urgent ones."""

    ACT = 0.0  # pods, drivers, finalizers
    SHOW = 0.25  # Incidents, RecoveryPlans, conditions
    TELL = 0.5  # Events
    ROUTINE = 0.7  # positions, checkpoint ages


ROUTINE_SHARE = 0.5
"""Of all writes, what routine may take while nothing else happens."""


@dataclass(slots=True)
class _Bucket:
    rate: float
    tokens: float
    at: float

    def fill(self, now: float) -> None:
        self.tokens = min(self.rate, self.tokens + (now - self.at) * self.rate)
        self.at = now


class WriteBudget:
    """`rate` tokens a second, at most a second's worth saved up.  `patient`: wait for a token, first come, first served,
    where others are refused."""

    def __init__(
        self, rate: float, clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep, *, patient: bool = False,
    ) -> None:  # fmt: skip
        self._clock, self._sleep, self._patient = clock, sleep, patient
        self._lock = threading.Lock()
        self._all = _Bucket(rate, rate, clock())
        self._routine = _Bucket(max(1.0, rate * ROUTINE_SHARE), 1.0, clock())
        self.taken = self.refused = 0

    def take(self, urgency: Urgency = Urgency.ACT) -> None:
        """One token.  Raises BudgetError when there is none to spare for this."""
        with self._lock:
            self._fill()
            if not self._patient and not self._enough(urgency):
                self.refused += 1
                raise BudgetError(f"no write to spare for {urgency.name.lower()}")
            self._all.tokens -= 1
            if urgency is Urgency.ROUTINE:
                self._routine.tokens -= 1
            self.taken += 1
            wait = -self._all.tokens / self._all.rate
        if wait > 0:
            self._sleep(wait)

    def allows(self, urgency: Urgency) -> bool:
        """Whether `take` would get a token now: before something is computed that could not be written."""
        with self._lock:
            self._fill()
            return self._enough(urgency)

    def _fill(self) -> None:
        now = self._clock()
        self._all.fill(now)
        self._routine.fill(now)

    def _enough(self, urgency: Urgency) -> bool:
        if urgency is Urgency.ROUTINE and self._routine.tokens < 1:
            return False
        spare = min(urgency.value * self._all.rate, self._all.rate - 1)
        return self._all.tokens >= 1 and self._all.tokens - 1 >= spare
