"""A ZooKeeper in memory, for what a channel asks of a session: versions, watches, transactions that are refused whole."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from reprise.controller.zookeeper.errors import (
    BadVersionError,
    NodeExistsError,
    NoNodeError,
    RefusedError,
    RolledBackError,
)
from reprise.controller.zookeeper.session import SessionState

Watch = Callable[[Any], None] | None


class FakeTree:
    """The server: shared by all clients."""

    def __init__(self) -> None:
        self.nodes: dict[str, tuple[bytes, int]] = {}
        self.watches: dict[str, list[Callable[[Any], None]]] = {}

    def put(self, path: str, data: bytes) -> None:
        self.nodes[path] = (data, self.nodes[path][1] + 1 if path in self.nodes else 0)
        self.fire(path, path.rpartition("/")[0])

    def delete(self, path: str) -> None:
        del self.nodes[path]
        self.fire(path, path.rpartition("/")[0])

    def fire(self, *paths: str) -> None:
        for path in paths:
            for watch in self.watches.pop(path, []):
                watch(None)


class FakeZk:
    """One session.  `before`: called with the name of each request before it is carried out."""

    def __init__(self, tree: FakeTree) -> None:
        self.tree = tree
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
        return data, SimpleNamespace(version=version)

    def exists(self, path: str, watch: Watch = None) -> Any:
        self._watch(path, watch)
        return SimpleNamespace(version=self.tree.nodes[path][1]) if path in self.tree.nodes else None

    def get_children(self, path: str, watch: Watch = None) -> list[str]:
        self.before("get_children")
        self._watch(path, watch)
        folder = f"{path}/"
        found = sorted(n[len(folder) :] for n in self.tree.nodes if n.startswith(folder))
        self.after("get_children")
        return found

    def delete(self, path: str) -> None:
        self.tree.delete(path)

    def create(self, path: str, data: bytes = b"", makepath: bool = False) -> None:
        if path in self.tree.nodes:
            raise NodeExistsError
        self.tree.put(path, data)

    def set(self, path: str, data: bytes, version: int = -1) -> Any:
        self.before("set")
        if path not in self.tree.nodes:
            raise NoNodeError
        if version not in (-1, self.tree.nodes[path][1]):
            raise BadVersionError
        self.tree.put(path, data)
        return SimpleNamespace(version=self.tree.nodes[path][1])

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
        self.operations.append(("create", path, data))

    def delete(self, path: str) -> None:
        self.operations.append(("delete", path, None))

    def commit(self) -> list[RefusedError | None]:
        self.client.before("commit")
        nodes = self.client.tree.nodes
        results: list[RefusedError | None] = []
        for kind, path, value in self.operations:
            there = path in nodes
            if kind == "create":
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
                self.client.tree.put(path, value)
        return results
