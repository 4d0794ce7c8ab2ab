"""On which nodes standbys are: apart from their partitions, in another failure domain where one is named, and spread.

A failure domain (a zone, a rack, a pool) is what may be lost at once: nodes with the same value of a label.  A partition
whose standby is in its own domain, or nowhere, is lost with that domain, and its queries wait for a plan.  So the room in
other domains goes to queries as wholes (`reprise.scheduler.standby_queries`): standbys of a part of what a query has in a
domain spare it nothing.  What room is left then goes to the other partitions, those first that the most valuable
queries need, which are restored sooner by it (`reprise.scheduler.standby_places`).

Another domain is preferred and not required: a standby in its partition's domain still helps when one node is lost.
Standbys that are where they should be stay, as one that moves begins anew.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Set
from math import ceil

from reprise.scheduler.costs import free_on, normal_costs
from reprise.scheduler.model import Desired, of_standby
from reprise.scheduler.standby_places import Places, queries_of
from reprise.scheduler.standby_queries import domain_takes, least_lost
from reprise.scheduler.standby_worth import most_lost_first
from reprise.scheduler.view import View
from reprise.scheduler.worth import by_worth


def placement(view: View, desired: Desired) -> dict[str, str]:
    """Partition -> node of its standby, of those for which there is room."""
    topology, at, able = view.snapshot.topology, desired.assignment, view.may_have_standbys
    wanted = [p for p in by_worth(view) if p in able and p in at]
    may, open_ids = frozenset(wanted), view.open_ids
    stays = {p: n for p, n in desired.standbys.items() if p in may and n in open_ids and n != at[p]}
    places = _places(view, at, stays.keys())
    for partition, node in stays.items():
        places.put(partition, node)
    apart = [p for p in wanted if p in topology.domains and p not in view.poison]
    near = [p for p in apart if not places.is_apart(p)]
    if near:
        places = least_lost(places, domain_takes(view, at, frozenset(apart), frozenset(near)))
    while [p for p in near if not places.is_apart(p) and places.seek(p)]:
        pass  # those that find room may leave some to others that found none before
    for partition in wanted:
        if partition not in places.found and partition not in view.poison:
            places.take(partition, places.with_room(partition, places.room))
    return places.found


def _places(view: View, at: Mapping[str, str], fixed: Set[str]) -> Places:
    costs = normal_costs(view)
    room = free_on(view.open_nodes, view.policy, costs, at)
    return Places(
        view, at, costs, standby_costs(view, costs), room, fixed, queries_of(view.snapshot.topology)
    )


def staying(
    view: View,
    costs: Mapping[str, int],
    at: Mapping[str, str],
    standbys: Mapping[str, str],
    fuller: Collection[str],
) -> dict[str, str]:
    """Those of `standbys` that can stay beside partitions `at` their nodes: those with which most is lost first.  `fuller`:
    nodes to which something was added; what others have is nobody's doing."""
    taken, room = standby_costs(view, costs), free_on(view.usable, view.policy, costs, at)
    found: dict[str, str] = {}
    for partition in most_lost_first(view) if standbys else ():
        node = standbys.get(partition)
        if node is None or partition not in at or at[partition] == node or node not in view.alive:
            continue
        if node in fuller:
            if room.get(node, 0) < taken[partition]:
                continue
            room[node] -= taken[partition]
        found[partition] = node
    return found


def standby_costs(view: View, costs: Mapping[str, int]) -> dict[str, int]:
    """Milli-CPU of the standby of each partition, from those of the partitions: of a passive one what was measured, where
    that is less."""
    passive, stats = view.snapshot.topology.passive, view.snapshot.stats
    measured = {p: stats[of_standby(p)].cpu_milli for p in passive if of_standby(p) in stats}
    return {p: min(cost, max(1, ceil(measured.get(p, cost)))) for p, cost in costs.items()}
