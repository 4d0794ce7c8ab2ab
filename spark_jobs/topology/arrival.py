"""Where `batch.order: arrival` was built and tried; everything else is refused, each with the field that does not fit."""

from __future__ import annotations

from collections.abc import Iterator

from reprise.spark_jobs.errors import SpecError
from reprise.spark_jobs.topology.resource import StreamTopology

_NO_TWO_COPIES = (
    "has no effect with `batch.order: arrival`: another node applies the same input in another order, so readers cannot go "
    "on with what it sends, and everything goes back"
)


def arrival_fits(topology: StreamTopology) -> Iterator[SpecError]:
    """Whether partitions may apply what is there of each input in this topology."""
    if not topology.arrival:
        return
    said = "is not tried with `batch.order: arrival`"
    yield from _protocol_fits(topology, said)
    if topology.checkpoint.paged:
        yield SpecError("spec.checkpoint.state", f"'paged' {said}")
    if topology.recovery.scope not in ("auto", "global"):
        reason = "has no effect with `batch.order: arrival`: everything goes back, as a replay may differ"
        yield SpecError("spec.recovery.scope", f"'{topology.recovery.scope}' {reason}")
    if topology.recovery.strategy != "incremental":
        yield SpecError("spec.recovery.strategy", f"'{topology.recovery.strategy}' {said}")
    for operator in topology.operators:
        field = f"spec.operators[{operator.name}]"
        if operator.availability == "amnesia":
            yield SpecError(f"{field}.availability", f"'amnesia' {said}")
        elif operator.availability != "checkpoint":
            yield SpecError(f"{field}.availability", f"'{operator.availability}' {_NO_TWO_COPIES}")
        if operator.output is not None and operator.output.sink is not None:
            yield SpecError(f"{field}.output.sink", f"{said}: output goes to files")
        for index, spec in enumerate(operator.inputs):
            if spec.feedback and topology.checkpoint.protocol == "uncoordinated":
                reason = (
                    "nobody in a line may have what another one makes again, and in a cycle that may leave the beginning "
                    "alone; `coordinated` has cycles"
                )
                yield SpecError(
                    f"{field}.inputs[{index}].feedback",
                    f"a cycle {said} and `protocol: uncoordinated`: {reason}",
                )


def _protocol_fits(topology: StreamTopology, said: str) -> Iterator[SpecError]:
    protocol, log = topology.checkpoint.protocol, topology.checkpoint.log
    if protocol not in ("coordinated", "uncoordinated"):
        why = {
            "communication-induced": "what messages say of snapshots is said of whole batches",
            "eventual": "slots of different ages need the same rows again",
        }
        yield SpecError("spec.checkpoint.protocol", f"'{protocol}' {said}: {why[protocol]}")
        return
    if protocol == "coordinated":
        return
    if log != "checkpointed":
        reason = "needs `log: checkpointed`: what is under way cannot be made again as it was, so snapshots have to hold it"
        yield SpecError("spec.checkpoint.log", f"'{log}' {said}; `protocol: uncoordinated` {reason}")
    if topology.upgrade == "replay":
        reason = "inputs are further than others in a snapshot, which other code cannot go on with: it has to drain"
        yield SpecError("spec.upgrade", f"'replay' {said} and `protocol: uncoordinated`: {reason}")
