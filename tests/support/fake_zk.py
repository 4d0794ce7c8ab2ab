"""A ZooKeeper in memory, for what drivers and agents ask of a session: versions, watches, ephemerals, transactions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from reprise.controller.zookeeper.errors import (
    BadVersionError,
    ClientError,
    NodeExistsError,
    NoNodeError,
    RefusedError,
    RolledBackError,
    SessionError,
)
from reprise.controller.zookeeper.session import SessionState, Stat

Watch = Callable[[Any], None] | None


class FakeTree:
    """The server: shared by all clients."""

    def __init__(self) -> None:
        self.nodes: dict[str, tuple[bytes, int]] = {}
        self.watches: dict[str, list[Callable[[Any], None]]] = {}
        self.owners: dict[str, int] = {}
        """Session of each ephemeral znode."""
        self.listeners: dict[str, list[Callable[[], None]]] = {}
        """Who is told of every change of a path."""

    def put(self, path: str, data: bytes) -> None:
        self.nodes[path] = (data, self.nodes[path][1] + 1 if path in self.nodes else 0)
        self.fire(path, path.rpartition("/")[0])

    def delete(self, path: str) -> None:
        del self.nodes[path]
        self.owners.pop(path, None)
        self.fire(path, path.rpartition("/")[0])

    def expire(self, session: int) -> None:
        """A session ends, and what is ephemeral with it."""
        for path in [path for path, owner in self.owners.items() if owner == session]:
            self.delete(path)

    def stat(self, path: str) -> Stat | None:
        if path not in self.nodes:
            return None
        return Stat(self.nodes[path][1], owner=self.owners.get(path, 0))

    def fire(self, *paths: str) -> None:
        for path in paths:
            for watch in self.watches.pop(path, []):
                watch(None)
            for call in self.listeners.get(path, []):
                call()


class FakeAnswer:
    """Of a request that was carried out when it was asked for."""

    def __init__(self, ask: Callable[[], Any]) -> None:
        self._value, self._error = None, None
        try:
            self._value = ask()
        except ClientError as error:
            self._error = error

    def get(self, timeout: float = 0.0) -> Any:
        if self._error is not None:
            raise self._error
        return self._value


class FakeZk:
    """One session.  `before`: called with the name of each request before it is carried out."""

    def __init__(self, tree: FakeTree, id: int = 1) -> None:
        self.tree, self.id = tree, id
        self.state = SessionState.CONNECTED
        self.before: Callable[[str], None] = lambda _: None
        self.after: Callable[[str], None] = lambda _: None

    def _watch(self, path: str, watch: Watch) -> None:
        if watch is not None:
            self.tree.watches.setdefault(path, []).append(watch)

    def get(self, path: str, watch: Watch = None) -> tuple[bytes, Any]:
        self.before("get")
        if path not in self.tree.nodes:
            raise NoNodeError
        data, version = self.tree.nodes[path]
        self._watch(path, watch)
        return data, Stat(version, owner=self.tree.owners.get(path, 0))

    def exists(self, path: str, watch: Watch = None) -> Stat | None:
        self._watch(path, watch)
        return self.tree.stat(path)

    def get_children(self, path: str, watch: Watch = None) -> list[str]:
        self.before("get_children")
        self._watch(path, watch)
        folder = f"{path}/"
        found = sorted(n[len(folder) :] for n in self.tree.nodes if n.startswith(folder))
        self.after("get_children")
        return found

    def delete(self, path: str) -> None:
        if path not in self.tree.nodes:
            raise NoNodeError
        self.tree.delete(path)

    def create(self, path: str, data: bytes = b"", ephemeral: bool = False, makepath: bool = False) -> None:
        if path in self.tree.nodes:
            raise NodeExistsError
        if ephemeral:
            self.tree.owners[path] = self.id
        self.tree.put(path, data)

    def ensure_path(self, path: str) -> None:
        """Folders are there."""

    @property
    def connected(self) -> bool:
        return self.state is SessionState.CONNECTED

    def add_listener(self, call: Callable[[str], object]) -> None:
        self.listener = call

    def becomes(self, state: SessionState) -> None:
        """The session's state changes, and is told."""
        self.state = state
        self.listener(state)

    def watch_children(self, path: str, call: Callable[[list[str]], None]) -> None:
        def tell() -> None:
            call(self.get_children(path))

        self.tree.listeners.setdefault(path, []).append(tell)
        tell()

    def watch_data(self, path: str, call: Callable[[Stat | None], None]) -> None:
        def tell() -> None:
            call(self.tree.stat(path))

        self.tree.listeners.setdefault(path, []).append(tell)
        tell()

    def __getattr__(self, name: str) -> Any:
        """`get_async` and the like, of a session that has to be there."""
        if not name.endswith("_async"):
            raise AttributeError(name)
        verb = getattr(self, name.removesuffix("_async"))

        def ask(*arguments: Any, **named: Any) -> FakeAnswer:
            return FakeAnswer(lambda: verb(*arguments, **named) if self.connected else _no_answer())

        return ask

    def set(self, path: str, data: bytes, version: int = -1) -> Any:
        self.before("set")
        if path not in self.tree.nodes:
            raise NoNodeError
        if version not in (-1, self.tree.nodes[path][1]):
            raise BadVersionError
        self.tree.put(path, data)
        return self.tree.stat(path)

    def transaction(self) -> FakeTransaction:
        return FakeTransaction(self)


class FakeTransaction:
    def __init__(self, client: FakeZk) -> None:
        self.client = client
        self.operations: list[tuple[str, str, Any]] = []

    def check(self, path: str, version: int) -> None:
        self.operations.append(("check", path, version))

    def set_data(self, path: str, data: bytes) -> None:
        self.operations.append(("set", path, data))

    def create(self, path: str, data: bytes, ephemeral: bool = False) -> None:
        self.operations.append(("ephemeral" if ephemeral else "create", path, data))

    def delete(self, path: str) -> None:
        self.operations.append(("delete", path, None))

    def commit(self, timeout: float = 0.0) -> list[RefusedError | None]:
        self.client.before("commit")
        if not self.client.connected:
            _no_answer()
        nodes = self.client.tree.nodes
        results: list[RefusedError | None] = []
        for kind, path, value in self.operations:
            there = path in nodes
            if kind in ("create", "ephemeral"):
                results.append(NodeExistsError() if there else None)
            elif not there:
                results.append(NoNodeError())
            elif kind == "check" and nodes[path][1] != value:
                results.append(BadVersionError())
            else:
                results.append(None)
        if any(results):
            return [refused or RolledBackError() for refused in results]
        for kind, path, value in self.operations:
            if kind == "delete":
                self.client.tree.delete(path)
            elif kind != "check":
                if kind == "ephemeral":
                    self.client.tree.owners[path] = self.client.id
                self.client.tree.put(path, value)
        return results


def _no_answer() -> NoReturn:
    raise SessionError("no connection")
