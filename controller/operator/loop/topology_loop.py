"""The loop around one topology: polls while it is quiet, decisions and what follows from them when it is not.

Decisions come first.  What follows (pods, objects, status) waits in a queue of its own, and while it waits the topology is
decided about again; so a burst that hits a hundred topologies has all its plans before the first Event is written.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Executor, Future
from math import inf
from typing import Any, TypeVar

import kopf

from reprise.controller.operator.loop.poll_rate import PollKind
from reprise.controller.operator.loop.runtime import Runtime
from reprise.controller.operator.loop.topology import TopologyController
from reprise.controller.operator.pods.cluster_view import ClusterView

T = TypeVar("T")
FAILED_S = 3.0
CALM_S = 1.0
"""As long as a burst settles by default.  Where it is told to settle for longer, a driver may start anew meanwhile."""
log = logging.getLogger("reprise.operator")


class TopologyLoop:
    """The loop of one topology; `woken` is set when there is reason to look at everything at once."""

    def __init__(
        self, runtime: Runtime, controller: TopologyController, woken: asyncio.Event, stopped: kopf.DaemonStopped,
        body: Callable[[], Mapping[str, Any]], cluster_view: Callable[[], ClusterView],
    ) -> None:  # fmt: skip
        self._runtime, self._controller = runtime, controller
        self._woken, self._stopped = woken, stopped
        self._body, self._cluster_view = body, cluster_view
        self._uid = str(body()["metadata"]["uid"])
        self._reconciling: asyncio.Future[float] | None = None
        self._decided = self._settled = 0.0
        self._planned = False
        """By the last decision this is an incident that is beyond waiting for the rest of its burst."""

    async def run(self) -> None:
        """Run until the topology is deleted or the operator ends."""
        awake = True
        while not self._stopped:
            try:
                pause = await self._turn(awake)
            except Exception:  # nothing that goes wrong with one look may end the looking
                log.exception("event=look-failed topology=%s", self._body()["metadata"]["name"])
                pause = FAILED_S
            awake = await self._sleep(pause)

    async def _turn(self, awake: bool) -> float:
        pause = None
        if not awake and self._controller.quiet and self._reconciling is None:
            if self._runtime.burst.on:
                return self._runtime.poll_rate.between_s(PollKind.POLL)
            pause = await self._poll()
        return await self._look() if pause is None else pause

    async def _poll(self) -> float | None:
        """Poll; None when everything must be looked at; also when something calls before it was this one's turn."""
        poll = asyncio.wrap_future(
            self._runtime.deciding.later(lambda: self._controller.poll(self._body(), self._cluster_view()))
        )
        await self._first_of(poll, self._woken.wait())
        return None if poll.cancelled() else poll.result()

    async def _look(self) -> float:
        """Decide, and see that it is followed; seconds until the next look is due."""
        if self._planned and self._runtime.burst.on:
            await self._runtime.burst.over()
        self._woken.clear()
        self._decided = time.monotonic()
        decision = await self._on(
            self._runtime.deciding, lambda: self._controller.decide(self._body(), self._cluster_view())
        )
        self._runtime.burst.decided(self._uid, decision)
        left = decision.until - time.time() if decision is not None else 0.0
        self._planned = decision is not None and left <= 0
        if self._reconciling is None:
            self._reconciling = asyncio.ensure_future(self._reconcile())
        reconciliation = self._reconciling  # the same one while it waits in the queue
        if left == inf:  # nothing is to be decided; what calls meanwhile may have changed that
            await self._first_of(self._woken.wait(), self._stopped.wait(), asyncio.shield(reconciliation))
        else:
            self._settled = time.monotonic() + left
            if left > 0:
                self._plan_ahead()
            await asyncio.wait(
                {reconciliation},
                timeout=left if left > 0 else self._runtime.poll_rate.between_s(PollKind.DECIDE),
            )
        if not reconciliation.done():
            return 0.0
        self._reconciling = None
        return reconciliation.result()

    def _plan_ahead(self) -> None:
        """Nobody waits for it."""
        try:
            self._runtime.deciding.later(self._controller.precompute).add_done_callback(_said)
        except RuntimeError:  # the operator ends
            return

    async def _reconcile(self) -> float:
        async with self._runtime.turns:
            if self._runtime.burst.on:  # asked last: it may have begun while this one waited for its turn
                await self._runtime.burst.over()
            return await self._on(
                self._runtime.reconciling, lambda: self._controller.reconcile(self._cluster_view())
            )

    async def _sleep(self, seconds: float) -> bool:
        """Whether something has woken it.  Who is woken again and again is looked at no more often than there is time
        for; the first call after a quiet time is answered at once.  While a burst settles there is nothing to decide, so
        calls wait, for CALM_S at least, and its end is a call."""
        settles = self._settled - time.monotonic()
        if settles > 0:
            await self._first_of(self._stopped.wait(), seconds=min(settles, CALM_S))
            if settles > CALM_S:
                await self._first_of(self._woken.wait(), self._stopped.wait(), seconds=settles - CALM_S)
            return True
        if seconds > 0:
            await self._first_of(self._woken.wait(), self._stopped.wait(), seconds=seconds)
        floor = self._decided + self._runtime.poll_rate.between_s(PollKind.DECIDE) / 3 - time.monotonic()
        if floor > 0 and not self._stopped:
            await asyncio.sleep(floor)
        return self._woken.is_set()

    @staticmethod
    async def _first_of(*events: Awaitable[Any], seconds: float | None = None) -> None:
        """The others are cancelled."""
        waits = {asyncio.ensure_future(event) for event in events}
        _, rest = await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for task in rest:
            task.cancel()

    @staticmethod
    async def _on(pool: Executor, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(pool, work)


def _said(done: Future[None]) -> None:
    if not done.cancelled() and (error := done.exception()) is not None:
        log.error("event=planning-ahead-failed", exc_info=error)
