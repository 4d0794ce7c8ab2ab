"""The heartbeat of a node: where it stands, when it goes, and as which incarnation it comes back."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any, cast

import pytest

from reprise.controller.agent import agent as agent_module
from reprise.controller.agent.agent import NodeAgent
from reprise.controller.simulated_world.memory_zookeeper import MemoryServer
from reprise.controller.zookeeper import node_record as node_tree
from reprise.controller.zookeeper import session
from reprise.controller.zookeeper.errors import SessionError
from reprise.controller.zookeeper.node_record import CONTROL, INCARNATIONS, ROOTS, parse_node, root_name
from reprise.controller.zookeeper.session import SessionState
from tests.support.fake_agent import SESSION_S, AgentScene

ROOT = "/reprise/default/flights"


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> AgentScene:
    """Its executors were started; ZooKeeper has no record of it yet."""
    scene = AgentScene(monkeypatch)
    scene.begin(NodeAgent(scene.options, cast(Any, scene.executors), scene.platform))
    scene.agent._join()
    return scene


def serve(scene: AgentScene, *roots: str) -> None:
    for root in roots:
        scene.tree.put(f"{ROOTS}/{root_name(root)}", b"")


def incarnation(scene: AgentScene, root: str = CONTROL) -> int | None:
    raw = scene.record(root)
    return None if raw is None else parse_node(raw).incarnation


def test_a_node_stands_under_every_root_that_is_served(scene: AgentScene) -> None:
    serve(scene, ROOT)
    scene.turn()
    for root in (CONTROL, ROOT):
        record = parse_node(scene.record(root) or b"")
        assert (record.node, record.host, record.incarnation) == ("n1", "127.0.1.1", 1)
        assert (record.cpu_milli, record.session_s) == (500, SESSION_S)
        assert scene.tree.owners[f"{root}/nodes/n1"] == scene.zk.id
    scene.tree.remove(f"{ROOTS}/{root_name(ROOT)}")
    scene.turn()
    assert incarnation(scene) == 1 and scene.record(ROOT) is None


def test_it_says_when_the_phases_of_its_start_were_over_and_the_same_in_every_session(
    scene: AgentScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1003.0]
    monkeypatch.setattr(scene.agent, "_now", lambda: now[0])
    scene.agent._started = 1001.0
    scene.turn()
    first = parse_node(scene.record(CONTROL) or b"")
    assert (first.requested, first.started, first.heartbeat) == (1000.0, 1001.0, 1003.0)
    now[0] = 1050.0
    scene.outage(SESSION_S * 3, new_session=101)
    scene.turn()
    assert parse_node(scene.record(CONTROL) or b"") == first
    scene.lives(1.0)
    scene.expire(new_session=102)
    scene.turn()
    second = parse_node(scene.record(CONTROL) or b"")
    assert (second.requested, second.started, second.heartbeat) == (None, 1050.0, 1050.0), (
        "nobody asked for it"
    )


def test_a_name_that_was_used_before_goes_on_counting(monkeypatch: pytest.MonkeyPatch) -> None:
    tree = MemoryServer()
    tree.put(f"{INCARNATIONS}/n1", b"6")
    scene = AgentScene(monkeypatch, tree)
    scene.begin(NodeAgent(scene.options, cast(Any, scene.executors), scene.platform))
    scene.agent._join()
    scene.turn()
    assert incarnation(scene) == 7
    assert tree.records[f"{INCARNATIONS}/n1"][0] == b"7", "the next one is 8, though this one were killed"


def test_a_connection_that_is_lost_while_it_begins_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    scene, lost = AgentScene(monkeypatch), {"ensure_path", "get"}
    scene.begin(NodeAgent(scene.options, cast(Any, scene.executors), scene.platform))

    def once(request: str) -> None:
        if request in lost:
            lost.remove(request)
            raise SessionError("no answer")

    scene.zk.client.before = once
    monkeypatch.setattr(session, "PAUSE_S", 0.0)
    scene.agent._join()
    scene.turn()
    assert not lost and incarnation(scene) == 1


def test_a_session_lost_in_an_outage_is_registered_again_and_nothing_ends(scene: AgentScene) -> None:
    scene.turn()
    scene.outage(SESSION_S * 3, new_session=101)
    scene.turn()
    assert scene.executors.said == ["start"]
    assert incarnation(scene) == 1
    assert scene.tree.owners[f"{CONTROL}/nodes/n1"] == 101


def test_a_session_that_was_lost_while_the_node_was_frozen_ends_its_incarnation(scene: AgentScene) -> None:
    scene.turn()
    scene.is_frozen(SESSION_S * 2)
    scene.expire(new_session=101)
    scene.turn()
    assert scene.executors.said == ["start", "freeze", "end", "start"]
    assert incarnation(scene) == 2


def test_a_session_lost_for_no_reason_that_is_known_ends_the_incarnation(scene: AgentScene) -> None:
    scene.turn()
    scene.lives(1.0)
    scene.expire(new_session=101)
    scene.turn()
    assert scene.executors.said == ["start", "end", "start"]


def test_a_node_that_thaws_within_its_session_goes_on_when_zookeeper_has_answered(scene: AgentScene) -> None:
    scene.turn()
    scene.zk.client.state = SessionState.SUSPENDED
    scene.is_frozen(SESSION_S / 2)
    scene.turn()
    assert scene.executors.said == ["start", "freeze"], "nobody has confirmed it yet"
    scene.zk.becomes(SessionState.CONNECTED)
    scene.turn()
    assert scene.executors.said == ["start", "freeze", "thaw"]
    assert incarnation(scene) == 1


def test_while_zookeeper_is_away_the_node_works_on(scene: AgentScene) -> None:
    scene.turn()
    scene.zk.becomes(SessionState.SUSPENDED)
    for _ in range(3):
        scene.lives(SESSION_S)
        scene.turn()
    assert scene.executors.said == ["start"]
    scene.zk.becomes(SessionState.CONNECTED)
    scene.turn()
    assert incarnation(scene) == 1


def test_the_znode_of_an_older_session_is_replaced_as_it_would_vanish_later(scene: AgentScene) -> None:
    scene.turn()
    scene.zk.client.client_id = (101, b"")  # a new session, while the old one's znodes still stand
    scene.agent._dirty = True
    scene.turn()
    scene.tree.end(100)
    assert scene.tree.owners[f"{CONTROL}/nodes/n1"] == 101
    assert incarnation(scene) == 1


def test_its_own_znode_is_written_only_when_it_says_something_else(scene: AgentScene) -> None:
    scene.turn()
    path = f"{CONTROL}/nodes/n1"
    version = scene.tree.records[path][1]
    scene.agent._dirty = True
    scene.turn()
    assert scene.tree.records[path][1] == version
    scene.agent._cpu_milli = 900
    scene.agent._dirty = True
    scene.turn()
    assert scene.tree.records[path][1] == version + 1
    assert parse_node(scene.tree.records[path][0]).cpu_milli == 900


def test_what_is_not_answered_is_tried_with_the_next_look(scene: AgentScene) -> None:
    before = scene.zk.client.before
    scene.zk.client.before = lambda request: (
        (_ for _ in ()).throw(node_tree_error()) if request == "set" else None
    )
    scene.turn()
    assert scene.record(CONTROL) is None
    scene.zk.client.before = before
    scene.turn()
    assert incarnation(scene) == 1


def node_tree_error() -> Exception:
    from reprise.controller.zookeeper.errors import SessionError

    return SessionError("no answer")


def test_the_end_of_the_agent_is_the_end_of_its_node(
    scene: AgentScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails() -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr(scene.agent, "_run", fails)
    with pytest.raises(RuntimeError):
        scene.agent.run()
    assert scene.executors.said[-1] == "end", "a node without an agent would be one that nobody can fence"


def test_roots_are_quoted_names(scene: AgentScene) -> None:
    assert node_tree.root_of(root_name(ROOT)) == ROOT
    serve(scene, ROOT, "/reprise/other/x")
    assert scene.agent._roots == {ROOT, "/reprise/other/x"}


def test_executors_are_kept_running_but_not_while_it_is_unknown_who_runs_here(
    scene: AgentScene,
) -> None:
    scene.turn()
    before = scene.executors.kept
    assert before > 0
    scene.agent._held = True
    scene.zk.client.state = SessionState.SUSPENDED
    scene.turn()
    assert scene.executors.kept == before


def test_a_node_that_wakes_starts_no_executor_before_its_ticker_has_found_out(scene: AgentScene) -> None:
    scene.turn()
    before = scene.executors.kept
    scene.now += SESSION_S * 2
    scene.agent._look_around()
    assert scene.executors.kept == before and scene.executors.said == ["start", "freeze"]
    scene.expire(new_session=101)
    scene.turn()
    assert scene.executors.said == ["start", "freeze", "end", "start"]


def test_sigterm_is_a_notice_and_the_node_ends_when_it_is_over(
    scene: AgentScene, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    now = [1000.0]
    monkeypatch.setattr(scene.agent, "_now", lambda: now[0])
    scene.agent._scratch, scene.agent._grace_s = tmp_path, 5.0
    serve(scene, ROOT)
    scene.turn()
    scene.agent._leave_in_time()
    (tmp_path / agent_module.GRACE).write_text("10\n")
    for _ in range(2):  # a second one changes nothing
        scene.agent._events.put("leaving")
        scene.turn()
        now[0] += 3
    path = f"{ROOT}/leaving/n1#1"
    assert json.loads(scene.tree.znodes[path].data) == {"by": 1010.0, "reason": "SIGTERM"}
    assert scene.tree.owners[path] == scene.zk.id
    assert f"{CONTROL}/leaving/n1#1" not in scene.tree.znodes
    assert scene.executors.alive
    scene.agent._leave_in_time()
    now[0] = 1010.0
    with pytest.raises(SystemExit) as ended:
        scene.agent._leave_in_time()
    assert ended.value.code == agent_module.LEFT


def test_sigterm_ends_a_node_that_still_waits_for_zookeeper(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = AgentScene(monkeypatch)
    scene.begin(NodeAgent(scene.options, cast(Any, scene.executors), scene.platform))

    def wait_for_zookeeper(timeout: float) -> None:
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(scene.agent._zk, "start", wait_for_zookeeper, raising=False)
    before = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(SystemExit) as ended:
            scene.agent.run()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert ended.value.code == agent_module.LEFT
    assert not scene.executors.alive, "what runs on the node ends with its agent"


def test_a_notice_of_an_older_session_is_given_again(scene: AgentScene, tmp_path: Path) -> None:
    scene.agent._scratch, scene.agent._grace_s = tmp_path, 60.0
    serve(scene, ROOT)
    scene.agent._events.put("leaving")
    scene.turn()
    path = f"{ROOT}/leaving/n1#1"
    said = scene.tree.znodes[path].data
    scene.tree.owners[path] = 12345
    scene.agent._dirty = True
    scene.turn()
    assert scene.tree.owners[path] == scene.zk.id, "or it would vanish with the older one"
    assert scene.tree.znodes[path].data == said


def test_without_a_file_the_grace_is_the_option(scene: AgentScene, tmp_path: Path) -> None:
    scene.agent._scratch, scene.agent._grace_s = tmp_path, 7.0
    assert scene.agent._grace() == 7.0
    (tmp_path / agent_module.GRACE).write_text("soon")
    assert scene.agent._grace() == 7.0
