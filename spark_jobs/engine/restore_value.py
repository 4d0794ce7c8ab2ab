"""What each state that is to be restored is worth, so that each host fetches first what brings back most.

The driver knows all that is fetched and every query; a host knows its own partitions alone.  So the driver says it with the
installation, and hosts need no talk with each other.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from reprise.algorithms.restore_order import by_value
from reprise.spark_jobs.node.command import Install, size_of
from reprise.spark_jobs.topology import Topology


def valued(
    installs: Mapping[str, Install], wanted: Collection[str], topology: Topology
) -> Mapping[str, Install]:
    """The same, with the value of each of the `wanted` that has a state to fetch."""
    size = {p: size_of(installs[p].file) for p in wanted if p in installs and installs[p].file is not None}
    if len(size) < 2:
        return installs
    queries = topology.queries
    ranks = by_value(
        size,
        {q: query.partitions for q, query in queries.items()},
        {q: query.priority for q, query in queries.items()},
    )
    return {**installs, **{p: replace(installs[p], value=rank) for p, rank in ranks.items()}}
