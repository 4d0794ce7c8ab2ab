"""The heartbeat of an executor's pod: it is one life, and a pod that was given up never comes back."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, cast

import pytest

from reprise.controller.agent.pod_agent import (
    EXECUTOR_ENDED,
    FENCED,
    LEFT,
    ExecutorAgent,
    PodEnds,
    options_of,
)
from reprise.controller.zookeeper import membership
from reprise.controller.zookeeper.membership import State, fenced, parse_member
from reprise.controller.zookeeper.node_record import parse_node
from reprise.controller.zookeeper.session import SessionState
from tests.support.fake_agent import SESSION_S, AgentScene

ROOT = "/reprise/default/flights"
MEMBER, HEARTBEAT = membership.path_of(ROOT, "n1"), f"{ROOT}/nodes/n1"


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> AgentScene:
    """Its executor runs; nothing was told to ZooKeeper yet."""
    scene = AgentScene(monkeypatch)
    scene.begin(
        ExecutorAgent(scene.options, cast(Any, scene.executors), ROOT, tmp_path / "alive", scene.platform)
    )
    scene.agent._incarnation = 1
    return scene


def test_a_pod_begins_with_what_its_environment_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing that an agent asks of its options is missing: else every pod would end at once, and Spark ask for the next."""
    scene = AgentScene(monkeypatch)
    environment = {
        "SPARK_EXECUTOR_POD_NAME": "n1",
        "SPARK_EXECUTOR_POD_IP": "127.0.1.1",
        "REPRISE_ZK": "zk",
        "REPRISE_CPU_MILLI": "500",
    }
    options = options_of(environment)
    scene.begin(ExecutorAgent(options, cast(Any, scene.executors), ROOT, tmp_path / "alive", scene.platform))
    scene.agent._incarnation = 1
    scene.turn()
    record = parse_node(scene.tree.records[HEARTBEAT][0])
    assert (record.cpu_milli, dict(record.labels)) == (500, {})


def ends_with(scene: AgentScene, code: int) -> None:
    with pytest.raises(PodEnds) as end:
        scene.turn()
    assert end.value.code == code


def test_a_pod_becomes_a_member_and_has_a_heartbeat(scene: AgentScene) -> None:
    scene.turn()
    assert parse_member(scene.tree.records[MEMBER][0]).state is State.JOINED
    assert MEMBER not in scene.tree.owners, "who was a member is known when the pod is gone"
    assert parse_node(scene.tree.records[HEARTBEAT][0]).incarnation == 1
    assert scene.tree.owners[HEARTBEAT] == scene.zk.id


def test_a_pod_that_was_given_up_before_it_came_never_registers(scene: AgentScene) -> None:
    scene.tree.put(MEMBER, membership.joined())
    scene.tree.put(MEMBER, fenced("its machine is not ready"))
    ends_with(scene, FENCED)
    assert HEARTBEAT not in scene.tree.records
    assert scene.executors.said == ["start", "end"]


def test_a_pod_that_is_given_up_ends_as_soon_as_it_hears(scene: AgentScene) -> None:
    scene.turn()
    scene.tree.put(MEMBER, fenced("the pod is deleted"))
    ends_with(scene, FENCED)
    assert scene.executors.said == ["start", "end"]


def test_a_pod_whose_record_was_removed_ends_too(scene: AgentScene) -> None:
    scene.turn()
    scene.tree.remove(MEMBER)
    ends_with(scene, FENCED)


def test_given_up_between_two_looks_it_is_refused_in_the_transaction(scene: AgentScene) -> None:
    """It has not heard of it when it registers in its new session."""
    scene.turn()

    def given_up(request: str) -> None:
        if request == "commit" and scene.tree.records[MEMBER][1] == membership.JOINED_VERSION:
            scene.tree.watches.clear()
            scene.tree.put(MEMBER, fenced("lost"))

    scene.zk.client.before = given_up
    scene.outage(SESSION_S * 3, new_session=101)
    ends_with(scene, FENCED)
    assert HEARTBEAT not in scene.tree.records


def test_an_outage_ends_nothing_and_the_heartbeat_is_made_again(scene: AgentScene) -> None:
    scene.turn()
    scene.outage(SESSION_S * 3, new_session=101)
    scene.turn()
    assert scene.executors.said == ["start"]
    assert scene.tree.owners[HEARTBEAT] == 101
    assert parse_node(scene.tree.records[HEARTBEAT][0]).incarnation == 1


@pytest.mark.parametrize("given_up", [False, True])
def test_a_pod_whose_session_expired_stands_still_until_the_record_says_what_it_is(
    scene: AgentScene, given_up: bool
) -> None:
    scene.turn()
    scene.is_frozen(SESSION_S * 2)
    if given_up:
        scene.tree.watches.clear()
        scene.tree.put(MEMBER, fenced("its heartbeat is gone"))
    scene.expire(new_session=101)
    if given_up:
        ends_with(scene, FENCED)
        assert scene.executors.said[-1] == "end" and "thaw" not in scene.executors.said
    else:
        scene.turn()
        assert scene.executors.said[0] == "start" and scene.executors.said[-1] == "thaw"
        assert "end" not in scene.executors.said
        assert scene.tree.owners[HEARTBEAT] == 101


def test_a_frozen_pod_that_zookeeper_does_not_answer_stays_still(scene: AgentScene) -> None:
    scene.turn()
    scene.zk.client.state = SessionState.SUSPENDED
    scene.is_frozen(SESSION_S)
    for _ in range(3):
        scene.turn()
    assert "thaw" not in scene.executors.said and "end" not in scene.executors.said


def test_a_pod_that_is_told_to_leave_takes_its_heartbeat_away_first(scene: AgentScene) -> None:
    scene.turn()
    scene.agent._events.put("leaving")
    ends_with(scene, LEFT)
    assert HEARTBEAT not in scene.tree.records
    assert scene.executors.said == ["start"], "its executor ends after that, with the pod"


def test_a_pod_that_is_told_to_leave_in_an_outage_leaves(scene: AgentScene) -> None:
    scene.turn()
    scene.zk.client.state = SessionState.SUSPENDED
    scene.agent._events.put("leaving")
    ends_with(scene, LEFT)


def test_a_pod_has_one_life_and_ends_with_its_executor(scene: AgentScene) -> None:
    scene.turn()
    scene.executors.alive = False
    ends_with(scene, EXECUTOR_ENDED)


def test_it_stands_under_its_own_topology_alone_and_counts_no_incarnations(scene: AgentScene) -> None:
    scene.turn()
    assert sorted(scene.tree.records) == [MEMBER, HEARTBEAT]


def test_with_a_grace_sigterm_is_a_notice_and_the_pod_ends_when_it_is_empty(scene: AgentScene) -> None:
    scene.agent._grace_s = 30.0
    scene.turn()
    scene.tree.put(f"{ROOT}/desired", b'{"assignment": {"sink.0": "n1#1"}}')
    scene.agent._events.put("leaving")
    scene.turn()
    wish = f"{ROOT}/leaving/n1#1"
    assert scene.tree.owners[wish] == scene.zk.id
    assert HEARTBEAT in scene.tree.records
    scene.agent._leave_in_time()
    scene.tree.put(f"{ROOT}/desired", b'{"assignment": {"sink.0": "n2#1"}}')
    scene.agent._leave_in_time()  # it has just asked
    scene.now += 2.0
    with pytest.raises(PodEnds) as end:
        scene.agent._leave_in_time()
    assert end.value.code == LEFT
    assert HEARTBEAT not in scene.tree.records


@pytest.mark.parametrize("desired", [None, b"no record", b'{"assignment": {"sink.0": "n1#1"}}'])
def test_at_the_end_of_its_grace_it_goes_whatever_it_has(scene: AgentScene, desired: bytes | None) -> None:
    scene.agent._grace_s = 0.05
    scene.turn()
    if desired is not None:
        scene.tree.put(f"{ROOT}/desired", desired)
    scene.agent._events.put("leaving")
    scene.turn()
    scene.agent._leave_in_time()
    time.sleep(0.1)
    with pytest.raises(PodEnds):
        scene.agent._leave_in_time()


@pytest.mark.parametrize("removed", [False, True])
def test_a_pod_that_thaws_within_its_session_asks_whether_it_was_given_up(
    scene: AgentScene, removed: bool
) -> None:
    """Its heartbeat still stands, as the session lives; somebody gave it up all the same, and it has not heard of it."""
    scene.turn()
    scene.is_frozen(SESSION_S / 2)
    scene.tree.watches.clear()
    if removed:
        scene.tree.remove(MEMBER)
    else:
        scene.tree.put(MEMBER, fenced("its machine is not ready"))
    ends_with(scene, FENCED)
    assert scene.executors.said == ["start", "freeze", "end"]


def test_the_heartbeat_of_an_older_session_is_replaced_as_it_would_vanish_later(scene: AgentScene) -> None:
    scene.turn()
    scene.zk.client.client_id = (101, b"")
    scene.agent._dirty = True
    scene.turn()
    scene.tree.end(100)
    assert scene.tree.owners[HEARTBEAT] == 101
    assert parse_node(scene.tree.records[HEARTBEAT][0]).incarnation == 1


def test_a_registration_that_is_refused_for_another_reason_is_tried_again(scene: AgentScene) -> None:
    """The folder of heartbeats was removed between two requests."""
    scene.turn()
    scene.zk.client.client_id = (101, b"")
    scene.tree.end(100)

    def removed(request: str) -> None:
        if request == "commit" and scene.zk.client.before is removed:
            scene.zk.client.before = before
            scene.tree.remove(f"{ROOT}/nodes")

    before, scene.zk.client.before = scene.zk.client.before, removed
    scene.agent._dirty = True
    scene.turn()
    assert HEARTBEAT not in scene.tree.records and scene.agent._dirty
    scene.turn()
    assert scene.tree.owners[HEARTBEAT] == 101


@pytest.mark.parametrize("member", ["rewritten", "removed"])
def test_a_pod_that_was_given_up_ends_whatever_is_missing_besides(scene: AgentScene, member: str) -> None:
    """It has not heard of it, and the folder of heartbeats is gone in the moment in which it registers again."""
    scene.turn()
    scene.zk.client.client_id = (101, b"")
    scene.tree.end(100)
    scene.tree.watches.clear()

    def given_up(request: str) -> None:
        if request == "commit":
            scene.zk.client.before = before
            scene.tree.remove(f"{ROOT}/nodes")
            if member == "removed":
                scene.tree.remove(MEMBER)
            else:
                scene.tree.put(MEMBER, fenced("its machine is not ready"))

    before, scene.zk.client.before = scene.zk.client.before, given_up
    scene.agent._dirty = True
    ends_with(scene, FENCED)
    assert HEARTBEAT not in scene.tree.records
