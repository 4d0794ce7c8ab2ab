"""What the engine needs of a Spark that runs its jobs; `reprise.spark_jobs.engine.chain` is the one that does."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Protocol

from reprise.spark_jobs.node.command import Order, Report

STAGES = 3
"""Supersteps of a job whose messages travel with its stages."""


class Jobs(Protocol):
    """What the engine needs of `reprise.spark_jobs.engine.chain.Chain`."""

    @property
    def link(self) -> int:
        """Number of the exchange by which messages travel beside the jobs; 0: they travel with the stages of jobs."""

    @property
    def link_key(self) -> str:
        """With which hosts seal the frames of that exchange, in hex."""

    @property
    def why_chained(self) -> str:
        """Why messages travel with the stages of jobs; empty: by an exchange."""

    def run(
        self, job: Order, orders: Sequence[bytes], stages: int, cancelled: threading.Event, patience_s: float
    ) -> list[Report]:
        """See `Chain.run`."""

    def close(self) -> None:
        """Nothing runs over this list of nodes any more."""


class Connection:
    """Leads to the hosts at which jobs are run; after a failure, or for another list of them, anew."""

    def __init__(self) -> None:
        self._jobs: Jobs | None = None
        self._hosts: tuple[str, ...] = ()
        self._left: list[Jobs] = []
        """Those of other lists, which go on until the hosts have changed over."""
        self.link = 0
        """Number of the exchange that was used last."""
        self.link_key = ""
        """The key of that."""
        self.why_chained = ""
        """Why the last jobs had none."""

    def to(self, hosts: tuple[str, ...], connect: Callable[[Sequence[str]], Jobs]) -> bool:
        """Connect to these hosts, if that is not done; says whether messages travel by another exchange than before."""
        if hosts != self._hosts and self._jobs is not None:
            self._left.append(self._jobs)
            self._jobs = None
        if self._jobs is None:
            self._jobs, self._hosts = connect(hosts), hosts
        before, self.link, self.link_key = self.link, self._jobs.link, self._jobs.link_key
        self.why_chained = self._jobs.why_chained
        return self.link != before

    def run(
        self, job: Order, orders: Sequence[bytes], cancelled: threading.Event, patience_s: float
    ) -> list[Report]:
        """A job over the hosts; see `Chain.run`."""
        assert self._jobs is not None
        reports = self._jobs.run(job, orders, 1 if self.link else STAGES, cancelled, patience_s)
        self._leave()
        return reports

    def end(self) -> None:
        """Leave these hosts."""
        if self._jobs is not None:
            self._left.append(self._jobs)
        self._jobs, self._hosts = None, ()
        self._leave()

    def _leave(self) -> None:
        for jobs in self._left:
            jobs.close()
        self._left.clear()
