"""Plans go before everything else in a burst that hits many topologies.

What follows from a decision (pods, objects, status) takes several times as long as the decision, threads of one process
take turns, and looks at topologies where nothing goes on, or that have their plan, are many: a hundred topologies that
wait for their plans among all that wait for seconds.  So when more than `MANY` topologies have failed and have no plan
yet, the rest waits until all of them have theirs; but never longer than `PATIENCE_S`, as a lost pod must be taken from
Spark, too.  With few topologies nothing waits.

Used in the event loop alone.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from reprise.scheduler import Decision
from reprise.scheduler.steps import RuleName

WAITS = (RuleName.SETTLING, RuleName.STANDBYS_AWAITED, RuleName.OBSERVED)
"""Rules that leave the plan for later."""
MANY = 8
"""Topologies whose decisions and all that follows from them fit into the time in which a plan is expected."""
PATIENCE_S = 3.0
"""Settling takes one of these."""
_POLL_S = 0.05


class BurstGate:
    """The topologies that wait for a plan."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until: dict[str, float] = {}
        self._end: asyncio.Future[None] | None = None
        self._on = False

    @property
    def on(self) -> bool:
        """Whether everything else should wait."""
        if self._on or len(self._until) > MANY:
            now = self._clock()
            self._until = {uid: until for uid, until in self._until.items() if until > now}
            # the last ones would not get far among all that has waited
            self._on = len(self._until) > (0 if self._on else MANY)
        return self._on

    def decided(self, uid: str, decision: Decision | None) -> None:
        """What was decided about a topology: the detection of a failure begins the wait for a plan, and anything but
        waiting ends it."""
        if decision is not None and decision.rule is RuleName.FAILURE_DETECTED:
            self._until[uid] = self._clock() + PATIENCE_S
        elif decision is not None and decision.rule not in WAITS:
            self._until.pop(uid, None)

    async def over(self) -> None:
        """Returns when there is none, or after PATIENCE_S.  All who wait share one look at the clock."""
        if not self.on:
            return
        if self._end is None or self._end.done():
            self._end = asyncio.ensure_future(self._watch())
        await asyncio.wait({self._end}, timeout=PATIENCE_S)

    async def _watch(self) -> None:
        while self.on:
            await asyncio.sleep(_POLL_S)
