"""In a burst that hits many topologies, plans go before all that follows from them.

What follows from a decision (pods, objects, status) takes several times as long as the decision, and threads of one
process take turns: a hundred topologies that are followed up while others wait for their plans delay each plan by
seconds.  So while more than `MANY` topologies have failed and have no plan yet, what follows waits; but never longer than
`PATIENCE_S`, as a lost pod must be taken from Spark, too.  With few topologies nothing waits.

Used in the event loop alone.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable

from scheduler import Decision

MANY = 8
"""Topologies whose decisions and all that follows from them fit into the time in which a plan is expected."""
PATIENCE_S = 3.0
"""Settling takes one of these."""


class Rush:
    """The topologies that wait for a plan."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until: dict[Hashable, float] = {}
        self._fewer = asyncio.Event()

    @property
    def on(self) -> bool:
        """Whether what follows should wait."""
        now = self._clock()
        self._until = {key: until for key, until in self._until.items() if until > now}
        return len(self._until) > MANY

    def decided(self, key: Hashable, decision: Decision | None) -> None:
        """What was decided about a topology: the detection of a failure begins the wait for a plan, and anything but
        waiting ends it."""
        if decision is not None and decision.rule == "failure-detected":
            self._until[key] = self._clock() + PATIENCE_S
        elif decision is not None and decision.rule not in ("settling", "observed"):
            self._until.pop(key, None)
            if len(self._until) <= MANY:
                self._fewer.set()

    async def over(self) -> None:
        """Returns when there is none, or after PATIENCE_S."""
        end = self._clock() + PATIENCE_S
        while self.on and (left := end - self._clock()) > 0:
            self._fewer.clear()
            try:
                await asyncio.wait_for(self._fewer.wait(), min(left, 0.5))
            except TimeoutError:
                continue
