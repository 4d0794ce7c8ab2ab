"""The loop around a topology: quiet ones get polls, decisions do not wait for what follows from them."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from math import inf
from typing import Any

from reprise.controller.operator.loop import topology_loop as watching
from reprise.controller.operator.loop.burst_gate import MANY, BurstGate
from reprise.controller.operator.loop.poll_rate import PollRate
from reprise.controller.operator.loop.priority_executor import PriorityExecutor
from reprise.controller.operator.loop.topology_loop import TopologyLoop
from reprise.controller.operator.pods.cluster_view import ClusterView
from reprise.scheduler.steps import Decision, Outcome, RuleName

AROUND = ClusterView({}, None)


@dataclass
class FakeRuntime:
    deciding: PriorityExecutor
    burst: BurstGate
    turns: asyncio.Semaphore
    reconciling: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1))
    poll_rate: PollRate = field(default_factory=PollRate)

    def close(self) -> None:
        self.deciding.shutdown()
        self.reconciling.shutdown()


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
    """Quiet after its first look; `news` makes a poll ask for a whole look."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.quiet = False
        self.news = False
        self.fails = 0
        self.hold: threading.Event | None = None
        self.answers: list[Callable[[], Decision]] = []
        """Of the next looks, in order."""
        self.times: list[float] = []

    def decide(self, _body: Mapping[str, Any], _around: ClusterView) -> Decision | None:
        self.log.append("decide")
        self.times.append(time.time())
        if self.fails:
            self.fails -= 1
            raise RuntimeError("a defect")
        return self.answers.pop(0)() if self.answers else None

    def precompute(self) -> None:
        self.log.append("ahead")

    def reconcile(self, _around: ClusterView) -> float:
        if self.hold is not None:
            self.hold.wait(60)
        self.log.append("reconcile")
        self.quiet = True
        return 0.02

    def poll(self, _body: Mapping[str, Any], _around: ClusterView) -> float | None:
        self.log.append("poll")
        if self.news:
            self.news = False
            return None
        return 0.02


def watch(
    controller: FakeController,
    script: Callable[[asyncio.Event], Any],
    burst: BurstGate | None = None,
    turns: asyncio.Semaphore | None = None,
    deciding: PriorityExecutor | None = None,
) -> None:
    """Run the loop while `script` acts on it."""

    async def both() -> None:
        runtime = FakeRuntime(
            deciding or PriorityExecutor(2), burst=burst or BurstGate(), turns=turns or asyncio.Semaphore(1)
        )
        stopped, woken = Stopped(), asyncio.Event()
        loop = TopologyLoop(
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
        await seen(controller, lambda log: log.count("poll") >= 3)
        assert controller.log[:2] == ["decide", "reconcile"]
        assert controller.log.count("decide") == 1
        controller.news = True
        await seen(controller, lambda log: log.count("decide") == 2)

    watch(controller, script)


def test_a_call_is_answered_by_a_whole_look() -> None:
    controller = FakeController()

    async def script(woken: asyncio.Event) -> None:
        await seen(controller, lambda log: "poll" in log)
        woken.set()
        await seen(controller, lambda log: log.count("decide") == 2)
        assert not woken.is_set()

    watch(controller, script)


def test_decisions_go_on_while_what_follows_waits() -> None:
    controller = FakeController()
    controller.hold = threading.Event()

    async def script(_woken: asyncio.Event) -> None:
        await seen(controller, lambda log: log.count("decide") >= 3)
        assert "reconcile" not in controller.log
        assert controller.hold is not None
        controller.hold.set()
        await seen(controller, lambda log: "reconcile" in log)

    watch(controller, script)


def test_a_defect_in_one_look_does_not_end_the_looking(monkeypatch: Any) -> None:
    monkeypatch.setattr(watching, "FAILED_S", 0.01)
    controller = FakeController()
    controller.fails = 2

    async def script(_woken: asyncio.Event) -> None:
        await seen(controller, lambda log: "reconcile" in log)
        assert controller.log.count("decide") == 3

    watch(controller, script)


def test_a_detected_failure_is_looked_at_again_when_it_has_settled_and_not_before() -> None:
    controller, burst = FakeController(), BurstGate()
    settles_s = 1.0
    controller.answers = [
        lambda: Decision(Outcome.ACT, RuleName.FAILURE_DETECTED, "", until=time.time() + settles_s),
        lambda: Decision(Outcome.ACT, RuleName.PLAN_FIRST, ""),
    ]

    async def script(woken: asyncio.Event) -> None:
        await seen(controller, lambda log: "decide" in log)
        woken.set()  # reports and heartbeats of the rest of the burst
        await seen(controller, lambda log: log.count("decide") == 2)

    watch(controller, script, burst)
    assert controller.times[0] + settles_s <= controller.times[1]
    decided = [entry for entry in controller.log if entry != "reconcile"]
    assert decided[:3] == ["decide", "ahead", "decide"]  # and the plan is made meanwhile
    assert decided.count("ahead") == 1


def test_a_burst_that_settles_for_long_is_looked_at_when_something_calls() -> None:
    controller = FakeController()
    began = time.time()
    controller.answers = [lambda: Decision(Outcome.ACT, RuleName.FAILURE_DETECTED, "", until=began + 600.0)]

    async def script(woken: asyncio.Event) -> None:
        await seen(controller, lambda log: "decide" in log)
        woken.set()
        await seen(controller, lambda log: log.count("decide") == 2)

    watch(controller, script)
    assert began + watching.CALM_S <= controller.times[1]


def test_where_time_alone_changes_nothing_a_call_is_waited_for() -> None:
    controller = FakeController()
    controller.hold = threading.Event()
    controller.answers = [lambda: Decision(Outcome.WAIT, RuleName.NOTHING_TO_DO, "", until=inf)]

    async def script(woken: asyncio.Event) -> None:
        await asyncio.sleep(0.8)  # a few times as long as the shortest time between two looks
        assert controller.log == ["decide"]
        woken.set()
        await seen(controller, lambda log: log.count("decide") == 2)
        assert controller.hold is not None
        controller.hold.set()

    watch(controller, script)


def test_while_many_wait_for_plans_a_quiet_topology_is_let_be_unless_it_is_called() -> None:
    controller, burst = FakeController(), BurstGate()

    async def script(woken: asyncio.Event) -> None:
        await seen(controller, lambda log: "poll" in log)
        failed(burst)
        polls = controller.log.count("poll")
        await asyncio.sleep(0.5)
        assert controller.log.count("poll") <= polls + 1, "more than what had begun"
        woken.set()
        await seen(controller, lambda log: log.count("decide") == 2)

    watch(controller, script, burst)


def failed(burst: BurstGate) -> None:
    """More than fit in beside everything else."""
    for other in range(MANY + 1):
        burst.decided(f"u{other}", Decision(Outcome.ACT, RuleName.FAILURE_DETECTED, ""))


def planned(burst: BurstGate) -> None:
    for other in range(MANY + 1):
        burst.decided(f"u{other}", Decision(Outcome.ACT, RuleName.PLAN_FIRST, ""))


def test_what_follows_and_waits_for_its_turn_waits_longer_when_many_fail_meanwhile() -> None:
    controller, burst, turns = FakeController(), BurstGate(), asyncio.Semaphore(0)

    async def script(_: asyncio.Event) -> None:
        await seen(controller, lambda log: "decide" in log)
        await asyncio.sleep(0.1)  # it has asked for its turn
        failed(burst)
        turns.release()
        await asyncio.sleep(0.4)
        assert "reconcile" not in controller.log
        planned(burst)
        await seen(controller, lambda log: "reconcile" in log)

    watch(controller, script, burst, turns)


def test_a_call_does_not_wait_for_a_glance_that_waits_for_decisions() -> None:
    controller, deciding, go = FakeController(), PriorityExecutor(1), threading.Event()

    async def script(woken: asyncio.Event) -> None:
        await seen(controller, lambda log: "poll" in log)
        deciding.submit(go.wait, 60)  # a decision about another one
        await seen(controller, lambda _: bool(deciding._later) and not deciding._first)  # the next poll waits
        del controller.log[:]
        woken.set()
        await seen(controller, lambda _: bool(deciding._first))
        go.set()
        await seen(controller, lambda log: len(log) >= 1)
        assert controller.log[0] == "decide"

    watch(controller, script, deciding=deciding)


def test_while_many_wait_for_plans_one_that_has_its_plan_waits() -> None:
    controller, burst = FakeController(), BurstGate()
    controller.answers = [lambda: Decision(Outcome.ACT, RuleName.PLAN_FIRST, "")]

    async def script(woken: asyncio.Event) -> None:
        await seen(controller, lambda log: "reconcile" in log)
        failed(burst)
        woken.set()
        await asyncio.sleep(0.5)
        assert controller.log.count("decide") == 1
        planned(burst)
        await seen(controller, lambda log: log.count("decide") == 2)

    watch(controller, script, burst)
