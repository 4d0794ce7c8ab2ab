"""Who waits for whom in a burst, on a clock that only the test turns."""

from __future__ import annotations

import asyncio

import pytest

from reprise.controller.operator.loop.burst_gate import MANY, PATIENCE_S, BurstGate
from reprise.scheduler.steps import Decision, Outcome, RuleName

DETECTED = Decision(Outcome.ACT, RuleName.FAILURE_DETECTED, "")
SETTLING = Decision(Outcome.WAIT, RuleName.SETTLING, "")
AWAITED = Decision(Outcome.WAIT, RuleName.STANDBYS_AWAITED, "")
PLANNED = Decision(Outcome.ACT, RuleName.PLAN_FIRST, "")


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def burst(clock: Clock) -> BurstGate:
    return BurstGate(clock)


def test_with_few_failed_topologies_nothing_waits(burst: BurstGate) -> None:
    for key in range(MANY):
        burst.decided(f"u{key}", DETECTED)
    assert not burst.on


def test_with_many_it_is_on_until_all_have_their_plan(burst: BurstGate) -> None:
    for key in range(MANY + 2):
        burst.decided(f"u{key}", DETECTED)
        burst.decided(f"u{key}", SETTLING)
        burst.decided(f"u{key}", AWAITED)
        burst.decided(f"u{key}", None)
    for key in range(MANY + 1):
        burst.decided(f"u{key}", PLANNED)
        assert burst.on  # the last ones are not left alone with all that has waited
    burst.decided(f"u{MANY + 1}", PLANNED)
    assert not burst.on
    burst.decided("u0", DETECTED)
    assert not burst.on


def test_a_topology_whose_plan_does_not_come_holds_nobody_up(burst: BurstGate, clock: Clock) -> None:
    for key in range(MANY + 1):
        burst.decided(f"u{key}", DETECTED)
    clock.now += PATIENCE_S
    assert not burst.on


def test_what_waits_goes_on_with_the_plan_that_ends_the_rush(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reprise.controller.operator.loop.burst_gate.PATIENCE_S", 600.0)

    async def both() -> None:
        burst = BurstGate()
        for key in range(MANY + 1):
            burst.decided(f"u{key}", DETECTED)
        waiting = asyncio.ensure_future(burst.over())
        await asyncio.sleep(0)
        assert not waiting.done()
        for key in range(MANY + 1):
            burst.decided(f"u{key}", PLANNED)
        await asyncio.wait_for(waiting, 60.0)

    asyncio.run(both())


def test_nobody_waits_for_ever_for_topologies_that_fail_one_after_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("reprise.controller.operator.loop.burst_gate.PATIENCE_S", 0.3)

    async def both() -> None:
        burst = BurstGate()

        async def failing() -> None:
            for key in range(10_000):
                for more in range(MANY + 1):
                    burst.decided(f"u{key}-{more}", DETECTED)
                await asyncio.sleep(0.1)

        failures = asyncio.ensure_future(failing())
        await asyncio.sleep(0)
        await asyncio.wait_for(burst.over(), 60.0)
        assert burst.on
        failures.cancel()

    asyncio.run(both())
