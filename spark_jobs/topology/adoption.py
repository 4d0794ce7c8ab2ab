"""Where `recovery.driverGrace` was built and tried; everything else is refused, each with the field that does not fit.

A driver that begins goes on with partitions that lived on without one, wherever each of them stands.  That is the state of
one stream where a partition at a batch has one state and one output for the next, whoever made them, and where all that
a host does happens in jobs, between which it stands still.
"""

from __future__ import annotations

from collections.abc import Iterator

from reprise.spark_jobs.errors import SpecError
from reprise.spark_jobs.topology.resource import StreamTopology

MOST_GRACE_S = 600.0
"""For so long nodes may hold the memory of partitions that nobody leads."""


def grace_fits(topology: StreamTopology) -> Iterator[SpecError]:
    """Whether partitions of this topology may outlive their driver."""
    grace_s = topology.recovery.driver_grace_s
    if grace_s <= 0:
        return
    said = "is not built with `recovery.driverGrace`"
    if grace_s > MOST_GRACE_S:
        yield SpecError("spec.recovery.driverGrace", f"is at most {MOST_GRACE_S:g} s")
    if topology.checkpoint.protocol != "coordinated":
        yield SpecError("spec.checkpoint.protocol", f"'{topology.checkpoint.protocol}' {said}")
    if topology.checkpoint.paged and topology.checkpoint.standby:
        reason = "a driver that goes on from a mirror may not find pages that hosts count as stored"
        yield SpecError("spec.checkpoint.standby", f"with `state: paged` {said}: {reason}")
    if topology.arrival:
        yield SpecError("spec.batch.order", f"'arrival' {said}: a replay may differ")
    for operator in topology.operators:
        field = f"spec.operators[{operator.name}]"
        if operator.availability != "checkpoint":
            yield SpecError(f"{field}.availability", f"'{operator.availability}' {said}")
        if operator.deterministic is False:
            yield SpecError(f"{field}.deterministic", f"'false' {said}: a replay may differ")
        if operator.output is not None and operator.output.sink is not None:
            yield SpecError(f"{field}.output.sink", f"{said}: output goes to files")
