"""The modelled ZooKeeper gives the answers of a real one: the same random scripts on both, with three sessions each."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import pytest

from reprise.controller.simulated_world.core import World
from reprise.controller.simulated_world.sessions import Ensemble
from reprise.controller.zookeeper.client import make_client
from reprise.controller.zookeeper.errors import ClientError
from reprise.controller.zookeeper.session import ZooKeeperSession
from tests.support.zookeeper import zookeeper
from tools.testbed.waiting import HANGS_S

NAMES = ("a", "a/x", "a/y", "b", "b/x", "c")
VERBS = ("create", "ephemeral", "set", "set-version", "delete", "delete-version", "get", "exists", "children",
         "ensure", "commit", "close")  # fmt: skip
STEPS = 120


class Site(Protocol):
    """Where a script is carried out."""

    def session(self) -> ZooKeeperSession: ...

    def settle(self, enough: Callable[[], bool]) -> None:
        """Let watches come."""


class Script:
    """Three sessions ask at random; what is answered is written down, without what differs from server to server."""

    def __init__(self, seed: int, site: Site, root: str) -> None:
        self.dice, self.site, self.root = random.Random(seed), site, root
        self.sessions = [site.session() for _ in range(3)]
        self.said: list[Any] = []
        self.fired: list[list[str]] = [[], [], []]
        self.lives = [0, 0, 0]

    def run(self, expected: list[Any] | None = None) -> list[Any]:
        self.sessions[0].ensure_path(self.root)
        for step in range(STEPS):
            who, verb = self.dice.randrange(3), self.dice.choice(VERBS)
            if verb == "close" and self.dice.random() < 0.7:
                verb = "get"
            try:
                answer: Any = self._ask(who, verb)
            except ClientError as error:
                answer = type(error).__name__
            self.said.append((step, who, verb, answer))
            for session in self.sessions:
                session.exists(self.root)  # what was sent before has arrived
            told = expected[2 * step + 1] if expected is not None else None
            self.site.settle(
                lambda told=told: told is None or [len(f) for f in self.fired] >= [len(f) for f in told]
            )
            self.said.append([sorted(fired) for fired in self.fired])
        for session in self.sessions:
            session.close()
        return self.said

    def _ask(self, who: int, verb: str) -> Any:  # noqa: PLR0911 - one verb a line
        zk, path = self.sessions[who], f"{self.root}/{self.dice.choice(NAMES)}"
        watch = self._watch(who, verb, path) if self.dice.random() < 0.6 else None
        data, version = bytes([self.dice.randrange(65, 90)]), self.dice.choice([0, 0, 1, 2])
        match verb:
            case "create" | "ephemeral":
                return zk.create(path, data, ephemeral=verb == "ephemeral")
            case "set" | "set-version":
                return zk.set(path, data, version if verb == "set-version" else -1).version
            case "delete" | "delete-version":
                return zk.delete_async(path, version if verb == "delete-version" else -1).get()
            case "get":
                found, stat = zk.get(path, watch)
                return found, stat.version, stat.cversion, self._owner(stat.owner)
            case "exists":
                there = zk.exists(path, watch)
                return there and (there.version, there.length, self._owner(there.owner))
            case "children":
                return sorted(zk.get_children(path, watch))
            case "ensure":
                return zk.ensure_path(path)
            case "commit":
                return self._commit(zk, data, version)
            case _:
                self.lives[who] += 1
                zk.close()
                self.sessions[who] = self.site.session()
                return None

    def _commit(self, zk: ZooKeeperSession, data: bytes, version: int) -> list[str]:
        transaction = zk.transaction()
        for _ in range(self.dice.randint(1, 4)):
            path = f"{self.root}/{self.dice.choice(NAMES)}"
            kind = self.dice.choice(["create", "ephemeral", "set", "delete", "check"])
            if kind in ("create", "ephemeral"):
                transaction.create(path, data, ephemeral=kind == "ephemeral")
            elif kind == "set":
                transaction.set_data(path, data, self.dice.choice([-1, version]))
            elif kind == "delete":
                transaction.delete(path, self.dice.choice([-1, version]))
            else:
                transaction.check(path, version)
        return [type(refused).__name__ for refused in transaction.commit()]

    def _owner(self, owner: int) -> int | None:
        ids = [session.id for session in self.sessions]
        return ids.index(owner) if owner in ids else None

    def _watch(self, who: int, verb: str, path: str) -> Callable[[object], None] | None:
        life, number = self.lives[who], self.dice.randrange(10**6)

        def fired(_: object) -> None:
            if self.lives[who] == life:
                self.fired[who].append(f"{verb} {path.removeprefix(self.root)} {number}")

        return fired


class RealSite:
    def __init__(self, hosts: str) -> None:
        self.hosts = hosts

    def session(self) -> ZooKeeperSession:
        session = make_client(self.hosts, 10.0)
        session.start(30)
        return session

    def settle(self, enough: Callable[[], bool]) -> None:
        until = time.monotonic() + HANGS_S
        while not enough() and time.monotonic() < until:
            time.sleep(0.002)


class WorldSite:
    def __init__(self, world: World, ensemble: Ensemble) -> None:
        self.world, self.ensemble = world, ensemble

    def session(self) -> ZooKeeperSession:
        session = self.ensemble.session(self.world.process("client"), 10.0)
        session.start(30)
        return session

    def settle(self, enough: Callable[[], bool]) -> None:
        self.world.sleep(0.1)


@contextmanager
def in_a_world(seed: int) -> Iterator[list[Any]]:
    """What a script says on the model."""
    world = World(seed)
    said: list[Any] = []
    process = world.process("script")
    site = WorldSite(world, Ensemble(world))
    world.begin(process, lambda: said.extend(Script(seed, site, "/r").run()), "script")
    world.run(1000.0)
    try:
        assert not world.problems, repr(world.problems)
        yield said
    finally:
        world.close()


def test_the_model_answers_what_it_has_answered_before() -> None:
    with in_a_world(3) as one, in_a_world(3) as two:
        assert one == two and len(one) == 2 * STEPS
        assert sum(len(fired) for fired in one[-1]) > 3, "watches have fired"
        refused = {answer for *_, answer in one[::2] if isinstance(answer, str)}
        assert {"NoNodeError", "NodeExistsError", "BadVersionError"} <= refused


@pytest.mark.slow
def test_random_scripts_are_answered_as_a_real_server_answers_them() -> None:
    with zookeeper() as server:
        for seed in range(12):
            with in_a_world(seed) as expected:
                found = Script(seed, RealSite(server.hosts), f"/r{seed}").run(expected)
            for number, (ours, real) in enumerate(zip(expected, found, strict=True)):
                assert _plain(ours, "/r") == _plain(real, f"/r{seed}"), f"seed {seed}, entry {number}"


def _plain(said: Any, root: str) -> str:
    return repr(said).replace(f"{root}/", "/")
