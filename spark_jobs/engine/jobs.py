"""What the engine needs of a Spark that runs its jobs; `reprise.spark_jobs.engine.chain` is the one that does."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from reprise.spark_jobs.exchange.settings import MOST_NODES
from reprise.spark_jobs.node.command import Order, Report

log = logging.getLogger("reprise.engine")

STAGES = 3
"""Supersteps of a job whose messages travel with its stages."""
AGAIN_S = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
"""Between an exchange to more nodes that has failed and the next attempt, by how many have failed in a row."""
ONE_BY_ONE = 2
"""After so many attempts each has only one of the nodes that wait: one that cannot be reached keeps no other away."""
REPORTED = 4
"""After so many a person is told."""
CONNECT_S = 60.0
"""An exchange whose relays are not all connected by then has failed."""
CALM_S = 30.0
"""An exchange that fails within that time after its first use perhaps cannot reach all of its nodes."""


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


class Connection:
    """Leads to the hosts at which jobs are run.

    An exchange takes a second or more to begin, and nothing travels meanwhile.  So where nodes have come, one over all that
    live begins beside the one that is used, and hosts change over when it stands.  Where a node of the one that is used is
    gone, or a job has failed, nothing travels anyway, and the next one is used at once.  It leaves out nodes that were never
    reached.  Where the last one failed soon after its first use, it leaves out all nodes without partitions.
    """

    def __init__(self, problems: list[str], clock: Callable[[], float]) -> None:
        """`problems`: takes what keeps nodes away.  `clock`: seconds that only grow."""
        self._problems, self._clock = problems, clock
        self._used: _Way | None = None
        self._used_since = -CALM_S
        self._hasty = False
        """The last one failed soon after its first use."""
        self._next: _Way | None = None
        self._next_until = 0.0
        self._left: list[Jobs] = []
        """Those that were used before, which go on until the hosts have changed over."""
        self._wanted: set[str] = set()
        """Nodes over which an exchange was to begin."""
        self._failed, self._next_at = 0, 0.0
        """How many attempts with these have failed, and when the next may begin."""
        self.doubted: set[str] = set()
        """Nodes that have kept an exchange from beginning, until somebody looks after them."""
        self.nodes: tuple[str, ...] = ()
        """Nodes that were reached last, in the order of their slots."""
        self.link = 0
        """Number of the exchange that was used last."""
        self.link_key = ""
        """The key of that."""
        self.why_chained = ""
        """Why the last jobs had none."""

    def reaches(self, living: Collection[str]) -> frozenset[str]:
        """Those of these nodes that need no other exchange to be reached; all, where jobs carry the messages or an exchange
        cannot have so many.  From any thread."""
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
            self._next, self._next_at = None, 0.0
            used = self._use(ahead)
        elif used is None or not lasts:
            self._drop_next()
            used = self._use(self._at_once(needed, living, connect))
        elif fresh := self._fresh(used, living):
            self._next, self._next_until = (
                _way([*used.nodes, *fresh], living, connect),
                self._clock() + CONNECT_S,
            )
            if not self._next.jobs.link:
                self._fails(self._next, self._next.jobs.why_chained)
                if self._failed > ONE_BY_ONE:  # jobs carry the messages of all nodes
                    used = self._use(_way(needed, living, connect))
        before, self.link = self.link, used.jobs.link
        self.link_key, self.why_chained = used.jobs.link_key, used.jobs.why_chained
        self.nodes = used.nodes
        return self.link != before

    def _at_once(self, needed: Collection[str], living: Mapping[str, str], connect: Connect) -> _Way:
        known = [node for node in self.nodes if node in living] if self.link and not self._hasty else []
        found = _way(_by_host([*known, *needed], living), living, connect)
        return found if found.jobs.link or not known else _way(needed, living, connect)

    def _fresh(self, used: _Way, living: Mapping[str, str]) -> Sequence[str]:
        """Nodes to which an exchange is to begin now.  One begins at a time: those that come meanwhile are in the next."""
        if not used.jobs.link or self._next is not None or not used.jobs.stands:
            return ()
        wide = _by_host([*sorted(living), *used.nodes], living)
        if not self._wanted.issuperset(wide):
            self._wanted, self._failed, self._next_at = set(wide), 0, 0.0
        if self._clock() < self._next_at:
            return ()
        fresh = [node for node in wide if node not in used.nodes][: MOST_NODES - len(used.nodes)]
        return [fresh[self._failed % len(fresh)]] if fresh and self._failed >= ONE_BY_ONE else fresh

    def _look_at_next(self, living: Mapping[str, str]) -> None:
        """Drop the next exchange where it has ended, or will."""
        if self._next is None:
            return
        if not living.keys() >= set(self._next.nodes):
            self._drop_next()
        elif reason := self._next.jobs.ended:
            self._fails(self._next, reason)
        elif not self._next.jobs.stands and self._clock() > self._next_until:
            self._fails(self._next, f"not all nodes are connected within {CONNECT_S:.0f} s")

    def _fails(self, way: _Way, reason: str) -> None:
        """An exchange to more nodes has failed."""
        self._failed += 1
        self._next_at = self._clock() + AGAIN_S[min(self._failed, len(AGAIN_S)) - 1]
        used = () if self._used is None else self._used.nodes
        fresh = [node for node in way.nodes if node not in used]
        self.doubted.update(fresh)
        log.warning(
            "event=next-exchange-failed number=%d failures=%d reason=%r", way.jobs.link, self._failed, reason
        )
        if self._failed >= REPORTED:
            self._problems.append(
                f"{', '.join(fresh)}: no exchange to it begins, so it is not used: {reason}"
            )
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
        """Leave all hosts, as a job has failed."""
        now = self._clock()
        self._hasty = self._used is not None and now - self._used_since < CALM_S
        if self._hasty:  # perhaps because of the nodes that it has more than the one before
            self._failed += 1
            self._next_at = now + AGAIN_S[min(self._failed, len(AGAIN_S)) - 1]
        self._leave_used()
        self._drop_next()
        self._close_left()

    def _use(self, way: _Way) -> _Way:
        self._leave_used()
        self._used, self._used_since = way, self._clock()
        return way

    def _leave_used(self) -> None:
        if self._used is not None:
            self._left.append(self._used.jobs)
        self._used = None

    def _close_left(self) -> None:
        for jobs in self._left:
            jobs.close()
        self._left.clear()


def _by_host(nodes: Iterable[str], living: Mapping[str, str]) -> Collection[str]:
    """These nodes; of several with one address, as one has taken another's place, the one that comes last."""
    return {living[node]: node for node in nodes}.values()


def _way(nodes: Collection[str], living: Mapping[str, str], connect: Connect) -> _Way:
    ordered = tuple(sorted(nodes))
    return _Way(connect([living[node] for node in ordered]), ordered)
