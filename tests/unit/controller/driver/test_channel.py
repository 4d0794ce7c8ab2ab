"""What a driver reads and writes, and what it makes of records that cannot be read and of a ZooKeeper that refuses."""

from __future__ import annotations

import logging
from random import Random
from typing import Any

import pytest

from reprise.controller.driver import channel as module
from reprise.controller.driver.channel import Channel, ChannelError
from reprise.controller.simulated_world.memory_zookeeper import MemoryServer, MemorySession
from reprise.controller.zookeeper import session
from reprise.controller.zookeeper.errors import RecordError, SessionError
from reprise.controller.zookeeper.node_record import (
    SESSION_S,
    NodeRecord,
    absence_counts_after_s,
    encode_node,
)
from reprise.controller.zookeeper.process_records import encode_drain, parse_waits
from reprise.controller.zookeeper.records import encode_desired, parse_progress
from reprise.controller.zookeeper.session import SessionState
from reprise.controller.zookeeper.znode import LIMIT_BYTES
from reprise.scheduler.model import Desired, Progress
from reprise.spark_jobs.errors import SupersededError

ROOT = "/reprise/test/channel"
WANTED = Desired(1, 0, 0, "1", {"a.0": "n1#1"})


class Place:
    """A driver's channel, its session and the server."""

    def __init__(self) -> None:
        self.now = 100.0
        self.tree = MemoryServer()
        self.zk = MemorySession(self.tree)
        self.channel = self.another(self.zk)
        for folder in ("nodes", "checkpoints"):
            self.zk.ensure_path(f"{ROOT}/{folder}")
        self.zk.add_listener(self.channel._listen)

    def another(self, zk: MemorySession) -> Channel:
        return Channel("", ROOT, lambda: self.now, zk)

    def put(self, name: str, data: bytes) -> None:
        self.tree.put(f"{ROOT}/{name}", data)

    def add_node(self, name: str) -> None:
        self.put(f"nodes/{name}", encode_node(NodeRecord(name, name, 1, 17, 1000, 0.0)))


@pytest.fixture
def place() -> Place:
    return Place()


@pytest.fixture
def driver(place: Place) -> Channel:
    """The newest one."""
    place.channel.next_epoch()
    return place.channel


# -- epochs --------------------------------------------------------------------------------------------------------


def test_each_driver_has_a_greater_number_than_those_before_it(place: Place) -> None:
    first, second = place.channel, place.another(MemorySession(place.tree))
    assert [first.next_epoch(), second.next_epoch(), second.next_epoch(7), second.next_epoch(3)] == [
        1,
        2,
        7,
        8,
    ]
    with pytest.raises(SupersededError, match="a driver of epoch 8 has begun"):
        first.next_epoch(9)
    assert place.another(MemorySession(place.tree)).next_epoch() == 9


def test_a_number_of_its_own_whose_answer_was_lost_is_no_successors(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert place.channel.next_epoch() == 1
    left = [1]

    def lose(request: str) -> None:
        if request == "set" and left and left.pop():
            place.put("driver", b"7")
            raise SessionError("no answer")

    place.zk.client.before = lose
    monkeypatch.setattr(session, "PAUSE_S", 0.0)
    assert place.channel.next_epoch(7) == 8 and not left


def test_of_two_that_take_a_number_at_once_each_has_its_own(place: Place) -> None:
    """The other one is faster between the reading and the writing."""
    other = place.another(MemorySession(place.tree))
    taken: list[int] = []

    def meanwhile(request: str) -> None:
        if request == "set" and not taken:
            taken.append(other.next_epoch())

    place.zk.client.before = meanwhile
    assert place.channel.next_epoch() == 2 and taken == [1]
    assert other.superseded and not place.channel.superseded


@pytest.mark.parametrize(
    ("lost", "written", "number"), [("get", False, 1), ("set", False, 1), ("set", True, 2)]
)
def test_a_connection_that_is_lost_while_a_number_is_taken_is_waited_for(
    place: Place, monkeypatch: pytest.MonkeyPatch, lost: str, written: bool, number: int
) -> None:
    """Also where the number was written, and only the answer is lost: that is no successor."""
    left = [1]

    def lose(request: str) -> None:
        if request == lost and left and left.pop():
            if written:
                place.put("driver", b"1")
            raise SessionError("no answer")

    place.zk.client.before = lose
    monkeypatch.setattr(session, "PAUSE_S", 0.0)
    assert place.channel.next_epoch() == number
    assert not left and not place.channel.superseded
    assert place.channel.publish("stats", b"{}"), "it is the newest"


def test_a_zookeeper_that_stays_away_is_waited_for_as_long_as_at_the_start(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    began = place.now

    def lose(_: str) -> None:
        place.now += 7
        raise SessionError("no answer")

    place.zk.client.before = lose
    monkeypatch.setattr(session, "PAUSE_S", 0.0)
    with pytest.raises(SessionError):
        place.channel.next_epoch()
    assert session.PATIENCE_S <= place.now - began <= session.PATIENCE_S + 7


def test_a_number_that_cannot_be_read_is_not_guessed(place: Place) -> None:
    place.put("driver", b"two")
    with pytest.raises(RecordError, match="whole number"):
        place.channel.next_epoch()


def test_a_driver_hears_of_its_successor(place: Place, driver: Channel) -> None:
    assert not driver.superseded
    place.another(MemorySession(place.tree)).next_epoch()
    assert driver.changed.is_set() and driver.superseded


def test_while_zookeeper_is_away_the_last_answer_stands(place: Place, driver: Channel) -> None:
    assert not driver.superseded
    place.zk.client.state = SessionState.SUSPENDED
    place.another(MemorySession(place.tree)).next_epoch()
    assert not driver.superseded
    place.zk.becomes(SessionState.CONNECTED)
    assert driver.superseded


# -- reading -------------------------------------------------------------------------------------------------------


def test_no_desired_state_is_none(driver: Channel) -> None:
    assert driver.read_desired() is None


def test_a_desired_state_is_read_when_it_comes_and_when_it_changes(place: Place, driver: Channel) -> None:
    driver.read_desired()
    place.put("desired", encode_desired(WANTED))
    assert driver.changed.is_set()
    assert driver.read_desired() == WANTED
    place.zk.client.state = SessionState.SUSPENDED
    place.put("desired", encode_desired(WANTED.next()))
    assert driver.read_desired() == WANTED, "what was known stands"
    place.zk.becomes(SessionState.CONNECTED)
    assert driver.read_desired() == WANTED.next()


def test_a_desired_state_that_cannot_be_read_is_said_and_the_last_one_stands(
    place: Place, driver: Channel
) -> None:
    place.put("desired", encode_desired(WANTED))
    driver.read_desired()
    place.put("desired", encode_desired(WANTED.next()).replace(b"n1#1", b"n1"))
    with pytest.raises(
        RecordError, match=r"desired: \$\.assignment\.a\.0: 'n1' is not written node#incarnation"
    ):
        driver.read_desired()
    assert driver.read_desired() == WANTED, "said once"
    place.put("desired", encode_desired(WANTED.next()))
    assert driver.read_desired() == WANTED.next()


def test_a_node_whose_record_cannot_be_read_hides_no_other(
    place: Place, driver: Channel, caplog: pytest.LogCaptureFixture
) -> None:
    place.add_node("n1")
    place.put("nodes/n2", b'{"node": "n2"}')
    place.add_node("n3")
    with caplog.at_level(logging.WARNING):
        assert list(driver.read_nodes()) == ["n1#1", "n3#1"]
    assert f"{ROOT}/nodes/n2: $.cpu_milli: is missing" in caplog.text
    place.add_node("n2")
    assert sorted(driver.read_nodes()) == ["n1#1", "n2#1", "n3#1"]


def test_what_cannot_be_read_now_is_read_later(place: Place, driver: Channel) -> None:
    place.add_node("n1")
    place.put("commands/drain", encode_drain("1"))
    place.put("desired", encode_desired(WANTED))

    def away(_: str) -> None:
        raise SessionError("no answer")

    place.zk.client.before = away
    assert (dict(driver.read_nodes()), driver.read_desired(), driver.read_drain()) == ({}, None, False)
    assert not driver.superseded, "nobody has said so"
    place.zk.client.before = lambda _: None
    assert (list(driver.read_nodes()), driver.read_desired(), driver.read_drain()) == (["n1#1"], WANTED, True)


@pytest.mark.parametrize("raw", [b"{}", b"x", b"[1]", encode_drain("2")])
def test_only_what_this_very_driver_was_asked_drains_it(place: Place, driver: Channel, raw: bytes) -> None:
    place.put("commands/drain", raw)
    assert not driver.read_drain()
    place.put("commands/drain", encode_drain("1"))
    assert driver.read_drain()


def test_nodes_keep_their_place_for_a_while_after_an_outage(place: Place, driver: Channel) -> None:
    place.add_node("n1")
    driver.read_nodes()
    place.zk.becomes(SessionState.SUSPENDED)
    place.tree.remove(f"{ROOT}/nodes/n1")
    place.zk.becomes(SessionState.CONNECTED)
    driver.changed.clear()
    assert list(driver.read_nodes()) == ["n1#1"]
    assert not driver.changed.is_set(), "nothing has changed for who looks"
    place.now += 60.0
    assert list(driver.read_nodes()) == []
    assert driver.changed.is_set()


def test_after_an_outage_absence_counts_when_the_longest_session_could_have_been_renewed(
    place: Place, driver: Channel
) -> None:
    place.add_node("n1")
    record = NodeRecord("n2", "n2", 1, 17, 1000, 0.0, session_s=3 * SESSION_S)
    place.put("nodes/n2", encode_node(record))
    driver.read_nodes()
    place.zk.becomes(SessionState.SUSPENDED)
    place.zk.becomes(SessionState.CONNECTED)
    place.tree.remove(f"{ROOT}/nodes/n1")
    place.now += absence_counts_after_s(3 * SESSION_S) - 0.1
    assert sorted(driver.read_nodes()) == ["n1#1", "n2#1"]
    place.now += 0.2
    assert list(driver.read_nodes()) == ["n2#1"]


def test_who_has_come_since_the_outage_is_given_as_long(place: Place, driver: Channel) -> None:
    place.zk.becomes(SessionState.SUSPENDED)
    place.zk.becomes(SessionState.CONNECTED)
    place.add_node("n1")
    driver.read_nodes()
    place.tree.remove(f"{ROOT}/nodes/n1")
    place.now += absence_counts_after_s(SESSION_S) - 0.1
    assert list(driver.read_nodes()) == ["n1#1"]
    place.now += 0.2
    assert list(driver.read_nodes()) == []


# -- writing -------------------------------------------------------------------------------------------------------


def test_a_report_is_made_and_then_replaced(place: Place, driver: Channel) -> None:
    for seq in (1, 2):
        assert driver.publish_progress(Progress("1", seq=seq))
        assert parse_progress(place.tree.records[f"{ROOT}/progress"][0]).seq == seq


def test_a_report_that_is_not_due_counts_as_written(place: Place, driver: Channel) -> None:
    report = Progress("1", seq=1)
    assert driver.publish_progress(report)
    place.tree.remove(f"{ROOT}/progress")
    assert driver.publish_progress(report)
    assert f"{ROOT}/progress" not in place.tree.records, "nothing has changed"
    place.now += 60.0
    assert driver.publish_progress(report)
    assert f"{ROOT}/progress" in place.tree.records, "silence would look like a driver that hangs"


def test_a_report_that_could_not_be_written_is_still_due(place: Place, driver: Channel) -> None:
    place.zk.client.state = SessionState.SUSPENDED
    assert not driver.publish_progress(Progress("1", seq=1))
    place.zk.client.state = SessionState.CONNECTED
    assert driver.publish_progress(Progress("1", seq=1))
    assert f"{ROOT}/progress" in place.tree.records


def test_nothing_is_written_while_nobody_answers_or_where_it_is_too_large(
    place: Place, driver: Channel, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not driver.publish("stats", Random(7).randbytes(LIMIT_BYTES + 1)), "what cannot be compressed"
    assert "and ZooKeeper takes" in caplog.text

    def away(request: str) -> None:
        if request == "commit":
            raise SessionError("no answer")

    place.zk.client.before = away
    assert not driver.publish("stats", b"{}")
    assert f"{ROOT}/stats" not in place.tree.records


def test_a_driver_that_is_silent_writes_nothing(place: Place, driver: Channel) -> None:
    driver.silence()
    assert driver.superseded
    assert not driver.publish("stats", b"{}")
    driver.waits_for("a store")
    assert list(place.tree.records) == [f"{ROOT}/driver"]


def test_what_a_driver_waits_for_ends_with_its_session_and_with_the_waiting(
    place: Place, driver: Channel
) -> None:
    path = f"{ROOT}/waits"
    driver.waits_for("s3://key:hunter2@store is away" + "!" * 5000)
    said = parse_waits(place.tree.records[path][0])
    assert said.driver == "1" and "hunter2" not in said.problem and len(said.problem) <= 2003
    assert place.tree.owners[path] == place.zk.id
    driver.waits_for("still")
    assert parse_waits(place.tree.records[path][0]).problem == "still"
    driver.waits_for("")
    assert path not in place.tree.records


# -- the session ---------------------------------------------------------------------------------------------------


class Starting(MemorySession):
    """A session whose server may not be there."""

    def __init__(self, error: Exception | None) -> None:
        super().__init__(MemoryServer())
        self.error, self.ended = error, list[str]()

    def start(self, timeout: float) -> None:
        if self.error:
            raise self.error

    def close(self) -> None:
        self.ended.append("close")


def test_a_server_that_is_not_there_is_said_with_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[Any, ...]] = []

    def make(*arguments: Any) -> Any:
        made.append(arguments)
        return Starting(SessionError("no answer"))

    monkeypatch.setattr(module, "make_client", make)
    with pytest.raises(ChannelError, match=r"ZooKeeper at zk:2181 does not answer"):
        Channel("zk:2181", ROOT).open()
    assert made == [("zk:2181", module.SESSION_TIMEOUT_S)]


def test_a_connection_that_is_lost_while_folders_are_made_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    zk, asked = Starting(None), list[str]()

    def make(path: str) -> None:
        asked.append(path)
        if len(asked) == 1:
            raise SessionError("no answer")

    monkeypatch.setattr(zk, "ensure_path", make)
    monkeypatch.setattr(session, "PAUSE_S", 0.0)
    Channel("", ROOT, session=zk).open()
    assert asked == [f"{ROOT}/nodes", f"{ROOT}/nodes", f"{ROOT}/checkpoints"]


def test_a_session_is_opened_watched_and_ended() -> None:
    zk = Starting(None)
    channel = Channel("", ROOT, session=zk)
    channel.open()
    assert channel.connected and channel.session == "connected"
    zk.becomes(SessionState.SUSPENDED)
    assert not channel.connected and channel.session == "suspended"
    channel.close()
    assert zk.ended == ["close"]
