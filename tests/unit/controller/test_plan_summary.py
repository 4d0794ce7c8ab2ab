"""A plan in one sentence: what triggered it, what it brings back, how good it is, who waits."""

from __future__ import annotations

from typing import Any

import pytest

from reprise.controller.plan_summary import plan_summary
from reprise.controller.plural import counted
from reprise.scheduler.incident import PlanRecord, Trigger


def plan(answer: dict[str, Any], added: int = 1, waits: int = 0) -> PlanRecord:
    return PlanRecord(
        "inc-1-p1", "inc-1", 5.0, Trigger.ARRIVAL, False, 4, 2, {}, (), answer,
        {f"p.{k}": "n1#1" for k in range(added)}, 0.1, {f"q.{k}": "no room" for k in range(waits)},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (plan({"queries": ["a.0", "b.0"], "value": 7, "bound": 7, "optimal": True}, 3),
         "arrival: restores 3 partitions and brings back a.0, b.0 (summed priority 7, the most that is possible)"),
        (plan({"queries": ["a.0"], "value": 3, "bound": 4}, waits=1),
         "arrival: restores 1 partition and brings back a.0 (summed priority 3; at most 4 is possible); 1 query waits"),
        (plan({"queries": []}, 0, 2), "arrival: restores 0 partitions and brings back no query; 2 queries wait"),
        (plan({"queries": "damaged"}), "arrival: restores 1 partition and brings back no query"),
        (plan({}), "arrival: restores 1 partition and brings back no query"),
    ],
)  # fmt: skip
def test_one_sentence(record: PlanRecord, said: str) -> None:
    assert plan_summary(record) == said


@pytest.mark.parametrize(("number", "said"), [(0, "0 nodes"), (1, "1 node"), (2, "2 nodes")])
def test_a_number_with_what_agrees_with_it(number: int, said: str) -> None:
    assert counted(number, "node", "nodes") == said
