"""A graph that changes: links and sources come and go, for the query which nodes can be reached from where.

The workload is that of Siachamis et al., "CheckMate: Evaluating Checkpointing Protocols for Streaming Dataflows",
section VI, with the shares of their generator.  What can be deleted depends on all that came before, so a batch
cannot be computed from its number alone: a process makes the batches one after the other, once for all of its
sources, and keeps the newest.

Invariant: batch b is a function of (seed, rate, interval, nodes, b) alone, whatever partitions and
processes ask for.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from reprise.spark_jobs.contract import Columns, Place, Range, Source
from reprise.spark_jobs.operators.frames import END_OF_TIME
from reprise.spark_jobs.operators.parameters import choice, duration_us, whole
from reprise.spark_jobs.sources.generator import uniform

KINDS = ("links", "sources", "deletes")
NEW_LINK, NEW_SOURCE, DELETE_LINK = 0.6, 0.15, 0.2
"""Shares of the events; the rest, 5 %, deletes a source."""
FROM_SOURCE, FROM_LINK = 0.1, 0.2
"""Shares of new links that begin at a source, and where another link ends."""
_DRAWS = 4
_KEPT = 64
_COLUMNS = {
    "links": ("time", "start_node", "end_node"),
    "sources": ("time", "source", "reachable", "path"),
    "deletes": ("time", "source", "start_node", "end_node"),
}


class Change(NamedTuple):
    """One row of a batch: the number of its event, and a source's node or a link's two nodes."""

    event: int
    source: int | None
    link: tuple[int | None, int | None]


Batch = dict[str, list[Change]]


class ReachabilitySource(Source):
    """Changes of one `kind` of a graph of `nodes` nodes: new `links`, new `sources`, or `deletes` of both.

    `rate`: events a second of all three kinds together: 60 % are new links, 15 % new sources, 20 % delete a link and
    5 % a source.  Of new links 10 % begin at a source, 20 % where another link ends, the others anywhere.  Only what
    is there when a batch begins is deleted; where nothing is, a link is added instead.  Nodes are numbered from 1;
    `seed` and these decide all.

    Columns, all int64: links `time`, `start_node`, `end_node`; sources `time`, `source`, `reachable`, `path` (a list
    of the source alone); deletes `time`, and either `source` or `start_node` and `end_node`.
    """

    def __init__(
        self,
        *,
        kind: str,
        rate: int,
        nodes: int = 1_000_000,
        interval: str = "500ms",
        batches: int | None = None,
        seed: int = 0,
        start: int = 0,
    ) -> None:
        self.kind = choice(kind, "kind", KINDS)
        self.rate = whole(rate, "rate")
        self.nodes = whole(nodes, "nodes", least=2)
        self.interval = duration_us(interval, "interval")
        self.batches = None if batches is None else whole(batches, "batches")
        self.seed = whole(seed, "seed", least=0)
        self.start = whole(start, "start", least=0)

    def output_columns(self) -> Columns:
        return _COLUMNS[self.kind]

    def advance(self, place: Place, batch: int, start: int) -> int | None:
        """The number of the event with which a batch ends: offsets count events, of which this partition
        gives some."""
        if self.batches is not None and batch > self.batches:
            return None
        return max(start, batch * self.rate * self.interval // 1_000_000)

    def read(self, place: Place, batch: int, span: Range) -> pa.Table:
        changes = _stream(self.nodes, self.rate, self.interval, self.seed).batch(batch)[self.kind]
        own = changes[place.index :: place.parallelism]
        times = np.array([change.event for change in own], np.int64) * 1_000_000 // self.rate + self.start
        sources = pa.array([change.source for change in own], pa.int64())
        links = {
            name: pa.array([change.link[i] for change in own], pa.int64())
            for i, name in enumerate(("start_node", "end_node"))
        }
        paths = pa.array([[change.source] for change in own], pa.list_(pa.int64()))
        every = {"time": times, "source": sources, "reachable": sources, "path": paths, **links}
        return pa.table({name: every[name] for name in _COLUMNS[self.kind]})

    def watermark(self, place: Place, batch: int, span: Range) -> int | None:
        if self.batches is not None and batch >= self.batches:
            return END_OF_TIME
        return self.start + span.end * 1_000_000 // self.rate


class Drawn:
    """A set from which a member can be drawn by a uniform number, always the same one for the same history."""

    def __init__(self) -> None:
        self._members: list[Any] = []
        self._place: dict[Hashable, int] = {}

    def __len__(self) -> int:
        return len(self._members)

    def add(self, member: Hashable) -> None:
        """Add a member, unless it is there."""
        if member not in self._place:
            self._place[member] = len(self._members)
            self._members.append(member)

    def draw(self, u: float) -> Any:
        """One member, for u in [0, 1)."""
        return self._members[int(u * len(self._members))]

    def take(self, u: float) -> Any:
        """One member, which is removed."""
        found = self.draw(u)
        place, last = self._place.pop(found), self._members.pop()
        if last != found:
            self._members[place] = last
            self._place[last] = place
        return found


class _Stream:
    """The batches of one graph, made in order; threads of a process share it."""

    def __init__(self, nodes: int, rate: int, interval: int, seed: int) -> None:
        self.nodes, self.rate, self.interval = nodes, rate, interval
        self.stream = np.uint64((seed * 1_000_003 + len(KINDS)) % (1 << 64))
        self._lock = threading.Lock()
        self._begin()

    def _begin(self) -> None:
        self.links, self.sources, self.newest = Drawn(), Drawn(), 0
        self.kept: dict[int, Batch] = {}

    def batch(self, number: int) -> Batch:
        """One batch; one that is older than those that are kept makes it begin again."""
        with self._lock:
            if number <= self.newest and number not in self.kept:
                self._begin()
            while self.newest < number:
                self.newest += 1
                self.kept[self.newest] = self._make(self.newest)
                self.kept.pop(self.newest - _KEPT, None)
            return self.kept[number]

    def _make(self, number: int) -> Batch:
        first, end = (n * self.rate * self.interval // 1_000_000 for n in (number - 1, number))
        numbers = uniform(self.stream, np.arange(first * _DRAWS, end * _DRAWS)).reshape(-1, _DRAWS)
        found: Batch = {kind: [] for kind in KINDS}
        rest: list[tuple[int, Sequence[float]]] = []
        for event, draws in enumerate(numbers.tolist(), first):
            gone = self._delete(draws)
            if gone is None:
                rest.append((event, draws))
            else:
                found["deletes"].append(Change(event, *gone))
        begins = self._begins([u for _, u in rest])
        for (event, u), begin in zip(rest, begins, strict=True):
            if NEW_LINK <= u[0] < NEW_LINK + NEW_SOURCE:
                self.sources.add(begin)
                found["sources"].append(Change(event, begin, (None, None)))
            else:
                # Any node but the one where it begins.
                link = begin, (begin + int(u[2] * (self.nodes - 1))) % self.nodes + 1
                self.links.add(link)
                found["links"].append(Change(event, None, link))
        return found

    def _delete(self, u: Sequence[float]) -> tuple[int | None, tuple[int | None, int | None]] | None:
        """What an event deletes; None when it adds something."""
        if u[0] < NEW_LINK + NEW_SOURCE:
            return None
        if u[0] < NEW_LINK + NEW_SOURCE + DELETE_LINK:
            return (None, self.links.take(u[1])) if len(self.links) else None
        return (self.sources.take(u[1]), (None, None)) if len(self.sources) else None

    def _begins(self, draws: Sequence[Sequence[float]]) -> list[int]:
        """The node of each new source, and where each new link begins, among what the deletes of the batch left."""
        found = []
        for u in draws:
            new_source = NEW_LINK <= u[0] < NEW_LINK + NEW_SOURCE
            if not new_source and u[1] < FROM_SOURCE and len(self.sources):
                found.append(int(self.sources.draw(u[3])))
            elif not new_source and FROM_SOURCE <= u[1] < FROM_SOURCE + FROM_LINK and len(self.links):
                found.append(int(self.links.draw(u[3])[1]))
            else:
                found.append(1 + int(u[3] * self.nodes))
        return found


@lru_cache(maxsize=4)
def _stream(nodes: int, rate: int, interval: int, seed: int) -> _Stream:
    return _Stream(nodes, rate, interval, seed)
