"""Partitions of one query in one failure domain: placements that lose less priority when a zone, rack or pool is lost.

`nodes.failureDomain` names a label of nodes.  The first start, and each plan for what was lost, then chooses among the
places that the nodes have room for (`reprise.algorithms.domains`).  What a plan brings back does not change, only where, and
what runs stays.

It must not fill some nodes and leave others empty, as a full node is slow and takes more with it when it is lost.  So no
node gets fuller than a fifth above the mean of all of them, or than the fullest of those that would have been given
something without domains, where that is more.  By these costs `reprise.scheduler.rebalancing` begins no sooner for it.

A partition is not lost with its domain while its standby is in another one, so it may be anywhere.  Plans count those that
are there, and stay beside what they place; the first start those for which there is room then.  A standby that has no room
spares nothing.  A node without the label is a domain of its own: nobody knows with which others it would be lost.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, replace
from fractions import Fraction
from math import floor

from reprise.algorithms.domains import Needs, Rank, Site, in_domains, lost_with, rank_of
from reprise.scheduler.costs import free_on
from reprise.scheduler.eviction import Placed, rest_fits
from reprise.scheduler.model import Desired, Node
from reprise.scheduler.standby_placement import placement, staying
from reprise.scheduler.standby_places import with_standbys_apart
from reprise.scheduler.view import View

ABOVE_MEAN = (6, 5)
"""Times the mean share that a node may have."""


def regarding(
    view: View, costs: Mapping[str, int], held: Mapping[str, str], added: Mapping[str, str]
) -> dict[str, str]:
    """The nodes of `added`, or others with which less priority is lost with a failure domain; the same where the topology
    names no label of them, or all nodes are in one.  `held`: what runs beside it."""
    desired = view.snapshot.desired
    standbys = desired.standbys if desired is not None else {}
    there = _spared(view, held, standbys)

    def spared(one: Mapping[str, str]) -> Set[str]:
        after = {**held, **one}
        fuller = set(one.values())
        return _spared(view, after, staying(view, costs, after, standbys, fuller))

    if not there:
        return _placed(view, costs, held, added, frozenset())
    guesses = dict.fromkeys((there, there & spared(added)))  # in this order, as sets have none
    return _least_lost(view, costs, held, added, guesses, spared)


def at_start(view: View, costs: Mapping[str, int], added: Mapping[str, str]) -> dict[str, str]:
    """The same of everything, before anybody has a standby: those count for which there will be room in other domains."""
    topology, label = view.snapshot.topology, view.policy.failure_domain
    if label is None:
        return dict(added)
    doubled = frozenset(p for p in view.may_have_standbys if topology.domains.get(p) == label)
    if not doubled:
        return _placed(view, costs, {}, added, frozenset())

    def spared(one: Mapping[str, str]) -> Set[str]:
        return _spared(view, one, placement(view, Desired(0, 0, 0, "", one)))

    return _least_lost(view, costs, {}, added, (frozenset(), doubled), spared)


def _placed(
    view: View,
    costs: Mapping[str, int],
    held: Mapping[str, str],
    added: Mapping[str, str],
    spared: Set[str],
) -> dict[str, str]:
    """Nodes for `added` with which least is lost if `spared` are not lost with their domains."""
    domains = domains_of(view.policy.failure_domain, view.open_nodes)
    if len(set(domains.values())) < 2 or not added:
        return dict(added)
    sites = [Site(n, domains[n], room) for n, room in _room(view, costs, held, added).items()]
    beside = {p: domains[n] for p, n in held.items() if n in domains and p not in spared}
    return in_domains(sites, needs(view, spared & added.keys()), costs, added, beside)


def _least_lost(
    view: View,
    costs: Mapping[str, int],
    held: Mapping[str, str],
    added: Mapping[str, str],
    guesses: Iterable[Set[str]],
    spared: Callable[[Mapping[str, str]], Set[str]],
) -> dict[str, str]:
    """The best of `added` and of what is placed as if a guess of who is spared were right, by who is `spared` then."""
    domains, queries = domains_of(view.policy.failure_domain, view.alive.values()), needs(view)

    def rank(one: Mapping[str, str]) -> Rank:
        spares = spared(one)
        at = {p: domains[n] for p, n in {**held, **one}.items() if n in domains and p not in spares}
        return rank_of(lost_with(queries, at))

    return min((dict(added), *(_placed(view, costs, held, added, guess) for guess in guesses)), key=rank)


def _spared(view: View, at: Mapping[str, str], standbys: Mapping[str, str]) -> frozenset[str]:
    """Partitions that are not lost with their domain, as their standbys are in another one and may go on in their place."""
    label = view.policy.failure_domain
    if label is None:
        return frozenset()
    able = {p: n for p, n in standbys.items() if view.may_be_promoted(p)}
    return with_standbys_apart(label, at, able, view.alive)


def regarded(view: View, costs: Mapping[str, int], placed: Placed, nodes: int) -> Placed:
    """A plan whose partitions go where least priority is lost with a failure domain.  As it was where what it leaves out
    would wait for more nodes then; `nodes`: as many as there may be again."""
    added = regarding(view, costs, placed.held, placed.planned.added)
    if added == placed.planned.added:
        return placed
    after = replace(placed, planned=replace(placed.planned, added=added))
    counts = range(len(view.usable), max(nodes, len(view.usable)) + 1)
    enough = bisect_left(counts, True, key=lambda count: rest_fits(view, costs, placed, count))
    waits = enough < len(counts) and not rest_fits(view, costs, after, counts[enough])
    return placed if waits else after


def domains_of(label: str | None, nodes: Iterable[Node]) -> dict[str, str]:
    """The domain of each node, by id; empty where the topology names no label of them."""
    if label is None:
        return {}
    return {n.id: f"{label}={n.labels[label]}" if label in n.labels else f"node {n.id}" for n in nodes}


@dataclass(frozen=True, slots=True)
class Losses:
    """What the loss of one domain would take, of the queries that have all of their partitions on nodes that are there."""

    priority: int
    """Summed priority of these queries."""
    by_domain: Mapping[str, int]
    """Of each domain that has nodes, the summed priority of those that need a partition there."""

    @property
    def mean(self) -> float:
        """What is lost with one domain on average, each as likely as the others."""
        return sum(self.by_domain.values()) / len(self.by_domain)

    @property
    def worst(self) -> int:
        """What is lost with the domain that takes most."""
        return max(self.by_domain.values())

    def __str__(self) -> str:
        return self.said()

    def said(self, without: str = "") -> str:
        """The same in words; `without` says what is not considered."""
        return (
            f"of a priority of {self.priority}, {self.mean:.1f} would be lost{without} with one of {len(self.by_domain)} "
            f"failure domains on average, and {self.worst} with the worst"
        )


def losses(
    domains: Mapping[str, str],
    queries: Iterable[Needs],
    partitions: Iterable[str],
    assignment: Mapping[str, str],
    spared: Set[str] = frozenset(),
) -> Losses:
    """What each domain would take under a placement.  `domains`: those of the nodes that are there (`domains_of`);
    `partitions`: all of the topology; `spared`: those that are not lost with their domain."""
    at = {p: domains[n] for p, n in assignment.items() if n in domains}
    nowhere = set(partitions) - at.keys()
    whole = [query for query in queries if query.partitions.isdisjoint(nowhere)]
    lost = lost_with(whole, {p: domain for p, domain in at.items() if p not in spared})
    by_domain = {**dict.fromkeys(sorted(set(domains.values())), 0), **lost}
    return Losses(sum(query.priority for query in whole), by_domain)


def said(view: View, assignment: Mapping[str, str]) -> str:
    """What the loss of a domain would take, in words; empty where the topology names no label of domains, or all nodes are
    in one."""
    topology = view.snapshot.topology
    domains = domains_of(view.policy.failure_domain, view.alive.values())
    queries = (Needs(q.priority, q.partitions) for q in topology.queries)
    found = losses(domains, queries, (p.id for p in topology.partitions), assignment)
    if len(found.by_domain) < 2:
        return ""
    without = " without standbys" if topology.standbys else ""
    return found.said(without)


def needs(view: View, spared: Set[str] = frozenset()) -> list[Needs]:
    """Queries, with the partitions with which they would be lost: not those that are `spared`."""
    queries = view.snapshot.topology.queries
    return [Needs(q.priority, q.partitions - spared if spared else q.partitions) for q in queries]


def _room(
    view: View, costs: Mapping[str, int], held: Mapping[str, str], added: Mapping[str, str]
) -> dict[str, int]:
    """Milli-CPU of what is added that each node may be given."""
    nodes = view.open_nodes
    size = {n.id: n.cpu_milli for n in nodes}
    given = dict.fromkeys(size, 0)
    for partition, node in added.items():
        given[node] += costs[partition]
    runs = dict.fromkeys(size, 0)
    for partition, node in held.items():
        if node in runs:
            runs[node] += costs.get(partition, 1)
    whole, all_of_it = sum(size.values()), sum(runs.values()) + sum(given.values())
    free = free_on(nodes, view.policy, costs, held)
    times, of = ABOVE_MEAN
    fullest = max(
        (Fraction(runs[n] + given[n], max(1, size[n])) for n in size if given[n]), default=Fraction(0)
    )
    share = max(fullest, Fraction(all_of_it * times, max(1, whole * of)))
    return {n: max(given[n], min(free[n], floor(size[n] * share) - runs[n])) for n in size}
