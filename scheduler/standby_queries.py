"""Whose standbys are in another failure domain, so that the least priority of queries is lost with one domain.

A domain takes a query when it takes one of its partitions, and leaves it when the standbys of all that are there are in
other domains.  So of the room in these as many queries are to be spared as it lets, by their priority: queries are chosen
that share partitions, under a capacity, as when a plan is made, and that is hard.  They are tried as wholes, greedily, by
priority and by priority for what is missing; a search with a step limit looks at every choice where there are few.  Of
standbys that all cost the same it finds the least that can be lost, as long as the steps are enough.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from reprise.scheduler.standby_places import Places
from reprise.scheduler.view import View

SEARCHED = 12
"""More are not searched: of so many the steps see no noticeable part of the choices."""
SEARCH_STEPS = 2_000
"""Choices that the search looks at before it gives up: about a tenth of a second."""


@dataclass(frozen=True, slots=True)
class Take:
    """What one domain takes as long as a standby of these partitions is not in another one."""

    priority: int
    """Of all queries with these partitions there."""
    partitions: tuple[str, ...]


def domain_takes(
    view: View, at: Mapping[str, str], apart: Collection[str], near: frozenset[str]
) -> list[Take]:
    """What domains take, of that which standbys could spare.  `apart`: partitions whose standbys are to be in another
    domain; `near`: those of them that have none there; `at`: partition -> its node.

    Not what a partition takes that is to have no standby in another value of that label: it is lost in any case."""
    topology, alive = view.snapshot.topology, view.alive
    labels = set(topology.domains.values())
    of: dict[str, tuple[str, str]] = {}
    in_any_case: dict[tuple[str, str], set[str]] = {}
    for partition, node in at.items():
        values = alive[node].labels if node in alive else {}
        for domain in ((label, values[label]) for label in labels if label in values):
            if partition in apart and topology.domains[partition] == domain[0]:
                of[partition] = domain
            else:
                in_any_case.setdefault(domain, set()).add(partition)
    order = {p.id: k for k, p in enumerate(topology.partitions)}
    found: dict[tuple[str, ...], int] = {}
    for query in topology.queries:
        there: dict[tuple[str, str], list[str]] = {}
        for partition in sorted(near & query.partitions, key=order.__getitem__):
            if partition in of:
                there.setdefault(of[partition], []).append(partition)
        if not there or view.poisoned(query) is not None:
            continue
        for domain, partitions in there.items():
            if query.partitions.isdisjoint(in_any_case.get(domain, ())):
                key = tuple(partitions)
                found[key] = found.get(key, 0) + query.priority
    return [Take(priority, partitions) for partitions, priority in found.items()]


def least_lost(places: Places, takes: Sequence[Take]) -> Places:
    """Places with which least of that is lost, as far as this finds them."""
    if not takes:
        return places
    by_priority = sorted(takes, key=lambda t: -t.priority)
    by_density = sorted(by_priority, key=lambda t: -t.priority / len(t.partitions))
    found = [_greedy(places, order) for order in (by_priority, by_density)]
    best = max(found, key=lambda one: _spared(one, takes))
    return _Search(by_density, best).run(places) if len(takes) <= SEARCHED else best


def _spared(places: Places, takes: Iterable[Take]) -> int:
    """The priority that is not lost."""
    return sum(take.priority for take in takes if all(map(places.is_apart, take.partitions)))


def _greedy(places: Places, takes: Iterable[Take]) -> Places:
    for take in takes:
        places = _with(places, take) or places
    return places


def _with(places: Places, take: Take) -> Places | None:
    """Places with which that is spared, too; None where one finds none."""
    missing = [p for p in take.partitions if not places.is_apart(p)]
    if not missing:
        return places
    if not places.could_hold(missing):
        return None
    tried = places.copy()
    return tried if all(map(tried.seek, missing)) else None


class _Search:
    """Tries each of the takes with and without being spared, and leaves what cannot become better than the best known."""

    def __init__(self, takes: Sequence[Take], best: Places) -> None:
        self.takes, self.best, self.steps = takes, best, SEARCH_STEPS
        self.most = _spared(best, takes)

    def run(self, places: Places) -> Places:
        self._next(places, 0)
        return self.best

    def _next(self, places: Places, place: int) -> None:
        spared = _spared(places, self.takes)
        if spared > self.most:
            self.best, self.most = places, spared
        open_ = [t for t in self.takes[place:] if not all(map(places.is_apart, t.partitions))]
        self.steps -= 1
        if not open_ or self.steps <= 0 or spared + sum(t.priority for t in open_) <= self.most:
            return
        take = open_[0]
        after = self.takes.index(take) + 1
        if (tried := _with(places, take)) is not None:
            self._next(tried, after)
        self._next(places, after)
