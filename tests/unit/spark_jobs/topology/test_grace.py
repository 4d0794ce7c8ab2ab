"""Where `recovery.driverGrace` is refused, with field and reason."""

from __future__ import annotations

import pytest

from reprise.spark_jobs.errors import SpecError
from reprise.spark_jobs.state.revision import revision_of
from reprise.spark_jobs.topology import StreamTopology, from_json, load_text, override
from reprise.spark_jobs.topology.adoption import MOST_GRACE_S, grace_fits
from reprise.spark_jobs.topology.check import check
from tests.unit.spark_jobs.engine.test_recovery import DIAMOND

GRACE = {"recovery.driverGrace": "60s"}
SAID = "is not built with `recovery.driverGrace`"
KAFKA = {"class": "reprise.kafka:KafkaSink", "with": {"topic": "t", "brokers": "b:9092"}}


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
            {"checkpoint.state": "paged", "checkpoint.standby": ["file:///mirror"]},
            "spec.checkpoint.standby",
            f"with `state: paged` {SAID}: a driver that goes on from a mirror may not find pages that hosts count as stored",
        ),
        ({"batch.order": "arrival"}, "spec.batch.order", f"'arrival' {SAID}: a replay may differ"),
        (
            {"operators[count].availability": "active-standby"},
            "spec.operators[count].availability",
            f"'active-standby' {SAID}",
        ),
        (
            {"operators[count].deterministic": False},
            "spec.operators[count].deterministic",
            f"'false' {SAID}: a replay may differ",
        ),
        ({"operators[top].output": {"sink": KAFKA}}, "spec.operators[top].output.sink", f"{SAID}: output goes to files"),
        ({"recovery.driverGrace": "11m"}, "spec.recovery.driverGrace", "is at most 600 s"),
    ],
)  # fmt: skip
def test_what_is_not_built_is_refused(changes: dict[str, object], field: str, reason: str) -> None:
    with pytest.raises(SpecError) as refused:
        check(resource_of(**{**GRACE, **changes}))
    assert {(error.field, error.reason) for error in refused.value.all} == {(field, reason)}
    if "recovery.driverGrace" not in changes:
        check(resource_of(**{**changes, "recovery.driverGrace": "0s"}))


def test_it_changes_no_batch_and_is_off_by_default() -> None:
    plain, kept = resource_of(), resource_of(**GRACE)
    check(kept)
    assert (plain.recovery.driver_grace_s, kept.recovery.driver_grace_s) == (0.0, 60.0)
    assert revision_of(plain) == revision_of(kept)


@pytest.mark.parametrize("grace", ["60", "-1s", "soon"])
def test_it_is_a_duration(grace: str) -> None:
    with pytest.raises(SpecError, match="driverGrace"):
        resource_of(**{"recovery.driverGrace": grace})


def test_a_grace_is_in_the_document() -> None:
    resource = resource_of(**GRACE)
    assert from_json(resource.document).recovery.driver_grace_s == 60.0


def unchecked(**changes: object) -> StreamTopology:
    return override(load_text(DIAMOND), changes)


def test_without_a_grace_everything_goes_and_with_it_every_mistake_is_told_at_once() -> None:
    changes = {
        "checkpoint.protocol": "uncoordinated",
        "checkpoint.log": "memory",
        "operators[count].deterministic": False,
    }
    assert list(grace_fits(unchecked(**changes, **{"recovery.driverGrace": "0s"}))) == []
    wrong = list(grace_fits(unchecked(**changes, **{"recovery.driverGrace": f"{MOST_GRACE_S + 1:g}s"})))
    assert [error.field for error in wrong] == [
        "spec.recovery.driverGrace",
        "spec.checkpoint.protocol",
        "spec.operators[count].deterministic",
    ]
    assert list(grace_fits(unchecked(**{"recovery.driverGrace": f"{MOST_GRACE_S:g}s"}))) == [], (
        "at most, and no more"
    )
