"""From a StreamTopology resource to what the scheduler sees of it."""

from __future__ import annotations

import logging
from functools import lru_cache
from sys import intern
from typing import TypeVar

from scheduler.model import Order, PartitionView, Policy, QueryView, Strategy, TopologyView
from spark_jobs.topology import StreamTopology, expand, make_operator

T = TypeVar("T")
log = logging.getLogger("reprise.coordinator")


def view_of(resource: StreamTopology) -> TopologyView:
    """The partitions and queries of a checked resource.  Raises SpecError for what only shows when it is expanded.

    Ids and what is equal are shared: an operator keeps a thousand of these, many of one shape, and each id stands in
    dozens of sets."""
    topology = expand(resource)
    ids = {name: intern(name) for name in topology.partitions}
    return TopologyView(
        name=resource.name,
        partitions=tuple(
            _shared(
                PartitionView(
                    id=ids[p.id],
                    upstream=tuple(ids[u.partition] for u in p.upstream if not u.feedback),
                    feedback=tuple(ids[u.partition] for u in p.upstream if u.feedback),
                    cpu_milli=max(1, round(p.cpu_cores * 1000)),
                )
            )
            for p in topology.partitions.values()
        ),
        queries=tuple(
            _shared(QueryView(ids[q.id], q.priority, frozenset(ids[p] for p in q.partitions)))
            for q in topology.queries.values()
        ),
        deterministic=_deterministic(resource),
    )


@lru_cache(maxsize=8192)
def _shared(view: T) -> T:
    """Frozen: whoever has an equal one may have this one."""
    return view


def policy_of(resource: StreamTopology, settle_s: float, driver_grace_s: float) -> Policy:
    """The policy that a resource asks for."""
    recovery = resource.recovery
    return Policy(
        strategy=Strategy(recovery.strategy),
        correlated_nodes=recovery.correlated_nodes,
        window_s=recovery.window_s,
        cpu_cap=recovery.cpu_cap,
        order=Order(recovery.order),
        algorithm=recovery.algorithm,
        time_limit_s=recovery.time_limit_s,
        settle_s=settle_s,
        nodes_wanted=resource.nodes.count,
        node_cpu_milli=max(1, round(resource.nodes.cpu_cores * 1000)),
        driver_grace_s=driver_grace_s,
    )


def _deterministic(resource: StreamTopology) -> bool:
    """What the resource says, else what the class says. A class that cannot be asked here counts as not
    deterministic: that costs a rollback a failure and is never wrong."""
    answer = True
    for spec in resource.operators:
        try:
            one = spec.deterministic if spec.deterministic is not None else make_operator(spec).deterministic
        except Exception as error:  # user code: whatever it raises
            log.warning("event=operator-unknown operator=%s error=%r", spec.name, str(error))
            one = False
        answer = answer and one
    return answer
