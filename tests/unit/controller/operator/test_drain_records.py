"""What the operator writes for a drain: compare-and-set, and only where the records are this object's."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from reprise.controller.operator.records import Records
from reprise.controller.zookeeper.errors import BadVersionError, NoNodeError, SessionError
from reprise.controller.zookeeper.process_records import Spec
from reprise.controller.zookeeper.session import SessionState


class Answer:
    def __init__(self, value: Any) -> None:
        self.value = value

    def get(self, timeout: float | None = None) -> Any:
        if isinstance(self.value, Exception):
            raise self.value
        return self.value


class Client:
    """Answers of a ZooKeeper in memory."""

    state = SessionState.CONNECTED

    def __init__(self) -> None:
        self.nodes: dict[str, tuple[bytes, int]] = {}
        self.between: Callable[[], object] = lambda: None

    def get_async(self, path: str) -> Answer:
        if path not in self.nodes:
            return Answer(NoNodeError())
        data, version = self.nodes[path]
        answer = Answer((data, SimpleNamespace(version=version)))
        self.between()
        return answer

    def get(self, path: str) -> Any:
        return self.get_async(path).get()

    def set_async(self, path: str, data: bytes, version: int = -1) -> Answer:
        if path not in self.nodes:
            return Answer(NoNodeError())
        if version not in (-1, self.nodes[path][1]):
            return Answer(BadVersionError())
        self.nodes[path] = (data, self.nodes[path][1] + 1)
        return Answer(SimpleNamespace(version=self.nodes[path][1]))

    def create_async(self, path: str, data: bytes, acl: Any = None, makepath: bool = False) -> Answer:
        self.nodes[path] = (data, 0)
        return Answer(path)

    def create_below(self, root: str, name: str, data: bytes) -> None:
        self.create_async(f"{root}/{name}", data)


@pytest.fixture
def client() -> Client:
    return Client()


@pytest.fixture
def records(client: Client) -> Records:
    records = Records.__new__(Records)
    records._client, records.root, records._open = cast(Any, client), "/r", True
    records._follow = lambda: None  # type: ignore[method-assign]
    records._started = records._known = records._spec_version = None
    return records


def test_a_driver_is_asked_once_and_a_later_life_anew(records: Records, client: Client) -> None:
    for life, version in (("1", 0), ("1", 0), ("2", 1)):
        records.ask_to_drain(life)
        data, found = client.nodes["/r/commands/drain"]
        assert (json.loads(data), found) == ({"driver": life}, version)


def test_what_somebody_has_written_meanwhile_is_not_overwritten(records: Records, client: Client) -> None:
    records.ask_to_drain("1")
    client.between = lambda: client.nodes.update({"/r/commands/drain": (b'{"driver": "9"}', 7)})
    with pytest.raises(SessionError, match="somebody else"):
        records.ask_to_drain("2")
    assert client.nodes["/r/commands/drain"][1] == 7


def test_the_former_spec_is_kept_and_another_objects_is_not_taken(records: Records) -> None:
    assert records.former() is None
    for spec in (Spec("one", "app:1"), Spec("two", "app:2")):
        records.started(spec)
        assert records.former() == spec
    records._open = False
    with pytest.raises(SessionError, match="not known to be this object's"):
        records.former()
