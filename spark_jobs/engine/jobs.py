"""What the engine needs of a Spark that runs its jobs; `reprise.spark_jobs.engine.chain` is the one that does."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from reprise.spark_jobs.errors import JobError
from reprise.spark_jobs.exchange.settings import MOST_NODES
from reprise.spark_jobs.node.command import Order, Report

log = logging.getLogger("reprise.engine")

STAGES = 3
"""Supersteps of a job whose messages travel with its stages."""
AGAIN_S = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
"""Between a failure for which a node is blamed and the next attempt with it, by how many there were."""
FORGET_S = 600.0
"""After so long without another one they are forgotten."""
ALONE = 2
"""A node that was blamed so often is tried alone, so that it keeps no other away."""
REPORTED = 4
"""From so many on the driver reports a problem."""
CONNECT_S = 60.0
"""An exchange whose relays are not all connected by then has failed."""


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
        """Whether all nodes reach each other and the driver, so that hosts can change over at once."""

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


@dataclass(frozen=True, slots=True)
class _Blame:
    """How many failures a node is blamed for, when the last one was, and when there may be another attempt with it."""

    count: int
    at: float
    until: float


class Connection:
    """Leads to the hosts at which jobs are run.

    An exchange takes a second or more to begin, and nothing travels meanwhile.  So where nodes have come, one over all that
    live begins beside the one that is used, and hosts change over when it stands.  Where a node of the one that is used is
    gone, or a job has failed, nothing travels anyway, and the next one is used at once.  It leaves out nodes that were never
    reached, and where no loss explains the failure also those without partitions, which are blamed.
    """

    def __init__(self, problems: list[str], clock: Callable[[], float]) -> None:
        """`problems`: takes what keeps nodes away.  `clock`: seconds that only grow."""
        self._problems, self._clock = problems, clock
        self._used: _Way | None = None
        self._next: _Way | None = None
        self._next_until = 0.0
        self._failed: tuple[str, ...] = ()
        """Nodes of the last connection, of which any may be the cause of its failure."""
        self._left: list[Jobs] = []
        """Those that were used before, which go on until the hosts have changed over."""
        self._blamed: dict[str, _Blame] = {}
        self.doubted: set[str] = set()
        """Nodes that were blamed, until the driver has them made ready once more."""
        self.nodes: tuple[str, ...] = ()
        """Nodes of the last connection, in the order of their slots."""
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
            self._next = None
            used = self._use(ahead)
        elif used is None or not lasts:
            self._drop_next()
            used = self._use(self._at_once(needed, living, connect))
        elif fresh := self._fresh(used, living):
            self._next = _way([*used.nodes, *fresh], living, connect)
            self._next_until = self._clock() + CONNECT_S
            if why := self._next.jobs.why_chained:
                self._next = None
                self._blame(fresh, why)
                if all(self._blamed[node].count >= REPORTED for node in fresh):
                    used = self._use(_way(needed, living, connect))  # jobs carry the messages of all nodes
        self._failed = ()
        before, self.link = self.link, used.jobs.link
        self.link_key, self.why_chained = used.jobs.link_key, used.jobs.why_chained
        self.nodes = used.nodes
        return self.link != before

    def _at_once(self, needed: Collection[str], living: Mapping[str, str], connect: Connect) -> _Way:
        known = [node for node in self.nodes if node in living and node not in needed] if self.link else []
        if living.keys() >= set(self._failed):
            suspects = [node for node in known if node in self._failed]
            known = [node for node in known if node not in suspects]
            if suspects:
                self._blame(suspects, "an exchange with it has failed, and no node was lost")
        nodes = _by_host([*known, *sorted(needed)], living)
        if lost := set(needed).difference(nodes):
            raise JobError(f"another node has the address of {', '.join(sorted(lost))}")
        found = _way(nodes, living, connect)
        return found if found.jobs.link or not known else _way(needed, living, connect)

    def _fresh(self, used: _Way, living: Mapping[str, str]) -> Sequence[str]:
        """Nodes to which an exchange is to begin now.  One begins at a time: those that come meanwhile are in the next."""
        if not used.jobs.link or self._next is not None or not used.jobs.stands:
            return ()
        now, none = self._clock(), _Blame(0, 0.0, 0.0)
        self._forget(now)
        wide = _by_host([*sorted(living), *used.nodes], living)
        blames = {node: self._blamed.get(node, none) for node in wide if node not in used.nodes}
        ready = [node for node, blame in blames.items() if blame.until <= now]
        several = [node for node in ready if blames[node].count < ALONE]
        chosen = several or sorted(ready, key=lambda node: blames[node].until)[:1]
        return chosen[: MOST_NODES - len(used.nodes)]

    def _forget(self, now: float) -> None:
        self._blamed = {node: blame for node, blame in self._blamed.items() if now - blame.at < FORGET_S}

    def _look_at_next(self, living: Mapping[str, str]) -> None:
        """Drop the next exchange where it has ended, or will."""
        if self._next is None:
            return
        reason = self._next.jobs.ended
        if not reason and not self._next.jobs.stands and self._clock() > self._next_until:
            reason = f"not all nodes are connected within {CONNECT_S:.0f} s"
        whole = living.keys() >= set(self._next.nodes)
        if whole and reason:
            self._blame([node for node in self._next.nodes if node not in self.nodes], reason)
        if reason or not whole:
            self._drop_next()

    def _blame(self, nodes: Sequence[str], reason: str) -> None:
        """An exchange with these has failed, or with one of them."""
        now = self._clock()
        self._forget(now)
        for node in nodes:
            count = self._blamed[node].count + 1 if node in self._blamed else 1
            self._blamed[node] = _Blame(count, now, now + AGAIN_S[min(count, len(AGAIN_S)) - 1])
            if count >= REPORTED:
                self._problems.append(f"node {node} is not used, as no exchange with it lasts: {reason}")
        self.doubted.update(nodes)
        log.warning("event=nodes-blamed nodes=%s reason=%r", ",".join(nodes), reason)

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

    def end(self, slot: int | None = None) -> None:
        """Leave all hosts, as a job has failed.  `slot`: the one that is known to be the cause."""
        if self._used is not None:
            self._failed = self.nodes if slot is None else self.nodes[slot : slot + 1]
        self._leave_used()
        self._drop_next()
        self._close_left()

    def _use(self, way: _Way) -> _Way:
        self._leave_used()
        self._used = way
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
