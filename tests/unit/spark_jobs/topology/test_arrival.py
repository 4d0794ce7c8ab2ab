"""Where `batch.order: arrival` is refused, with field and reason; and what follows from it elsewhere."""

from __future__ import annotations

import pytest

from reprise.controller.topology_view import view_of
from reprise.spark_jobs.errors import SpecError
from reprise.spark_jobs.state.revision import revision_of
from reprise.spark_jobs.topology import StreamTopology, load_text, make_operator, override
from reprise.spark_jobs.topology.arrival import arrival_fits
from reprise.spark_jobs.topology.check import check
from reprise.spark_jobs.topology.guarantees import guarantees
from reprise.spark_jobs.topology.promise import Guarantee
from tests.unit.spark_jobs.engine.test_recovery import DIAMOND

ARRIVAL = {"batch.order": "arrival"}
AS_BEFORE = "95edfcbfbf6e"
"""The revision of `DIAMOND` before there were orders."""
SAID = "is not tried with `batch.order: arrival`"
CYCLE = [{"from": "parse", "by": ["tag"]}, {"from": "top", "by": ["tag"], "feedback": True}]


def resource_of(**changes: object) -> StreamTopology:
    return load_text(DIAMOND, changes=changes)


@pytest.mark.parametrize(
    ("changes", "field", "reason"),
    [
        (
            {"checkpoint.protocol": "uncoordinated", "checkpoint.log": "memory"},
            "spec.checkpoint.log",
            f"'memory' {SAID}; `protocol: uncoordinated` needs `log: checkpointed`",
        ),
        (
            {
                "checkpoint.protocol": "uncoordinated",
                "checkpoint.log": "checkpointed",
                "upgrade": "replay",
            },
            "spec.upgrade",
            f"'replay' {SAID} and `protocol: uncoordinated`",
        ),
        (
            {
                "checkpoint.protocol": "uncoordinated",
                "checkpoint.log": "checkpointed",
                "recovery.scope": "partition",
            },
            "spec.recovery.scope",
            "everything goes back, as a replay may differ",
        ),
        (
            {"checkpoint.protocol": "communication-induced", "checkpoint.log": "checkpointed"},
            "spec.checkpoint.protocol",
            f"'communication-induced' {SAID}",
        ),
        (
            {"checkpoint.protocol": "eventual", "checkpoint.log": "checkpointed"},
            "spec.checkpoint.protocol",
            f"'eventual' {SAID}",
        ),
        ({"checkpoint.state": "paged"}, "spec.checkpoint.state", f"'paged' {SAID}"),
        (
            {"recovery.scope": "ancestors"},
            "spec.recovery.scope",
            "everything goes back, as a replay may differ",
        ),
        ({"recovery.strategy": "blocking"}, "spec.recovery.strategy", f"'blocking' {SAID}"),
        ({"recovery.strategy": "best-case"}, "spec.recovery.strategy", f"'best-case' {SAID}"),
        (
            {"operators[top].availability": "amnesia", "operators[top].with.scope": "batch"},
            "spec.operators[top].availability",
            f"'amnesia' {SAID}",
        ),
        (
            {"operators[parse].availability": "upstream-backup"},
            "spec.operators[parse].availability",
            "'upstream-backup' has no effect with `batch.order: arrival`",
        ),
        (
            {"operators[count].availability": "active-standby"},
            "spec.operators[count].availability",
            "'active-standby' has no effect with `batch.order: arrival`",
        ),
        (
            {"operators[count].availability": "passive-standby"},
            "spec.operators[count].availability",
            "'passive-standby' has no effect with `batch.order: arrival`",
        ),
        (
            {
                "operators[top].output": {
                    "sink": {
                        "class": "reprise.kafka:KafkaSink",
                        "with": {"topic": "t", "brokers": "b:9092"},
                    }
                }
            },
            "spec.operators[top].output.sink",
            f"{SAID}: output goes to files",
        ),
        (
            {
                "operators[count].inputs": CYCLE,
                "checkpoint.protocol": "uncoordinated",
                "checkpoint.log": "checkpointed",
            },
            "spec.operators[count].inputs[1].feedback",
            f"a cycle {SAID} and `protocol: uncoordinated`",
        ),
        ({"batch.order": "random"}, "spec.batch.order", "'aligned' or 'arrival'"),
    ],
)
def test_what_is_not_tried_is_refused(changes: dict[str, object], field: str, reason: str) -> None:
    with pytest.raises(SpecError) as refused:
        check(resource_of(**{**ARRIVAL, **changes}))
    found = {(error.field, error.reason) for error in refused.value.all}
    assert [r for f, r in found if f == field and reason in r], found
    assert len({f for f, _ in found}) == 1, "one mistake is said once"
    if "batch.order" not in changes:
        check(resource_of(**{**changes, "batch.order": "aligned"}))


OWN_CLOCKS = {"checkpoint.protocol": "uncoordinated", "checkpoint.log": "checkpointed"}


@pytest.mark.parametrize("scope", ["auto", "global"])
@pytest.mark.parametrize("checkpoint", [{}, OWN_CLOCKS], ids=["rounds", "own clocks"])
def test_what_follows_from_it(scope: str, checkpoint: dict[str, object]) -> None:
    aligned = resource_of(**checkpoint)
    arrival = resource_of(**checkpoint, **ARRIVAL, **{"recovery.scope": scope})
    assert aligned.batch_order == "aligned" and not aligned.arrival and arrival.arrival
    assert check(arrival) == check(aligned)
    assert view_of(aligned).deterministic and not view_of(arrival).deterministic
    operators = {o.name: make_operator(o).kind.deterministic for o in aligned.operators}
    assert {p.guarantee for p in guarantees(aligned, operators).values()} == {Guarantee.PRECISE}
    assert {p.guarantee for p in guarantees(arrival, operators).values()} == {Guarantee.PRECISE_BY_CHECKPOINT}


@pytest.mark.parametrize("source", ["top", "tweets"])
def test_feedback_edges_are_taken_with_rounds(source: str) -> None:
    inputs = [CYCLE[0], {**CYCLE[1], "from": source}]
    feedback = {"operators[count].inputs": inputs}
    assert check(resource_of(**ARRIVAL, **feedback)) == check(resource_of(**feedback))


def test_a_revision_says_the_order_and_that_of_aligned_topologies_stays() -> None:
    """Streams that run were begun by drivers that knew of no order."""
    aligned = resource_of()
    assert revision_of(aligned) == AS_BEFORE
    assert revision_of(override(aligned, ARRIVAL)) != AS_BEFORE


def unchecked(**changes: object) -> StreamTopology:
    return override(load_text(DIAMOND), changes)


def test_in_the_order_of_batches_everything_goes_and_else_every_mistake_is_told_at_once() -> None:
    changes: dict[str, object] = {
        "checkpoint.state": "paged",
        "recovery.scope": "partition",
        "recovery.strategy": "blocking",
        "operators[count].availability": "active-standby",
    }
    assert list(arrival_fits(unchecked(**changes))) == []
    assert [error.field for error in arrival_fits(unchecked(**changes, **ARRIVAL))] == [
        "spec.checkpoint.state", "spec.recovery.scope", "spec.recovery.strategy",
        "spec.operators[count].availability",
    ]  # fmt: skip
