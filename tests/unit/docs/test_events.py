"""docs/logs.md describes each Event of the operator, and docs/kubernetes.md each reason of a topology's conditions."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from reprise.controller.crd.conditions import ConditionReason
from reprise.controller.kubernetes.events import EventReason
from reprise.scheduler.incident import Kind, Phase

ROOT = Path(__file__).parents[3]
TOPOLOGY = ROOT / "controller/operator/status/topology_status.py"


def rows(page: str, first: str) -> list[list[str]]:
    """The rows of the table whose first row begins with `first`."""
    text = (ROOT / page).read_text(encoding="utf-8")
    table = text[text.index(f"| {first} |") :].partition("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in table]


def test_each_event_has_one_row_and_each_row_is_an_event() -> None:
    described = [row[0].strip("`") for row in rows("docs/logs.md", "reason")]
    assert sorted(described) == sorted(EventReason)


def said() -> set[tuple[str, bool]]:
    """Each Event that the operator writes, and whether as a warning."""
    found = set()
    for path in (ROOT / "controller/operator").rglob("*.py"):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
                continue
            warning = call.func.attr == "_give_up" or any(k.arg == "warning" for k in call.keywords)
            names = [a.attr for a in call.args if ast.unparse(a).startswith("EventReason.")]  # type: ignore[attr-defined]
            found |= {(EventReason[name].value, warning) for name in names}
    return found


def test_each_event_is_written_somewhere_and_the_page_tells_warnings_from_news() -> None:
    described = {(row[0].strip("`"), row[1] == "W") for row in rows("docs/logs.md", "reason")}
    assert described == said()


def test_the_page_has_each_reason_of_the_conditions_of_a_topology() -> None:
    text = " ".join(" ".join(row) for row in rows("docs/kubernetes.md", "condition"))
    used = re.findall(r"ConditionReason\.([A-Z_]+)", TOPOLOGY.read_text(encoding="utf-8"))
    phases = {phase.value.capitalize() for phase in Phase if phase is not Phase.CLOSED}
    reasons = {ConditionReason[name].value for name in used} | phases
    assert len(reasons) > 15
    assert {reason for reason in reasons if f"`{reason}`" not in text} == set()


def test_each_phase_and_each_kind_of_an_incident_is_a_reason() -> None:
    for name in (*Phase, *Kind):
        assert ConditionReason(name.value.capitalize())
