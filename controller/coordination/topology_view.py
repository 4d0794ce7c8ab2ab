"""From a StreamTopology resource to what the scheduler sees of it."""

from __future__ import annotations

import logging

from scheduler.model import PartitionView, Policy, QueryView, Strategy, TopologyView
from spark_jobs.topology import StreamTopology, expand, make_operator

log = logging.getLogger("reprise.coordinator")


def view_of(resource: StreamTopology) -> TopologyView:
    """The partitions and queries of a checked resource."""
    topology = expand(resource)
    return TopologyView(
        name=resource.name,
        partitions=tuple(
            PartitionView(
                id=p.id,
                upstream=tuple(u.partition for u in p.upstream if not u.feedback),
                feedback=tuple(u.partition for u in p.upstream if u.feedback),
                cpu_milli=max(1, round(p.cpu_cores * 1000)),
            )
            for p in topology.partitions.values()
        ),
        queries=tuple(QueryView(q.id, q.priority, q.partitions) for q in topology.queries.values()),
        deterministic=_deterministic(resource),
    )


def policy_of(resource: StreamTopology, settle_s: float, driver_grace_s: float) -> Policy:
    """The policy that a resource asks for."""
    recovery = resource.recovery
    return Policy(
        strategy=Strategy(recovery.strategy),
        correlated_nodes=recovery.correlated_nodes,
        window_s=recovery.window_s,
        cpu_cap=recovery.cpu_cap,
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
