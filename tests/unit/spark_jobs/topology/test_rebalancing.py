"""Where `recovery.rebalance` is refused, with field and reason."""

from __future__ import annotations

import pytest

from reprise.controller.topology_view import policy_of
from reprise.spark_jobs.errors import SpecError
from reprise.spark_jobs.state.revision import revision_of
from reprise.spark_jobs.topology import from_json, load_text, override
from reprise.spark_jobs.topology.check import check
from reprise.spark_jobs.topology.rebalancing import rebalancing_fits
from tests.unit.spark_jobs.engine.test_recovery import DIAMOND

ON = {"recovery.rebalance": True}
SAID = "is not tried with `recovery.rebalance`"


@pytest.mark.parametrize(
    ("changes", "field", "reason"),
    [
        (
            {"checkpoint.protocol": "uncoordinated", "checkpoint.log": "memory"},
            "spec.checkpoint.protocol",
            f"'uncoordinated' {SAID}",
        ),
        ({"batch.order": "arrival"}, "spec.batch.order", "each move would take everything back"),
        ({"recovery.strategy": "blocking"}, "spec.recovery.strategy", f"'blocking' {SAID}"),
        ({"recovery.strategy": "best-case"}, "spec.recovery.strategy", f"'best-case' {SAID}"),
        ({"recovery.mode": "recommend"}, "spec.recovery.mode", "nobody is asked"),
        (
            {"operators[count].availability": "active-standby"},
            "spec.operators[count].availability",
            f"'active-standby' {SAID}",
        ),
        (
            {"operators[count].deterministic": False},
            "spec.operators[count].deterministic",
            "each move would take everything back",
        ),
    ],
)
def test_what_is_not_tried_is_refused(changes: dict[str, object], field: str, reason: str) -> None:
    with pytest.raises(SpecError) as refused:
        check(load_text(DIAMOND, changes={**ON, **changes}))
    (error,) = refused.value.all
    assert error.field == field
    assert reason in error.reason
    check(load_text(DIAMOND, changes=changes))


def test_it_is_off_by_default_and_changes_no_batch() -> None:
    plain, on = load_text(DIAMOND), load_text(DIAMOND, changes=ON)
    check(on)
    assert [policy_of(x, 1.0, 30.0).rebalance for x in (plain, on)] == [False, True]
    assert revision_of(plain) == revision_of(on)
    assert from_json(on.document).recovery.rebalance


def test_plans_above_the_cap_need_it() -> None:
    above = {**ON, "recovery.overcommit": 150}
    resource = load_text(DIAMOND, changes=above)
    check(resource)
    assert policy_of(resource, 1.0, 30.0).overcommit == 1.5
    assert policy_of(load_text(DIAMOND), 1.0, 30.0).overcommit == 0.0
    assert from_json(resource.document).recovery.overcommit == 1.5
    with pytest.raises(SpecError) as refused:
        check(load_text(DIAMOND, changes={"recovery.overcommit": 150}))
    (error,) = refused.value.all
    assert error.field == "spec.recovery.overcommit"
    assert "needs `recovery.rebalance: true`" in error.reason


@pytest.mark.parametrize("percent", [100, 0, 401, 1.5, "150%"])
def test_it_is_a_percentage_above_the_whole_node(percent: object) -> None:
    with pytest.raises(SpecError, match="overcommit"):
        load_text(DIAMOND, changes={**ON, "recovery.overcommit": percent})


def test_plans_above_the_cap_need_load_to_be_levelled_again() -> None:
    def wrong(**changes: object) -> list[str]:
        return [error.field for error in rebalancing_fits(override(load_text(DIAMOND), changes))]

    assert wrong(**{"recovery.overcommit": 120}) == ["spec.recovery.overcommit"]
    assert wrong(**{"recovery.overcommit": 120, **ON}) == []
    several = {
        "recovery.strategy": "blocking",
        "recovery.mode": "recommend",
        "operators[count].deterministic": False,
    }
    assert wrong(**several, **ON) == [
        "spec.recovery.strategy", "spec.recovery.mode", "spec.operators[count].deterministic",
    ]  # fmt: skip
    assert wrong(**several) == []
