"""What Argo CD shows of a topology: its Lua over the status that the operator would write."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import lupa
import pytest

from reprise.controller.operator.status.topology_state import TopologyState
from reprise.controller.operator.status.topology_status import status_of
from tests.unit.controller.operator.status.test_topology_status import INCIDENT, STEADY, situation

SCRIPT = Path(__file__).parents[5] / "monitoring" / "argocd-health.lua"
STATES = {"Healthy", "Progressing", "Degraded", "Suspended", "Missing", "Unknown"}
"""What Argo CD knows."""
DOWN = replace(STEADY, incident=INCIDENT, nodes={}, progress=None)


def health(obj: dict[str, Any]) -> tuple[str, str]:
    """As Argo CD asks: the object is the global `obj`, and a table comes back."""
    lua = lupa.LuaRuntime(unpack_returned_tuples=True)
    lua.globals().obj = lua.table_from(obj, recursive=True)
    found = lua.execute(SCRIPT.read_text(encoding="utf-8"))
    assert found.status in STATES
    return found.status, found.message


def shown(now: TopologyState, generation: int = 3) -> tuple[str, str]:
    return health({"metadata": {"generation": generation}, "status": status_of(now, {})[0]})


def test_an_object_that_nobody_has_looked_at_progresses() -> None:
    for status in ({}, {"status": {}}):
        assert health({"metadata": {"generation": 1}, **status}) == (
            "Progressing",
            "the operator has not looked at it yet",
        )


def test_a_spec_that_nobody_has_looked_at_is_not_healthy() -> None:
    assert shown(situation(STEADY))[0] == "Healthy"
    assert shown(situation(STEADY), generation=4)[0] == "Progressing"


@pytest.mark.parametrize(
    ("now", "state", "words"),
    [
        (situation(STEADY), "Healthy", "AllQueriesAvailable"),
        (situation(STEADY, invalid="spec.x: no"), "Degraded", "SpecRefused: spec.x: no"),
        (situation(None, invalid="spec.x: no"), "Degraded", "SpecRefused: spec.x: no"),
        (situation(STEADY, paused_by="spec.paused"), "Suspended", "Asked: spec.paused"),
        (
            situation(replace(STEADY, desired=None)),
            "Progressing",
            "Starting",
        ),
        (situation(STEADY, driver_outdated=True), "Progressing", "SpecPending"),
        (
            situation(STEADY, driver_problem="it has ended"),
            "Degraded",
            "DriverDown: it has ended",
        ),
        (situation(replace(STEADY, connected=False)), "Unknown", "NoAnswer"),
        (situation(DOWN), "Degraded", "QueriesDown"),
    ],
    ids=[
        "well",
        "refused",
        "refused-at-once",
        "paused",
        "starts",
        "drains",
        "no-driver",
        "zookeeper-away",
        "incident",
    ],
)
def test_what_argo_cd_shows(now: TopologyState, state: str, words: str) -> None:
    found = shown(now)
    assert found[0] == state and found[1].startswith(words), found
