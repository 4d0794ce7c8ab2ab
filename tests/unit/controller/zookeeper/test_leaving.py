"""Wishes to empty a node: what they say, whose they are, and that they are read again only when some have come or gone."""

from __future__ import annotations

from typing import Any

import pytest

from reprise.controller.simulated_world.memory_zookeeper import MemoryServer
from reprise.controller.zookeeper.errors import NoNodeError, RecordError
from reprise.controller.zookeeper.leaving import Wishes, encode_leaving, leaving_folder, parse_leaving
from reprise.controller.zookeeper.session import ZooKeeperSession
from reprise.controller.zookeeper.wish_folder import WishFolder
from reprise.scheduler.model import Leaving, Node

FOLDER = "/reprise/a/b/leaving"


@pytest.mark.parametrize("wish", [Leaving("reprise drain"), Leaving("SIGTERM", 1760000000.5)])
def test_parser_and_encoder(wish: Leaving) -> None:
    assert parse_leaving(encode_leaving(wish)) == wish


@pytest.mark.parametrize("raw", [b"", b"[]", b'{"by": "soon"}', b'{"reason": 7}'])
def test_anything_else_is_refused(raw: bytes) -> None:
    with pytest.raises(RecordError, match="leaving"):
        parse_leaving(raw)


def test_a_wish_is_for_a_name_or_for_one_life_of_it_and_the_most_urgent_counts() -> None:
    drain, soon, later = Leaving("reprise drain"), Leaving("SIGTERM", 10.0), Leaving("machine", 20.0)
    first, second = Node("n1", 1, 100), Node("n1", 2, 100)
    assert Wishes({}).of(first).leaving is None
    assert Wishes({"n1": drain}).of(second).leaving == drain
    assert Wishes({"n1#1": soon}).of(second).leaving is None
    assert Wishes({"n1#1": soon, "n1": drain}).of(first).leaving == soon
    assert Wishes({"n1": drain}).of(first, {"n1": later}).leaving == later
    assert Wishes({"n1#1": soon}).of(first, {"n1": later}).leaving == soon
    assert Wishes({"n2": drain}).of(first).leaving is None


def session() -> ZooKeeperSession:
    return ZooKeeperSession(MemoryServer().session())  # type: ignore[arg-type]


def test_they_are_read_when_something_has_changed_and_else_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client, woken, asked = session(), list[int](), list[str]()
    client.ensure_path(FOLDER)
    monkeypatch.setattr(
        client, "get_folder_async", lambda *a, real=client.get_folder_async: asked.append(a[0]) or real(*a)
    )
    wishes = WishFolder(client, FOLDER, parse_leaving, lambda: woken.append(1), lambda answer: answer.get(1))
    assert leaving_folder(wishes) == Wishes({})
    assert leaving_folder(wishes) == Wishes({})
    assert len(asked) == 1
    client.create(f"{FOLDER}/n1", encode_leaving(Leaving("reprise drain")))
    client.create(f"{FOLDER}/n2", b"no record")
    assert woken
    assert leaving_folder(wishes) == Wishes({"n1": Leaving("reprise drain")})
    client.delete(f"{FOLDER}/n1")
    assert leaving_folder(wishes) == Wishes({})
    before = len(asked)
    wishes.forget()
    wishes.read()
    assert len(asked) == before + 1


def test_without_the_folder_there_are_none_and_it_is_looked_for_again() -> None:
    def wait(answer: Any) -> Any:
        try:
            return answer.get(1)
        except NoNodeError:
            return None

    client = session()
    wishes = WishFolder(client, FOLDER, parse_leaving, lambda: None, wait)
    assert leaving_folder(wishes) == Wishes({})
    client.create(f"{FOLDER}/n1", encode_leaving(Leaving("x")), makepath=True)
    assert leaving_folder(wishes) == Wishes({"n1": Leaving("x")})
