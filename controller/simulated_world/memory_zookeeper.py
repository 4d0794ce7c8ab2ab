"""A ZooKeeper in memory, as a kazoo client shows it: for tests that must be fast.

What it promises is what a server promises: versions, transactions that are carried out as a whole or not at all, watches
that fire once, ephemeral znodes that go with their session, answers in the order of the requests.
`tests/unit/controller/zookeeper/test_memory_zookeeper.py` asks it and a real server the same questions.

An answer is there as soon as it was asked for, and a watch is called by the thread that has changed something.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any, cast

from kazoo.client import KazooState
from kazoo.exceptions import (
    BadVersionError,
    ConnectionLoss,
    KazooException,
    NoAuthError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
    RuntimeInconsistency,
    SessionExpiredError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import ZnodeStat

from reprise.controller.zookeeper.errors import ClientError
from reprise.controller.zookeeper.session import SessionState, ZooKeeperSession

Watch = Callable[[Any], None] | None


@dataclass(frozen=True, slots=True)
class Znode:
    """It never changes: a transaction puts another in its place, so who copies a tree copies no znode."""

    data: bytes
    owner: int
    created: int
    written: int
    children: int
    """Number of the transaction that last changed what is below it."""
    version: int = 0
    cversion: int = 0
    time_ms: int = 0


class Tree:
    """What is read from one server: znodes by path, and who waits for their changes."""

    def __init__(self) -> None:
        self.znodes = {"/": Znode(b"", 0, 0, 0, 0)}
        self.watches: dict[tuple[str, str], list[Callable[[Any], None]]] = {}
        """By what is watched, "data" or "children", and path."""
        self._names: dict[str, list[str]] | None = None
        """Of what is in each folder, until a znode comes or goes."""

    def become(self, znodes: dict[str, Znode]) -> None:
        """All of them are others from now on."""
        self.znodes, self._names = znodes, None

    def below(self, path: str) -> list[str]:
        """Names in a folder, sorted."""
        if self._names is None:
            self._names = {}
            for known in sorted(self.znodes):
                folder, _, name = known.rpartition("/")
                if name:
                    self._names.setdefault(folder or "/", []).append(name)
        return list(self._names.get(path, ()))

    def stat(self, path: str) -> ZnodeStat:
        found = self.znodes[path]
        return ZnodeStat(
            found.created, found.written, found.time_ms, found.time_ms, found.version, found.cversion, 0,
            found.owner, len(found.data), len(self.below(path)), found.children,
        )  # fmt: skip

    def fire(self, changed: Iterable[tuple[str, str]]) -> list[Callable[[Any], None]]:
        """Take out the watches of what has changed; each is called once."""
        return [watch for key in changed for watch in self.watches.pop(key, [])]

    def copy(self) -> dict[str, Znode]:
        return dict(self.znodes)


class MemoryServer(Tree):
    """Shared by all of its sessions.  `wall`: unix seconds."""

    def __init__(self, wall: Callable[[], float] = time.time) -> None:
        super().__init__()
        self.wall = wall
        self.lock = threading.RLock()
        self.committed: Callable[[list[tuple[str, str]]], None] = lambda _: None
        """Called with what each transaction has changed, before watches are."""
        self.written = 0
        """Number of the last transaction that was carried out."""
        self.silent = False
        """Nothing is answered: who waits gives up when its time is over."""
        self.closed: set[str] = set()
        """Paths that nobody may read."""
        self._numbers, self._sessions = itertools.count(1), itertools.count(100)

    @property
    def records(self) -> dict[str, tuple[bytes, int]]:
        """Data and version by path, of everything that is no empty folder."""
        with self.lock:
            return {p: (z.data, z.version) for p, z in self.znodes.items() if z.data or z.owner}

    @property
    def owners(self) -> dict[str, int]:
        """The session of each ephemeral znode."""
        with self.lock:
            return {path: znode.owner for path, znode in self.znodes.items() if znode.owner}

    def put(self, path: str, data: bytes) -> None:
        """Somebody makes or replaces it, with the folders above it."""
        with self.lock:
            folders = [str(parent) for parent in reversed(PurePosixPath(path).parents)]
            for folder in (folder for folder in folders if folder not in self.znodes):
                only(self.carry_out(0, [("create", (folder, b"", False))]))
            there = path in self.znodes
            only(self.carry_out(0, [("set", (path, data, -1)) if there else ("create", (path, data, False))]))

    def remove(self, path: str) -> None:
        """Somebody removes it."""
        only(self.carry_out(0, [("delete", (path, -1))]))

    def session(self) -> MemoryClient:
        return MemoryClient(self, next(self._sessions))

    def carry_out(self, session: int, operations: list[tuple[str, tuple[Any, ...]]]) -> list[Any]:
        """Raises what refuses the first one that is refused; nothing is done then.  Watches fire afterwards."""
        with self.lock:
            before = self.copy()
            number, fired, results = next(self._numbers), list[tuple[str, str]](), list[Any]()
            for index, (kind, arguments) in enumerate(operations):
                try:
                    results.append(getattr(self, f"_{kind}")(session, number, fired, *arguments))
                except KazooException as error:
                    self.become(before)
                    later = [RuntimeInconsistency() for _ in operations[index + 1 :]]
                    return [*(RolledBackError() for _ in results), error, *later]
            self.written = number
            self.committed(fired)
            watches = self.fire(fired)
        for watch in watches:
            watch(None)
        return results

    def _there(self, path: str, version: int = -1) -> Znode:
        if path not in self.znodes:
            raise NoNodeError
        if version not in (-1, self.znodes[path].version):
            raise BadVersionError
        return self.znodes[path]

    def _parent(self, path: str) -> tuple[str, Znode]:
        folder = path.rpartition("/")[0] or "/"
        return folder, self._there(folder)

    def _create(self, session: int, number: int, fired: Any, path: str, data: bytes, ephemeral: bool) -> str:
        folder, parent = self._parent(path)
        if parent.owner:
            raise NoChildrenForEphemeralsError
        if path in self.znodes:
            raise NodeExistsError
        owner, now = session if ephemeral else 0, int(self.wall() * 1000)
        self.znodes[path], self._names = Znode(data, owner, number, number, number, time_ms=now), None
        self.znodes[folder] = replace(parent, cversion=parent.cversion + 1, children=number)
        fired += [("data", path), ("children", folder)]
        return path

    def _set(self, session: int, number: int, fired: Any, path: str, data: bytes, version: int) -> ZnodeStat:
        found = self._there(path, version)
        self.znodes[path] = replace(
            found, data=data, version=found.version + 1, written=number, time_ms=int(self.wall() * 1000)
        )
        fired += [("data", path)]
        return self.stat(path)

    def _delete(self, session: int, number: int, fired: Any, path: str, version: int) -> bool:
        self._there(path, version)
        if self.below(path):
            raise NotEmptyError
        folder, parent = self._parent(path)
        del self.znodes[path]
        self._names = None
        self.znodes[folder] = replace(parent, cversion=parent.cversion + 1, children=number)
        fired += [("data", path), ("children", path), ("children", folder)]
        return True

    def _check(self, session: int, number: int, fired: Any, path: str, version: int) -> bool:
        self._there(path, version)
        return True

    def end(self, session: int) -> None:
        """Its ephemeral znodes go, in one transaction."""
        with self.lock:
            owned = [path for path, znode in self.znodes.items() if znode.owner == session]
        self.carry_out(session, [("delete", (path, -1)) for path in owned])


class MemoryAnswer:
    def __init__(self, value: Any = None, error: BaseException | None = None, silent: bool = False) -> None:
        self._value, self._error, self._silent = value, error, silent

    @property
    def given(self) -> bool:
        return not self._silent and self._error is None

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        if self._silent:
            raise KazooTimeoutError("no answer")
        if self._error is not None:
            raise self._error
        return self._value

    def rawlink(self, call: Callable[[Any], None]) -> None:
        if not self._silent:
            call(self)


class MemoryClient:
    """One session.  `asked`: verb and path of each request that was sent."""

    hosts = "memory"

    def __init__(self, server: MemoryServer, number: int) -> None:
        self.server = server
        self.client_id: tuple[int, bytes] | None = (number, b"")
        self.state = KazooState.CONNECTED
        self.asked: list[tuple[str, str]] = []
        self.before: Callable[[str], None] = lambda _: None
        """Called with the verb of each request before it is carried out; what it raises is the answer."""
        self.after: Callable[[str], None] = lambda _: None
        self._listeners: list[Callable[[str], object]] = []

    # -- the session -------------------------------------------------------------------------------------------------

    @property
    def connected(self) -> bool:
        return bool(self.state == KazooState.CONNECTED)

    def start(self, timeout: float = 0.0) -> None:
        self.move(KazooState.CONNECTED)

    def stop(self) -> None:
        """The session ends, as far as a server is told."""
        if self.client_id is not None:
            self.server.end(self.client_id[0])
        self.move(KazooState.LOST)

    def close(self) -> None:
        self._listeners.clear()

    def move(self, state: str) -> None:
        """Listeners hear of it, if it is news."""
        if state != self.state:
            self.state = state
            for listener in list(self._listeners):
                listener(state)

    def expire(self) -> None:
        """The server has forgotten the session, and the client has a new one."""
        assert self.client_id is not None
        number = self.client_id[0]
        self.move(KazooState.SUSPENDED)
        self.server.end(number)
        self.move(KazooState.LOST)
        self.client_id = self.server.session().client_id
        self.move(KazooState.CONNECTED)

    def add_listener(self, listener: Callable[[str], object]) -> None:
        self._listeners.append(listener)

    def remove_listener(self, listener: Callable[[str], object]) -> None:
        self._listeners.remove(listener)

    def _answer(self, verb: str, path: str, give: Callable[[], Any]) -> MemoryAnswer:
        self.asked.append((verb, path))
        if self.server.silent:
            return MemoryAnswer(silent=True)
        if self.state != KazooState.CONNECTED:
            lost = self.state == KazooState.LOST
            return MemoryAnswer(error=SessionExpiredError() if lost else ConnectionLoss())
        if path in self.server.closed:
            return MemoryAnswer(error=NoAuthError())
        try:
            self.before(verb)
            with self.server.lock:
                answer = MemoryAnswer(give())
        except (KazooException, ClientError) as error:
            return MemoryAnswer(error=error)
        self.after(verb)
        return answer

    # -- requests ----------------------------------------------------------------------------------------------------

    def get_async(self, path: str, watch: Watch = None) -> MemoryAnswer:
        return self._answer("get", path, lambda: self._get(path, watch))

    def exists_async(self, path: str, watch: Watch = None) -> MemoryAnswer:
        return self._answer("exists", path, lambda: self._exists(path, watch))

    def get_children_async(self, path: str, watch: Watch = None, include_data: bool = False) -> MemoryAnswer:
        return self._answer("get_children", path, lambda: self._children(path, watch, include_data))

    def get_acls_async(self, path: str) -> MemoryAnswer:
        """Everybody may do everything here."""
        return self._answer("get_acls", path, lambda: ([], self._exists(path, None)))

    def create_async(
        self, path: str, value: bytes = b"", acl: Any = None, ephemeral: bool = False,
        sequence: bool = False, makepath: bool = False,
    ) -> MemoryAnswer:  # fmt: skip
        folders = self.ensure_path_async(path.rpartition("/")[0]) if makepath else MemoryAnswer()
        return self._one("create", path, value, ephemeral) if folders.given else folders

    def set_async(self, path: str, value: bytes, version: int = -1) -> MemoryAnswer:
        return self._one("set", path, value, version)

    def delete_async(self, path: str, version: int = -1) -> MemoryAnswer:
        return self._one("delete", path, version)

    def ensure_path_async(self, path: str, acl: Any = None) -> MemoryAnswer:
        return self._answer("ensure_path", path, lambda: self._ensure(path))

    def get(self, path: str, watch: Watch = None) -> Any:
        return self.get_async(path, watch).get()

    def exists(self, path: str, watch: Watch = None) -> Any:
        return self.exists_async(path, watch).get()

    def get_children(self, path: str, watch: Watch = None, include_data: bool = False) -> Any:
        return self.get_children_async(path, watch, include_data).get()

    def create(self, path: str, value: bytes = b"", acl: Any = None, **more: bool) -> Any:
        return self.create_async(path, value, acl, **more).get()

    def set(self, path: str, value: bytes, version: int = -1) -> Any:
        return self.set_async(path, value, version).get()

    def delete(self, path: str, version: int = -1, recursive: bool = False) -> Any:
        for name in self.server.below(path) if recursive else []:
            self.delete(f"{path}/{name}", recursive=True)
        return self.delete_async(path, version).get()

    def ensure_path(self, path: str, acl: Any = None) -> Any:
        return self.ensure_path_async(path).get()

    def ChildrenWatch(self, path: str, call: Callable[[list[str]], object]) -> None:
        def look(again: Callable[[Any], None]) -> None:
            call(self.get_children(path, again))

        self._keep_looking(look)

    def DataWatch(self, path: str, call: Callable[..., object]) -> None:
        def look(again: Callable[[Any], None]) -> None:
            there = self.exists(path, again) is not None
            call(*(self.get(path) if there else (None, None)), None)

        self._keep_looking(look)

    def _keep_looking(self, look: Callable[[Callable[[Any], None]], None]) -> None:
        """Now, after each change, and when there is a connection again."""

        def again(_: object) -> None:
            if self.connected:
                look(again)

        self.add_listener(again)
        look(again)

    def transaction(self) -> MemoryTransaction:
        return MemoryTransaction(self)

    def _one(self, verb: str, path: str, *arguments: Any) -> MemoryAnswer:
        return self._answer(verb, path, lambda: only(self._carry_out([(verb, (path, *arguments))])))

    def _carry_out(self, operations: list[tuple[str, tuple[Any, ...]]]) -> list[Any]:
        assert self.client_id is not None
        return self.server.carry_out(self.client_id[0], operations)

    @property
    def reads(self) -> Tree:
        """The server that it reads from."""
        return self.server

    def _get(self, path: str, watch: Watch) -> Any:
        if path not in self.reads.znodes:
            raise NoNodeError
        self._watch("data", path, watch)
        return self.reads.znodes[path].data, self.reads.stat(path)

    def _exists(self, path: str, watch: Watch) -> Any:
        self._watch("data", path, watch)
        return self.reads.stat(path) if path in self.reads.znodes else None

    def _children(self, path: str, watch: Watch, include_data: bool) -> Any:
        if path not in self.reads.znodes:
            raise NoNodeError
        self._watch("children", path, watch)
        names = self.reads.below(path)
        return (names, self.reads.stat(path)) if include_data else names

    def _ensure(self, path: str) -> bool:
        parts = path.strip("/").split("/")
        for end in range(1, len(parts) + 1):
            folder = "/" + "/".join(parts[:end])
            if folder not in self.server.znodes:
                only(self._carry_out([("create", (folder, b"", False))]))
        return True

    def _watch(self, kind: str, path: str, watch: Watch) -> None:
        watching = self.reads.watches.setdefault((kind, path), [])
        if watch is not None and watch not in watching:
            watching.append(watch)


def only(results: list[Any]) -> Any:
    """The one result of a single operation; raises what has refused it."""
    if isinstance(results[0], Exception):
        raise results[0]
    return results[0]


class MemorySession(ZooKeeperSession):
    """A session as the project's processes have it; `client` is what tests look into and what they disturb."""

    def __init__(self, server: MemoryServer) -> None:
        self.client = server.session()
        super().__init__(cast(Any, self.client))

    def becomes(self, state: SessionState) -> None:
        """The state changes, and is told."""
        self.client.move(str(state))


@dataclass(frozen=True, slots=True)
class _Sent:
    """What the size of a transaction is reckoned from."""

    path: str
    data: bytes = b""


class MemoryTransaction:
    def __init__(self, client: MemoryClient) -> None:
        self.client = client
        self.operations: list[_Sent] = []
        self._asked: list[tuple[str, tuple[Any, ...]]] = []

    def create(self, path: str, value: bytes = b"", acl: Any = None, ephemeral: bool = False) -> None:
        self._add(_Sent(path, value), "create", value, ephemeral)

    def set_data(self, path: str, value: bytes, version: int = -1) -> None:
        self._add(_Sent(path, value), "set", value, version)

    def delete(self, path: str, version: int = -1) -> None:
        self._add(_Sent(path), "delete", version)

    def check(self, path: str, version: int) -> None:
        self._add(_Sent(path), "check", version)

    def _add(self, sent: _Sent, verb: str, *arguments: Any) -> None:
        self.operations.append(sent)
        self._asked.append((verb, (sent.path, *arguments)))

    def commit_async(self) -> MemoryAnswer:
        return self.client._answer("commit", "", lambda: self.client._carry_out(self._asked))

    def commit(self) -> list[Any]:
        found: list[Any] = self.commit_async().get()
        return found
