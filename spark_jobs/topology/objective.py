"""Whether a resource's recovery-time objectives (`output.recovery.objective`) can mean anything.

How much a recovery has to do can be bounded where slots are stored one by one, and stored again when that would be too much
(`reprise.algorithms.recovery_time.derive`).  With any other protocol it follows from the interval of checkpoints alone.
Whether an objective is held is known while the topology runs, and said then.
"""

from __future__ import annotations

from collections.abc import Iterator

from reprise.algorithms.recovery_time import DETECTION_S
from reprise.spark_jobs.errors import SpecError
from reprise.spark_jobs.topology.resource import StreamTopology


def objective_fits(topology: StreamTopology) -> Iterator[SpecError]:
    """One error for what is wrong with all of them, else one for each that nothing could hold."""
    named = [
        (o.name, o.output.objective_s)
        for o in topology.operators
        if o.output and o.output.objective_s is not None
    ]
    if not named:
        return
    policy, field = topology.checkpoint, "spec.operators[{}].output.recovery.objective"
    if not policy.eventual or policy.eventual_pace is None:
        reason = (
            f"nothing follows from it with `checkpoint.protocol: {policy.protocol}`, with which the interval alone says how "
            "much is replayed; `protocol: eventual` can hold one, by storing slots more often"
        )
        yield SpecError(field.format(named[0][0]), reason)
        return
    for name in policy.eventual_pace.given:
        reason = f"follows from `operators[{named[0][0]}].output.recovery.objective`: give one of the two"
        yield SpecError(f"spec.checkpoint.eventual.{name}", reason)
    for operator, objective_s in named:
        if objective_s is not None and objective_s <= DETECTION_S:
            reason = f"{objective_s:g} s is not more than the {DETECTION_S:g} s after which the loss of a node is noticed"
            yield SpecError(field.format(operator), reason)
