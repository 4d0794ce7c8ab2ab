"""The list of nodes is read when something has changed, and a request that fails never empties it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprise.controller.coordinator.node_list import NodeList
from reprise.controller.zookeeper.errors import ClientError
from reprise.controller.zookeeper.node_record import NodeRecord, encode_node


def record(name: str) -> bytes:
    return encode_node(NodeRecord(name, "127.0.0.1", 1, 7, 1000, 5.0))


@dataclass
class Folder:
    """A folder of a ZooKeeper: its children, its version, and the watch that was set on it last."""

    children: dict[str, bytes] = field(default_factory=dict)
    version: int = 0
    asked: list[str] = field(default_factory=list)
    watch: Callable[[Any], None] | None = None
    away: bool = False

    def get_folder_async(self, _path: str, watch: Callable[[Any], None]) -> Any:
        self.asked.append("folder")
        self.watch = watch
        return sorted(self.children), SimpleNamespace(cversion=self.version)

    def get_async(self, path: str) -> Any:
        name = path.rpartition("/")[2]
        self.asked.append(name)
        raw = self.children.get(name)
        return None if raw is None else (raw, None)

    def wait(self, answer: Any) -> Any:
        if self.away:
            raise ClientError("away")
        return answer

    def comes(self, name: str, raw: bytes | None = None) -> None:
        self.children[name] = record(name) if raw is None else raw
        self._changes()

    def goes(self, name: str) -> None:
        del self.children[name]
        self._changes()

    def _changes(self) -> None:
        self.version += 1
        if self.watch is not None:
            watch, self.watch = self.watch, None
            watch(None)


def listed(folder: Folder, changed: Callable[[], None] = lambda: None) -> NodeList:
    client: Any = folder
    return NodeList(client, "/t/nodes", changed, folder.wait)


def names(found: NodeList) -> list[str]:
    return [node.name for node in found.read()]


def test_it_is_read_once_until_the_folder_changes() -> None:
    folder, told = Folder(), list[str]()
    nodes = listed(folder, lambda: told.append("changed"))
    folder.comes("n1")
    folder.comes("n2")
    assert names(nodes) == names(nodes) == ["n1", "n2"]
    assert folder.asked == ["folder", "n1", "n2"]
    folder.comes("n3")
    assert told == ["changed"]
    assert names(nodes) == ["n1", "n2", "n3"]


def test_who_has_gone_costs_one_request() -> None:
    folder = Folder()
    for name in ("n1", "n2", "n3"):
        folder.comes(name)
    nodes = listed(folder)
    nodes.read()
    folder.asked.clear()
    folder.goes("n2")
    assert names(nodes) == ["n1", "n3"]
    assert folder.asked == ["folder"]


def test_one_that_went_and_came_again_meanwhile_is_read_anew() -> None:
    folder = Folder()
    folder.comes("n1")
    nodes = listed(folder)
    assert [node.cpu_milli for node in nodes.read()] == [1000]
    folder.goes("n1")
    folder.comes("n1", record("n1").replace(b"1000", b"2000"))
    assert [node.cpu_milli for node in nodes.read()] == [2000]


def test_a_request_that_fails_leaves_the_list_unread_and_not_empty() -> None:
    folder = Folder()
    folder.comes("n1")
    nodes = listed(folder)
    nodes.read()
    folder.comes("n2")
    folder.away = True
    with pytest.raises(ClientError):
        nodes.read()
    assert nodes.names == {"n1"}
    folder.away = False
    assert names(nodes) == ["n1", "n2"]


def test_a_record_that_cannot_be_read_is_no_node_and_has_a_heartbeat() -> None:
    folder = Folder()
    folder.comes("n1")
    folder.comes("n2", b"{")
    nodes = listed(folder)
    assert names(nodes) == ["n1"]
    assert nodes.names == {"n1", "n2"}


def test_of_another_session_nothing_is_known() -> None:
    folder = Folder()
    folder.comes("n1")
    nodes = listed(folder)
    nodes.read()
    folder.asked.clear()
    nodes.forget()
    assert names(nodes) == ["n1"]
    assert folder.asked == ["folder", "n1"]


@given(st.lists(st.tuples(st.sampled_from(["n1", "n2", "n3"]), st.booleans()), max_size=30))
def test_whatever_comes_and_goes_a_reading_is_what_is_there(steps: list[tuple[str, bool]]) -> None:
    folder = Folder()
    nodes = listed(folder)
    for name, read in steps:
        if name in folder.children:
            folder.goes(name)
        else:
            folder.comes(name)
        if read:
            assert names(nodes) == sorted(folder.children)
    assert names(nodes) == sorted(folder.children)
