"""Membership on a real ZooKeeper: whichever comes first, registration or fence, the other one fails.

An agent is starved by SIGSTOP, while what it started goes on: that is what a busy machine does to it.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from kazoo.security import OPEN_ACL_UNSAFE, make_acl

from reprise.controller.agent import processes
from reprise.controller.agent.pod_agent import FENCED, LEFT
from reprise.controller.agent.processes import Process, Session
from reprise.controller.local.cluster.zookeeper import ZooKeeperServer
from reprise.controller.operator.records import Records
from reprise.controller.operator.settings import OperatorSettings
from reprise.controller.topology_view import view_of
from reprise.controller.zookeeper import membership
from reprise.controller.zookeeper.client import make_client
from reprise.controller.zookeeper.errors import NoAuthError, RecordError, SessionError, StaleError
from reprise.controller.zookeeper.node_record import NodeRecord, encode_node
from reprise.controller.zookeeper.session import ZooKeeperSession
from reprise.scheduler import Decision, Desired, Outcome, WriteDesired
from reprise.spark_jobs.topology import from_json
from tests.support.zookeeper import zookeeper
from tools.testbed.waiting import until

pytestmark = pytest.mark.slow
EXAMPLE = Path(__file__).parents[4] / "examples" / "minimal.yaml"

SESSION_S = 2.0
# What an agent does that was starved is the same with users and without; tests/kubernetes has pods without.
WITH_USERS = pytest.mark.parametrize(
    "server",
    [pytest.param(False, marks=pytest.mark.wide, id="open"), pytest.param(True, id="users")],
    indirect=True,
)
# An agent whose executor is a process that sleeps; argv: root, pod, ZooKeeper, scratch folder, session's timeout in ms.
_AGENT = """
import argparse, pathlib, subprocess, sys
from reprise.controller.agent.executor import ExecutorProcess
from reprise.controller.agent.pod_agent import ExecutorAgent
root, pod, zk, scratch, timeout = sys.argv[1:]
class Sleeper(ExecutorProcess):
    def start(self):
        self._process = subprocess.Popen(self.command)
folder = pathlib.Path(scratch)
folder.mkdir(parents=True, exist_ok=True)
options = argparse.Namespace(node=pod, host="127.0.0.1", zk=zk, cpu_milli=100, label=[], session_timeout_ms=int(timeout))
executor = Sleeper(["sleep", "600"], folder / "executor")
ExecutorAgent(options, executor, root, folder / "alive").run()
"""


@dataclass
class Place:
    """One topology's records on a running server."""

    records: Records
    client: ZooKeeperSession
    hosts: str
    folder: Path
    environment: dict[str, str]
    """Of the topology's processes."""

    def agent(self, pod: str) -> subprocess.Popen[bytes]:
        timeout_ms = str(round(SESSION_S * 1000))
        arguments = [self.records.root, pod, self.hosts, str(self.folder / pod), timeout_ms]
        return subprocess.Popen(
            [sys.executable, "-c", _AGENT, *arguments],
            start_new_session=True,
            env=os.environ | self.environment,
        )

    def starving(self, pod: str) -> tuple[subprocess.Popen[bytes], Process]:
        """An agent that has registered and does not run any more, and its executor, which runs."""
        agent = self.agent(pod)
        until(lambda: self.beats(pod), "it registers")
        executor = next(p for p in processes.members([Session.of(agent.pid)]) if p.pid != agent.pid)
        os.kill(agent.pid, signal.SIGSTOP)
        return agent, executor

    def beats(self, pod: str) -> bool:
        return self.client.exists(f"{self.records.root}/nodes/{pod}") is not None

    def beats_again(self, pod: str) -> bool:
        """After the server stood still; the session that asks may have ended with it, and is made anew."""
        try:
            return self.beats(pod)
        except SessionError:
            return False


@pytest.fixture(scope="module", params=[False, True], ids=["open", "users"])
def server(request: pytest.FixtureRequest) -> Iterator[ZooKeeperServer]:
    """Open to everybody, and with a user for each topology, with whose rights its agents do all that they do."""
    with zookeeper(users=request.param) as server:
        yield server


@pytest.fixture
def place(server: ZooKeeperServer, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Place]:
    client = make_client(server.hosts, 60.0, server.access.control_plane() if server.access else {})
    client.start(timeout=300)
    body = yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))
    body["metadata"]["namespace"] = re.sub("[^a-z0-9]+", "-", request.node.name)[:60].strip("-")
    records = records_of(client, server, body, "uid-1")
    yield Place(
        records, client, server.hosts, tmp_path, server.access.topology(records.root) if server.access else {}
    )
    client.close()


def records_of(
    client: ZooKeeperSession, server: ZooKeeperServer, body: dict[str, object], uid: str
) -> Records:
    settings = OperatorSettings(
        namespace="ops",
        identity="op",
        zk=server.hosts,
        image="i",
        session_s=0.1,
        zk_keys=server.access.keys if server.access else None,
    )
    resource = from_json(json.dumps(body))
    records = Records(client, resource, view_of(resource), uid, settings, lambda _: True, lambda: None)
    records.open()
    return records


def test_a_pod_registers_and_a_fence_ends_it_for_good(place: Place) -> None:
    agent = place.agent("e1")
    until(lambda: place.beats("e1"), "it registers")
    place.records.fence("e1", "the pod was deleted")
    assert not place.beats("e1")
    assert agent.wait(300) == FENCED
    again = place.agent("e1")
    assert again.wait(300) == FENCED, "the name is not welcome any more"
    assert not place.beats("e1")


def test_sigterm_takes_the_heartbeat_away_before_the_session_ends(place: Place) -> None:
    agent = place.agent("e1")
    until(lambda: place.beats("e1"), "it registers")
    agent.terminate()
    assert agent.wait(300) == LEFT
    assert not place.beats("e1")


def test_the_death_of_the_executor_is_that_of_the_pod(place: Place) -> None:
    agent = place.agent("e1")
    until(lambda: place.beats("e1"), "it registers")
    children = subprocess.run(["pgrep", "-P", str(agent.pid)], capture_output=True, text=True, check=True)
    subprocess.run(["kill", "-9", *children.stdout.split()], check=True)
    assert agent.wait(300) == 1


def running(process: Process) -> bool:
    now = processes.inspect(process.pid)
    return now is not None and now.started == process.started and now.state not in "TtZX"


def stopped(process: Process) -> bool:
    now = processes.inspect(process.pid)
    return now is not None and now.started == process.started and now.state in "Tt"


@pytest.mark.wide
@WITH_USERS
@pytest.mark.parametrize("of_session", [0.6, 0.8])
def test_an_agent_that_is_starved_for_most_of_its_session_keeps_its_executor(
    place: Place, of_session: float
) -> None:
    """Whether the session outlives it depends on when it was renewed last; the pod stays either way."""
    agent, executor = place.starving("e1")
    time.sleep(of_session * SESSION_S)
    assert running(executor)
    os.kill(agent.pid, signal.SIGCONT)
    until(lambda: place.beats("e1") and running(executor), "it goes on")
    time.sleep(SESSION_S)  # no expiry is still to come
    until(
        lambda: place.beats("e1") and running(executor), "it still does, or does again if it was starved anew"
    )
    assert agent.poll() is None
    agent.terminate()
    assert agent.wait(300) == LEFT


@pytest.mark.wide
@WITH_USERS
def test_an_agent_that_was_starved_past_its_session_comes_back_unless_it_was_given_up(place: Place) -> None:
    agent, executor = place.starving("e1")
    until(lambda: not place.beats("e1"), "its session expires")
    os.kill(agent.pid, signal.SIGCONT)
    until(lambda: place.beats_again("e1") and running(executor), "the same executor goes on")
    os.kill(agent.pid, signal.SIGSTOP)
    until(lambda: not place.beats("e1"), "its session expires again")
    place.records.fence("e1", "no heartbeat")
    os.kill(agent.pid, signal.SIGCONT)
    assert agent.wait(300) == FENCED
    assert processes.inspect(executor.pid) is None
    assert not place.beats("e1")


@pytest.mark.wide
@WITH_USERS
def test_the_executor_of_a_starved_agent_stands_still_until_zookeeper_says_that_it_may_go_on(
    place: Place, server: ZooKeeperServer
) -> None:
    agent, executor = place.starving("e1")
    until(lambda: not place.beats("e1"), "its session expires")
    server.freeze()
    try:
        os.kill(agent.pid, signal.SIGCONT)
        until(lambda: stopped(executor), "the agent stops what it started")
        time.sleep(SESSION_S)
        assert stopped(executor)
    finally:
        server.thaw()
    until(lambda: place.beats_again("e1") and running(executor), "the same executor goes on")
    agent.terminate()
    assert agent.wait(300) == LEFT


@pytest.mark.wide
@WITH_USERS
def test_a_pod_that_was_given_up_while_it_was_frozen_runs_nothing_when_it_wakes(place: Place) -> None:
    """Its session lives, so that nothing but the record speaks against it."""
    agent, executor = place.starving("e1")
    path = membership.path_of(place.records.root, "e1")
    place.client.set(path, membership.fenced("its machine is not ready"))
    time.sleep(0.6 * SESSION_S)
    os.kill(agent.pid, signal.SIGCONT)
    assert agent.wait(300) == FENCED
    assert processes.inspect(executor.pid) is None


def test_a_heartbeat_is_missed_from_when_somebody_looked(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A quiet topology is not looked at for a while: that says nothing about its pods."""
    now = 1000.0
    records, client = place.records, place.client
    client.create(membership.path_of(records.root, "e1"), membership.joined())
    beat = encode_node(NodeRecord("e1", "127.0.0.1", 1, 1, 100, 0.0))
    client.create(f"{records.root}/nodes/e1", beat, ephemeral=True)
    until(lambda: records.heartbeats() is not None, "the session is trusted")
    monkeypatch.setattr("reprise.controller.operator.records.time.monotonic", lambda: now)
    assert gone(records, "e1") == 0.0
    client.delete(f"{records.root}/nodes/e1")
    now += 25
    assert gone(records, "e1") == 0.0
    now += 3
    assert gone(records, "e1") == 3.0
    client.create(f"{records.root}/nodes/e1", beat, ephemeral=True)
    assert gone(records, "e1") == 0.0


def gone(records: Records, pod: str) -> float:
    beats = records.heartbeats()
    assert beats is not None
    return beats[pod].gone_s


def test_a_decision_fences_what_it_takes_partitions_from(place: Place) -> None:
    records, client = place.records, place.client
    store = records.coordinator.store
    for pod in ("gone", "there"):
        client.create(membership.path_of(records.root, pod), membership.joined())
    beat = encode_node(NodeRecord("there", "127.0.0.1", 1, 1, 100, 0.0))
    client.create(f"{records.root}/nodes/there", beat, ephemeral=True)
    first = Desired(1, 1, 0, "1", {"tweets.0": "gone#1", "count.0": "there#1"})
    commit(records, first)
    until(lambda: store.read().snapshot.session, "the session is trusted")
    commit(records, first.next(assignment={"count.0": "there#1"}))
    versions = {p: client.exists(membership.path_of(records.root, p)).version for p in ("gone", "there")}
    assert versions == {"gone": 1, "there": 0}
    beats = records.heartbeats()
    assert beats is not None
    assert (beats["gone"].fenced, beats["there"].fenced) == (True, False)


def test_of_a_registration_and_a_decision_at_once_one_fails(place: Place) -> None:
    """The pod comes back between the reading and the commit: the decision rests on a heartbeat that was not there, and
    fences the pod; or the record was rewritten by somebody, and the decision is refused."""
    records, client = place.records, place.client
    store = records.coordinator.store
    client.create(membership.path_of(records.root, "e1"), membership.joined())
    commit(records, Desired(1, 1, 0, "1", {"tweets.0": "e1#1"}))
    until(lambda: store.read().snapshot.session, "the session is trusted")
    reading = store.read()
    records._members.pop("e1", None)
    original = records._versions
    records._versions = lambda pods, **_: dict.fromkeys(pods, 0)  # type: ignore[method-assign]
    records.fence("e1", "by another operator")
    desired = Desired(2, 1, 0, "1", {})
    with pytest.raises(StaleError):
        store.commit(reading, Decision(Outcome.ACT, "r", "", (WriteDesired(desired),)))
    records._versions = original  # type: ignore[method-assign]


def test_records_of_another_object_of_that_name_are_removed(place: Place, server: ZooKeeperServer) -> None:
    root, client = place.records.root, place.client
    client.create(f"{root}/progress", b"{}")
    body = yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))
    body["metadata"]["namespace"] = root.split("/")[2]
    records_of(client, server, body, "uid-1")
    assert client.exists(f"{root}/progress") is not None, "the same object after a restart"
    later = records_of(client, server, body, "uid-2")
    assert client.exists(f"{root}/progress") is None
    place.records.remove()
    assert client.exists(root) is not None, "not the old object's any more"
    later.remove()
    assert client.exists(root) is None


def commit(records: Records, desired: Desired) -> None:
    store = records.coordinator.store
    until(lambda: store.read().snapshot.session, "the session is trusted")
    store.commit(store.read(), Decision(Outcome.ACT, "test", "", (WriteDesired(desired),)))


def test_records_from_before_are_closed_before_the_next_driver_starts(
    place: Place, server: ZooKeeperServer
) -> None:
    root = place.records.root
    folders = ["/reprise", root.rpartition("/")[0]]
    place.client.create(f"{root}/progress", b"{}")
    for path in (*folders, root, f"{root}/progress"):
        place.client.set_acls(path, OPEN_ACL_UNSAFE)  # as they were made without users
    nobody = make_client(server.hosts, 10.0, {})
    nobody.start(timeout=300)
    try:
        nobody.set(f"{root}/progress", b"[]")
        place.records.ask_to_drain("1")
        assert nobody.get(f"{root}/commands/drain")[0], "a driver that has no user yet is asked to drain, too"
        place.records.close_to_others()
        attempts = [
            lambda: nobody.get(f"{root}/commands/drain"),
            lambda: nobody.get(f"{root}/progress"),
            lambda: nobody.create(f"{root}/desired", b""),
            lambda: nobody.create(f"{folders[1]}/another", b""),
            lambda: nobody.create("/reprise/another", b""),
        ]
        for attempt in attempts:
            if server.access is None:
                attempt()
            else:
                with pytest.raises(NoAuthError):
                    attempt()
        place.records.remove()
        assert place.client.exists(root) is None
    finally:
        nobody.close()


def test_a_record_that_may_not_be_read_is_said_and_ends_nothing(
    place: Place, server: ZooKeeperServer
) -> None:
    """A topology's code may shut the control plane out of what it makes itself."""
    stranger = make_acl("digest", "me:hash", all=True)
    place.client.create(f"{place.records.root}/progress", b"{}", acl=[stranger])
    coordinator = place.records.coordinator
    until(lambda: coordinator.store.trusted_for_s >= 0, "the session is trusted")
    with pytest.raises(RecordError, match="does not let this process read"):
        coordinator.store.read()
    assert coordinator.turn() is None
    assert "does not let this process read" in coordinator.problem
    with pytest.raises(SessionError, match="NoAuthError"):  # what `RecordsLeft` says
        place.records.remove()
