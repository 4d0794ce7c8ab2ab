"""Which checkpointing protocol goes with which log, scope and interval; each refusal names field and reason."""

from __future__ import annotations

import pytest

from reprise.controller.topology_view import policy_of
from reprise.scheduler import Scope
from reprise.spark_jobs.errors import SpecError
from reprise.spark_jobs.topology import StreamTopology, load_text, override
from tests.unit.spark_jobs.engine.test_recovery import DIAMOND

ALONE = {"checkpoint.protocol": "uncoordinated"}
LOGGED = {**ALONE, "checkpoint.log": "memory"}


def resource_of(**changes: object) -> StreamTopology:
    return load_text(DIAMOND, changes=changes)


@pytest.mark.parametrize(
    ("changes", "field", "reason"),
    [
        (ALONE, "spec.checkpoint.log", "needs 'memory' or 'checkpointed'"),
        ({"checkpoint.log": "memory"}, "spec.checkpoint.log", "needs `protocol: uncoordinated`"),
        (
            {"recovery.scope": "partition"},
            "spec.recovery.scope",
            "needs `checkpoint.protocol: uncoordinated`",
        ),
        ({**LOGGED, "recovery.scope": "ancestors"}, "spec.recovery.scope", "lines say who goes back"),
        (
            {"operators[top].checkpoint": {"interval": "5s"}},
            "spec.operators[top].checkpoint.interval",
            "coordinated checkpoints have one interval",
        ),
        (
            {
                **LOGGED,
                "operators[parse].parallelism": 400,
                "operators[count].parallelism": 300,
                "sources[tweets].parallelism": 400,
            },
            "spec.checkpoint.protocol",
            "at most 100,000 edges between partitions",
        ),
        ({**LOGGED, "checkpoint.jitter": 91}, "spec.checkpoint.jitter", "less than or equal to 90"),
    ],
)
def test_what_does_not_go_together_is_refused(changes: dict[str, object], field: str, reason: str) -> None:
    with pytest.raises(SpecError) as refused:
        resource_of(**changes)
    assert refused.value.field == field
    assert reason in refused.value.reason


@pytest.mark.parametrize(
    ("changes", "scope"),
    [
        ({}, Scope.AUTO),
        (LOGGED, Scope.PARTITION),
        ({**LOGGED, "recovery.scope": "partition"}, Scope.PARTITION),
        ({**LOGGED, "recovery.scope": "global"}, Scope.GLOBAL),
    ],
)
def test_how_scopes_and_protocols_relate(changes: dict[str, object], scope: Scope) -> None:
    policy = policy_of(resource_of(**changes), 1.0, 1.0)
    assert policy.scope is scope
    assert policy.by_driver is bool(changes), "the driver finds the line also where all go back to it"


def test_who_says_nothing_of_protocols_has_coordinated_checkpoints_and_no_log() -> None:
    policy = resource_of().checkpoint
    assert (policy.protocol, policy.log, policy.uncoordinated) == ("coordinated", "none", False)


def test_output_is_kept_with_own_clocks_whatever_the_strategy() -> None:
    blocking = {"recovery.strategy": "blocking"}
    assert not resource_of(**blocking).keeps_output
    assert override(resource_of(**blocking), LOGGED).keeps_output


def test_an_operator_may_have_an_interval_of_its_own() -> None:
    own = resource_of(**{**LOGGED, "operators[top].checkpoint": {"interval": "5s"}})
    assert [o.checkpoint_interval_s for o in own.operators] == [None, None, 5.0]
