"""The table of `reprise.controller.operator.pods.verdict`, line by line, and that the unknown never ends a pod."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprise.controller.kubernetes.pods import KubernetesNode, PodView
from reprise.controller.operator.heartbeat import Heartbeat
from reprise.controller.operator.pods.verdict import State, judge

NOW, PATIENCE = 1000.0, 2.0
WELL = {"m1": KubernetesNode("m1", True, True)}
ILL = {"m1": KubernetesNode("m1", None, True)}
TAINTED = {"m1": KubernetesNode("m1", True, True, ("node.kubernetes.io/unreachable",))}
THERE = Heartbeat(there=True, member=True)
GONE = Heartbeat(there=False, member=True, gone_s=PATIENCE)
JUST_GONE = Heartbeat(there=False, member=True, gone_s=0.5)
NEVER = Heartbeat(there=False, member=False)
FENCED = Heartbeat(there=False, member=True, fenced=True)


def pod(phase: str = "Running", machine: str = "m1", **more: object) -> PodView:
    return PodView("p", "ns", "t", "executor", "uid", machine, phase, **more)  # type: ignore[arg-type]


OVERDUE = pod(deleted_at=NOW - 100)
"""Told to end, and nobody has ended it."""


@pytest.mark.parametrize(
    ("seen", "machines", "beat", "state"),
    [
        (OVERDUE, WELL, THERE, State.LOST),
        (OVERDUE, WELL, None, State.LOST),
        (None, WELL, THERE, State.LOST),
        (pod("Failed"), WELL, THERE, State.LOST),
        (pod("Succeeded"), WELL, None, State.LOST),
        (pod(deleted_at=NOW + 5), WELL, THERE, State.LEAVING),
        (pod(deleted_at=NOW + 5), WELL, None, State.UNKNOWN),
        (pod(deleted_at=NOW + 5), WELL, GONE, State.LOST),
        (pod(), WELL, THERE, State.ALIVE),
        (pod(), ILL, THERE, State.SUSPECT),
        (pod(), TAINTED, THERE, State.SUSPECT),
        (pod(), ILL, GONE, State.LOST),
        (pod(), ILL, JUST_GONE, State.LOST),
        (pod(), {}, GONE, State.LOST),
        (pod(), WELL, JUST_GONE, State.SUSPECT),
        (pod(), WELL, GONE, State.LOST),
        (pod(), None, GONE, State.LOST),
        (pod(), WELL, FENCED, State.LOST),
        (pod(), WELL, NEVER, State.STARTING),
        (pod("Pending"), WELL, NEVER, State.STARTING),
        (pod("Pending", machine=""), WELL, NEVER, State.PENDING),
        (pod(), WELL, None, State.UNKNOWN),
        (pod(), ILL, None, State.UNKNOWN),
    ],
)
def test_the_table(seen: PodView | None, machines: object, beat: Heartbeat | None, state: State) -> None:
    assert judge(seen, machines, beat, seen is OVERDUE, PATIENCE).state is state  # type: ignore[arg-type]


def test_a_loss_says_why() -> None:
    assert judge(pod(), ILL, GONE, False, PATIENCE).reason == "Kubernetes node m1 is not ready"
    assert judge(pod(), {}, GONE, False, PATIENCE).reason == "Kubernetes node m1 is gone"
    evicted = pod("Failed", disrupted="EvictionByEvictionAPI")
    assert "EvictionByEvictionAPI" in judge(evicted, WELL, GONE, False, PATIENCE).reason


@given(
    phase=st.sampled_from(["Pending", "Running"]),
    machines=st.sampled_from([None, WELL, ILL, TAINTED, {}]),
    deleted=st.sampled_from([None, NOW, NOW + 30]),
)
def test_without_zookeeper_no_pod_that_may_live_is_given_up(
    phase: str, machines: object, deleted: float | None
) -> None:
    assert judge(pod(phase, deleted_at=deleted), machines, None, False, PATIENCE).state is State.UNKNOWN  # type: ignore[arg-type]


@given(
    machines=st.sampled_from([None, WELL, ILL, TAINTED, {}]), phase=st.sampled_from(["Pending", "Running"])
)
def test_a_heartbeat_keeps_a_pod_that_nobody_deletes(machines: object, phase: str) -> None:
    assert judge(pod(phase), machines, THERE, False, PATIENCE).state in (State.ALIVE, State.SUSPECT)  # type: ignore[arg-type]
