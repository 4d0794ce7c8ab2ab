"""A session against a real ZooKeeper: what it reads, writes, watches and refuses."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from reprise.controller.local.cluster.zookeeper import ZooKeeperServer
from reprise.controller.zookeeper.client import make_client
from reprise.controller.zookeeper.errors import (
    BadVersionError,
    NodeExistsError,
    NoNodeError,
    RefusedError,
    RolledBackError,
    SessionError,
)
from reprise.controller.zookeeper.session import SessionState, Stat, ZooKeeperSession
from tests.support.zookeeper import server_fixture
from tools.testbed.waiting import until

pytestmark = pytest.mark.slow


server = pytest.fixture(scope="module")(server_fixture)


@pytest.fixture
def session(server: ZooKeeperServer) -> Iterator[ZooKeeperSession]:
    session = make_client(server.hosts, 10.0)
    session.start(timeout=300)
    yield session
    if session.exists("/t") is not None:
        session.delete("/t", recursive=True)
    session.close()


def test_a_znode_is_made_read_written_and_removed(session: ZooKeeperSession) -> None:
    session.create("/t/a", b"1", makepath=True)
    data, stat = session.get("/t/a")
    assert (data, stat.version, stat.owner, stat.length) == (b"1", 0, 0, 1)
    assert session.set("/t/a", b"22", 0).version == 1
    later = session.exists("/t/a")
    assert later is not None
    assert later.mzxid > stat.mzxid and later.created == stat.created
    with pytest.raises(BadVersionError):
        session.set("/t/a", b"3", 0)
    with pytest.raises(NodeExistsError):
        session.create("/t/a")
    with pytest.raises(RefusedError):
        session.delete("/t")
    assert session.get_children("/t") == ["a"]
    names, folder = session.get_folder_async("/t").get()
    assert (names, folder.cversion) == (["a"], 1)
    session.delete("/t", recursive=True)
    assert session.exists("/t/a") is None
    for ask in (session.get, session.get_children, session.delete):
        with pytest.raises(NoNodeError):
            ask("/t")


def test_what_is_ephemeral_belongs_to_the_session_and_ends_with_it(
    server: ZooKeeperServer, session: ZooKeeperSession
) -> None:
    session.ensure_path("/t")
    other = make_client(server.hosts, 10.0)
    other.start(timeout=300)
    other.create("/t/a", ephemeral=True)
    stat = session.exists("/t/a")
    assert stat is not None
    assert stat.owner == other.id != session.id
    other.close()
    until(lambda: session.exists("/t/a") is None, "it goes with its session")
    with pytest.raises(SessionError):
        other.get("/t")
    other.close()


def test_a_transaction_is_done_as_a_whole_or_not_at_all(session: ZooKeeperSession) -> None:
    session.create("/t/a", b"1", makepath=True)
    refused = session.transaction()
    refused.set_data("/t/a", b"2")
    refused.check("/t/a", 7)
    refused.create("/t/b")
    found = refused.commit()
    assert [type(one) for one in found] == [RolledBackError, BadVersionError, RolledBackError]
    assert session.get("/t/a")[0] == b"1" and session.exists("/t/b") is None
    done = session.transaction()
    done.check("/t/a", 0)
    done.create("/t/b", b"b", ephemeral=True)
    done.delete("/t/a", 0)
    assert done.commit() == [None, None, None]
    assert session.get_children("/t") == ["b"]


def test_watches_tell_of_each_change(session: ZooKeeperSession) -> None:
    session.ensure_path("/t")
    names: list[list[str]] = []
    stats: list[Stat | None] = []
    session.watch_children("/t", names.append)
    session.watch_data("/t/a", stats.append)
    session.create("/t/a")
    session.set("/t/a", b"1")
    until(lambda: names[-1:] == [["a"]] and stats[-1] is not None and stats[-1].version == 1, "both")
    assert names[0] == [] and stats[0] is None
    session.delete("/t/a")
    until(lambda: names[-1] == [] and stats[-1] is None, "that it is gone")


def test_many_are_asked_before_the_first_is_waited_for(session: ZooKeeperSession) -> None:
    session.create("/t/a", b"1", makepath=True)
    there, told = threading.Event(), list[bytes]()
    changed = threading.Event()
    asked = [session.get_async("/t/a", lambda _: changed.set()), session.get_async("/t/a")]
    missing = session.get_async("/t/none")
    missing.when_there(lambda _: there.set())
    asked[0].when_there(lambda answer: told.append(answer.get()[0]))
    assert [answer.get()[0] for answer in asked] == [b"1", b"1"]
    assert there.wait(300)
    until(lambda: told == [b"1"], "who wanted to be told")
    with pytest.raises(NoNodeError):
        missing.get()
    session.set("/t/a", b"2")
    assert changed.wait(300)


def test_states_are_told_and_no_longer_when_that_is_not_wanted(session: ZooKeeperSession) -> None:
    told: list[str] = []
    session.add_listener(told.append)
    assert session.state is SessionState.CONNECTED
    session.close()
    assert told == [SessionState.LOST] and session.state is SessionState.LOST
    session.remove_listener(told.append)
    session.start(timeout=300)
    assert told == [SessionState.LOST] and session.connected
