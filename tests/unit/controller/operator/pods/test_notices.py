"""Pods that are to be emptied: named by a person, or on a machine that will be taken away."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from reprise.controller.kubernetes.errors import SettingsError
from reprise.controller.kubernetes.pods import KubernetesNode, PodView
from reprise.controller.operator.pods.notices import CORDONED, Notices
from reprise.controller.operator.settings import OperatorSettings
from reprise.scheduler.model import Leaving

REPOSITORY = Path(__file__).parents[5]
SPOT = "aws-node-termination-handler/spot-itn"
PODS = {name: PodView(name, "streams", "flights", "executor", name, machine) for name, machine in
        (("e-1", "m-1"), ("e-2", "m-2"), ("e-3", "m-2"), ("e-4", ""))}  # fmt: skip


def machine(name: str, *taints: str, schedulable: bool = True, **conditions: float | None) -> KubernetesNode:
    return KubernetesNode(name, True, schedulable, taints, conditions=conditions)


def settings(*taints: str, conditions: tuple[str, ...] = ()) -> OperatorSettings:
    return OperatorSettings(
        namespace="n", identity="i", zk="z", image="m", leaving_taints=taints, leaving_conditions=conditions
    )


def notices_of(found: OperatorSettings, clock: Callable[[], float]) -> Notices:
    return Notices(found.leaving_by_taint, found.leaving_by_condition, clock)


def test_without_anything_nobody_leaves() -> None:
    notices = notices_of(settings(SPOT), lambda: 0.0)
    assert notices.of({}, PODS, None) == {}
    assert notices.of({}, PODS, {"m-1": machine("m-1", "some-pool"), "m-2": machine("m-2")}) == {}


def test_a_cordoned_machine_and_one_with_a_taint_empty_their_pods() -> None:
    now = [1000.0]
    notices = notices_of(settings(CORDONED, f"{SPOT}=120"), lambda: now[0])
    machines = {"m-1": machine("m-1", schedulable=False), "m-2": machine("m-2", "other", SPOT)}
    found = notices.of({}, PODS, machines)
    assert found["e-1"] == Leaving(f"Kubernetes node m-1: {CORDONED}")
    assert found["e-2"] == found["e-3"] == Leaving(f"Kubernetes node m-2: {SPOT}", 1120.0)
    assert "e-4" not in found
    now[0] = 1060.0
    assert notices.of({}, PODS, machines)["e-2"].by == 1120.0, "from when it was seen first"
    assert notices.of({}, PODS, {"m-2": machine("m-2")}) == {}
    assert notices.of({}, PODS, machines)["e-2"].by == 1180.0, "it was gone in between"


def test_a_person_names_pods_and_the_soonest_end_counts() -> None:
    notices = notices_of(settings(f"{SPOT}=120", "slow=600"), lambda: 0.0)
    annotations = {"reprise.dev/drain": "e-1, e-2,,gone"}
    machines = {"m-2": machine("m-2", "slow", SPOT)}
    found = notices.of(annotations, PODS, machines)
    assert found["e-1"] == Leaving("reprise drain")
    assert found["e-2"].by == 120.0
    assert set(found) == {"e-1", "e-2", "e-3", "gone"}


def test_a_condition_that_is_true_empties_all_pods_of_its_machine() -> None:
    """Its time counts from when it became so, and from when it was seen where that is earlier, or where it does not say."""
    now = [1000.0]
    notices = notices_of(settings(conditions=("Terminating=25", "RebootScheduled")), lambda: now[0])
    assert notices.of({}, PODS, {"m-1": machine("m-1", KernelDeadlock=990.0)}) == {}
    machines = {"m-1": machine("m-1", RebootScheduled=1.0), "m-2": machine("m-2", Terminating=990.0)}
    found = notices.of({}, PODS, machines)
    assert found["e-1"] == Leaving("Kubernetes node m-1: condition RebootScheduled")
    assert found["e-2"] == found["e-3"] == Leaving("Kubernetes node m-2: condition Terminating", 1015.0)
    now[0] = 1060.0
    assert notices.of({}, PODS, machines)["e-2"].by == 1015.0
    assert notices.of({}, PODS, {"m-2": machine("m-2", Terminating=None)})["e-2"].by == 1025.0
    ahead = notices_of(settings(conditions=("Terminating=25",)), lambda: now[0])
    assert ahead.of({}, PODS, {"m-2": machine("m-2", Terminating=5000.0)})["e-2"].by == 1085.0
    assert notices.of({}, PODS, {"m-2": machine("m-2")}) == {}, "it is not true any more"


def test_of_a_taint_and_a_condition_the_soonest_end_counts() -> None:
    notices = notices_of(settings(f"{SPOT}=120", conditions=("Terminating=25",)), lambda: 1000.0)
    found = notices.of({}, PODS, {"m-2": machine("m-2", SPOT, Terminating=1000.0)})
    assert found["e-2"] == Leaving("Kubernetes node m-2: condition Terminating", 1025.0)
    assert notices_of(settings(SPOT), lambda: 0.0).of({}, PODS, {"m-2": machine("m-2", **{SPOT: 1.0})}) == {}


def test_defaults_and_what_is_refused() -> None:
    base = OperatorSettings(namespace="n", identity="i", zk="z", image="m")
    assert base.leaving_by_taint[CORDONED] is None
    assert base.leaving_by_taint[SPOT] == 120.0
    assert base.leaving_by_condition == {"Terminating": 25.0}
    assert settings().leaving_by_taint == settings().leaving_by_condition == {}
    for wrong in ("", "=5", "key=", "key=soon", "key=-1", "key=0", "key=nan"):
        with pytest.raises(SettingsError, match="leaving_taints"):
            settings(wrong)
        with pytest.raises(SettingsError, match="leaving_conditions"):
            settings(conditions=(wrong,))


def test_the_chart_has_the_operators_defaults() -> None:
    values = yaml.safe_load((REPOSITORY / "charts/reprise/values.yaml").read_text(encoding="utf-8"))[
        "operator"
    ]
    base = OperatorSettings(namespace="n", identity="i", zk="z", image="m")
    assert tuple(values["leavingTaints"]) == base.leaving_taints
    assert tuple(values["leavingConditions"]) == base.leaving_conditions
