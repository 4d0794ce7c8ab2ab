"""How one topology is looked at now, and so how soon again."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from reprise.controller.operator.loop.poll_rate import PollKind, PollRate


@dataclass(slots=True)
class PollSchedule:
    """The schedule of one topology; `rate` is shared by all."""

    rate: PollRate
    clock: Callable[[], float] = time.monotonic
    kind: PollKind | None = None
    """None before the first look, and after the last one."""
    share: float = field(default_factory=lambda: random.uniform(0.5, 1.0))
    """Of the time between two looks at everything: so that not all that were found together are looked at together."""
    _everything: float = 0.0
    """When everything was looked at last."""

    def next(self, kind: PollKind) -> float:
        """Count this topology among those that are looked at in this way; seconds until the next look."""
        if kind is not self.kind:
            self.leave()
            self.rate.enter(kind)
            self.kind = kind
        return self.rate.between_s(kind)

    def leave(self) -> None:
        """It is not looked at any more."""
        if self.kind is not None:
            self.rate.leave(self.kind)
            self.kind = None

    def looked_at_everything(self) -> None:
        self._everything = self.clock()

    @property
    def everything_due(self) -> bool:
        """Whether everything is to be looked at, in case something was not told."""
        return self.clock() - self._everything > self.rate.whole_s() * self.share
