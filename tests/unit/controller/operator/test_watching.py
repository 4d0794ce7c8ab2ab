"""The loop around a topology: quiet ones get glances, decisions do not wait for what follows from them."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from math import inf
from typing import Any

from reprise.controller.operator import watching
from reprise.controller.operator.deciders import Deciders
from reprise.controller.operator.pace import Pace
from reprise.controller.operator.rush import MANY, Rush
from reprise.controller.operator.surroundings import Surroundings
from reprise.controller.operator.watching import Watching
from reprise.scheduler.steps import Decision, Outcome

AROUND = Surroundings({}, None)


@dataclass
class FakeRuntime:
    deciding: Deciders
    rush: Rush
    turns: asyncio.Semaphore
    following: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1))
    pace: Pace = field(default_factory=Pace)

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
        self.answers: list[Decision] = []
        """Of the next looks, in order."""
        self.times: list[float] = []

    def decide(self, _body: Mapping[str, Any], _around: Surroundings) -> Decision | None:
        self.log.append("decide")
        self.times.append(time.time())
        if self.fails:
            self.fails -= 1
            raise RuntimeError("a defect")
        return self.answers.pop(0) if self.answers else None

    def plan_ahead(self) -> None:
        self.log.append("ahead")

    def follow(self, _around: Surroundings) -> float:
        if self.hold is not None:
            self.hold.wait(60)
        self.log.append("follow")
        self.quiet = True
        return 0.02

    def glance(self, _body: Mapping[str, Any], _around: Surroundings) -> float | None:
        self.log.append("glance")
        if self.news:
            self.news = False
            return None
        return 0.02


def watch(
    controller: FakeController,
    script: Callable[[asyncio.Event], Any],
    rush: Rush | None = None,
    turns: asyncio.Semaphore | None = None,
    deciding: Deciders | None = None,
) -> None:
    """Run the loop while `script` acts on it."""

    async def both() -> None:
        runtime = FakeRuntime(
            deciding or Deciders(2), rush=rush or Rush(), turns=turns or asyncio.Semaphore(1)
        )
        stopped, woken = Stopped(), asyncio.Event()
        loop = Watching(
            runtime,
            controller,
            woken,
            stopped,
            lambda: {"metadata": {"name": "x", "uid": "u1"}},
            lambda: AROUND,
        )  # type: ignore[arg-type]
        task = asyncio.create_task(loop.run())
        await script(woken)
        stopped.set()
        await asyncio.wait_for(task, 60)
        runtime.close()

    asyncio.run(both())


async def seen(controller: FakeController, condition: Callable[[list[str]], bool]) -> None:
    deadline = time.monotonic() + 60  # only a hang lasts so long
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


def test_a_detected_failure_is_looked_at_again_when_it_has_settled_and_not_before() -> None:
    controller, rush = FakeController(), Rush()
    settles = time.time() + 0.6
    controller.answers = [
        Decision(Outcome.ACT, "failure-detected", "", until=settles),
        Decision(Outcome.ACT, "plan-first", ""),
    ]

    async def script(woken: asyncio.Event) -> None:
        await seen(controller, lambda log: "decide" in log)
        woken.set()  # reports and heartbeats of the rest of the burst
        await seen(controller, lambda log: log.count("decide") == 2)

    watch(controller, script, rush)
    assert settles <= controller.times[1]
    decided = [entry for entry in controller.log if entry != "follow"]
    assert decided[:3] == ["decide", "ahead", "decide"]  # and the plan is made meanwhile
    assert decided.count("ahead") == 1


def test_a_burst_that_settles_for_long_is_looked_at_when_something_calls() -> None:
    controller = FakeController()
    began = time.time()
    controller.answers = [Decision(Outcome.ACT, "failure-detected", "", until=began + 600.0)]

    async def script(woken: asyncio.Event) -> None:
        await seen(controller, lambda log: "decide" in log)
        woken.set()
        await seen(controller, lambda log: log.count("decide") == 2)

    watch(controller, script)
    assert began + watching.CALM_S <= controller.times[1]


def test_where_time_alone_changes_nothing_a_call_is_waited_for() -> None:
    controller = FakeController()
    controller.hold = threading.Event()
    controller.answers = [Decision(Outcome.WAIT, "nothing-to-do", "", until=inf)]

    async def script(woken: asyncio.Event) -> None:
        await asyncio.sleep(0.8)  # a few times as long as the shortest time between two looks
        assert controller.log == ["decide"]
        woken.set()
        await seen(controller, lambda log: log.count("decide") == 2)
        assert controller.hold is not None
        controller.hold.set()

    watch(controller, script)


def test_while_many_wait_for_plans_a_quiet_topology_is_let_be_unless_it_is_called() -> None:
    controller, rush = FakeController(), Rush()

    async def script(woken: asyncio.Event) -> None:
        await seen(controller, lambda log: "glance" in log)
        failed(rush)
        glances = controller.log.count("glance")
        await asyncio.sleep(0.5)
        assert controller.log.count("glance") <= glances + 1, "more than what had begun"
        woken.set()
        await seen(controller, lambda log: log.count("decide") == 2)

    watch(controller, script, rush)


def failed(rush: Rush) -> None:
    """More than fit in beside everything else."""
    for other in range(MANY + 1):
        rush.decided(f"u{other}", Decision(Outcome.ACT, "failure-detected", ""))


def planned(rush: Rush) -> None:
    for other in range(MANY + 1):
        rush.decided(f"u{other}", Decision(Outcome.ACT, "plan-first", ""))


def test_what_follows_and_waits_for_its_turn_waits_longer_when_many_fail_meanwhile() -> None:
    controller, rush, turns = FakeController(), Rush(), asyncio.Semaphore(0)

    async def script(_: asyncio.Event) -> None:
        await seen(controller, lambda log: "decide" in log)
        await asyncio.sleep(0.1)  # it has asked for its turn
        failed(rush)
        turns.release()
        await asyncio.sleep(0.4)
        assert "follow" not in controller.log
        planned(rush)
        await seen(controller, lambda log: "follow" in log)

    watch(controller, script, rush, turns)


def test_a_call_does_not_wait_for_a_glance_that_waits_for_decisions() -> None:
    controller, deciding, go = FakeController(), Deciders(1), threading.Event()

    async def script(woken: asyncio.Event) -> None:
        await seen(controller, lambda log: "glance" in log)
        deciding.submit(go.wait, 60)  # a decision about another one
        await asyncio.sleep(0.2)  # the next glance is due, and waits
        del controller.log[:]
        woken.set()
        await asyncio.sleep(0.1)
        go.set()
        await seen(controller, lambda log: len(log) >= 1)
        assert controller.log[0] == "decide"

    watch(controller, script, deciding=deciding)


def test_while_many_wait_for_plans_one_that_has_its_plan_waits() -> None:
    controller, rush = FakeController(), Rush()
    controller.answers = [Decision(Outcome.ACT, "plan-first", "")]

    async def script(woken: asyncio.Event) -> None:
        await seen(controller, lambda log: "follow" in log)
        failed(rush)
        woken.set()
        await asyncio.sleep(0.5)
        assert controller.log.count("decide") == 1
        planned(rush)
        await seen(controller, lambda log: log.count("decide") == 2)

    watch(controller, script, rush)
