"""The store on a ZooKeeper: what a snapshot holds, what a decision writes, who acts.

On one in memory, and the same on a real one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from reprise.controller.coordinator import history
from reprise.controller.coordinator.coordinator import Coordinator
from reprise.controller.coordinator.store import Store
from reprise.controller.simulated_world.memory_zookeeper import MemoryServer
from reprise.controller.zookeeper import paths
from reprise.controller.zookeeper.errors import RecordError, StaleError
from reprise.controller.zookeeper.leaving import encode_leaving
from reprise.controller.zookeeper.process_records import Leader, parse_leader
from reprise.controller.zookeeper.session import ZooKeeperSession
from reprise.controller.zookeeper.skip_wishes import encode_skip
from reprise.scheduler import AddPlan, CloseIncident, Desired, WriteDesired, WriteIncident, decide
from reprise.scheduler.model import Leaving, SkipWish
from reprise.scheduler.node_start import StartPhase
from reprise.scheduler.steps import RuleName, TakeSkip, act
from reprise.scheduler.wishes import annotated
from tests.support.record_samples import INCIDENT, PLAN, POLICY, replace
from tests.support.stores import (
    Connect,
    NewSession,
    acts,
    add_node,
    nodes,
    put,
    ready,
    report,
    sessions_with,
    stores,
)
from tests.support.zookeeper import zookeeper
from tools.testbed.waiting import until

REAL = pytest.param("a server", marks=[pytest.mark.slow])


@pytest.fixture(scope="module", params=["memory", REAL])
def new_session(request: pytest.FixtureRequest) -> Iterator[NewSession]:
    if request.param == "memory":
        memory = MemoryServer()
        yield lambda _: ZooKeeperSession(memory.session())  # type: ignore[arg-type]
        return
    with zookeeper() as server:
        yield sessions_with(server)


@pytest.fixture
def connect(new_session: NewSession, request: pytest.FixtureRequest) -> Iterator[Connect]:
    with stores(new_session, f"/reprise/test/{request.function.__name__}") as found:
        yield found


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


def test_when_a_node_was_asked_for_is_known_from_whoever_sees_its_pod(connect: Connect) -> None:
    store = connect()
    ready(store, "n1", "n2")
    store.requests = {"n2": 100.0}
    told = {node.name: node.start.at.get(StartPhase.REQUESTED) for node in store.read().snapshot.nodes}
    assert told == {"n1": None, "n2": 100.0}


def test_nodes_that_are_to_be_emptied_are_marked_until_the_wish_is_gone(connect: Connect) -> None:
    store = connect()
    ready(store, "n1", "n2", "n3")
    store.read()
    put(store, "leaving/n2", encode_leaving(Leaving("reprise drain")))
    put(store, "leaving/n3#1", encode_leaving(Leaving("SIGTERM", 2.0)))
    store.notices = {"n1": Leaving("machine m-1")}

    def marks() -> dict[str, Leaving | None]:
        return {node.name: node.leaving for node in store.read().snapshot.nodes}

    expected = {"n1": Leaving("machine m-1"), "n2": Leaving("reprise drain"), "n3": Leaving("SIGTERM", 2.0)}
    until(lambda: marks() == expected)
    store.client.delete(f"{store.root}/leaving/n2")
    store.notices = {}
    until(lambda: marks() == {"n1": None, "n2": None, "n3": expected["n3"]})


def test_a_wish_to_skip_is_taken_once(connect: Connect) -> None:
    """Its znode goes with the desired state that has its id; one that was taken back meanwhile is not taken."""
    store = connect()
    ready(store, "n1")
    put(store, f"{paths.SKIPS}/count.0", encode_skip(SkipWish("w1")))
    store.asked = {"count.0": SkipWish("uid.1"), "count.1": SkipWish("uid.2")}
    annotations = {annotated("count.0"): SkipWish("uid.1"), annotated("count.1"): SkipWish("uid.2")}
    until(lambda: "count.0" in store.read().snapshot.wishes)
    reading = store.read()
    assert reading.snapshot.wishes == {"count.0": SkipWish("w1"), **annotations}
    desired = Desired(reading.snapshot.last_seq + 1, 1, 0, "1", skips={"count.0": "w1"}, anew={"a.0": "w1"})
    taking = act(RuleName.SKIP_ASKED, "as asked", WriteDesired(desired), TakeSkip("count.0"))
    store.client.delete(f"{store.root}/{paths.SKIPS}/count.0")
    with pytest.raises(StaleError):
        store.commit(reading, taking)
    put(store, f"{paths.SKIPS}/count.0", encode_skip(SkipWish("w1")))
    store.commit(store.read(), taking)
    until(lambda: store.read().snapshot.wishes == annotations)
    found = store.read().snapshot.desired
    assert found is not None and (found.skips, found.anew) == ({"count.0": "w1"}, {"a.0": "w1"})
    put(store, f"{paths.SKIPS}/count.0", b"no record")
    put(store, f"{paths.SKIPS}/count.2", encode_skip(SkipWish("w3")))
    until(lambda: set(store.read().snapshot.wishes) == {"count.2", *annotations})


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
    first.client.close()
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
