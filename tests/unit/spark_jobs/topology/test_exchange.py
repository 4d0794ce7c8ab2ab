"""Which topologies an exchange carries."""

from __future__ import annotations

import pytest

from reprise.spark_jobs.topology import load_text, override
from reprise.spark_jobs.topology.exchange import why_chained
from tests.unit.spark_jobs.engine.test_recovery import DIAMOND


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({}, ""),
        ({"operators[count].availability": "amnesia"}, ""),
        ({"checkpoint.protocol": "uncoordinated", "checkpoint.log": "memory"}, ""),
        ({"spark.exchange": "chained"}, "spark.exchange is 'chained'"),
        (
            {"checkpoint.protocol": "eventual", "checkpoint.log": "checkpointed"},
            "an exchange does not carry `checkpoint.protocol: eventual` yet",
        ),
        ({"batch.order": "arrival"}, "an exchange does not carry `batch.order: arrival` yet"),
        ({"recovery.driverGrace": "60s"}, "an exchange does not carry `recovery.driverGrace` yet"),
        (
            {"operators[count].availability": "active-standby"},
            "an exchange does not carry `availability: active-standby` yet",
        ),
        (
            {"operators[count].availability": "upstream-backup"},
            "an exchange does not carry `availability: upstream-backup` yet",
        ),
    ],
)
def test_a_mode_that_is_not_carried_is_the_reason(changes: dict[str, object], why: str) -> None:
    assert why_chained(override(load_text(DIAMOND), changes)) == why
