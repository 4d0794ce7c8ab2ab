"""How much history stays in ZooKeeper, and that whoever reads it forgets what has gone."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from reprise.controller.coordinator import history
from reprise.controller.coordinator.history import Kept
from reprise.controller.zookeeper.errors import NoNodeError
from reprise.controller.zookeeper.observer import Observer
from reprise.controller.zookeeper.recovery_records import encode_incident, encode_plan
from tests.support.record_samples import INCIDENT, PLAN, replace

ROOT = "/reprise/test/t"


class Answer:
    def __init__(self, give: Callable[[], Any]) -> None:
        self._give = give

    def get(self, timeout: float = 0.0) -> Any:
        return self._give()


class Tree:
    """Znodes in memory, as a client shows them."""

    connected = True

    def __init__(self) -> None:
        self.data: dict[str, bytes] = {}

    def get_children_async(self, path: str) -> Answer:
        return Answer(lambda: [p.removeprefix(f"{path}/") for p in self.data if p.startswith(f"{path}/")])

    def get_children(self, path: str) -> list[str]:
        found: list[str] = self.get_children_async(path).get()
        return found

    def exists_async(self, path: str) -> Answer:
        return Answer(lambda: SimpleNamespace(length=len(self.data[path])) if path in self.data else None)

    def get_async(self, path: str) -> Answer:
        return Answer(lambda: self._get(path))

    def delete_async(self, path: str) -> Answer:
        return Answer(lambda: self.data.pop(path))

    def _get(self, path: str) -> tuple[bytes, Any]:
        if path not in self.data:
            raise NoNodeError
        return self.data[path], SimpleNamespace(mzxid=1)


def tree(*sizes: int) -> Tree:
    """A closed incident for each size, with a plan; together they weigh that."""
    found = Tree()
    for number, size in enumerate(sizes, start=1):
        found.data[f"{ROOT}/incidents/inc-{number:06d}"] = b"i" * (size // 2)
        found.data[f"{ROOT}/plans/inc-{number:06d}-p1"] = b"p" * (size - size // 2)
    found.data[f"{ROOT}/plans/inc-{len(sizes) + 1:06d}-p1"] = b"of the open one" * 100
    return found


@pytest.mark.parametrize(
    ("sizes", "kept", "stay"),
    [
        ((10, 10, 10), Kept(2, 100), [2, 3]),
        ((10, 10, 10, 10), Kept(10, 25), [3, 4]),
        ((5, 900, 10), Kept(10, 100), [3]),  # older ones go, too, however small: what stays has no gaps
        ((10, 900), Kept(10, 100), [2]),  # the newest stays however large it is
        ((10, 10), Kept(10, 100), [1, 2]),
        ((), Kept(), []),
    ],
)
def test_the_newest_stay_by_number_and_by_bytes(sizes: tuple[int, ...], kept: Kept, stay: list[int]) -> None:
    client = tree(*sizes)
    assert history.prune(client, ROOT, kept) == len(sizes) - len(stay)
    left = sorted(path.removeprefix(f"{ROOT}/") for path in client.data)
    names = [f"incidents/inc-{k:06d}" for k in stay] + [
        f"plans/inc-{k:06d}-p1" for k in [*stay, len(sizes) + 1]
    ]
    assert left == sorted(names)


def test_an_observer_forgets_what_zookeeper_forgot() -> None:
    """It kept every incident and plan that it had ever seen, for as long as the operator lived."""
    client = Tree()
    observer = Observer("", ROOT, client)
    for number in range(1, 21):
        name = f"inc-{number:06d}"
        incident = replace(INCIDENT, id=name, closed_at=20.0, plans=(f"{name}-p1",))
        client.data[f"{ROOT}/incidents/{name}"] = encode_incident(incident)
        client.data[f"{ROOT}/plans/{name}-p1"] = encode_plan(replace(PLAN, id=f"{name}-p1", incident=name))
        history.prune(client, ROOT, Kept(3))
        seen = observer.read()
        assert seen.connected
    assert sorted(seen.closed) == ["inc-000018", "inc-000019", "inc-000020"]
    assert sorted(seen.plans) == ["inc-000018-p1", "inc-000019-p1", "inc-000020-p1"]
    assert len(observer._closed) == len(observer._plans) == 3
