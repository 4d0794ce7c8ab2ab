"""The loop around a topology: quiet ones get glances, decisions do not wait for what follows from them."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from controller.operator import watching
from controller.operator.pace import Pace
from controller.operator.rush import Rush
from controller.operator.surroundings import Surroundings
from controller.operator.watching import Watching

AROUND = Surroundings({}, None)


@dataclass
class FakeRuntime:
    deciding: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(2))
    following: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1))
    pace: Pace = field(default_factory=Pace)
    rush: Rush = field(default_factory=Rush)

    def close(self) -> None:
        self.deciding.shutdown()
        self.following.shutdown()


class Stopped:
    """As kopf's flag for daemons."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def __bool__(self) -> bool:
        return self._event.is_set()

    async def wait(self) -> None:
        await self._event.wait()

    def set(self) -> None:
        self._event.set()


class FakeController:
    """Quiet after its first look; `news` makes a glance ask for a whole look."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.quiet = False
        self.news = False
        self.fails = 0
        self.hold: threading.Event | None = None

    def decide(self, _body: Mapping[str, Any], _around: Surroundings) -> None:
        self.log.append("decide")
        if self.fails:
            self.fails -= 1
            raise RuntimeError("a defect")

    def follow(self, _around: Surroundings) -> float:
        if self.hold is not None:
            self.hold.wait(10)
        self.log.append("follow")
        self.quiet = True
        return 0.02

    def glance(self, _body: Mapping[str, Any], _around: Surroundings) -> float | None:
        self.log.append("glance")
        if self.news:
            self.news = False
            return None
        return 0.02


def watch(controller: FakeController, script: Callable[[asyncio.Event], Any]) -> None:
    """Run the loop while `script` acts on it."""

    async def both() -> None:
        runtime, stopped, woken = FakeRuntime(), Stopped(), asyncio.Event()
        loop = Watching(
            runtime, controller, woken, stopped, lambda: {"metadata": {"name": "x"}}, lambda: AROUND
        )  # type: ignore[arg-type]
        task = asyncio.create_task(loop.run())
        await script(woken)
        stopped.set()
        await asyncio.wait_for(task, 20)
        runtime.close()

    asyncio.run(both())


async def seen(controller: FakeController, condition: Callable[[list[str]], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition(controller.log):
        assert time.monotonic() < deadline, controller.log
        await asyncio.sleep(0.005)


def test_a_quiet_topology_gets_glances_until_one_brings_news() -> None:
    controller = FakeController()

    async def script(_woken: asyncio.Event) -> None:
        await seen(controller, lambda log: log.count("glance") >= 3)
        assert controller.log[:2] == ["decide", "follow"]
        assert controller.log.count("decide") == 1
        controller.news = True
        await seen(controller, lambda log: log.count("decide") == 2)

    watch(controller, script)


def test_a_call_is_answered_by_a_whole_look() -> None:
    controller = FakeController()

    async def script(woken: asyncio.Event) -> None:
        await seen(controller, lambda log: "glance" in log)
        woken.set()
        await seen(controller, lambda log: log.count("decide") == 2)
        assert not woken.is_set()

    watch(controller, script)


def test_decisions_go_on_while_what_follows_waits() -> None:
    controller = FakeController()
    controller.hold = threading.Event()

    async def script(_woken: asyncio.Event) -> None:
        await seen(controller, lambda log: log.count("decide") >= 3)
        assert "follow" not in controller.log
        assert controller.hold is not None
        controller.hold.set()
        await seen(controller, lambda log: "follow" in log)

    watch(controller, script)


def test_a_defect_in_one_look_does_not_end_the_looking(monkeypatch: Any) -> None:
    monkeypatch.setattr(watching, "FAILED_S", 0.01)
    controller = FakeController()
    controller.fails = 2

    async def script(_woken: asyncio.Event) -> None:
        await seen(controller, lambda log: "follow" in log)
        assert controller.log.count("decide") == 3

    watch(controller, script)
