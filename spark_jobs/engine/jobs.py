"""What the engine needs of a Spark that runs its jobs; `reprise.spark_jobs.engine.chain` is the one that does."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Protocol

from reprise.spark_jobs.node.command import Order, Report


class Jobs(Protocol):
    """What the engine needs of `reprise.spark_jobs.engine.chain.Chain`."""

    def run(
        self, job: Order, orders: Sequence[bytes], stages: int, cancelled: threading.Event, patience_s: float
    ) -> list[Report]:
        """See `Chain.run`."""
