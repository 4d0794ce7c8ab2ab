"""The agent with its threads and signals running: what comes at once, in any order, or never."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from reprise.controller.agent import agent as agent_module
from reprise.controller.agent import pod_agent
from reprise.controller.agent.agent import LEFT, NodeAgent, main
from reprise.controller.agent.pod_agent import EXECUTOR_ENDED, FENCED, ExecutorAgent
from reprise.controller.zookeeper import membership
from reprise.controller.zookeeper.node_record import CONTROL, parse_node
from reprise.controller.zookeeper.session import SessionState
from reprise.spark_jobs.platform import Platform
from tests.support.fake_agent import SESSION_S, AgentScene
from tools.testbed.waiting import until

ROOT = "/reprise/default/flights"
MEMBER, HEARTBEAT = membership.path_of(ROOT, "n1"), f"{ROOT}/nodes/n1"


def begin(run: Callable[[], object], name: str) -> threading.Thread:
    """A thread that its own sleep may end."""

    def until_it_ends() -> None:
        with contextlib.suppress(SystemExit):
            run()

    thread = threading.Thread(target=until_it_ends, name=name, daemon=True)
    thread.start()
    return thread


class Life:
    """An agent on threads of its own; `code`: how its deciding thread has ended."""

    def __init__(self, scene: AgentScene, make: Callable[[Platform], NodeAgent]) -> None:
        self.code: object = None
        self._over = threading.Event()
        scene.zk.client.start_async = lambda: None  # type: ignore[attr-defined]
        scene.agent = make(Platform(sleep=self._sleep, begin=begin))
        self.thread = threading.Thread(target=self._live, args=[scene.agent], daemon=True)
        self.thread.start()

    def _sleep(self, seconds: float) -> None:
        if self._over.wait(seconds):
            sys.exit()  # of the ticker's thread alone

    def _live(self, agent: NodeAgent) -> None:
        try:
            agent._run()
        except SystemExit as end:
            self.code = end.code

    def ends(self) -> object:
        self.thread.join(300)
        assert not self.thread.is_alive()
        self.close()
        return self.code

    def close(self) -> None:
        self._over.set()


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> AgentScene:
    return AgentScene(monkeypatch)


@pytest.fixture
def pod(scene: AgentScene, tmp_path: Path) -> Iterator[Life]:
    alive = tmp_path / pod_agent.ALIVE
    life = Life(scene, lambda on: ExecutorAgent(scene.options, cast(Any, scene.executors), ROOT, alive, on))
    until(lambda: HEARTBEAT in scene.tree.records)
    yield life
    scene.agent._events.put("fenced")
    life.thread.join(300)
    life.close()


@pytest.fixture
def node(scene: AgentScene) -> Iterator[Life]:
    life = Life(scene, lambda platform: NodeAgent(scene.options, cast(Any, scene.executors), platform))
    until(lambda: scene.record(CONTROL) is not None)
    yield life
    scene.agent._leaves_at = 0.0
    life.thread.join(300)
    life.close()


def test_a_pod_says_that_its_deciding_thread_lives_and_leaves_when_it_is_told(
    scene: AgentScene, pod: Life, tmp_path: Path
) -> None:
    alive = tmp_path / pod_agent.ALIVE
    os.utime(alive, (1.0, 1.0))
    until(lambda: alive.stat().st_mtime > 1.0)
    assert scene.executors.said == ["start"] and parse_node(scene.tree.records[HEARTBEAT][0]).incarnation == 1
    scene.agent._told_to_leave()
    assert pod.ends() == LEFT
    assert HEARTBEAT not in scene.tree.records


def test_a_pod_ends_with_its_executor_and_hears_at_once_that_it_was_given_up(
    scene: AgentScene, pod: Life
) -> None:
    scene.tree.put(MEMBER, membership.fenced("the pod is deleted"))
    assert pod.ends() == FENCED
    assert scene.executors.said == ["start", "end"]


def test_a_pod_whose_executor_ends_is_gone(scene: AgentScene, pod: Life) -> None:
    scene.executors.alive = False
    assert pod.ends() == EXECUTOR_ENDED


def test_a_pod_whose_grace_is_over_leaves_though_nothing_else_happens(scene: AgentScene, pod: Life) -> None:
    scene.tree.put(f"{ROOT}/desired", b'{"assignment": {"sink.0": "n1#1"}}')
    scene.agent._grace_s = 0.3
    scene.agent._told_to_leave()
    until(lambda: f"{ROOT}/leaving/n1#1" in scene.tree.znodes)
    assert pod.ends() == LEFT


def test_a_pod_that_has_nothing_leaves_before_its_grace_is_over(scene: AgentScene, pod: Life) -> None:
    scene.agent._grace_s = 3600.0
    scene.tree.put(f"{ROOT}/desired", b'{"assignment": {"sink.0": "n2#1"}}')
    scene.agent._told_to_leave()
    assert pod.ends() == LEFT


def test_a_session_that_expires_under_a_living_node_ends_its_incarnation(
    scene: AgentScene, node: Life
) -> None:
    scene.expire(new_session=101)
    until(lambda: scene.tree.owners.get(f"{CONTROL}/nodes/n1") == 101)
    assert parse_node(scene.record(CONTROL) or b"").incarnation == 2
    assert scene.executors.said == ["start", "end", "start"]


def test_sigterm_in_the_middle_of_work_is_a_notice_and_all_that_runs_ends_with_the_agent(
    scene: AgentScene,
) -> None:
    over = threading.Event()

    def sleep(seconds: float) -> None:
        if over.wait(seconds):
            sys.exit()

    scene.agent = agent = NodeAgent(
        scene.options, cast(Any, scene.executors), Platform(sleep=sleep, begin=begin)
    )

    def tell() -> None:
        until(lambda: agent._looks and scene.record(CONTROL) is not None)
        os.kill(os.getpid(), signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    threading.Thread(target=tell, daemon=True).start()
    try:
        with pytest.raises(SystemExit) as ended:
            agent.run()
    finally:
        over.set()
        signal.signal(signal.SIGTERM, before)
    assert ended.value.code == LEFT
    assert scene.executors.said == ["start", "end"]


def ticks(scene: AgentScene, gaps: list[float]) -> None:
    """Run the ticker on a clock that goes on by these seconds, one after the other."""
    left = iter(gaps)

    def sleep(_: float) -> None:
        gap = next(left, None)
        if gap is None:
            sys.exit()
        scene.now += gap

    scene.begin(
        NodeAgent(scene.options, cast(Any, scene.executors), Platform(elapsed=lambda: scene.now, sleep=sleep))
    )
    with pytest.raises(SystemExit):
        scene.agent._tick_forever()


def test_the_ticker_stops_executors_after_a_gap_and_not_before(scene: AgentScene) -> None:
    ticks(scene, [0.1, 0.1, SESSION_S / 2 - 0.01])
    assert scene.executors.said == ["start"] and scene.agent._events.empty()


def test_the_ticker_puts_its_event_when_executors_stand_still(scene: AgentScene) -> None:
    """Were the event there before, the answer to it could let executors go on before they are stopped for good."""
    there: list[bool] = []
    freeze = scene.executors.freeze
    scene.executors.freeze = lambda: (freeze(), there.append(scene.agent._events.empty()))[0]  # type: ignore[method-assign,func-returns-value]
    ticks(scene, [0.1, SESSION_S / 2, 0.1])
    assert there == [True]
    assert scene.executors.said == ["start", "freeze"] and scene.agent._events.get() == "woke"


def test_an_answer_to_an_earlier_freeze_does_not_let_go_on_what_a_second_one_stops(scene: AgentScene) -> None:
    """ZooKeeper had answered, and the node was frozen again before executors were let go on: by now others may run what it
    ran.  It must not run between the second freeze and the look at what that means."""
    releases: list[threading.Thread] = []
    freeze = scene.executors.freeze

    def freeze_and_be_answered() -> None:
        freeze()
        scene.agent._held = True
        thread = threading.Thread(target=scene.agent._release_if_confirmed, daemon=True)
        thread.start()
        thread.join(0.2)
        releases.append(thread)

    scene.executors.freeze = freeze_and_be_answered  # type: ignore[method-assign]
    ticks(scene, [SESSION_S * 2])
    (release,) = releases
    release.join(300)
    assert scene.executors.said == ["start", "freeze"]
    assert scene.agent._held


@pytest.mark.parametrize("told", ["nan", "inf", "-inf", "-5", "", "soon", "1e999"])
def test_a_grace_that_is_no_number_of_seconds_says_nothing(
    scene: AgentScene, tmp_path: Path, told: str
) -> None:
    """With one that is never over the node would stay until it is killed."""
    scene.begin(NodeAgent(scene.options, cast(Any, scene.executors), scene.platform))
    scene.agent._scratch, scene.agent._grace_s = tmp_path, 7.0
    (tmp_path / agent_module.GRACE).write_text(told)
    assert scene.agent._grace() == 7.0
    (tmp_path / agent_module.GRACE).write_text(" 0\n")
    assert scene.agent._grace() == 0.0


@pytest.mark.parametrize("label", ["zone", "=a", ""])
def test_a_label_that_is_no_pair_is_refused_by_name(label: str, capsys: pytest.CaptureFixture[str]) -> None:
    required = [
        "--node=n1",
        "--host=h",
        "--zk=z",
        "--cpu-milli=5",
        "--session-timeout-ms=3000",
        "--scratch=/x",
        "--applications=/z",
        "--log=/y",
    ]
    with pytest.raises(SystemExit) as ended:
        main([*required, f"--label={label}"])
    assert ended.value.code == 2
    assert f"argument --label: must be KEY=VALUE, not '{label}'" in capsys.readouterr().err


def test_labels_of_the_machine_stand_in_the_record_whatever_is_in_their_value(scene: AgentScene) -> None:
    scene.options.label = ["zone=a=b", "pool="]
    scene.begin(NodeAgent(scene.options, cast(Any, scene.executors), scene.platform))
    scene.agent._join()
    scene.turn()
    assert dict(parse_node(scene.record(CONTROL) or b"").labels) == {"zone": "a=b", "pool": ""}


def test_a_frozen_node_whose_session_is_gone_for_good_never_goes_on(scene: AgentScene) -> None:
    """Frozen, and thawed while ZooKeeper is away: nothing may run before it has answered, and then it is the next life."""
    scene.begin(NodeAgent(scene.options, cast(Any, scene.executors), scene.platform))
    scene.agent._join()
    scene.turn()
    scene.zk.becomes(SessionState.SUSPENDED)
    scene.is_frozen(SESSION_S * 2)
    scene.turn()
    assert scene.executors.said == ["start", "freeze"]
    scene.lives(SESSION_S)
    scene.turn()
    assert scene.executors.said == ["start", "freeze"], "however long it takes"
    scene.expire(new_session=101)
    scene.turn()
    assert scene.executors.said == ["start", "freeze", "end", "start"]
    assert parse_node(scene.record(CONTROL) or b"").incarnation == 2
