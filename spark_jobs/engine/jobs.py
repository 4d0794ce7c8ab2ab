"""What the engine needs of a Spark that runs its jobs; `reprise.spark_jobs.engine.chain` is the one that does."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from reprise.spark_jobs.exchange.settings import MOST_NODES
from reprise.spark_jobs.node.command import Order, Report

log = logging.getLogger("reprise.engine")

STAGES = 3
"""Supersteps of a job whose messages travel with its stages."""
AGAIN_S = (1.0, 2.0, 5.0, 10.0)
"""Between an exchange to more nodes that has failed and the next attempt, by how many have failed in a row."""


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

    @property
    def stands(self) -> bool:
        """Whether all nodes can be reached, so that hosts can change over at once."""

    @property
    def ended(self) -> str:
        """Why no job can be run any more; empty: one can."""

    def run(
        self, job: Order, orders: Sequence[bytes], stages: int, cancelled: threading.Event, patience_s: float
    ) -> list[Report]:
        """See `Chain.run`."""

    def close(self) -> None:
        """Nothing runs over this list of nodes any more."""


Connect = Callable[[Sequence[str]], Jobs]
"""Jobs over the hosts of these addresses."""


@dataclass(frozen=True, slots=True)
class _Way:
    """Jobs, and the nodes that they reach, in the order of their slots."""

    jobs: Jobs
    nodes: tuple[str, ...]

    def carries(self, needed: Collection[str], living: Mapping[str, str]) -> bool:
        """Whether these nodes can be given orders by it.  An exchange may have nodes that are not needed yet, but ends with
        each of them; a chain has a task on each."""
        if not self.jobs.link:
            return set(self.nodes) == set(needed)
        return set(needed) <= set(self.nodes) <= living.keys()


_W = TypeVar("_W", _Way, None)


class Connection:
    """Leads to the hosts at which jobs are run.

    An exchange takes a second or more to begin, and nothing travels meanwhile.  So where nodes have come, one over all that
    live begins beside the one that is used, and hosts change over when it stands.  Where a node of the one that is used is
    gone, or a job has failed, nothing travels anyway, and the next one is used at once.
    """

    def __init__(self, problems: list[str], clock: Callable[[], float]) -> None:
        """`problems`: takes what keeps nodes away.  `clock`: seconds that only grow."""
        self._problems, self._clock = problems, clock
        self._used: _Way | None = None
        self._next: _Way | None = None
        self._left: list[Jobs] = []
        """Those that were used before, which go on until the hosts have changed over."""
        self._failed, self._next_at = 0, 0.0
        """How many exchanges to more nodes have failed in a row, and when the next may begin."""
        self.nodes: tuple[str, ...] = ()
        """Nodes that were reached last, in the order of their slots."""
        self.link = 0
        """Number of the exchange that was used last."""
        self.link_key = ""
        """The key of that."""
        self.why_chained = ""
        """Why the last jobs had none."""

    def reaches(self, living: Collection[str]) -> frozenset[str]:
        """Those of these nodes to which orders can go without a break for the others.  From any thread."""
        if not (self.link and self.nodes) or len(living) > MOST_NODES:
            return frozenset(living)
        return frozenset(living).intersection(self.nodes)

    def to(self, needed: Collection[str], living: Mapping[str, str], connect: Connect) -> bool:
        """Reach at least the nodes that are needed, of `living`: node -> host.  Says whether messages travel by another
        exchange than before."""
        self._look_at_next(living)
        used, ahead = self._used, self._next
        lasts = used is not None and used.carries(needed, living)
        if ahead is not None and ahead.carries(needed, living) and (ahead.jobs.stands or not lasts):
            self._next, self._failed = None, 0
            used = self._use(ahead)
        elif used is None or not lasts:
            self._drop_next()
            # nodes that were never reached wait: one that cannot be reached would keep the others from going on
            known = [node for node in self.nodes if node in living] if self.link else []
            used = self._use(_way(_by_host([*known, *needed], living), needed, living, connect))
        elif self._may_widen(used, wide := _by_host([*sorted(living), *used.nodes], living)):
            self._next = _way(wide, needed, living, connect)
            if not self._next.jobs.link:
                used, self._next = self._use(self._next), None
        before, self.link = self.link, used.jobs.link
        self.link_key, self.why_chained = used.jobs.link_key, used.jobs.why_chained
        self.nodes = used.nodes
        return self.link != before

    def _may_widen(self, used: _Way, wide: Collection[str]) -> bool:
        """Whether an exchange to more nodes is to begin.  One at a time: nodes that come meanwhile are all in the next."""
        if not used.jobs.link or len(wide) > MOST_NODES or set(wide) <= set(used.nodes):
            return False
        return self._next is None and used.jobs.stands and self._clock() >= self._next_at

    def _look_at_next(self, living: Mapping[str, str]) -> None:
        """Drop the next exchange where it has ended, or will."""
        if self._next is None:
            return
        if reason := self._next.jobs.ended:
            wait_s = AGAIN_S[min(self._failed, len(AGAIN_S) - 1)]
            self._failed, self._next_at = self._failed + 1, self._clock() + wait_s
            log.warning("event=next-exchange-failed number=%d reason=%r", self._next.jobs.link, reason)
            if self._failed >= len(AGAIN_S):
                self._problems.append(
                    f"nodes wait, as no exchange over {len(self._next.nodes)} nodes begins: {reason}"
                )
        elif living.keys() >= set(self._next.nodes):
            return
        self._drop_next()

    def _drop_next(self) -> None:
        if self._next is not None:
            self._next.jobs.close()
        self._next = None

    def run(
        self, job: Order, orders: Sequence[bytes], cancelled: threading.Event, patience_s: float
    ) -> list[Report]:
        """A job over the hosts of all nodes that are reached; see `Chain.run`."""
        assert self._used is not None
        reports = self._used.jobs.run(job, orders, 1 if self.link else STAGES, cancelled, patience_s)
        self._close_left()
        return reports

    def end(self) -> None:
        """Leave all hosts."""
        self._use(None)
        self._drop_next()
        self._close_left()

    def _use(self, way: _W) -> _W:
        if self._used is not None:
            self._left.append(self._used.jobs)
        self._used = way
        return way

    def _close_left(self) -> None:
        for jobs in self._left:
            jobs.close()
        self._left.clear()


def _by_host(nodes: Iterable[str], living: Mapping[str, str]) -> Collection[str]:
    """These nodes; of several with one address, as one has taken another's place, the one that comes last."""
    return {living[node]: node for node in nodes}.values()


def _way(wide: Collection[str], needed: Collection[str], living: Mapping[str, str], connect: Connect) -> _Way:
    """An exchange over `wide`, or a chain over what is needed."""
    nodes = tuple(sorted(wide))
    found = _Way(connect([living[node] for node in nodes]), nodes)
    return found if found.jobs.link or set(wide) == set(needed) else _way(needed, needed, living, connect)
