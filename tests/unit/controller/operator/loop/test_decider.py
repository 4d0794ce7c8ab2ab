"""What the coordinator of a topology is told before it looks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from reprise.controller.kubernetes.pods import KubernetesNode, PodView
from reprise.controller.operator.loop.decider import Decider
from reprise.controller.zookeeper.errors import SessionError


def test_a_node_was_asked_for_when_its_pod_was_created_where_that_is_known() -> None:
    store = SimpleNamespace(requests={"gone": 1.0})
    records = SimpleNamespace(connected=False, coordinator=SimpleNamespace(store=store))
    pods = {
        name: PodView(name, "streams", "flights", "executor", f"uid-{name}", created_at=at)
        for name, at in (("x-1", 100.0), ("x-2", None))
    }
    assert Decider(cast(Any, records), cast(Any, None)).decide(pods) is None
    assert store.requests == {"x-1": 100.0}


def test_a_node_has_the_labels_of_its_machine_where_those_can_be_read() -> None:
    store = SimpleNamespace()
    records = SimpleNamespace(connected=False, coordinator=SimpleNamespace(store=store))
    decider = Decider(cast(Any, records), cast(Any, None))
    pods = {
        name: PodView(name, "streams", "flights", "executor", f"uid-{name}", machine=machine)
        for name, machine in (("x-1", "m1"), ("x-2", "gone"), ("x-3", ""))
    }
    machines = {"m1": KubernetesNode("m1", True, True, labels={"zone": "a"})}
    decider.decide(pods, machines=machines)
    assert store.labels == {"x-1": {"zone": "a"}}
    decider.decide(pods, machines=None)
    assert store.labels == {}


def test_settings_that_cannot_be_told_are_said_and_hold_up_no_decision() -> None:
    decided: list[str] = []

    def untold() -> None:
        raise SessionError("commands/settings: refused")

    records = SimpleNamespace(
        connected=True, open=lambda: None, tell_settings=untold, hand_on=lambda _: decided.append("handed on"),
        coordinator=SimpleNamespace(store=SimpleNamespace(), turn=lambda: decided.append("turn")),
    )  # fmt: skip
    with pytest.raises(SessionError, match="commands/settings"):
        Decider(cast(Any, records), cast(Any, None)).decide({})
    assert decided == ["turn", "handed on"]
