"""Orders and reports beside an exchange, by which messages travel all the time.

Orders go over Spark's RPC, by the relays, so that nothing is scheduled and no worker is needed while nothing fails.  Until
the relays are connected they go with a job of one stage, which also starts hosts that have died alone.  A driver uses an
exchange where a probe finds that one works, else jobs with three stages, which carry the messages.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import threading
import time
from collections.abc import Callable, Sequence

from pyspark import SparkContext

from reprise.spark_jobs.engine.chain import Chain, ChainError
from reprise.spark_jobs.engine.jobs import Jobs
from reprise.spark_jobs.errors import HostBusyError, JobError
from reprise.spark_jobs.exchange.exchange import Exchange, ExchangeError
from reprise.spark_jobs.exchange.probe import probe, refusal
from reprise.spark_jobs.exchange.relays import Relays
from reprise.spark_jobs.exchange.settings import MOST_NODES
from reprise.spark_jobs.node.command import Order, Report
from reprise.spark_jobs.node.rounds import Kind, decode_answer, encode_question
from reprise.spark_jobs.node.seal import KEY_BYTES
from reprise.spark_jobs.node.shim import ANSWER_S, QUESTION_S

log = logging.getLogger("reprise.engine")

EXCHANGES = 1 << 14
"""Exchanges of one driver whose numbers are smaller than those of the next driver."""


STAND_S = 1.0
"""Between two looks whether an exchange whose relays are awaited has ended."""
LOOK_S = 0.05
"""Between two looks whether a round can still end well."""
PROBES = 3
"""After so many failed probes the driver stays with the stages of jobs."""


class ContinuousJobs:
    """Jobs over a list of hosts and an exchange over the same, which ends with them."""

    why_chained = ""

    def __init__(
        self, context: SparkContext, hosts: Sequence[str], number: int, changed: Callable[[], None]
    ) -> None:
        """`changed`: called when the exchange stands, and when it has ended, on a thread of its own."""
        self.link, self.link_key = number, secrets.token_hex(KEY_BYTES)
        self.stands = False
        self._chain = Chain(context, hosts)
        self._exchange = Exchange(context, Relays.compiled(context), hosts, number, changed)
        self._exchange.start()
        threading.Thread(target=self._await_relays, args=(changed,), daemon=True).start()

    def _await_relays(self, changed: Callable[[], None]) -> None:
        with contextlib.suppress(ExchangeError):  # Spark is ending
            while not self.ended and not self.stands:
                self.stands = self._exchange.desk.ready(STAND_S)
        if self.stands:
            log.info("event=exchange-stands number=%d", self.link)
            changed()

    @property
    def ended(self) -> str:
        """Why the exchange has ended; empty: it has not."""
        return self._exchange.failure or ""

    def run(
        self, job: Order, orders: Sequence[bytes], stages: int, cancelled: threading.Event, patience_s: float
    ) -> list[Report]:
        """See `Chain.run`; also ChainError once the exchange has ended."""
        if self.ended:
            raise ChainError(f"exchange {self.link} has ended: {self.ended}")
        try:
            if self.stands:
                return self._round(orders, cancelled, patience_s)
        except ExchangeError as error:
            raise ChainError(f"exchange {self.link}: {error}") from error
        return self._chain.run(job, orders, stages, cancelled, patience_s)

    def _round(self, orders: Sequence[bytes], cancelled: threading.Event, patience_s: float) -> list[Report]:
        desk, wait_s = self._exchange.desk, min(ANSWER_S, patience_s)
        desk.ask(lambda number: [encode_question(number, order) for order in orders])
        ends = time.monotonic() + wait_s
        while not desk.answered(LOOK_S):
            if cancelled.is_set():
                raise ChainError("cancelled: a node was lost")
            if self.ended:
                raise ChainError(f"exchange {self.link} has ended: {self.ended}")
            if time.monotonic() > ends:
                silent = [slot for slot, answer in enumerate(desk.answers()) if not answer]
                raise self._busy(silent, wait_s)
        reports = []
        for slot, answer in enumerate(desk.answers()):
            kind, body = decode_answer(answer)
            if kind is not Kind.REPORT:
                raise ChainError(body.decode(), slot)
            reports.append(Report.decode(body))
        return reports

    def _busy(self, silent: Sequence[int], wait_s: float) -> JobError:
        """What holds up the first of these slots, which have not answered for so long; none where all have by now."""
        desk = self._exchange.desk
        desk.ask(lambda number: [encode_question(number)] * len(self._exchange.hosts))
        desk.answered(QUESTION_S)
        if not silent:
            return ChainError(f"no end within {wait_s:.0f} s")
        slot, answer = silent[0], desk.answers()[silent[0]]
        here = f"the partition host at {self._exchange.hosts[slot]} has not answered for {wait_s:.0f} s"
        if not answer:
            return HostBusyError(f"{here}, nor to the question why", slot)
        busy = decode_answer(answer)[1].decode()
        return HostBusyError(f"{here}: it has been {busy or 'between two pieces of work'}", slot)

    def close(self) -> None:
        """Ends the exchange, beside the caller."""
        threading.Thread(target=self._exchange.stop, daemon=True).start()


class Connector:
    """Makes the jobs of one driver's life.  `why_chained`: why it uses no exchange, where that is known before a probe.
    `changed`: called when an exchange stands or has ended, on a thread of its own."""

    def __init__(
        self, context: SparkContext, why_chained: str, epoch: int, changed: Callable[[], None]
    ) -> None:
        self._context, self._changed = context, changed
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
        return ContinuousJobs(self._context, hosts, self._last, self._changed)

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
