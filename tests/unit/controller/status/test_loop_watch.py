"""A loop that hangs is told from a long job, a silent driver, and an observer that was away itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from reprise.controller.local.run.inject import Injector
from reprise.controller.local.run.supervisor import _Run
from reprise.controller.status.loop_watch import LoopWatch
from reprise.controller.zookeeper.observation import Observation
from reprise.scheduler.model import Progress

LIMIT_S = 80.0


@dataclass
class Seen:
    """A watch with a clock and reports of one driver, a second apart."""

    now: float = 1000.0
    number: int = 0
    watch: LoopWatch = field(init=False)

    def __post_init__(self) -> None:
        self.watch = LoopWatch()

    def reports(self, turns: int, seconds: int = 1, limit_s: float = LIMIT_S) -> None:
        for _ in range(seconds):
            self.now += 1.0
            self.number += 1
            self.watch.heard(self.now, Progress("7", turns=turns, turn_limit_s=limit_s), self.number)


def test_a_loop_that_begins_no_turn_for_longer_than_its_limit_is_hung() -> None:
    seen = Seen()
    seen.reports(5, 81)
    assert not seen.watch.hung
    seen.reports(5, 1)
    assert seen.watch.hung
    assert "no turn for 81 s" in seen.watch.describe()
    seen.reports(6)
    assert not seen.watch.hung


def test_jobs_that_take_almost_as_long_one_after_another_are_no_hung_loop() -> None:
    seen = Seen()
    for turns in range(10):
        seen.reports(turns, 80)
        assert not seen.watch.hung


@pytest.mark.parametrize("kind", ["old version", "no new report", "away", "observer slept", "another driver"])
def test_what_is_no_hung_loop(kind: str) -> None:
    seen = Seen()
    seen.reports(5, 60, 0.0 if kind == "old version" else LIMIT_S)
    if kind == "no new report":  # silence is judged elsewhere
        for _ in range(600):
            seen.now += 1.0
            seen.watch.heard(seen.now, Progress("7", turns=5, turn_limit_s=LIMIT_S), seen.number)
    if kind == "away":
        seen.watch.heard(seen.now, None)
    if kind == "observer slept":
        seen.now += 3600.0
    if kind == "another driver":
        seen.watch.heard(seen.now, Progress("8", turns=5, turn_limit_s=LIMIT_S), seen.number + 1)
        seen.number += 1
    seen.reports(5, 8, 0.0 if kind == "old version" else LIMIT_S)
    assert not seen.watch.hung


@dataclass
class Driver:
    crashes: int = 0

    def crash(self) -> None:
        self.crashes += 1


@dataclass
class Parts:
    """What a run needs to end a hung driver."""

    loop_watch: LoopWatch
    said: list[dict[str, Any]] = field(default_factory=list)

    def _say(self, action: dict[str, Any]) -> None:
        self.said.append(action)


def test_a_run_ends_a_driver_whose_loop_hangs_once() -> None:
    seen, driver = Seen(), Driver()
    run = Parts(seen.watch)
    services = cast(Injector, type("Services", (), {"services": {"driver": driver}}))
    for _ in range(120):
        seen.now += 1.0
        seen.number += 1
        told = Progress("7", turns=5, turn_limit_s=LIMIT_S)
        at = Observation(seen.now, connected=True, progress=told, report=seen.number)
        _Run._end_hung_driver(cast(_Run, run), seen.now, at, services)
    assert driver.crashes == 1
    assert [action["action"] for action in run.said] == ["driver-hung"]
    assert "no turn for" in run.said[0]["reason"]
