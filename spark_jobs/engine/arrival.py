"""The driver's part of `batch.order: arrival`: which order holds, and that nobody begins again alone.

Partitions apply what is there while all is well, and aligned while output is kept for an incident
(`reprise.spark_jobs.node.arrival`).  What was applied in the order of arrival cannot be made again as it was.  Invariant: in
a generation in which that order has held nobody who was at work is installed again; all go back together, which is another
generation.  The coordinator decides so, as it does where an operator is not deterministic; here that is only checked.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from reprise.spark_jobs.errors import CheckpointError
from reprise.spark_jobs.topology.choices import BatchOrder

if TYPE_CHECKING:
    from reprise.spark_jobs.engine.engine_spec import EngineSpec

log = logging.getLogger("reprise.engine")


@dataclass(slots=True)
class ArrivalOrder:
    """The orders of one driver's life; `active`: whether there is more than one."""

    active: bool
    order: BatchOrder | None = None
    """What hosts were told last."""
    _generation: int = -1
    _apart: bool = False
    """Whether anybody was told to apply in the order of arrival in this generation."""
    _met: set[str] = field(default_factory=set)
    """Partitions that were ordered to be at work in it."""

    def require_all(self, desired: EngineSpec, installs: Set[str]) -> None:
        """CheckpointError where a partition would be made again alone, and differently."""
        if not self._apart or desired.generation != self._generation:
            return
        if again := sorted(installs & self._met):
            raise CheckpointError(
                f"{again[0]} cannot go back alone: in generation {desired.generation} input was applied in the order of its "
                "arrival, so what it would make again could differ; everything has to go back"
            )

    def tells(self, desired: EngineSpec, partitions: Collection[str]) -> None:
        """The next job is for these partitions, and for the order that goes with `desired`."""
        if not self.active:
            return
        if desired.generation != self._generation:
            self._generation, self._apart = desired.generation, False
            self._met.clear()
        order: BatchOrder = "aligned" if desired.retain else "arrival"
        self._apart = self._apart or order == "arrival"
        self._met.update(partitions)
        if order != self.order:
            self.order = order
            log.info("event=order order=%s seq=%d generation=%d", order, desired.seq, desired.generation)
