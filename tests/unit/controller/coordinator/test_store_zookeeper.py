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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from reprise.algorithms import solve
from reprise.controller.coordinator import history
from reprise.controller.coordinator.coordinator import Coordinator
from reprise.controller.coordinator.store import Store
from reprise.controller.local.cluster.zookeeper import ZooKeeperServer
from reprise.controller.zookeeper import paths
from reprise.controller.zookeeper.client import make_client
from reprise.controller.zookeeper.errors import NoNodeError, RecordError, SessionError, StaleError
from reprise.controller.zookeeper.node_record import NodeRecord, encode_node
from reprise.controller.zookeeper.process_records import Leader, parse_leader
from reprise.controller.zookeeper.records import encode_progress, parse_desired
from reprise.controller.zookeeper.session import ANSWER_S, ZooKeeperSession
from reprise.scheduler import (
    AddPlan,
    CloseIncident,
    Decision,
    Desired,
    Outcome,
    Progress,
    Step,
    WriteDesired,
    WriteIncident,
    decide,
)
from reprise.scheduler import precomputed as precomputed_module
from reprise.spark_jobs.topology import load_topology, to_json
from tests.support.record_samples import INCIDENT, PLAN, POLICY, TOPOLOGY, replace
from tests.support.waiting import until
from tests.support.zookeeper import zookeeper

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
EXAMPLES = Path(__file__).parents[4] / "examples"


@pytest.fixture(scope="module")
def server() -> Iterator[ZooKeeperServer]:
    with zookeeper() as server:
        yield server


@pytest.fixture
def root(request: pytest.FixtureRequest) -> str:
    return f"/reprise/test/{request.node.name.replace('[', '-').strip(']')}"


class Connect(Protocol):
    """A store with a session of its own."""

    def __call__(self, session_s: float = 2.0) -> Store: ...


@pytest.fixture
def connect(server: ZooKeeperServer, root: str) -> Iterator[Connect]:
    """Stores with a session each."""
    clients: list[ZooKeeperSession] = []

    def new(session_s: float = 2.0) -> Store:
        client = make_client(server.hosts, session_s)
        client.start(timeout=30)
        clients.append(client)
        store = Store(client, root, TOPOLOGY, time.time, grace_s=0.2)
        store.open()
        return store

    yield new
    for client in clients:
        client.stop()
        client.close()


def put(store: Store, name: str, data: bytes, ephemeral: bool = False) -> None:
    path = f"{store.root}/{name}"
    if store.client.exists(path):
        store.client.set(path, data)
    else:
        store.client.create(path, data, ephemeral=ephemeral, makepath=True)


def add_node(store: Store, name: str, incarnation: int = 1) -> None:
    put(store, f"nodes/{name}", encode_node(NodeRecord(name, "127.0.0.1", incarnation, 1, 1000, 0.0)), True)


def report(store: Store, **fields: object) -> None:
    put(store, paths.PROGRESS, encode_progress(replace(Progress("1"), **fields)))


def ready(store: Store, *nodes: str) -> None:
    for node in nodes:
        add_node(store, node)
    report(store, nodes=frozenset(f"{node}#1" for node in nodes))


def leads(store: Store, path: str, pid: int) -> bool:
    try:
        return bool(json.loads(store.client.get(path)[0])["pid"] == pid)
    except NoNodeError:
        return False


def acts(*steps: Step) -> Decision:
    return Decision(Outcome.ACT, "test", "because", steps)


def test_a_snapshot_holds_all_records(connect: Connect) -> None:
    store = connect()
    ready(store, "n1", "n2")
    for k in (2, 4, 6, 8):
        put(store, f"checkpoints/{k:08d}", b"{}")
    put(store, paths.STATS, b'{"sink.0": {"cpu_milli": 12.5}}')
    put(store, paths.PAUSED, b"true")
    put(store, "nodes/broken", b"not a record")
    snapshot = store.read().snapshot
    assert snapshot.session
    assert [node.id for node in snapshot.nodes] == ["n1#1", "n2#1"]
    assert snapshot.checkpoints == {4, 6, 8}  # those that are kept
    assert snapshot.stats["sink.0"].cpu_milli == 12.5
    assert snapshot.paused
    assert snapshot.progress is not None
    assert snapshot.desired is None


def test_the_newest_wish_to_pause_counts_also_one_that_comes_late(connect: Connect) -> None:
    """A command that was frozen between its start and its write is a wish of a person all the same; `status` shows it."""
    store = connect()
    store.paused = False
    for wish, stands in ((b"true", True), (b"false", False), (b"true", True)):
        put(store, paths.PAUSED, wish)
        assert store.read().snapshot.paused is stands
    store.client.delete(f"{store.root}/{paths.PAUSED}")
    assert store.read().snapshot.paused is False
    store.paused = True
    assert store.read().snapshot.paused is True, "without a wish the resource says it"


def test_a_decision_is_one_transaction(connect: Connect) -> None:
    store = connect()
    before = store.read()
    start = Desired(1, 1, 0, "1", {"sink.0": "n1#1"})
    decision = acts(WriteDesired(start), AddPlan(PLAN), WriteIncident(INCIDENT))
    store.client.create(f"{store.root}/plans/{PLAN.id}", b"{}")  # makes one of three operations impossible
    with pytest.raises(StaleError, match="NodeExists"):
        store.commit(before, decision)
    assert store.read().snapshot.desired is None
    store.client.delete(f"{store.root}/plans/{PLAN.id}")
    store.commit(before, decision)
    after = store.read().snapshot
    assert (after.desired, after.incident) == (start, INCIDENT)


def test_only_the_newest_incidents_and_their_plans_stay_on_record(connect: Connect) -> None:
    store = connect()
    for number in range(1, 6):
        put(store, f"incidents/inc-{number:06d}", b"{}")
        for plan in (1, 2):
            put(store, f"plans/inc-{number:06d}-p{plan}", b"{}")
    assert history.prune(store.client, store.root, history.Kept(2)) == 3
    assert history.prune(store.client, store.root, history.Kept(2)) == 0
    left = {
        name: sorted(store.client.get_children(f"{store.root}/{name}")) for name in ("incidents", "plans")
    }
    assert left["incidents"] == ["inc-000004", "inc-000005"]
    assert left["plans"] == [f"inc-{n:06d}-p{p}" for n in (4, 5) for p in (1, 2)]


def test_of_two_coordinators_one_is_refused(connect: Connect) -> None:
    first, second = connect(), connect()
    ready(first, "n1", "n2")
    one, other = first.read(), second.read()
    first.commit(one, decide(one.snapshot, POLICY))
    with pytest.raises(StaleError):
        second.commit(other, decide(other.snapshot, POLICY))
    late = second.read()
    first.commit(first.read(), acts(WriteDesired(late.snapshot.desired.next())))  # type: ignore[union-attr]
    with pytest.raises(StaleError, match=r"BadVersion|RolledBack"):
        second.commit(late, acts(WriteIncident(INCIDENT)))  # writes no desired state, but rests on it


def test_only_the_leader_acts_and_a_successor_takes_over(connect: Connect) -> None:
    first, second = connect(), connect()
    assert first.lead(Leader(1))
    assert not second.lead(Leader(2))
    assert first.lead(Leader(1))
    first.announce(Leader(1, "start-waits"))
    said = f"{second.root}/{paths.COORDINATOR}"
    until(lambda: parse_leader(second.client.get(said)[0]) == Leader(1, "start-waits"), "what it says")
    first.client.stop()
    assert not first.lead(Leader(1))
    until(lambda: second.lead(Leader(2)), "the successor leads")


def test_the_coordinator_starts_a_topology_and_waits_for_news(connect: Connect) -> None:
    store = connect()
    coordinator = Coordinator(store, POLICY)
    waiting = coordinator.turn()
    assert waiting is not None
    assert waiting.rule == "no-driver"
    ready(store, "n1", "n2")
    until(store.changed.is_set, "a watch fires")
    started = coordinator.turn()
    assert started is not None
    assert started.rule == "start"
    report(
        store, seq=1, generation=1, nodes=frozenset({"n1#1", "n2#1"}), positions={"source.0": 1, "sink.0": 1}
    )
    assert coordinator.turn().rule == "nothing-to-do"  # type: ignore[union-attr]
    store.client.delete(f"{store.root}/nodes/n1")
    until(lambda: [n.id for n in store.read().snapshot.nodes] == ["n2#1"], "the node is gone")
    assert coordinator.turn().rule == "failure-detected"  # type: ignore[union-attr]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Callable[[Store], list[str]]:
    """What a store asks for from now on, by the names of its records."""

    def note(store: Store) -> list[str]:
        names: list[str] = []
        get = store.client.get_async

        def noting(path: str, watch: Callable[[Any], None] | None = None) -> Any:
            names.append(path.removeprefix(f"{store.root}/"))
            return get(path, watch=watch)

        monkeypatch.setattr(store.client, "get_async", noting)
        return names

    return note


def nodes(store: Store) -> list[str]:
    return [node.id for node in store.read().snapshot.nodes]


def test_of_nodes_that_stay_the_record_is_not_read_again_and_of_others_it_is(
    connect: Connect, asked: Callable[[Store], list[str]]
) -> None:
    store = connect()
    ready(store, "n1", "n2", "n3")
    until(lambda: nodes(store) == ["n1#1", "n2#1", "n3#1"], "all are there")
    names = asked(store)
    store.client.delete(f"{store.root}/nodes/n1")
    until(lambda: nodes(store) == ["n2#1", "n3#1"], "one has gone")
    assert "nodes/n2" not in names
    store.client.delete(f"{store.root}/nodes/n2")  # gone and back between two looks, the names are the same
    add_node(store, "n2", 2)
    until(lambda: nodes(store) == ["n2#2", "n3#1"], "its second life")
    assert "nodes/n2" in names


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


def test_what_the_leader_has_written_in_an_incident_is_not_read_again(
    connect: Connect, asked: Callable[[Store], list[str]]
) -> None:
    store, other = connect(), connect()
    ready(store, "n1", "n2")
    assert store.lead(Leader(1))
    desired = Desired(1, 1, 0, "1", {"sink.0": "n1#1"})
    names = asked(store)
    store.commit(store.read(), acts(WriteDesired(desired)))
    assert store.read().snapshot.desired == desired
    assert names.count(paths.DESIRED) == 2  # no incident is open: anybody's word counts
    opened = replace(INCIDENT, closed_at=None)
    store.commit(store.read(), acts(WriteDesired(desired.next()), WriteIncident(opened)))
    del names[:]
    reading = store.read()
    assert (reading.snapshot.desired, reading.snapshot.incident) == (desired.next(), opened)
    assert not {paths.DESIRED, paths.INCIDENT} & set(names)
    later = replace(opened, generation=7)
    store.commit(reading, acts(WriteIncident(later)))
    assert store.read().snapshot.incident == later
    # another one has written: what is kept is refused, and read anew
    other.commit(other.read(), acts(WriteDesired(desired.next().next())))
    with pytest.raises(StaleError):
        store.commit(store.read(), acts(WriteIncident(opened)))
    found = store.read().snapshot
    assert (found.desired, found.incident) == (desired.next().next(), later)
    closing = CloseIncident(replace(later, closed_at=1.0))
    store.commit(store.read(), acts(WriteDesired(desired.next().next().next()), closing))
    del names[:]
    assert store.read().snapshot.incident is None
    assert {paths.DESIRED, paths.INCIDENT} <= set(names)


def test_the_plan_is_made_while_the_burst_settles(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    store, made, go = connect(), list[float](), threading.Event()

    def noting(*arguments: Any) -> Any:
        made.append(time.time())
        assert go.wait(30)
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
    until(lambda: ruled(coordinator) == "failure-detected", "it is noticed")
    ahead = threading.Thread(target=coordinator.precompute)
    ahead.start()
    until(lambda: made, "planning ahead has begun")
    settled = store.read().snapshot.incident.settle_until  # type: ignore[union-attr]
    assert made[0] < settled
    report(store, nodes=frozenset({"n1#1", "n2#1"} - {f"{lost}#1"}), **{**on, "seq": 2})
    threading.Timer(settled + 0.3 - time.time(), go.set).start()  # takes longer than the burst
    until(lambda: "plan" in ruled(coordinator), "the plan", 20)
    assert time.time() >= settled + 0.3
    assert len(made) == 1
    ahead.join()


def ruled(coordinator: Coordinator) -> str:
    decision = coordinator.turn()
    return decision.rule if decision else ""


def test_a_broken_record_stops_decisions_and_says_why(
    connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    store = connect()
    ready(store, "n1", "n2")
    put(store, paths.PROGRESS, b'{"driver": 7}')
    with pytest.raises(RecordError, match=r"progress: \$\.driver"):
        store.read()
    assert Coordinator(store, POLICY).turn() is None
    assert "$.driver" in caplog.text


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
    options += ["--topology", str(topology), "--settle", "0.1", "--session-timeout", "1.0"]
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
                until(lambda: (desired() or Desired(0, 0, 0, "")).generation == 2, "the failure is recovered")
                assert "n1#1" not in parse_desired(store.client.get(f"{root}/desired")[0]).assignment.values()
            leader = f"{root}/{paths.COORDINATOR}"
            until(lambda: leads(store, leader, second.pid), "the successor leads")
            second.terminate()
            assert second.wait(20) == 0
        finally:
            for process in (first, second):
                if process is not None and process.poll() is None:
                    os.kill(process.pid, signal.SIGKILL)
                    process.wait()
    raw, stat = store.client.get(f"{root}/{paths.DESIRED}")
    assert parse_desired(raw).seq == stat.version + 1  # each write was the successor of the one before
