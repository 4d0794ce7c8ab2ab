"""Which checkpointing protocol goes with which log, scope and interval; each refusal names field and reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from reprise.controller.topology_view import policy_of
from reprise.scheduler import Scope
from reprise.spark_jobs.errors import SpecError
from reprise.spark_jobs.topology import StreamTopology, from_json, load_text, override
from reprise.spark_jobs.topology.check import check
from tests.unit.spark_jobs.engine.test_recovery import DIAMOND

ALONE = {"checkpoint.protocol": "uncoordinated"}
LOGGED = {**ALONE, "checkpoint.log": "memory"}
INDUCED = {"checkpoint.protocol": "communication-induced", "checkpoint.log": "checkpointed"}
EVENTUAL = {"checkpoint.protocol": "eventual", "checkpoint.log": "checkpointed"}


OBJECTIVE = "operators[top].output.recovery.objective"


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
        ({**INDUCED, "checkpoint.state": "paged"}, "spec.checkpoint.state", "'paged' is not tried"),
        ({**INDUCED, "checkpoint.log": "memory"}, "spec.checkpoint.log", "needs 'checkpointed'"),
        ({**INDUCED, "checkpoint.log": "none"}, "spec.checkpoint.log", "needs 'checkpointed'"),
        (
            {**INDUCED, "recovery.scope": "ancestors"},
            "spec.recovery.scope",
            "with `checkpoint.protocol: communication-induced` lines say who goes back",
        ),
        (
            {
                **INDUCED,
                "operators[parse].parallelism": 400,
                "operators[count].parallelism": 300,
                "sources[tweets].parallelism": 400,
            },
            "spec.checkpoint.protocol",
            "'communication-induced' is for at most 100,000 edges between partitions",
        ),
        (
            {
                **INDUCED,
                "operators[parse].parallelism": 450,
                "operators[count].parallelism": 200,
                "sources[tweets].parallelism": 450,
            },
            "spec.checkpoint.protocol",
            "at most 1,000 partitions, as each message says something of each; here are 1,101",
        ),
        (
            {"checkpoint.eventual": {}},
            "spec.checkpoint.eventual",
            "means nothing without `protocol: eventual`",
        ),
        (
            {**EVENTUAL, "checkpoint.log": "none"},
            "spec.checkpoint.log",
            "`protocol: eventual` needs 'checkpointed'",
        ),
        ({**EVENTUAL, "checkpoint.log": "memory"}, "spec.checkpoint.log", "needs 'checkpointed'"),
        ({OBJECTIVE: "10s"}, f"spec.{OBJECTIVE}", "`protocol: eventual` can hold one"),
        (
            {**LOGGED, OBJECTIVE: "10s"},
            f"spec.{OBJECTIVE}",
            "`checkpoint.protocol: uncoordinated`, with which the interval",
        ),
        (
            {**EVENTUAL, OBJECTIVE: "3s"},
            f"spec.{OBJECTIVE}",
            "3 s is not more than the 3 s after which the loss",
        ),
        (
            {**EVENTUAL, OBJECTIVE: "10s", "checkpoint.eventual": {"replay": 7}},
            "spec.checkpoint.eventual.replay",
            "follows from `operators[top].output.recovery.objective`",
        ),
        (
            {**EVENTUAL, OBJECTIVE: "10s", "checkpoint.eventual": {"extent": 200_000}},
            "spec.checkpoint.eventual.extent",
            "give one of the two",
        ),
        ({**EVENTUAL, "checkpoint.state": "paged"}, "spec.checkpoint.state", "'paged' is not tried"),
        ({**EVENTUAL, "recovery.scope": "global"}, "spec.recovery.scope", "'global' is not tried"),
        ({**EVENTUAL, "recovery.scope": "ancestors"}, "spec.recovery.scope", "lines say who goes back"),
        ({**EVENTUAL, "recovery.strategy": "blocking"}, "spec.recovery.strategy", "'blocking' is not tried"),
        (
            {**EVENTUAL, "operators[top].deterministic": False},
            "spec.operators[top].deterministic",
            "a replay has to give equal rows",
        ),
        ({"checkpoint.state": "asynchronous"}, "spec.checkpoint.state", "'arrays' or 'paged'"),
        ({"checkpoint.stateMemory": "1Gi"}, "spec.checkpoint.stateMemory", "needs `state: paged`"),
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
        (INDUCED, Scope.PARTITION),
        (EVENTUAL, Scope.PARTITION),
        ({**INDUCED, "recovery.scope": "global"}, Scope.GLOBAL),
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


FEEDBACK = Path("examples/feedback.yaml").read_text()


def test_states_are_stored_slot_by_slot_with_the_paper_s_four_numbers() -> None:
    pace = resource_of(**EVENTUAL).checkpoint.eventual_pace
    assert pace is not None
    assert (pace.extent, pace.replay, pace.spend_s, pace.every_s) == (200_000, 1_000_000, 0.01, 0.25)
    assert resource_of().checkpoint.eventual_pace is None


def test_an_objective_goes_with_the_pace_alone() -> None:
    own = resource_of(**EVENTUAL, **{OBJECTIVE: "10s", "checkpoint.eventual": {"spend": "5ms"}})
    found = [o.output.objective_s for o in own.operators if o.output is not None]
    assert 10.0 in found and own.checkpoint.eventual_pace is not None
    assert own.checkpoint.eventual_pace.given == ()
    again = from_json(own.document)
    assert again == own, "hosts read it as the driver does"


def test_slots_are_not_for_sinks_that_nobody_has_tried_with_them() -> None:
    sink = {"class": "reprise.kafka:KafkaSink", "with": {"brokers": "b:9092", "topic": "t"}}
    with pytest.raises(SpecError, match=r"is not tried with .*: output goes to files") as refused:
        resource_of(**EVENTUAL, **{"operators[top].output.sink": sink})
    assert refused.value.field == "spec.operators[top].output.sink"
    assert resource_of(**{"operators[top].output.sink": sink})


def test_slots_are_not_for_cycles_nor_for_classes_that_answer_differently() -> None:
    with pytest.raises(SpecError, match="a cycle is not tried") as refused:
        load_text(FEEDBACK, changes=EVENTUAL)
    assert refused.value.field == "spec.operators[smooth].inputs[1].feedback"
    coin = {"operators[parse].class": "tests.support.coin:Toss", "operators[parse].with": {}}
    with pytest.raises(SpecError, match="is not deterministic"):
        resource_of(**EVENTUAL, **coin)


@pytest.mark.parametrize(
    ("text", "changes", "why"),
    [
        (DIAMOND, INDUCED, "no operator is in a cycle"),
        (FEEDBACK, INDUCED, "operators in cycles, and those that they read, are deterministic"),
        (FEEDBACK, {**INDUCED, "operators[count].deterministic": False}, None),
        (
            FEEDBACK,
            {
                **INDUCED,
                "operators[decay].class": "tests.support.scripted:Passing",
                "operators[decay].with": {},
            },
            None,
        ),
        (DIAMOND, {**ALONE, "checkpoint.log": "checkpointed"}, None),
    ],
)
def test_forced_snapshots_that_can_help_nobody_are_warned_of(
    text: str, changes: dict[str, object], why: str | None
) -> None:
    found = [w for w in check(load_text(text, changes=changes)) if w.field == "spec.checkpoint.protocol"]
    assert [why in w.reason for w in found if why] == ([True] if why else [])
    assert len(found) == bool(why)
