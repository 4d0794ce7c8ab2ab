"""The ZooKeeper in memory answers as a real one does: what fast tests show with it holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

import pytest
from kazoo.exceptions import (
    BadVersionError,
    KazooException,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
)

from reprise.controller.simulated_world.memory_zookeeper import MemoryServer
from reprise.controller.zookeeper.client import Client
from reprise.controller.zookeeper.handler import PollHandler
from tests.support.zookeeper import zookeeper
from tools.testbed.waiting import until

REAL = pytest.param("a server", marks=[pytest.mark.slow])


class Connect(Protocol):
    """A session of its own."""

    def __call__(self) -> Any: ...


@pytest.fixture(scope="module", params=["memory", REAL])
def connect(request: pytest.FixtureRequest) -> Iterator[Connect]:
    if request.param == "memory":
        yield MemoryServer().session
        return
    clients: list[Client] = []
    with zookeeper() as server:

        def new() -> Client:
            client = Client(server.hosts, timeout=10.0, handler=PollHandler())
            client.start(timeout=300)
            clients.append(client)
            return client

        yield new
        for client in clients:
            client.stop()
            client.close()


@pytest.fixture
def root(request: pytest.FixtureRequest) -> str:
    return f"/{request.function.__name__}"


@pytest.fixture
def client(connect: Connect, root: str) -> Any:
    client = connect()
    client.ensure_path(root)
    return client


Request = Callable[[Any, str], Any]
REFUSED: dict[str, tuple[Request, type[KazooException]]] = {
    "read what is not there": (lambda c, r: c.get(f"{r}/none"), NoNodeError),
    "list what is not there": (lambda c, r: c.get_children(f"{r}/none"), NoNodeError),
    "write what is not there": (lambda c, r: c.set(f"{r}/none", b""), NoNodeError),
    "delete what is not there": (lambda c, r: c.delete(f"{r}/none"), NoNodeError),
    "create below nothing": (lambda c, r: c.create(f"{r}/none/x"), NoNodeError),
    "create twice": (lambda c, r: c.create(f"{r}/there"), NodeExistsError),
    "write another version": (lambda c, r: c.set(f"{r}/there", b"", 7), BadVersionError),
    "delete another version": (lambda c, r: c.delete(f"{r}/there", 7), BadVersionError),
    "delete a folder": (lambda c, r: c.delete(r), NotEmptyError),
    "create below an ephemeral": (lambda c, r: c.create(f"{r}/mine/x"), NoChildrenForEphemeralsError),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_refused_and_how(client: Any, root: str, what: str) -> None:
    for name, ephemeral in (("there", False), ("mine", True)):
        if client.exists(f"{root}/{name}") is None:
            client.create(f"{root}/{name}", b"1", ephemeral=ephemeral)
    request, error = REFUSED[what]
    with pytest.raises(error):
        request(client, root)
    assert client.get(f"{root}/there")[0] == b"1"


def test_each_write_raises_the_version_and_each_transaction_the_number(client: Any, root: str) -> None:
    path = f"{root}/record"
    client.create(path, b"first")
    _, made = client.get(path)
    assert (made.version, made.ephemeralOwner, made.dataLength, made.cversion) == (0, 0, 5, 0)
    assert made.czxid == made.mzxid
    written = client.set(path, b"x", 0)
    assert (written.version, written.dataLength, written.czxid) == (1, 1, made.czxid)
    assert written.mzxid > made.mzxid
    client.delete(path)
    client.create(path)
    assert client.exists(path).version == 0
    assert client.exists(path).czxid > written.mzxid


def test_a_folder_counts_what_comes_and_goes_and_not_what_is_written(client: Any, root: str) -> None:
    client.create(f"{root}/a")
    client.create(f"{root}/b")
    assert client.get_children(root, include_data=True)[1].cversion == 2
    client.set(f"{root}/a", b"more")
    client.delete(f"{root}/b")
    names, stat = client.get_children(root, include_data=True)
    assert (names, stat.cversion, stat.numChildren, stat.version) == (["a"], 3, 1, 0)


def names(results: list[Any]) -> list[str]:
    return [type(result).__name__ if isinstance(result, Exception) else "done" for result in results]


def test_a_transaction_is_carried_out_as_a_whole_or_not_at_all(client: Any, root: str) -> None:
    client.create(f"{root}/record")
    refused = client.transaction()
    refused.check(f"{root}/record", 0)
    refused.set_data(f"{root}/record", b"new", 0)
    refused.create(f"{root}/record", b"again")
    refused.delete(f"{root}/record", 1)
    said = names(refused.commit())
    assert said == ["RolledBackError", "RolledBackError", "NodeExistsError", "RuntimeInconsistency"]
    assert client.get(f"{root}/record")[0] == b""
    assert client.get(f"{root}/record")[1].version == 0
    done = client.transaction()
    done.set_data(f"{root}/record", b"new", 0)
    done.check(f"{root}/record", 1)  # sees what the operation before has done
    done.create(f"{root}/other", b"data", ephemeral=True)
    assert not [r for r in done.commit() if isinstance(r, Exception)]
    assert client.get(f"{root}/record")[0] == b"new"
    assert client.get(f"{root}/record")[1].mzxid == client.get(f"{root}/other")[1].mzxid


def test_watches_fire_once_and_for_what_they_watch(client: Any, root: str) -> None:
    heard: list[str] = []
    path = f"{root}/record"

    def note(name: str) -> Callable[[Any], None]:
        return lambda _: heard.append(name)

    assert client.exists(path, watch=note("comes")) is None
    client.get_children(root, watch=note("folder"))
    client.create(path)
    until(lambda: sorted(heard) == ["comes", "folder"], "both are heard")
    client.get(path, watch=note("written"))
    client.get_children(root, watch=note("folder"))
    client.set(path, b"1")
    client.set(path, b"2")
    until(lambda: heard[2:] == ["written"], "once, and the folder is as it was")
    client.get(path, watch=note("gone"))
    client.delete(path)
    until(lambda: sorted(heard[3:]) == ["folder", "gone"], "both are heard")


def test_a_watch_on_what_is_not_there_is_not_set_by_a_read(client: Any, root: str) -> None:
    heard: list[Any] = []
    with pytest.raises(NoNodeError):
        client.get(f"{root}/record", watch=heard.append)
    client.create(f"{root}/record")
    client.get(f"{root}/record", watch=heard.append)
    client.set(f"{root}/record", b"1")
    until(lambda: len(heard) == 1, "the second watch alone")


def test_what_a_session_owns_goes_with_it(connect: Connect, client: Any, root: str) -> None:
    other, heard = connect(), list[Any]()
    other.create(f"{root}/mine", ephemeral=True)
    other.create(f"{root}/lasting")
    assert client.exists(f"{root}/mine").ephemeralOwner == other.client_id[0]
    client.exists(f"{root}/mine", watch=heard.append)
    other.stop()
    until(lambda: client.get_children(root) == ["lasting"], "only the other is left")
    until(lambda: len(heard) == 1, "it is heard of")


def test_who_keeps_looking_hears_of_each_change(client: Any, root: str) -> None:
    path, names, values = f"{root}/record", list[list[str]](), list[bytes | None]()
    client.ChildrenWatch(root, names.append)
    client.DataWatch(path, lambda value, _stat, _event: values.append(value))
    until(lambda: (names[-1:], values[-1:]) == ([[]], [None]), "what there is now")
    client.create(path, b"1")
    until(lambda: (names[-1:], values[-1:]) == ([["record"]], [b"1"]), "it comes")
    client.set(path, b"2")
    until(lambda: values[-1:] == [b"2"], "it is written")
    client.delete(path)
    until(lambda: (names[-1:], values[-1:]) == ([[]], [None]), "it goes")
