"""What a store believes while a session comes and goes, while nothing is answered, and while others write: on a ZooKeeper in
memory, with clocks that stand until they are moved."""

from __future__ import annotations

import random
import threading
from typing import Any

import pytest
from kazoo.client import KazooState

from reprise.controller.coordinator import store as store_module
from reprise.controller.coordinator.store import Store
from reprise.controller.coordinator.transaction import Versions
from reprise.controller.simulated_world.memory_zookeeper import MemoryAnswer, MemoryClient, MemoryServer
from reprise.controller.zookeeper import paths
from reprise.controller.zookeeper.errors import RecordError, SessionError, TooLargeError
from reprise.controller.zookeeper.process_records import Leader, parse_leader
from reprise.controller.zookeeper.records import encode_desired
from reprise.controller.zookeeper.recovery_records import encode_incident
from reprise.controller.zookeeper.session import ZooKeeperSession
from reprise.scheduler import AddPlan, Desired, Outcome, Snapshot, WriteDesired, WriteIncident, decide
from tests.support.record_samples import DESIRED, INCIDENT, PLAN, POLICY, TOPOLOGY, replace
from tests.support.stores import acts, add_node, nodes, put, ready, report
from tools.testbed.waiting import until

GRACE_S = 9.0
ROOT = "/reprise/test/sessions"


class Scene:
    """One store, its session, another session that writes what others would, and the time."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.server = MemoryServer()
        self.session: MemoryClient = self.server.session()
        self.store = self.new_store(self.session)
        self.others = self.new_store(self.server.session())

    def new_store(self, session: MemoryClient) -> Store:
        client = ZooKeeperSession(session)  # type: ignore[arg-type]
        store = Store(
            client, ROOT, TOPOLOGY, lambda: self.now, grace_s=GRACE_S, elapsed=lambda: self.now - 1000.0
        )
        store.open()
        return store

    def asked(self) -> list[tuple[str, str]]:
        """What the store has asked for since this was called last."""
        found = [(verb, path.removeprefix(f"{ROOT}/")) for verb, path in self.session.asked]
        self.session.asked.clear()
        return found


@pytest.fixture
def scene() -> Scene:
    return Scene()


UNKNOWN = Snapshot(1000.0, TOPOLOGY, session=False)


# -- what is read ----------------------------------------------------------------------------------------------------


def test_only_what_a_checkpoint_is_called_counts_as_one(scene: Scene) -> None:
    for name in ("00000002", "00000010", "00000009", "00000001", "temporary", "1e3"):
        put(scene.others, f"checkpoints/{name}", b"{}")
    assert scene.store.read().snapshot.checkpoints == {2, 9, 10}
    scene.store.keep = 1
    assert scene.store.read().snapshot.checkpoints == {10}


def test_the_pause_is_what_was_commanded_last_and_else_what_the_resource_says(scene: Scene) -> None:
    store = scene.store
    assert not store.read().snapshot.paused
    assert store.commanded == 0
    store.paused = True
    assert store.read().snapshot.paused
    put(scene.others, paths.PAUSED, b"false")
    assert not store.read().snapshot.paused
    first = store.commanded
    put(scene.others, paths.PAUSED, b"false")  # said again is said anew
    store.read()
    assert store.commanded > first > 0


@pytest.mark.parametrize("raw", [b"", b"yes", b"{}", b"1"])
def test_a_pause_that_cannot_be_read_stops_decisions(scene: Scene, raw: bytes) -> None:
    put(scene.others, paths.PAUSED, raw)
    with pytest.raises(RecordError, match=r"commands/paused: \$: must be true or false"):
        scene.store.read()


@pytest.mark.parametrize("raw", [b"", b"not JSON", b'{"sink.0": 7}', b'{"sink.0": {"cpu_milli": "much"}}'])
def test_statistics_that_cannot_be_read_are_none_and_stop_nothing(scene: Scene, raw: bytes) -> None:
    put(scene.others, paths.STATS, raw)
    snapshot = scene.store.read().snapshot
    assert snapshot.session
    assert snapshot.stats == {}


@pytest.mark.parametrize("name", [paths.DESIRED, paths.INCIDENT, paths.POISON, paths.PROGRESS])
def test_a_record_that_is_needed_and_broken_is_named(scene: Scene, name: str) -> None:
    put(scene.others, name, b"[]")
    with pytest.raises(RecordError, match=f"{ROOT}/{name}: "):
        scene.store.read()


@pytest.mark.parametrize("name", [paths.DESIRED, paths.PROGRESS, paths.CHECKPOINTS, paths.NODES, paths.STATS])
def test_a_record_that_may_not_be_read_is_an_error_and_no_loss(scene: Scene, name: str) -> None:
    ready(scene.others, "n1", "n2")
    scene.server.closed.add(f"{ROOT}/{name}")
    with pytest.raises(RecordError, match=f"{ROOT}: .*ZooKeeper does not let this process read all records"):
        scene.store.read()
    scene.server.closed.clear()
    assert nodes(scene.store) == ["n1#1", "n2#1"]


def test_samples_fill_the_window_before_a_failure(scene: Scene) -> None:
    for cpu in (100.0, 300.0, 200.0):
        put(scene.others, paths.STATS, f'{{"sink.0": {{"cpu_milli": {cpu}}}}}'.encode())
        scene.store.ask_for_sample()()
        scene.now += 3
    assert scene.asked().count(("get", paths.STATS)) == 3
    put(scene.others, paths.STATS, b'{"sink.0": {"cpu_milli": 0.0}}')
    assert scene.store.read().snapshot.stats["sink.0"].cpu_milli == 200.0
    scene.server.silent = True
    with pytest.raises(SessionError, match=f"{ROOT}/{paths.STATS}"):
        scene.store.ask_for_sample()()


def test_a_steady_lag_is_known_while_no_incident_is_open(scene: Scene) -> None:
    put(scene.others, paths.DESIRED, encode_desired(Desired(1, 1, 0, "1", {"sink.0": "n1#1"})))
    steady = {}
    for batch in range(1, 40):
        report(scene.others, seq=1, generation=1, horizon=batch + 2, positions={"sink.0": batch})
        steady = dict(scene.store.read().snapshot.steady)
        scene.now += 1
    assert steady == {"sink.0": 2}
    put(scene.others, paths.INCIDENT, encode_incident(INCIDENT))
    assert scene.store.read().snapshot.steady == {}


# -- the session -----------------------------------------------------------------------------------------------------


def test_without_a_session_nothing_is_known(scene: Scene) -> None:
    ready(scene.others, "n1", "n2")
    scene.session.move(KazooState.SUSPENDED)
    scene.asked()
    reading = scene.store.read()
    assert (reading.snapshot, reading.versions) == (UNKNOWN, Versions())
    assert decide(reading.snapshot, POLICY).outcome is Outcome.UNKNOWN
    assert scene.asked() == [], "nobody is asked in vain"


def test_a_server_that_is_silent_is_no_session(scene: Scene) -> None:
    ready(scene.others, "n1", "n2")
    scene.server.silent = True
    assert scene.store.read().snapshot == UNKNOWN
    scene.server.silent = False
    assert nodes(scene.store) == ["n1#1", "n2#1"]


def test_after_an_outage_nothing_is_believed_until_agents_have_had_the_time_to_come_back(
    scene: Scene,
) -> None:
    store = scene.store
    ready(scene.others, "n1", "n2")
    assert store.read().snapshot.session
    scene.session.expire()
    assert store.trusted_for_s == -GRACE_S
    scene.now += GRACE_S - 0.001
    assert not store.read().snapshot.session
    scene.now += 0.001
    assert store.trusted_for_s == pytest.approx(0.0)
    scene.now += 1e-6
    assert store.read().snapshot.session


def test_a_session_that_was_lost_and_found_while_it_read_has_read_nothing(scene: Scene) -> None:
    """Connected before and after is not enough: in between every agent may have been away."""
    store = scene.store
    ready(scene.others, "n1", "n2")
    real = store.client.get_async

    def lose_it(path: str, watch: Any = None) -> Any:
        if path.endswith(paths.STATS):
            scene.session.move(KazooState.SUSPENDED)
            scene.session.move(KazooState.CONNECTED)
        return real(path, watch)

    store.client.get_async = lose_it  # type: ignore[method-assign]
    store.grace_s = 0.0
    assert not store.read().snapshot.session
    store.client.get_async = real  # type: ignore[method-assign]
    assert store.read().snapshot.session


def test_after_an_outage_all_is_read_again(scene: Scene) -> None:
    store = scene.store
    ready(scene.others, "n1")
    assert store.lead(Leader(1))
    opened = replace(INCIDENT, closed_at=None)
    store.commit(store.read(), acts(WriteDesired(DESIRED), WriteIncident(opened)))
    scene.asked()
    store.read()
    kept = {name for _, name in scene.asked()}
    assert not kept & {paths.DESIRED, paths.INCIDENT, paths.NODES, "nodes/n1"}
    scene.session.move(KazooState.SUSPENDED)
    scene.session.move(KazooState.CONNECTED)
    scene.now += GRACE_S
    store.read()
    assert {name for _, name in scene.asked()} >= {paths.DESIRED, paths.INCIDENT, paths.NODES, "nodes/n1"}


def test_a_node_that_stood_in_for_its_heartbeat_does_not_outlive_an_outage(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "DOUBT_S", 0.001)
    store, desired = scene.store, Desired(1, 1, 0, "1", {"source.0": "n1#1", "sink.0": "n2#1"})
    ready(scene.others, "n1", "n2")
    put(scene.others, paths.DESIRED, encode_desired(desired))
    report(
        scene.others, seq=1, generation=1, nodes=frozenset(desired.assignment.values()),
        positions=dict.fromkeys(desired.assignment, 7),
    )  # fmt: skip
    assert nodes(store) == ["n1#1", "n2#1"]
    scene.others.client.delete(f"{ROOT}/nodes/n2")
    store.changed.clear()
    assert nodes(store) == ["n1#1", "n2#1"], "the driver hears it"
    until(store.changed.is_set, "it is looked at again, whether anything is heard or not")
    scene.session.move(KazooState.SUSPENDED)
    scene.session.move(KazooState.CONNECTED)
    scene.now += GRACE_S
    assert nodes(store) == ["n1#1"]


def test_who_went_during_an_outage_is_lost_though_an_old_report_names_it(scene: Scene) -> None:
    store, desired = scene.store, Desired(1, 1, 0, "1", {"source.0": "n1#1", "sink.0": "n2#1"})
    ready(scene.others, "n1", "n2")
    put(scene.others, paths.DESIRED, encode_desired(desired))
    at_work = dict.fromkeys(desired.assignment, 7)
    report(scene.others, seq=1, generation=1, nodes=frozenset(desired.assignment.values()), positions=at_work)
    assert nodes(store) == ["n1#1", "n2#1"]
    scene.session.move(KazooState.SUSPENDED)
    scene.others.client.delete(f"{ROOT}/nodes/n2")
    scene.session.move(KazooState.CONNECTED)
    scene.now += GRACE_S
    assert nodes(store) == ["n1#1"]


def test_a_folder_of_nodes_that_was_made_anew_is_read_anew(scene: Scene) -> None:
    """Its counter begins again, and may then say what it would say if two of three had gone."""
    ready(scene.others, "n1", "n2", "n3")
    assert nodes(scene.store) == ["n1#1", "n2#1", "n3#1"]
    scene.session.move(KazooState.SUSPENDED)
    scene.others.client.delete(f"{ROOT}/{paths.NODES}", recursive=True)
    scene.others.client.ensure_path(f"{ROOT}/{paths.NODES}")
    add_node(scene.others, "n1", 2)
    scene.session.move(KazooState.CONNECTED)
    scene.now += GRACE_S
    assert nodes(scene.store) == ["n1#2"]


def test_what_changes_wakes_and_a_report_wakes_whom_it_concerns(scene: Scene) -> None:
    store = scene.store
    ready(scene.others, "n1")
    store.read()
    store.changed.clear()
    report(scene.others, horizon=1)
    assert store.changed.is_set()
    store.reported = threading.Event()
    store.read()
    store.changed.clear()
    report(scene.others, horizon=2)
    assert store.reported.is_set()
    assert not store.changed.is_set()
    scene.others.client.delete(f"{ROOT}/nodes/n1")
    assert store.changed.is_set()


def test_a_store_that_is_closed_hears_nothing_and_its_client_lives_on(scene: Scene) -> None:
    scene.store.close()
    scene.store.changed.clear()
    scene.session.expire()
    assert not scene.store.changed.is_set()
    assert scene.session.connected


def test_folders_that_cannot_be_made_are_said(scene: Scene) -> None:
    session = scene.server.session()
    session.move(KazooState.SUSPENDED)
    with pytest.raises(SessionError, match=f"{ROOT}: folders not created"):
        scene.new_store(session)


def test_what_was_kept_while_it_led_is_forgotten_with_the_lead(scene: Scene) -> None:
    store, opened = scene.store, replace(INCIDENT, closed_at=None)
    store.lead(Leader(1))
    store.commit(store.read(), acts(WriteDesired(DESIRED), WriteIncident(opened)))
    scene.others.client.delete(f"{ROOT}/{paths.COORDINATOR}")
    scene.others.lead(Leader(2))
    assert not store.read().led
    scene.others.commit(scene.others.read(), acts(WriteDesired(DESIRED.next())))
    scene.others.client.delete(f"{ROOT}/{paths.COORDINATOR}")
    store.lead(Leader(1))
    assert store.read().snapshot.desired == DESIRED.next()


def test_what_was_written_across_an_outage_is_read_again(scene: Scene) -> None:
    store, opened = scene.store, replace(INCIDENT, closed_at=None)
    store.lead(Leader(1))
    reading = store.read()

    def blink(_: Any) -> None:
        scene.session.move(KazooState.SUSPENDED)
        scene.session.move(KazooState.CONNECTED)

    scene.server.watches[("data", f"{ROOT}/{paths.DESIRED}")] = [blink]
    store.commit(reading, acts(WriteDesired(DESIRED), WriteIncident(opened)))
    scene.now += GRACE_S
    store.lead(Leader(1))
    scene.asked()
    assert store.read().snapshot.desired == DESIRED
    assert ("get", paths.DESIRED) in scene.asked()


# -- what is written -------------------------------------------------------------------------------------------------


def test_a_decision_without_a_session_is_dropped(scene: Scene) -> None:
    reading = scene.store.read()
    scene.session.move(KazooState.SUSPENDED)
    scene.asked()
    with pytest.raises(SessionError, match="the decision is dropped"):
        scene.store.commit(reading, acts(WriteDesired(DESIRED)))
    assert scene.asked() == []


def test_of_a_decision_that_nobody_acknowledged_it_is_not_known_whether_it_is_carried_out(
    scene: Scene,
) -> None:
    reading = scene.store.read()
    scene.server.silent = True
    with pytest.raises(SessionError, match="no answer"):
        scene.store.commit(reading, acts(WriteDesired(DESIRED)))
    scene.server.silent = False
    assert scene.store.read().snapshot.desired is None


def test_a_decision_is_waited_for_as_long_as_any_answer(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float | None] = []
    answered = MemoryAnswer.get

    def noting(answer: MemoryAnswer, block: bool = True, timeout: float | None = None) -> Any:
        waited.append(timeout)
        return answered(answer, block, timeout)

    reading = scene.store.read()
    monkeypatch.setattr(MemoryAnswer, "get", noting)
    scene.store.answer_s = 0.25
    scene.store.commit(reading, acts(WriteDesired(DESIRED)))
    assert waited == [0.25]


def test_what_the_server_would_not_take_is_not_sent(scene: Scene) -> None:
    reading = scene.store.read()
    scene.asked()
    huge = replace(PLAN, note=random.Random(1).randbytes(1_500_000).hex())
    with pytest.raises(TooLargeError):
        scene.store.commit(reading, acts(WriteDesired(DESIRED), AddPlan(huge)))
    assert scene.asked() == []


def test_what_else_belongs_to_a_decision_is_carried_out_with_it_or_not_at_all(scene: Scene) -> None:
    seen: list[Snapshot] = []

    def also(snapshot: Snapshot, _: object) -> Any:
        seen.append(snapshot)
        return [lambda transaction: transaction.create(f"{ROOT}/fence", b"")]

    scene.store.also = also
    reading = scene.store.read()
    scene.store.commit(reading, acts(WriteDesired(DESIRED)))
    assert scene.others.client.exists(f"{ROOT}/fence") is not None
    assert seen == [reading.snapshot]
    again = scene.store.read()
    with pytest.raises(Exception, match="NodeExists"):
        scene.store.commit(again, acts(WriteDesired(DESIRED.next())))
    assert scene.store.read().snapshot.desired == DESIRED


def test_the_place_of_the_leader_ends_with_its_session(scene: Scene) -> None:
    store, other = scene.store, scene.others
    assert store.lead(Leader(1))
    assert not other.lead(Leader(2))
    assert store.read().led
    assert not other.read().led
    other.changed.clear()
    scene.session.expire()
    assert other.changed.is_set(), "who stands by is woken"
    assert other.lead(Leader(2))
    assert not store.lead(Leader(1)), "its last answer was of another session"


def test_a_leader_asks_once_and_again_with_each_reading(scene: Scene) -> None:
    store = scene.store
    assert store.lead(Leader(1))
    store.read()
    scene.asked()
    assert store.lead(Leader(1))
    assert scene.asked() == []
    scene.others.client.delete(f"{ROOT}/{paths.COORDINATOR}")  # by hand
    assert not store.read().led
    assert store.lead(Leader(1)), "the place is free, and taken again"


def test_nobody_leads_before_there_is_a_session(scene: Scene) -> None:
    scene.session.client_id = None
    assert not scene.store.lead(Leader(1))
    scene.session.client_id = (1, b"")
    scene.server.silent = True
    assert not scene.store.lead(Leader(1)), "no answer is no place"


def test_what_a_leader_says_waits_for_nobody(scene: Scene) -> None:
    store = scene.store
    store.lead(Leader(1))
    store.announce(Leader(1, "start", "because", 7.0))
    raw, _ = scene.others.client.get(f"{ROOT}/{paths.COORDINATOR}")
    assert parse_leader(raw) == Leader(1, "start", "because", 7.0)
    scene.server.silent = True
    store.announce(Leader(1, "start", "later", 8.0))
    scene.session.move(KazooState.SUSPENDED)
    scene.asked()
    store.announce(Leader(1))
    assert scene.asked() == []
