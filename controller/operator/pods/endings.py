"""Pods that were told to end: which of them ought to be gone by now.

The API server says when a pod's grace is over, by its own clock.  Clocks of machines differ, so an operator counts the grace
itself, from when it has first seen that the pod is being deleted.  So it may be late by what it has not seen, and is never
early.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from reprise.controller.kubernetes.pods import PodView

OVERDUE_S = 10.0
"""After the end of a pod's grace period: a kubelet that lives has ended it by then."""


@dataclass(slots=True)
class Endings:
    """Pods that were told to end, as one operator has seen them."""

    clock: Callable[[], float] = time.monotonic
    _since: dict[str, float] = field(default_factory=dict)
    """By uid: when the deletion was seen first."""

    def overdue(self, pod: PodView | None) -> bool:
        """Whether its grace and OVERDUE_S more have passed since its deletion was seen first."""
        if pod is None or pod.deleted_at is None:
            return False
        now = self.clock()
        return now - self._since.setdefault(pod.uid, now) > pod.grace_s + OVERDUE_S

    def keep(self, pods: Iterable[PodView]) -> None:
        """Forget all others."""
        uids = {pod.uid for pod in pods}
        for uid in self._since.keys() - uids:
            del self._since[uid]
