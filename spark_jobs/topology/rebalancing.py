"""Which topologies may have their load levelled by planned moves: what was not tried together is refused.

A move is asked for by nobody, so it must cost no more than the short stand-still of what moves.
"""

from __future__ import annotations

from collections.abc import Iterator

from reprise.spark_jobs.errors import SpecError
from reprise.spark_jobs.topology.resource import StreamTopology


def rebalancing_fits(topology: StreamTopology) -> Iterator[SpecError]:
    """Whether load may be levelled here."""
    recovery = topology.recovery
    if not recovery.rebalance:
        if recovery.overcommit:
            reason = "needs `recovery.rebalance: true`: what runs above the cap is moved when other nodes are there"
            yield SpecError("spec.recovery.overcommit", reason)
        return
    said = "is not tried with `recovery.rebalance`"
    if topology.checkpoint.protocol != "coordinated":
        reason = f"'{topology.checkpoint.protocol}' {said}: with who moves goes back who has not kept enough"
        yield SpecError("spec.checkpoint.protocol", reason)
    if topology.arrival:
        reason = "'arrival' does not go with `recovery.rebalance`: each move would take everything back"
        yield SpecError("spec.batch.order", reason)
    if recovery.strategy != "incremental":
        yield SpecError("spec.recovery.strategy", f"'{recovery.strategy}' {said}")
    if recovery.recommend_only:
        reason = "'recommend' does not go with `recovery.rebalance`: nobody is asked before a partition moves"
        yield SpecError("spec.recovery.mode", reason)
    for operator in topology.operators:
        field = f"spec.operators[{operator.name}]"
        if operator.availability != "checkpoint":
            yield SpecError(f"{field}.availability", f"'{operator.availability}' {said}")
        if operator.deterministic is False:
            reason = "'false' does not go with `recovery.rebalance`: each move would take everything back"
            yield SpecError(f"{field}.deterministic", reason)
