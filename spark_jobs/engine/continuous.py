"""Jobs beside an exchange: they have one stage and carry orders and reports, and messages travel all the time.

Which of the two a driver uses is said by `spark.exchange` (docs/topology.md): `chained` jobs with three stages, whose
messages travel with them; `continuous`; or `auto`, continuous where a probe shows that it works, else chained.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from pyspark import SparkContext

from reprise.spark_jobs.engine.chain import Chain, ChainError
from reprise.spark_jobs.engine.jobs import Jobs
from reprise.spark_jobs.exchange.exchange import Exchange
from reprise.spark_jobs.exchange.probe import probe, refusal
from reprise.spark_jobs.exchange.relays import Relays
from reprise.spark_jobs.node.command import Order, Report

log = logging.getLogger("reprise.engine")

EXCHANGES = 1 << 14
"""Exchanges of one driver whose numbers are smaller than those of the next driver."""


class ContinuousJobs:
    """Jobs over a list of hosts and an exchange over the same, which ends with them."""

    def __init__(self, context: SparkContext, hosts: Sequence[str], number: int) -> None:
        self.link = number
        self._chain = Chain(context, hosts)
        self._exchange = Exchange(context, Relays.compiled(context), hosts, number)
        self._exchange.start()

    def run(
        self, job: Order, orders: Sequence[bytes], stages: int, cancelled: threading.Event, patience_s: float
    ) -> list[Report]:
        """See `Chain.run`; also ChainError once the exchange has ended."""
        if reason := self._exchange.failure:
            raise ChainError(f"exchange {self.link} has ended: {reason}")
        return self._chain.run(job, orders, stages, cancelled, patience_s)

    def close(self) -> None:
        """Ends the exchange, beside the caller."""
        threading.Thread(target=self._exchange.stop, daemon=True).start()


class Connector:
    """Makes the jobs of one driver's life.  `say` is told once why an exchange is not used where one is wanted."""

    def __init__(self, context: SparkContext, exchange: str, epoch: int, say: Callable[[str], None]) -> None:
        self._context, self._exchange, self._say = context, exchange, say
        self._last = epoch * EXCHANGES
        self._probed = False
        self._why: str | None = None
        """Why no exchange is used, once that was found out."""

    def connect(self, hosts: Sequence[str]) -> Jobs:
        """Jobs over these hosts.  ChainError where an exchange is insisted on and does not work."""
        if self._exchange == "chained":
            return Chain(self._context, hosts)
        if not self._probed:
            self._why, self._probed = self._refused(hosts), True
            if self._why and self._exchange == "auto":
                self._say(f"messages travel with the stages of jobs, and not by an exchange: {self._why}")
        if self._why:
            if self._exchange == "auto":
                return Chain(self._context, hosts)
            self._probed = False  # it is insisted on, so it is asked again
            raise ChainError(f"spark.exchange is `continuous`, and that does not work here: {self._why}")
        self._last += 1
        log.info("event=exchange number=%d nodes=%d", self._last, len(hosts))
        return ContinuousJobs(self._context, hosts, self._last)

    def _refused(self, hosts: Sequence[str]) -> str | None:
        return refusal(self._context.getConf()) or probe(self._context, hosts)
