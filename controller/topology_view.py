"""Makes of a StreamTopology resource what the scheduler sees of it."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from sys import intern
from typing import TypeVar

from reprise.algorithms import UnionSet
from reprise.algorithms.cpu import milli_cpu
from reprise.scheduler.model import Order, PartitionView, Policy, QueryView, Scope, Strategy, TopologyView
from reprise.spark_jobs.contract import Kind
from reprise.spark_jobs.topology import (
    StreamTopology,
    Topology,
    Upstream,
    expand,
    is_deterministic,
)
from reprise.spark_jobs.topology.availability import passive_standbys, standby_domains, with_standbys
from reprise.spark_jobs.topology.binding import resolve
from reprise.spark_jobs.topology.class_path import of_library
from reprise.spark_jobs.topology.given_up import given_up
from reprise.spark_jobs.topology.guarantees import guarantees
from reprise.spark_jobs.topology.promise import Promise
from reprise.spark_jobs.topology.resource import OperatorSpec

T = TypeVar("T")
log = logging.getLogger("reprise.coordinator")


def view_of(resource: StreamTopology, own_code: bool = True) -> TopologyView:
    """The partitions and queries of a checked resource.  Raises SpecError for what only shows when it is expanded.

    `own_code`: whether the modules that the resource names may be imported here, to ask classes whether they are
    deterministic.  The operator has all topologies' rights and none of their code, so it says no: a class that is not of
    the library counts as not deterministic until the resource says otherwise.  So does one that cannot be asked: that
    costs a rollback at each failure and is never wrong.

    Ids and what is equal are shared: an operator keeps a thousand of these, many of one shape, and each id stands in
    dozens of sets."""
    topology = expand(resource)
    ids = {name: intern(name) for name in topology.partitions}
    read: dict[int, tuple[tuple[str, ...], tuple[str, ...]]] = {}
    needed: dict[int, frozenset[str]] = {}
    for partition in topology.partitions.values():
        if id(partition.upstream) not in read:
            read[id(partition.upstream)] = _read(partition.upstream, ids)
    for query in topology.queries.values():
        shared = query.partitions.shared
        if id(shared) not in needed:
            needed[id(shared)] = _equal(frozenset(ids[p] for p in shared))
    return TopologyView(
        name=resource.name,
        partitions=tuple(
            _equal(PartitionView(ids[p.id], *read[id(p.upstream)], p.cpu_milli))
            for p in topology.partitions.values()
        ),
        queries=tuple(
            _query(
                ids[q.id],
                q.priority,
                needed[id(q.partitions.shared)],
                frozenset(ids[p] for p in q.partitions.own),
            )
            for q in topology.queries.values()
        ),
        deterministic=_deterministic(resource, own_code),
        standbys=frozenset(ids[p] for p in with_standbys(resource, topology)),
        passive=frozenset(ids[p] for p in passive_standbys(resource, topology)),
        domains={ids[p]: label for p, label in standby_domains(resource, topology).items()},
    )


def _read(upstream: Sequence[Upstream], ids: Mapping[str, str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The upstreams whose output of the same batch is read, and those whose output of the one before is."""
    return (
        _equal(tuple(ids[u.partition] for u in upstream if not u.feedback)),
        _equal(tuple(ids[u.partition] for u in upstream if u.feedback)),
    )


@lru_cache(maxsize=8192)
def _equal(value: T) -> T:
    """Frozen: whoever has an equal one may have this one."""
    return value


@lru_cache(maxsize=8192)
def _query(name: str, priority: int, shared: frozenset[str], own: frozenset[str]) -> QueryView:
    """The same."""
    return QueryView(name, priority, UnionSet(shared, own))


def with_promises(resource: StreamTopology) -> Topology:
    """The expanded topology with what is promised of its outputs, for those who show it.  No code of the resource's own is
    imported, as with `view_of`, so that all who show it say the same.  Raises what `expand` raises."""
    return replace(expand(resource), promises=promises_of(resource))


def promises_of(resource: StreamTopology) -> dict[str, Promise]:
    """What is promised of the outputs of each operator, as far as the resource and the library say."""
    silent = silent_operators(resource)
    says = {o.name: None if o.name in silent else _says(o) for o in resource.operators}
    return guarantees(resource, says, given_up(resource, own_code=False))


def policy_of(resource: StreamTopology, settle_s: float, driver_grace_s: float) -> Policy:
    """The policy that a resource asks for."""
    recovery = resource.recovery
    return Policy(
        strategy=Strategy(recovery.strategy),
        scope=_scope(resource),
        correlated_nodes=recovery.correlated_nodes,
        window_s=recovery.window_s,
        by_driver=resource.checkpoint.uncoordinated,
        cpu_cap=recovery.cpu_cap,
        overcommit=recovery.overcommit,
        rebalance=recovery.rebalance,
        order=Order(recovery.order),
        algorithm=recovery.algorithm,
        time_limit_s=recovery.time_limit_s,
        settle_s=settle_s,
        nodes_wanted=resource.nodes.count,
        node_cpu_milli=milli_cpu(resource.nodes.cpu_cores),
        failure_domain=resource.nodes.failure_domain,
        driver_grace_s=driver_grace_s,
    )


def _scope(resource: StreamTopology) -> Scope:
    """The scope; with snapshots of single partitions `auto` takes back nobody but those that the driver's line names."""
    scope = Scope(resource.recovery.scope)
    return Scope.PARTITION if scope is Scope.AUTO and resource.checkpoint.uncoordinated else scope


def _deterministic(resource: StreamTopology, own_code: bool) -> bool:
    answer = not resource.arrival
    for spec in resource.operators:
        asked = spec.deterministic is None and own_code
        one = is_deterministic(spec) if asked else _says(spec)
        answer = answer and one
    return answer


def _says(spec: OperatorSpec) -> bool:
    """Whether an operator is deterministic by the resource and the library alone."""
    return _of_library(spec.class_path) if spec.deterministic is None else spec.deterministic


def silent_operators(resource: StreamTopology) -> tuple[str, ...]:
    """Operators with a class that is not of the library, of which the resource does not say whether it is deterministic."""
    return tuple(
        spec.name
        for spec in resource.operators
        if spec.deterministic is None and not of_library(spec.class_path)
    )


def _of_library(class_path: str) -> bool:
    """Whether it is deterministic, by the class alone: an instance may import what its parameters name."""
    if not of_library(class_path):
        return False
    try:
        kind = getattr(resolve(class_path), "kind", Kind.ARBITRARY)
        return isinstance(kind, Kind) and kind.deterministic
    except ValueError:
        return False
