"""Asks a driver to stop at a checkpoint before another one with changed code takes its place, and says what it waits for.

A driver that has drained ends by itself, with success; that is the sign to start the next one.  Nothing is ever forced: a
drain that cannot end (a paused topology, a partition that is set aside) is said to wait, with what a person can do.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from controller.coordination.errors import CoordinationError
from controller.operator.events import Events
from controller.run.observation import Observation
from controller.run.standing import is_poison

PATIENCE_S = 120.0
"""A drain takes as long as one checkpoint; one that takes longer is worth a warning."""
Ask = Callable[[str], None]
"""Write that the driver of this life is to drain; raises CoordinationError."""


@dataclass(slots=True)
class Drain:
    """Of one topology."""

    ask: Ask
    events: Events
    clock: Callable[[], float] = time.monotonic
    _asked: str = ""
    _since: float = 0.0

    def look(self, seen: Observation) -> str:
        """One step; what is waited for."""
        progress = seen.progress
        if progress is None:
            return "the spec has changed: the driver is drained when it reports"
        if progress.driver != self._asked:
            try:
                self.ask(progress.driver)
            except CoordinationError as error:
                return f"the spec has changed: the driver cannot be asked to drain: {error}"
            self._asked, self._since = progress.driver, self.clock()
            self.events.say(
                "DrainAsked", "the spec has changed: the driver stops at a checkpoint, then a new one goes on"
            )
        why, stands = _waits_for(seen)
        if self.clock() - self._since > PATIENCE_S:
            self.events.say(
                "DrainWaits", f"the spec has changed and is not in effect yet: {why}", warning=True
            )
        return f"the spec has changed, and the driver drains: {why}{stands}"


def _waits_for(seen: Observation) -> tuple[str, str]:
    """What the drain waits for, and how far it is."""
    progress, desired = seen.progress, seen.desired
    assert progress is not None
    aside = sorted(p for p, why in progress.failed.items() if is_poison(why))
    if aside:
        return (
            f"no checkpoint can be complete while {', '.join(aside[:3])} is set aside; `upgrade: replay` lets the new "
            "code make the batches since the last checkpoint again",
            "",
        )
    if desired is not None and desired.paused:
        return "a paused topology takes no checkpoint; it drains when it is resumed", ""
    if not seen.connected:
        return "ZooKeeper does not answer", ""
    return (
        "the last checkpoint",
        f" ({progress.checkpoint} of batch {progress.horizon})",
    )
