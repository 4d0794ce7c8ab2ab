"""The modelled store keeps the promises of an object store, and breaks what a store may break."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from reprise.controller.simulated_world.core import World
from reprise.controller.simulated_world.stores import Store
from reprise.spark_jobs.errors import StoreError
from reprise.spark_jobs.storage.files import Files, Way


@pytest.fixture
def world() -> World:
    return World(1)


def does(world: World, what: Callable[[], object]) -> BaseException | None:
    """What it raises."""
    before = len(world.problems)
    world.begin(world.process("p"), what, "does")
    world.run(world.now + 100.0)
    return next((error for _, error in world.problems[before:]), None)


def test_files_are_written_once_listed_and_removed(world: World) -> None:
    store = Store(world)
    files = Files(f"{store.url}/there")

    def use() -> None:
        assert files.way is Way.CONDITIONAL
        assert files.names() == [] and files.read("a/x") is None
        assert files.create("a/x", b"1") and not files.create("a/x", b"2")
        files.replace("b", b"3")
        assert (files.read("a/x"), files.read_part("b", 0, 1), files.exists("a/x")) == (b"1", b"3", True)
        assert (files.names(), files.names("a")) == (["a", "b"], ["x"])
        files.remove("a")
        assert files.names() == ["b"]

    assert does(world, use) is None
    assert store.below("there") == {"b": b"3"}
    store.close()


def test_of_two_that_create_a_file_one_does_however_their_requests_travel(world: World) -> None:
    store, ours = Store(world), list[bool]()
    for number in range(6):
        files = Files(store.url)
        world.begin(
            world.process(f"p{number}"), lambda files=files: ours.append(files.create("x", b"")), "creates"
        )
    world.run(10.0)
    assert sorted(ours) == [False] * 5 + [True]
    store.close()


def test_a_store_that_refuses_says_so_and_may_have_written(world: World) -> None:
    store, refused = Store(world), 0
    files = Files(store.url)
    store.refuses = 0.5

    def write() -> None:
        nonlocal refused
        for number in range(60):
            try:
                files.create(f"{number}", b"")
            except StoreError:
                refused += 1

    assert does(world, write) is None
    assert 15 < refused < 45
    assert 60 - refused < len(store.files) < 60
    store.close()
