"""Each switch of the operator's benchmark replaces what it names, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from kazoo.handlers.threading import SequentialThreadingHandler

from benchmarks.operator_variant import SWITCHES
from reprise.controller.coordinator.coordinator import Coordinator
from reprise.controller.operator import handlers, interpreter
from reprise.controller.operator.loop import poll_schedule
from reprise.controller.operator.loop.burst_gate import MANY, BurstGate
from reprise.controller.operator.loop.poll_rate import PollRate
from reprise.controller.operator.loop.poll_schedule import PollSchedule
from reprise.controller.zookeeper import client
from reprise.scheduler import Decision, Outcome

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


def test_what_they_leave_is_the_operator_without(monkeypatch: pytest.MonkeyPatch) -> None:
    for owner, attribute in [target for targets in REPLACED.values() for target in targets]:
        monkeypatch.setattr(owner, attribute, getattr(owner, attribute))
    for switch in SWITCHES.values():
        switch()
    gate = BurstGate()
    for number in range(2 * MANY):
        gate.decided(f"u{number}", Decision(Outcome.ACT, "failure-detected", ""))
    assert not gate.on
    assert PollSchedule(PollRate()).share == 1.0
    made = client.kazoo_client("127.0.0.1:1", 1.0, {})
    assert isinstance(made.handler, SequentialThreadingHandler)
