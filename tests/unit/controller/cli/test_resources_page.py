"""How a topology stands by its Kubernetes resources alone, also where these say little or nothing yet."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console, RenderableType

from reprise.controller.cli.resources_page import incident_line, plan_page, resources_page

META = {"namespace": "streams", "name": "oncall"}
STATUS = {
    "position": 20,
    "queries": {"summary": "3/4", "waiting": 1, "value": "8/10"},
    "nodes": {"summary": "2/3", "lost": 2},
    "checkpoint": {"position": 15},
    "conditions": [{"type": "Ready", "status": "False", "reason": "Recovering"}],
    "waiting": [{"query": "count.1", "priority": 2, "reason": "needs 40 more"}],
    "incident": "oncall-inc-000002",
}
INCIDENT = {
    "metadata": {"name": "oncall-inc-000002"},
    "spec": {"openedAt": "2026-01-01T00:00:00Z"},
    "status": {"kind": "correlated", "phase": "waiting", "queries": {"summary": "2/3"}},
}
PLAN = {
    "metadata": {"name": "oncall-inc-000002-p1"},
    "spec": {
        "incident": "oncall-inc-000002", "trigger": "first", "partitions": 2, "summary": "1/2", "value": 3, "bound": 5,
        "why": "small", "chosen": [{"query": "count.3", "priority": 4, "costMilliCpu": 40, "partitions": 1}],
        "leftOut": [{"query": "count.1", "priority": 2, "reason": "needs 40 more"}],
    },
    "status": {"state": "Executing"},
}  # fmt: skip


def shown(page: RenderableType, width: int = 160) -> str:
    file = io.StringIO()
    Console(file=file, width=width, markup=False).print(page)
    return file.getvalue()


def found(status: dict[str, Any] | None, *incidents: Any, plans: Any = ()) -> dict[str, Any]:
    topology: dict[str, Any] = {"metadata": META} | ({} if status is None else {"status": status})
    return {"topology": topology, "incidents": list(incidents), "plans": list(plans)}


def test_what_the_resources_say_is_there() -> None:
    outputs = [
        {"operator": "count", "guarantee": "precise"},
        {"operator": "best", "guarantee": "gap", "limitedBy": ["window"]},
        {"operator": "odd"},
    ]
    text = shown(resources_page(found({**STATUS, "outputs": outputs}, INCIDENT, plans=[PLAN]), "no answer"))
    for words in (
        "streams/oncall", "3/4", "8/10", "2/3", "Ready=False", "needs 40 more", "oncall-inc-000002 correlated",
        "oncall-inc-000002-p1 first", "no answer",
    ):  # fmt: skip
        assert words in text
    (line,) = [line for line in text.splitlines() if line.startswith("outputs")]
    assert "count" not in line and "best gap (by window)" in line and "odd " in line


@pytest.mark.parametrize("status", [None, {}])
def test_what_nobody_has_looked_at_is_shown_as_far_as_it_is_known(status: dict[str, Any] | None) -> None:
    assert "streams/oncall" in shown(resources_page(found(status), "x"))
    bare = {"metadata": {"name": "i"}, "spec": {}}
    assert "i ?" in incident_line(bare).plain
    assert shown(plan_page({**bare, "spec": {"optimal": True}})).startswith("plan       i ")


def test_a_plan_names_who_comes_back_and_who_waits() -> None:
    text = shown(plan_page(PLAN))
    back, waits = (
        next(line for line in text.splitlines() if line.startswith(q)) for q in ("count.3", "count.1")
    )
    assert "40m" in back and "needs 40 more" in waits


def test_an_incident_of_another_time_and_its_plans_are_not_shown() -> None:
    closed = {**INCIDENT, "metadata": {"name": "oncall-inc-000001"}}
    other = {**PLAN, "spec": {**PLAN["spec"], "incident": "oncall-inc-000001"}}  # type: ignore[dict-item]
    text = shown(resources_page(found(STATUS, closed, plans=[other]), "x"))
    assert "inc-000001" not in text
    calm = shown(resources_page(found({**STATUS, "incident": None}, INCIDENT, plans=[PLAN]), "x"))
    assert "incident   " not in calm and "plan   " not in calm
