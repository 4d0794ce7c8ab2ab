"""Jobs beside an exchange: they have one stage and carry orders and reports, and messages travel all the time.

A driver uses an exchange where a probe finds that one works, else jobs with three stages, which carry the messages.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

from pyspark import SparkContext

from reprise.spark_jobs.engine.chain import Chain, ChainError
from reprise.spark_jobs.engine.jobs import Jobs
from reprise.spark_jobs.exchange.exchange import MOST_NODES, Exchange
from reprise.spark_jobs.exchange.probe import probe, refusal
from reprise.spark_jobs.exchange.relays import Relays
from reprise.spark_jobs.node.command import Order, Report

log = logging.getLogger("reprise.engine")

EXCHANGES = 1 << 14
"""Exchanges of one driver whose numbers are smaller than those of the next driver."""


PROBES = 3
"""After so many failed probes the driver stays with the stages of jobs."""


class ContinuousJobs:
    """Jobs over a list of hosts and an exchange over the same, which ends with them."""

    why_chained = ""

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
    """Makes the jobs of one driver's life.  `why_chained`: why it uses no exchange, where that is known before a probe."""

    def __init__(self, context: SparkContext, why_chained: str, epoch: int) -> None:
        self._context = context
        self._refused = why_chained or refusal(context.getConf()) or ""
        self._last = epoch * EXCHANGES
        self._proven = False
        """A frame of a probe has come from one node to another."""
        self._probes = 0
        """How many have failed."""

    def connect(self, hosts: Sequence[str]) -> Jobs:
        """Jobs over these hosts."""
        if why := self._refused or self._failed(hosts):
            log.info("event=chained nodes=%d reason=%r", len(hosts), why)
            return Chain(self._context, hosts, why)
        self._last += 1
        log.info("event=exchange number=%d nodes=%d", self._last, len(hosts))
        return ContinuousJobs(self._context, hosts, self._last)

    def _failed(self, hosts: Sequence[str]) -> str:
        """Why no exchange can begin between these; empty if one can.  A node may be lost while a probe runs, so a probe that
        failed is repeated for the next hosts, `PROBES` times at most."""
        if len(hosts) > MOST_NODES:
            return f"an exchange carries messages of up to {MOST_NODES} nodes, and there are {len(hosts)}"
        if self._proven:
            return ""
        why = probe(self._context, hosts) or ""
        self._proven = not why and len(hosts) > 1
        self._probes += bool(why)
        if self._probes >= PROBES:
            self._refused = why
        return why
