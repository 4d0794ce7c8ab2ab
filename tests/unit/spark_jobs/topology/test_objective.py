"""Recovery-time objectives are refused where nothing could hold them, with field and reason."""

from __future__ import annotations

import pytest

from reprise.algorithms.recovery_time import DETECTION_S
from reprise.spark_jobs.topology import StreamTopology, load_text, override
from reprise.spark_jobs.topology.objective import objective_fits
from tests.unit.spark_jobs.engine.test_eventual import WINDOWS

FIELD = "spec.operators[{}].output.recovery.objective"
EVENTUAL = {"checkpoint.protocol": "eventual", "checkpoint.log": "checkpointed"}
PACE = {"checkpoint.eventual": {}}
FOLLOWS = {"checkpoint.eventual": None}


def found(resource: StreamTopology) -> list[tuple[str, str]]:
    return [(error.field, error.reason) for error in objective_fits(resource)]


@pytest.fixture(scope="module")
def plain() -> StreamTopology:
    return load_text(WINDOWS)


def with_objectives(plain: StreamTopology, changes: dict[str, object], **objectives: str) -> StreamTopology:
    own = {f"operators[{name}].output.recovery": {"objective": text} for name, text in objectives.items()}
    return override(plain, {**changes, **own})


def test_without_an_objective_nothing_is_asked(plain: StreamTopology) -> None:
    assert found(plain) == []
    assert found(override(plain, {"checkpoint.protocol": "coordinated"})) == []


def test_with_another_protocol_it_is_said_once(plain: StreamTopology) -> None:
    changes: dict[str, object] = {"checkpoint.protocol": "coordinated", "checkpoint.log": "none", **FOLLOWS}
    ((field, reason),) = found(with_objectives(plain, changes, timed="1m", top="1s"))
    assert field in (FIELD.format("timed"), FIELD.format("top"))
    assert "nothing follows from it with `checkpoint.protocol: coordinated`" in reason


def test_one_that_is_over_before_the_loss_is_noticed_is_named(plain: StreamTopology) -> None:
    changes: dict[str, object] = {**EVENTUAL, **PACE}
    assert found(with_objectives(plain, changes, timed="1m", top="20s")) == []
    just = f"{DETECTION_S:g}s"
    ((field, reason),) = found(with_objectives(plain, changes, timed="1m", top=just))
    assert field == FIELD.format("top")
    assert (
        reason
        == f"{DETECTION_S:g} s is not more than the {DETECTION_S:g} s after which the loss of a node is noticed"
    )


@pytest.mark.parametrize(("name", "value"), [("replay", 7), ("extent", 200_000)])
def test_what_follows_from_it_is_not_given_beside_it(plain: StreamTopology, name: str, value: int) -> None:
    pace: dict[str, object] = {**EVENTUAL, "checkpoint.eventual": {name: value}}
    ((field, reason),) = found(with_objectives(plain, pace, timed="1m"))
    assert field == f"spec.checkpoint.eventual.{name}"
    assert reason == "follows from `operators[timed].output.recovery.objective`: give one of the two"
    assert found(override(plain, pace)) == [], "without an objective it may be said"
