"""Failure domains (`nodes.failureDomain`): which nodes are in each, and what would be lost with it as things are placed now.

What a domain is, and what its loss would take, the scheduler says (`reprise.scheduler.domains`), as it places by that.  It
places by where standbys are to be; this tells where they are: a partition goes on elsewhere if its standby could be promoted
now and is known to be in another domain.  Whether nodes have the room for passive standbys that are promoted at once is not
looked at.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from reprise.algorithms.domains import Needs
from reprise.controller.zookeeper.observation import Observation
from reprise.scheduler.domains import Losses, domains_of, losses
from reprise.scheduler.model import QueryView
from reprise.scheduler.standby_places import with_standbys_apart
from reprise.spark_jobs.topology import Query, Topology


@dataclass(frozen=True, slots=True)
class FailureDomainView:
    value: str | None
    """That the label has on its nodes; None: a node that is not known to have the label, which is a domain of its own."""
    nodes: tuple[str, ...]
    """`node#incarnation` of those that are alive."""
    priority: int
    """Summed priority of the queries that need a partition there."""
    lost: int
    """Of that, of the queries that would stop if it were lost now: not where the standbys of these partitions go on."""


@dataclass(frozen=True, slots=True)
class FailureDomainsView:
    label: str
    """`nodes.failureDomain`."""
    priority: int
    """Summed priority of the queries that have all of their partitions on nodes that are alive; only these can be lost."""
    lost: float
    """What would be lost with one of the domains on average, each as likely as the others."""
    items: tuple[FailureDomainView, ...]
    """Those with which most is lost first."""


def failure_domains(topology: Topology, seen: Observation) -> FailureDomainsView | None:
    """All of them; None where the topology names no label, or no node is there."""
    label, nodes = topology.failure_domain, seen.nodes.values()
    queries = topology.queries.values()
    found = losses_now(label, queries, topology.partitions, seen)
    if label is None or found is None:
        return None
    domains = domains_of(label, nodes)
    everything = losses(domains, _needs(queries), topology.partitions, _assignment(seen))
    items = []
    for name, lost in found.by_domain.items():
        members = tuple(sorted(n for n, domain in domains.items() if domain == name))
        value = seen.nodes[members[0]].labels.get(label)
        items.append(FailureDomainView(value, members, everything.by_domain[name], lost))
    items.sort(key=lambda item: (-item.lost, -item.priority, item.nodes))
    return FailureDomainsView(label, found.priority, round(found.mean, 2), tuple(items))


def losses_now(
    label: str | None, queries: Iterable[Query | QueryView], partitions: Iterable[str], seen: Observation
) -> Losses | None:
    """What each domain would take now; None where no label is named, or no node is there."""
    domains = domains_of(label, seen.nodes.values())
    if label is None or not domains:
        return None
    return losses(domains, _needs(queries), partitions, _assignment(seen), _go_on_elsewhere(label, seen))


def _needs(queries: Iterable[Query | QueryView]) -> list[Needs]:
    return [Needs(query.priority, query.partitions) for query in queries]


def _assignment(seen: Observation) -> dict[str, str]:
    return dict(seen.desired.assignment) if seen.desired else {}


def _go_on_elsewhere(label: str, seen: Observation) -> frozenset[str]:
    """Partitions that would not be lost with the domain of their node, as their standbys are ready in another one."""
    if seen.desired is None or seen.progress is None:
        return frozenset()
    ready = {p: n for p, n in seen.desired.standbys.items() if p in seen.progress.standbys}
    return with_standbys_apart(label, seen.desired.assignment, ready, seen.nodes)
