"""Pods that are to be emptied: named by a person, or on a machine that will be taken away."""

from __future__ import annotations

import pytest

from reprise.controller.kubernetes.errors import SettingsError
from reprise.controller.kubernetes.pods import KubernetesNode, PodView
from reprise.controller.operator.pods.notices import CORDONED, Notices
from reprise.controller.operator.settings import OperatorSettings
from reprise.scheduler.model import Leaving

SPOT = "aws-node-termination-handler/spot-itn"
PODS = {name: PodView(name, "streams", "flights", "executor", name, machine) for name, machine in
        (("e-1", "m-1"), ("e-2", "m-2"), ("e-3", "m-2"), ("e-4", ""))}  # fmt: skip


def machine(name: str, *taints: str, schedulable: bool = True) -> KubernetesNode:
    return KubernetesNode(name, True, schedulable, taints)


def settings(*taints: str) -> OperatorSettings:
    return OperatorSettings(namespace="n", identity="i", zk="z", image="m", leaving_taints=taints)


def test_without_anything_nobody_leaves() -> None:
    notices = Notices(settings(SPOT).leaving)
    assert notices.of({}, PODS, None) == {}
    assert notices.of({}, PODS, {"m-1": machine("m-1", "some-pool"), "m-2": machine("m-2")}) == {}


def test_a_cordoned_machine_and_one_with_a_taint_empty_their_pods() -> None:
    now = [1000.0]
    notices = Notices(settings(CORDONED, f"{SPOT}=120").leaving, lambda: now[0])
    machines = {"m-1": machine("m-1", schedulable=False), "m-2": machine("m-2", "other", SPOT)}
    found = notices.of({}, PODS, machines)
    assert found["e-1"] == Leaving(f"machine m-1: {CORDONED}")
    assert found["e-2"] == found["e-3"] == Leaving(f"machine m-2: {SPOT}", 1120.0)
    assert "e-4" not in found
    now[0] = 1060.0
    assert notices.of({}, PODS, machines)["e-2"].by == 1120.0, "from when it was seen first"
    assert notices.of({}, PODS, {"m-2": machine("m-2")}) == {}
    assert notices.of({}, PODS, machines)["e-2"].by == 1180.0, "it was gone in between"


def test_a_person_names_pods_and_the_soonest_end_counts() -> None:
    notices = Notices(settings(f"{SPOT}=120", "slow=600").leaving, lambda: 0.0)
    annotations = {"reprise.dev/drain": "e-1, e-2,,gone"}
    machines = {"m-2": machine("m-2", "slow", SPOT)}
    found = notices.of(annotations, PODS, machines)
    assert found["e-1"] == Leaving("reprise drain")
    assert found["e-2"].by == 120.0
    assert set(found) == {"e-1", "e-2", "e-3", "gone"}


def test_defaults_and_what_is_refused() -> None:
    base = OperatorSettings(namespace="n", identity="i", zk="z", image="m")
    assert base.leaving[CORDONED] is None
    assert base.leaving[SPOT] == 120.0
    assert settings().leaving == {}
    for wrong in ("", "=5", "key=", "key=soon", "key=-1", "key=0", "key=nan"):
        with pytest.raises(SettingsError, match="leaving_taints"):
            settings(wrong)
