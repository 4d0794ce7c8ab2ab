"""Which partitions go to which failure domain, so that the least priority is lost when a domain is lost as a whole.

A query is down when any partition that it needs is down.  Where its partitions are spread over all zones, racks or pools,
the loss of any one of them stops it; where they are together, one loss does.  To place them so is to partition a hypergraph
into balanced parts: partitions are its vertices, queries its edges with their priorities as weights, domains its parts, and
the priority that is lost, summed over the domains, is the connectivity metric (Catalyurek and Aykanat, "Hypergraph-
partitioning-based decomposition for parallel sparse-matrix vector multiplication", 1999).  That is hard, so this improves a
placement that is there: partitions that the same queries need are placed together, greedily, then exchanged between domains,
and a search with a step limit looks at every choice where there are few partitions.

Of two placements the better one loses less priority with a domain on average, each domain being as likely as the others; of
equal ones the better one loses less with its worst domain.

Invariant: what comes out fits, node by node, and is no worse than what went in.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

from reprise.algorithms.packing import pack
from reprise.algorithms.union_set import UnionSet

SEARCH_STEPS = 20_000
"""Choices that the search looks at before it gives up: about a fifth of a second."""
SEARCHED = 20
"""More partitions than this are not searched: of so many the steps see no noticeable part of the choices."""
EXCHANGED = 200_000
"""Partitions that are looked at in all exchanges that are tried: about a tenth of a second."""

Rank = tuple[int, int]
"""Priority lost, summed over the domains, and with the worst one; the less the better."""


@dataclass(frozen=True, slots=True)
class Site:
    """A node that may be given partitions."""

    id: str
    domain: str
    room: int
    """Milli-CPU of all that may be placed there."""


@dataclass(frozen=True, slots=True)
class Needs:
    """A query: what it is worth, and the partitions with which it is lost."""

    priority: int
    partitions: Set[str]


def lost_with(queries: Iterable[Needs], at: Mapping[str, str]) -> dict[str, int]:
    """The priority that is lost with each domain.  `at`: partition -> its domain; what is in none is lost with none."""
    found = dict.fromkeys(sorted(set(at.values())), 0)
    shared: dict[int, tuple[Set[str], Set[str]]] = {}
    for query in queries:
        common, own = UnionSet.parts_of(query.partitions)
        if id(common) not in shared:
            shared[id(common)] = common, {at[p] for p in common if p in at}
        for domain in shared[id(common)][1] | {at[p] for p in own if p in at}:
            found[domain] += query.priority
    return found


def rank_of(lost: Mapping[str, int]) -> Rank:
    """How bad that is, in the order by which placements are compared."""
    return sum(lost.values()), max(lost.values(), default=0)


def in_domains(
    sites: Sequence[Site],
    queries: Sequence[Needs],
    costs: Mapping[str, int],
    start: Mapping[str, str],
    held: Mapping[str, str],
) -> dict[str, str]:
    """A node for each partition of `start`, with which less priority is lost, if this finds one; else that of `start`.

    `start` names sites and fits into their room.  `held`: partition -> domain, of those that stay where they are."""
    problem = _problem(sites, queries, costs, start, held)
    domain_of = {site.id: problem.domains.index(site.domain) for site in sites}
    best = _Found(problem, [domain_of[start[p]] for p in problem.partitions], None)
    if len(problem.domains) < 2:
        return dict(start)
    for order in (problem.by_worth(), problem.by_density()):
        best = _better(best, _made(problem, _greedy(problem, order)))
    best = _exchanged(problem, best)
    if len(problem.partitions) <= SEARCHED:
        best = _Search(problem, best).run()
    return dict(start) if best.nodes is None else dict(zip(problem.partitions, best.nodes, strict=True))


@dataclass(frozen=True, slots=True)
class _Group:
    """Partitions that the same queries need: it makes no difference which of them is in a domain."""

    members: tuple[int, ...]
    """The dearest first."""
    mask: int
    """The queries, as bits."""


@dataclass(frozen=True, slots=True)
class _Problem:
    """Partitions, groups and domains are counted from 0."""

    partitions: tuple[str, ...]
    cost: tuple[int, ...]
    mask: tuple[int, ...]
    groups: tuple[_Group, ...]
    domains: tuple[str, ...]
    sites: tuple[tuple[Site, ...], ...]
    """By domain."""
    room: tuple[int, ...]
    held: tuple[int, ...]
    """By domain: the queries that are lost with it in any case."""
    weights: tuple[tuple[int, int], ...]
    """Each priority, with the queries that have it."""

    def worth(self, mask: int) -> int:
        """The summed priority of these queries."""
        return sum(priority * (mask & members).bit_count() for priority, members in self.weights)

    def lost(self, at: Sequence[int]) -> list[int]:
        """The queries that are lost with each domain.  `at`: the domain of each partition."""
        found = list(self.held)
        for partition, domain in enumerate(at):
            found[domain] |= self.mask[partition]
        return found

    def rank(self, at: Sequence[int]) -> Rank:
        worth = [self.worth(mask) for mask in self.lost(at)]
        return sum(worth), max(worth, default=0)

    def load(self, at: Sequence[int]) -> list[int]:
        found = [0] * len(self.domains)
        for partition, domain in enumerate(at):
            found[domain] += self.cost[partition]
        return found

    def size(self, group: _Group) -> int:
        return sum(self.cost[k] for k in group.members)

    def by_worth(self) -> list[_Group]:
        """The groups of most priority first: what many need is there when the others choose."""
        return sorted(self.groups, key=lambda g: (-self.worth(g.mask), -self.size(g), g.members))

    def by_density(self) -> list[_Group]:
        """Those of most priority for what they cost."""
        return sorted(self.groups, key=lambda g: (-self.worth(g.mask) / max(1, self.size(g)), g.members))

    def packed(self, at: Sequence[int], search: bool) -> list[str] | None:
        """A node of its domain for each partition; None where no way is found."""
        nodes = [""] * len(at)
        for domain, sites in enumerate(self.sites):
            here = [(k, self.cost[k]) for k, where in enumerate(at) if where == domain]
            placement = pack(here, [site.room for site in sites], search)
            if placement is None:
                return None
            for partition, node in placement.items():
                nodes[partition] = sites[node].id
        return nodes


def _problem(
    sites: Sequence[Site],
    queries: Sequence[Needs],
    costs: Mapping[str, int],
    start: Mapping[str, str],
    held: Mapping[str, str],
) -> _Problem:
    domains = tuple(sorted({site.domain for site in sites}))
    masks, kept = dict.fromkeys(start, 0), dict.fromkeys(domains, 0)
    weights: dict[int, int] = {}
    for number, query in enumerate(queries):
        weights[query.priority] = weights.get(query.priority, 0) | 1 << number
        for partition in query.partitions:
            if partition in masks:
                masks[partition] |= 1 << number
            elif (domain := held.get(partition)) in kept:
                kept[domain] |= 1 << number
    partitions = tuple(start)
    cost, mask = tuple(costs[p] for p in partitions), tuple(masks.values())
    members: dict[int, list[int]] = {}
    for k in sorted(range(len(partitions)), key=lambda k: -cost[k]):
        members.setdefault(mask[k], []).append(k)
    by_domain = tuple(tuple(site for site in sites if site.domain == domain) for domain in domains)
    return _Problem(
        partitions,
        cost,
        mask,
        tuple(_Group(tuple(ks), m) for m, ks in members.items()),
        domains,
        by_domain,
        tuple(sum(site.room for site in there) for there in by_domain),
        tuple(kept.values()),
        tuple(sorted(weights.items())),
    )


class _Found:
    """A placement: the domain of each partition, and the node (`nodes` None: those of the start)."""

    __slots__ = ("at", "nodes", "rank")

    def __init__(self, problem: _Problem, at: Sequence[int], nodes: Sequence[str] | None) -> None:
        self.at, self.nodes = list(at), nodes
        self.rank = problem.rank(at)


def _made(problem: _Problem, at: Sequence[int] | None, search: bool = True) -> _Found | None:
    """That placement; None where there are no nodes for it."""
    nodes = None if at is None else problem.packed(at, search)
    return None if at is None or nodes is None else _Found(problem, at, nodes)


def _better(one: _Found, other: _Found | None) -> _Found:
    """The better of two placements; the first of equal ones."""
    return other if other is not None and other.rank < one.rank else one


def _greedy(problem: _Problem, order: Iterable[_Group]) -> list[int] | None:
    """One group after the other goes where it adds least to what is lost, whole if that is possible, and then where most
    room is; None where one finds none."""
    at = [0] * len(problem.partitions)
    lost, room = list(problem.held), [[site.room for site in sites] for sites in problem.sites]
    left = [sum(there) for there in room]

    def put(members: Sequence[int], mask: int) -> bool:
        added = [problem.worth(mask & ~there) for there in lost]
        for domain in sorted(range(len(left)), key=lambda d: (added[d], -left[d], d)):
            rest = _filled(room[domain], [problem.cost[k] for k in members])
            if rest is not None:
                room[domain], left[domain] = rest, sum(rest)
                lost[domain] |= mask
                for k in members:
                    at[k] = domain
                return True
        return False

    for group in order:
        if not put(group.members, group.mask) and not all(put([k], group.mask) for k in group.members):
            return None
    return at


def _filled(room: Sequence[int], costs: Iterable[int]) -> list[int] | None:
    """What is left of the room of some nodes when each of these, the dearest first, is on the one with most; None where
    one finds none."""
    left = list(room)
    for cost in costs:
        node = max(range(len(left)), key=left.__getitem__)
        if left[node] < cost:
            return None
        left[node] -= cost
    return left


def _exchanged(problem: _Problem, best: _Found) -> _Found:
    """Groups leave a domain, as far as they are there, for another one, and others make room for them if need be, as long
    as that makes things better."""
    tries = EXCHANGED // max(1, len(problem.partitions))
    better: _Found | None = best
    while better is not None:
        best, better = better, None
        for at in _exchanges(problem, best.at):
            tries -= 1
            if tries < 0:
                return best
            if problem.rank(at) < best.rank:
                better = _made(problem, at, search=False)
            if better is not None:
                break
    return best


def _exchanges(problem: _Problem, at: Sequence[int]) -> Iterator[list[int]]:
    lost, once = _covers(problem, at)
    load = problem.load(at)
    chunks: dict[tuple[int, int], list[int]] = {}
    for number, group in enumerate(problem.groups):
        for k in group.members:
            chunks.setdefault((number, at[k]), []).append(k)
    gain = {(g, d): problem.worth(problem.groups[g].mask & once[d]) for g, d in chunks}
    for (number, here), members in sorted(chunks.items(), key=lambda c: (-gain[c[0]], c[0])):
        if not gain[number, here]:
            break
        mask = problem.groups[number].mask
        for there in range(len(problem.domains)):
            if there == here or problem.worth(mask & ~lost[there]) > gain[number, here]:
                continue
            after = list(at)
            for k in members:
                after[k] = there
            over = load[there] + sum(problem.cost[k] for k in members) - problem.room[there]
            stays = lost[here] & ~(mask & once[here])
            if over > 0:
                others = [ks for (g, d), ks in chunks.items() if d == there and g != number]
                _make_room(problem, after, others, over, here, stays, once[there])
            yield after


def _make_room(
    problem: _Problem,
    after: list[int],
    chunks: Iterable[Sequence[int]],
    over: int,
    to: int,
    lost: int,
    once: int,
) -> None:
    """Moves as much of `chunks` to another domain as is `over`: first what makes least difference for its cost.  `lost`:
    the queries that are lost with that domain anyway; `once`: those for which one chunk alone is where it is."""

    def loses(members: Sequence[int]) -> float:
        mask = problem.mask[members[0]]
        more = problem.worth(mask & ~lost) - problem.worth(mask & once)
        return more / max(1, sum(problem.cost[k] for k in members))

    for members in sorted(chunks, key=loses):
        free = not problem.mask[members[0]] & ~lost  # one after the other, and no more than is needed
        if over <= 0:
            return
        for k in members:
            if free and over <= 0:
                return
            after[k] = to
            over -= problem.cost[k]


def _covers(problem: _Problem, at: Sequence[int]) -> tuple[list[int], list[int]]:
    """The queries that are lost with each domain, and those of them for which one group alone is there."""
    lost, twice = list(problem.held), list(problem.held)
    for group in problem.groups:
        for domain in {at[k] for k in group.members}:
            twice[domain] |= lost[domain] & group.mask
            lost[domain] |= group.mask
    return lost, [mask & ~more for mask, more in zip(lost, twice, strict=True)]


class _Search:
    """Looks at the domains of one partition after the other, and leaves what cannot become better than the best known."""

    def __init__(self, problem: _Problem, best: _Found) -> None:
        self.problem, self.best, self.steps = problem, best, SEARCH_STEPS
        self.order = [k for group in problem.by_worth() for k in group.members]
        self.at = [0] * len(problem.partitions)
        needed = 0
        self.later = [0] * len(self.order)
        """The queries that need partitions from this place of the order on."""
        for place in reversed(range(len(self.order))):
            needed |= problem.mask[self.order[place]]
            self.later[place] = needed

    def run(self) -> _Found:
        """The best placement, if the steps are enough; else the best that was seen."""
        self._next(0, self.problem.held, self.problem.room)
        return self.best

    def _next(self, place: int, lost: Sequence[int], room: Sequence[int]) -> None:
        if self.steps <= 0 or self._least(place, lost) >= self.best.rank:
            return
        if place == len(self.order):
            self.best = _better(self.best, _made(self.problem, self.at))
            return
        partition, tried = self.order[place], set[tuple[object, ...]]()
        cost, mask = self.problem.cost[partition], self.problem.mask[partition]
        for domain in sorted(range(len(room)), key=lambda d: (self.problem.worth(mask & ~lost[d]), d)):
            alike = self._untouched(domain, lost, room)
            if room[domain] < cost or (alike is not None and alike in tried):
                continue
            if alike is not None:
                tried.add(alike)
            self.steps -= 1
            self.at[partition] = domain
            self._next(
                place + 1,
                [one | mask if d == domain else one for d, one in enumerate(lost)],
                [left - cost if d == domain else left for d, left in enumerate(room)],
            )

    def _least(self, place: int, lost: Sequence[int]) -> Rank:
        """No placement that goes on from here is better: what is lost grows, and each query is lost with some domain."""
        somewhere = 0
        for mask in lost:
            somewhere |= mask
        later = self.later[place] if place < len(self.order) else 0
        worth = [self.problem.worth(mask) for mask in lost]
        return sum(worth) + self.problem.worth(later & ~somewhere), max(worth, default=0)

    def _untouched(self, domain: int, lost: Sequence[int], room: Sequence[int]) -> tuple[object, ...] | None:
        """What tells a domain without partitions from others without; None where there are some."""
        if room[domain] != self.problem.room[domain] or lost[domain] != self.problem.held[domain]:
            return None
        return lost[domain], tuple(sorted(site.room for site in self.problem.sites[domain]))
