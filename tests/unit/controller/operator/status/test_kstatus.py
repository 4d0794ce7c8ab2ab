"""What Flux, and others that go by kstatus, make of a topology: their own library over the status that is written."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from typing import Any

import pytest

from reprise.controller.operator.status.topology_state import TopologyState
from reprise.controller.operator.status.topology_status import status_of
from tests.unit.controller.operator.status.test_topology_status import INCIDENT, STEADY, situation
from tools.testbed import judges

pytestmark = [pytest.mark.slow, pytest.mark.wide]  # the library is built once a machine
DOWN = replace(STEADY, incident=INCIDENT, nodes={}, progress=None)


def object_of(status: dict[str, Any], generation: int = 3) -> dict[str, Any]:
    return {
        "apiVersion": "reprise.dev/v1alpha1",
        "kind": "StreamTopology",
        "metadata": {"name": "minimal", "namespace": "default", "generation": generation},
        **({"status": status} if status else {}),
    }


def judged(*objects: dict[str, Any]) -> list[dict[str, str]]:
    done = subprocess.run(
        [str(judges.ensure() / "kstatus")],
        input="".join(map(json.dumps, objects)),
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def shown(now: TopologyState, generation: int = 3) -> str:
    status = status_of(now, {})[0]
    assert status["observedGeneration"] == 3
    (found,) = judged(object_of(status, generation))
    return found["status"]


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        (situation(STEADY), "Current"),
        (situation(STEADY, invalid="spec.x: no"), "Failed"),
        (situation(None, invalid="spec.x: no"), "Failed"),
        (situation(replace(STEADY, desired=None)), "InProgress"),
        (situation(STEADY, driver_outdated=True), "InProgress"),
        (situation(DOWN), "InProgress"),
    ],
    ids=["well", "refused", "refused-at-once", "starts", "drains", "incident"],
)
def test_what_flux_makes_of_a_topology(now: TopologyState, expected: str) -> None:
    assert shown(now) == expected


def test_a_spec_that_nobody_has_looked_at_is_never_current() -> None:
    assert shown(situation(STEADY), generation=4) == "InProgress"


def test_a_refused_spec_says_why() -> None:
    (found,) = judged(object_of(status_of(situation(STEADY, invalid="spec.x: no"), {})[0]))
    assert "spec.x: no" in found["message"]
