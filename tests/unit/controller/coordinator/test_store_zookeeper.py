"""The store and the coordinator on a real ZooKeeper: transactions, races, sessions that are suspended and lost,
and processes that are killed at a step boundary."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reprise.algorithms import solve
from reprise.controller.coordinator.coordinator import Coordinator
from reprise.controller.coordinator.store import Store
from reprise.controller.local.cluster.zookeeper import ZooKeeperServer
from reprise.controller.zookeeper import paths
from reprise.controller.zookeeper.errors import NoNodeError, SessionError
from reprise.controller.zookeeper.records import parse_desired
from reprise.controller.zookeeper.session import ANSWER_S
from reprise.scheduler import (
    Desired,
    Outcome,
    decide,
)
from reprise.scheduler import precomputed as precomputed_module
from reprise.spark_jobs.topology import load_topology, to_json
from tests.support.record_samples import POLICY, replace
from tests.support.stores import Connect, add_node, nodes, ready, report, sessions_with, stores
from tests.support.zookeeper import server_fixture
from tools.testbed.waiting import HANGS_S, until

pytestmark = pytest.mark.slow
EXAMPLES = Path(__file__).parents[4] / "examples"


server = pytest.fixture(scope="module")(server_fixture)


@pytest.fixture
def root(request: pytest.FixtureRequest) -> str:
    return f"/reprise/test/{request.node.name.replace('[', '-').strip(']')}"


@pytest.fixture
def connect(server: ZooKeeperServer, root: str) -> Iterator[Connect]:
    """Stores with a session each."""
    with stores(sessions_with(server), root) as found:
        yield found


def leads(store: Store, path: str, pid: int) -> bool:
    try:
        return bool(json.loads(store.client.get(path)[0])["pid"] == pid)
    except NoNodeError:
        return False


@pytest.mark.wide
def test_a_server_that_is_silent_for_a_while_has_no_node_lost(
    connect: Connect, server: ZooKeeperServer
) -> None:
    """The request for the list gets no answer in time, and the session lives on."""
    store = connect()
    ready(store, "n1", "n2")
    until(lambda: nodes(store) == ["n1#1", "n2#1"], "both are there")
    store.client.delete(f"{store.root}/nodes/n2")
    add_node(store, "n2", 2)
    until(store.changed.is_set, "a watch fires")
    store.answer_s = 0.1
    server.freeze()
    try:
        assert not store.read().snapshot.session
        assert store.connected
    finally:
        server.thaw()
    store.answer_s = ANSWER_S
    until(lambda: store.read().snapshot.session, "it answers again")
    assert nodes(store) == ["n1#1", "n2#2"]


def test_the_plan_is_made_while_the_burst_settles(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    """Time passes when the test says so: however slow the machine, the burst settles after the planner was asked."""
    store, now, made, go = connect(), [time.time()], list[float](), threading.Event()
    store.clock = lambda: now[0]

    def noting(*arguments: Any) -> Any:
        made.append(now[0])
        assert go.wait(300)
        return solve(*arguments)

    monkeypatch.setattr(precomputed_module, "solve", noting)
    ready(store, "n1", "n2")
    coordinator = Coordinator(store, replace(POLICY, settle_s=1.0))
    until(lambda: ruled(coordinator) == "start", "it starts")
    on = {"seq": 1, "generation": 1, "positions": {"source.0": 1, "sink.0": 1}}
    report(store, nodes=frozenset({"n1#1", "n2#1"}), **on)
    until(lambda: ruled(coordinator) == "nothing-to-do", "it runs")
    assigned = store.read().snapshot.desired
    assert assigned is not None
    lost = next(iter(assigned.assignment.values())).partition("#")[0]
    store.client.delete(f"{store.root}/nodes/{lost}")

    def noticed() -> bool:
        now[0] += 0.1  # the grace passes
        return ruled(coordinator) == "failure-detected"

    until(noticed, "it is noticed")
    ahead = threading.Thread(target=coordinator.precompute)
    ahead.start()
    until(lambda: made, "planning ahead has begun")
    settled = store.read().snapshot.incident.settle_until  # type: ignore[union-attr]
    assert made[0] < settled
    report(store, nodes=frozenset({"n1#1", "n2#1"} - {f"{lost}#1"}), **{**on, "seq": 2})
    now[0] = settled + 0.3  # it takes longer than the burst
    deciding = threading.Thread(target=lambda: until(lambda: "plan" in ruled(coordinator), "the plan"))
    deciding.start()
    go.set()
    deciding.join()
    ahead.join()
    incident = store.read().snapshot.incident
    assert incident is not None and incident.plans
    assert len(made) == 1, "the plan that was made ahead is the one that is carried out"


def ruled(coordinator: Coordinator) -> str:
    decision = coordinator.turn()
    return decision.rule if decision else ""


def test_without_a_session_nothing_is_known_and_nothing_written(
    connect: Connect, server: ZooKeeperServer
) -> None:
    store = connect()
    ready(store, "n1", "n2")
    reading = store.read()
    decision = decide(reading.snapshot, POLICY)
    server.freeze()
    try:
        until(lambda: not store.connected, "the session is suspended")
        unknown = store.read().snapshot
        assert not unknown.session
        assert decide(unknown, POLICY).outcome is Outcome.UNKNOWN
        with pytest.raises(SessionError):
            store.commit(reading, decision)
        assert not store.lead({})
    finally:
        server.thaw()
    until(lambda: store.read().snapshot.session, "the session is trusted again")
    assert store.read().snapshot.desired is None  # the write was rejected, not queued


def test_a_restart_of_zookeeper_is_no_loss_of_nodes(connect: Connect, server: ZooKeeperServer) -> None:
    store, agent = connect(), connect(session_s=60.0)  # which no machine is too busy to keep
    ready(agent, "n1", "n2")
    coordinator = Coordinator(store, POLICY)
    assert coordinator.turn().rule == "start"  # type: ignore[union-attr]
    report(
        agent, seq=1, generation=1, nodes=frozenset({"n1#1", "n2#1"}), positions={"source.0": 1, "sink.0": 1}
    )
    server.restart()
    rules = set()

    def back() -> bool:
        decision = coordinator.turn()
        rules.add(decision.rule if decision else "standing-by")
        return "nothing-to-do" in rules

    until(back, "decisions go on")
    assert rules <= {"nothing-to-do", "no-session", "standing-by"}


@pytest.mark.parametrize(
    "step", ["decide:start", "commit:start", "decide:failure-detected", "commit:plan-blocking"]
)
def test_a_coordinator_killed_at_a_step_is_continued_by_its_successor(
    connect: Connect, server: ZooKeeperServer, root: str, tmp_path: Path, step: str
) -> None:
    """The processes as they are started in production; this test plays the driver and the nodes."""
    store = connect()
    topology = tmp_path / "topology.json"
    resource = load_topology(EXAMPLES / "minimal.yaml")
    topology.write_text(to_json(resource))
    options = ["--zk", server.hosts, "--root", root]
    options += ["--topology", str(topology), "--settle", "0.1", "--session-timeout", "4.0"]
    ready(store, *(f"n{k}" for k in range(1, resource.nodes.count + 2)))
    nodes = store.read().snapshot.progress.nodes  # type: ignore[union-attr]

    def desired() -> Desired | None:
        found = store.read().snapshot.desired
        if found is not None:
            at_work = {
                p: 1 for p, n in found.assignment.items() if store.client.exists(f"{root}/nodes/{n[:-2]}")
            }
            report(store, seq=found.seq, generation=found.generation, nodes=nodes, positions=at_work)
        return found

    with (tmp_path / "log").open("w") as log:
        first = subprocess.Popen(
            [sys.executable, "-m", "tests.support.crashing_coordinator", step, *options], stderr=log
        )
        second = None
        try:
            if "start" not in step:
                until(lambda: desired() is not None, "the topology is started")
                store.client.delete(f"{root}/nodes/n1")
            until(lambda: (desired(), first.poll())[1] is not None, "the coordinator dies")
            assert first.returncode == -signal.SIGKILL
            second = subprocess.Popen(
                [sys.executable, "-m", "reprise.controller.coordinator", *options], stderr=log
            )
            if "start" in step:
                until(lambda: desired() is not None, "the successor starts the topology")
            else:
                until(lambda: (desired() or Desired(0, 0, 0, "")).retain, "the failure is recovered")
                assert "n1#1" not in parse_desired(store.client.get(f"{root}/desired")[0]).assignment.values()
            leader = f"{root}/{paths.COORDINATOR}"
            until(lambda: leads(store, leader, second.pid), "the successor leads")
            second.terminate()
            assert second.wait(HANGS_S) == 0
        finally:
            for process in (first, second):
                if process is not None and process.poll() is None:
                    os.kill(process.pid, signal.SIGKILL)
                    process.wait()
    raw, stat = store.client.get(f"{root}/{paths.DESIRED}")
    assert parse_desired(raw).seq == stat.version + 1  # each write was the successor of the one before
