"""Standbys: how many are to be, what is there of them, and which are in another failure domain than their partition; and
which partitions have upstream backup instead.

Another domain is preferred and not required (`reprise.scheduler.standby_placement`), and labels of nodes may not be known
here.  So what holds of each standby is one of three: apart, in the same domain, and nobody can say.
"""

from __future__ import annotations

from collections.abc import Iterable, Set

from reprise.controller.status.model import GraphView, PartitionView, StandbysView
from reprise.controller.zookeeper.observation import Observation
from reprise.scheduler.model import Progress
from reprise.scheduler.standby_places import differ
from reprise.spark_jobs.topology import Topology


def wanted(topology: Topology) -> frozenset[str]:
    """Partitions that are to have a standby."""
    if not topology.standbys:
        return frozenset()
    return frozenset(p.id for p in topology.partitions.values() if p.place.operator in topology.standbys)


def missing(to_have: Set[str], progress: Progress | None) -> Set[str]:
    """Partitions without a standby that could be promoted, of those that are to have one and can: none is placed for one
    whose code raised."""
    return to_have - progress.standbys.keys() - progress.poisoned.keys() if progress else to_have


def with_upstream_backup(partitions: Iterable[PartitionView], graph: GraphView) -> list[PartitionView]:
    """Those of `partitions` that are to be fed again by what they read.  One with a standby is fed as a last resort, when it
    is lost with that, and is none of these."""
    with_standbys = {operator.name for operator in graph.operators if operator.standbys}
    return [p for p in partitions if p.backed is not None and p.operator not in with_standbys]


def is_apart(topology: Topology, seen: Observation, partition: str) -> bool | None:
    """Whether the standby of a partition is in another failure domain; None: there is none, no label is named for it, or a
    node is not known to have it."""
    label = topology.standbys.get(topology.partitions[partition].place.operator)
    if seen.desired is None or label is None or (node := seen.desired.standbys.get(partition)) is None:
        return None
    own = seen.desired.assignment.get(partition)
    return differ(label, seen.nodes.get(own) if own else None, seen.nodes.get(node))


def standbys_view(topology: Topology, seen: Observation) -> StandbysView | None:
    """All of them in figures; None where none is to be."""
    if not (to_have := wanted(topology)):
        return None
    placed = [p for p in seen.desired.standbys if p in to_have] if seen.desired else []
    operator_of = topology.partitions
    named = [p for p in placed if topology.standbys[operator_of[p].place.operator] is not None]
    apart = [is_apart(topology, seen, p) for p in named]
    return StandbysView(
        wanted=len(to_have),
        placed=len(placed),
        ready=len(to_have & seen.progress.standbys.keys()) if seen.progress else 0,
        missing=len(missing(to_have, seen.progress)),
        apart=apart.count(True),
        same_domain=apart.count(False),
        unknown_domain=apart.count(None),
    )
