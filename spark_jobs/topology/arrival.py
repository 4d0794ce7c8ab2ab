"""Where `batch.order: arrival` was built and tried; everything else is refused, each with the field that does not fit."""

from __future__ import annotations

from collections.abc import Iterator

from reprise.spark_jobs.errors import SpecError
from reprise.spark_jobs.topology.resource import StreamTopology


def arrival_fits(topology: StreamTopology) -> Iterator[SpecError]:
    """Whether partitions may apply what is there of each input in this topology."""
    if not topology.arrival:
        return
    said = "is not tried with `batch.order: arrival`"
    if topology.checkpoint.uncoordinated:
        reason = "needs `protocol: coordinated`: a replay may differ, so only a checkpoint of all is a place to go back to"
        yield SpecError(
            "spec.checkpoint.protocol", f"'{topology.checkpoint.protocol}' {said}; arrival order {reason}"
        )
    if topology.checkpoint.paged:
        yield SpecError("spec.checkpoint.state", f"'paged' {said}")
    if topology.spark.exchange != "chained":
        yield SpecError("spec.spark.exchange", f"'{topology.spark.exchange}' {said}")
    if topology.recovery.scope not in ("auto", "global"):
        reason = "has no effect with `batch.order: arrival`: everything goes back, as a replay may differ"
        yield SpecError("spec.recovery.scope", f"'{topology.recovery.scope}' {reason}")
    if topology.recovery.strategy != "incremental":
        yield SpecError("spec.recovery.strategy", f"'{topology.recovery.strategy}' {said}")
    for operator in topology.operators:
        field = f"spec.operators[{operator.name}]"
        if operator.availability != "checkpoint":
            yield SpecError(f"{field}.availability", f"'{operator.availability}' {said}")
        if operator.output is not None and operator.output.sink is not None:
            yield SpecError(f"{field}.output.sink", f"{said}: output goes to files")
        for index, spec in enumerate(operator.inputs):
            if spec.feedback:
                yield SpecError(f"{field}.inputs[{index}].feedback", f"a cycle {said}")
