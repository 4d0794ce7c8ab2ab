"""Where `batch.order: arrival` is refused, with field and reason; and what follows from it elsewhere."""

from __future__ import annotations

import pytest

from reprise.controller.topology_view import view_of
from reprise.spark_jobs.errors import SpecError
from reprise.spark_jobs.state.revision import revision_of
from reprise.spark_jobs.topology import StreamTopology, load_text, make_operator, override
from reprise.spark_jobs.topology.check import check
from reprise.spark_jobs.topology.guarantees import guarantees
from reprise.spark_jobs.topology.promise import Guarantee
from tests.unit.spark_jobs.engine.test_recovery import DIAMOND

ARRIVAL = {"batch.order": "arrival"}
AS_BEFORE = "95edfcbfbf6e"
"""The revision of `DIAMOND` before there were orders."""
SAID = "is not tried with `batch.order: arrival`"


def resource_of(**changes: object) -> StreamTopology:
    return load_text(DIAMOND, changes=changes)


@pytest.mark.parametrize(
    ("changes", "field", "reason"),
    [
        (
            {"checkpoint.protocol": "uncoordinated", "checkpoint.log": "memory"},
            "spec.checkpoint.protocol",
            f"'uncoordinated' {SAID}",
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
        ({"spark.exchange": "continuous"}, "spec.spark.exchange", f"'continuous' {SAID}"),
        ({"spark.exchange": "auto"}, "spec.spark.exchange", f"'auto' {SAID}"),
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
            f"'upstream-backup' {SAID}",
        ),
        (
            {"operators[count].availability": "active-standby"},
            "spec.operators[count].availability",
            f"'active-standby' {SAID}",
        ),
        (
            {"operators[count].availability": "passive-standby"},
            "spec.operators[count].availability",
            f"'passive-standby' {SAID}",
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
                "operators[count].inputs": [
                    {"from": "parse", "by": ["tag"]},
                    {"from": "top", "by": ["tag"], "feedback": True},
                ]
            },
            "spec.operators[count].inputs[1].feedback",
            f"a cycle {SAID}",
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


@pytest.mark.parametrize("scope", ["auto", "global"])
def test_what_follows_from_it(scope: str) -> None:
    aligned, arrival = resource_of(), resource_of(**ARRIVAL, **{"recovery.scope": scope})
    assert aligned.batch_order == "aligned" and not aligned.arrival and arrival.arrival
    assert check(arrival) == check(aligned)
    assert view_of(aligned).deterministic and not view_of(arrival).deterministic
    operators = {o.name: make_operator(o).kind.deterministic for o in aligned.operators}
    assert {p.guarantee for p in guarantees(aligned, operators).values()} == {Guarantee.PRECISE}
    assert {p.guarantee for p in guarantees(arrival, operators).values()} == {Guarantee.PRECISE_BY_CHECKPOINT}


def test_a_revision_says_the_order_and_that_of_aligned_topologies_stays() -> None:
    """Streams that run were begun by drivers that knew of no order."""
    aligned = resource_of()
    assert revision_of(aligned) == AS_BEFORE
    assert revision_of(override(aligned, ARRIVAL)) != AS_BEFORE
