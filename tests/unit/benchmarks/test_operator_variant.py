"""Each switch of the operator's benchmark replaces what it names, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.operator_variant import SWITCHES
from reprise.controller.coordinator.coordinator import Coordinator
from reprise.controller.operator import handlers, interpreter
from reprise.controller.operator.loop import poll_schedule
from reprise.controller.operator.loop.burst_gate import BurstGate
from reprise.controller.zookeeper import client

REPLACED: dict[str, list[tuple[Any, str]]] = {
    "burst-gate": [(BurstGate, "decided")],
    "stagger": [(poll_schedule, "random")],
    "own-io": [(client, "PollHandler")],
    "precomputed-plans": [(Coordinator, "precompute")],
    "interpreter": [(interpreter, "set_up"), (handlers, "Garbage")],
}


@pytest.mark.parametrize("name", sorted(SWITCHES))
def test_a_switch_replaces_what_it_names(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    every = [target for targets in REPLACED.values() for target in targets]
    before = {target: getattr(*target) for target in every}
    for owner, attribute in every:
        monkeypatch.setattr(owner, attribute, before[owner, attribute])  # taken back after the test
    SWITCHES[name]()
    assert [target for target in every if getattr(*target) is not before[target]] == REPLACED[name]
