"""A driver's first act where hosts outlive drivers: for whom it waits, what it says, and when it goes on without."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from reprise.controller.driver import adopting
from reprise.controller.zookeeper.errors import RecordError
from reprise.scheduler.model import Desired
from reprise.spark_jobs.engine.adoption import SurveyError
from reprise.spark_jobs.engine.engine_spec import EngineSpec

GRACE_S = 20.0
DESIRED = Desired(4, 1, 10, "1", {"a.0": "n1#1", "b.0": "n2#1", "c.0": "n3#1"})
"""Of the driver before; `n3#1` is gone."""
HOSTS = {"n1#1": "h1", "n2#1": "h2"}


@dataclass
class Here:
    """A driver that has just begun; waiting lets time pass.  `ready`: node -> when it can be used."""

    ready: Mapping[str, float]
    answers: list[str | SurveyError] = field(default_factory=lambda: [""])
    grace_s: float = GRACE_S
    desired: Desired | RecordError | None = DESIRED
    now: float = 100.0
    said: list[tuple[float, str]] = field(default_factory=list)
    adopted: list[Mapping[str, str]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    superseded_at: float = 1e9

    def __post_init__(self) -> None:
        self.began = self.now

    @property
    def passed(self) -> float:
        return self.now - self.began

    def wait(self, seconds: float) -> bool:
        self.now += seconds
        return False

    def usable(self) -> Mapping[str, str]:
        return {node: HOSTS[node] for node, at in self.ready.items() if at <= self.passed}

    def read_desired(self) -> Desired | None:
        if isinstance(self.desired, RecordError):
            raise self.desired
        return self.desired

    @property
    def superseded(self) -> bool:
        return self.passed >= self.superseded_at

    def adopt(self, _: object, before: EngineSpec, living: Mapping[str, str]) -> str:
        assert before.assignment == DESIRED.assignment
        self.adopted.append(living)
        answer = self.answers[min(len(self.adopted), len(self.answers)) - 1]
        if isinstance(answer, SurveyError):
            raise answer
        return answer

    def goes_on(self, patch: pytest.MonkeyPatch) -> None:
        patch.setattr(adopting, "adopt", self.adopt)
        recovery = SimpleNamespace(driver_grace_s=self.grace_s)
        engine: Any = SimpleNamespace(
            resource=SimpleNamespace(recovery=recovery), problems=self.problems, epoch=2
        )
        waits = SimpleNamespace(wait=self.wait, clear=lambda: None, is_set=lambda: False)
        here: Any = self

        class Channel:
            changed = waits
            read_desired = staticmethod(here.read_desired)
            read_nodes = staticmethod(lambda: dict.fromkeys(HOSTS))
            waits_for = staticmethod(lambda text: here.said.append((here.passed, text)))

            @property
            def superseded(self) -> bool:
                return bool(here.superseded)

        channel: Any = Channel()
        stop: Any = waits
        platform: Any = SimpleNamespace(elapsed=lambda: self.now)
        adopting.go_on_with_what_lives(engine, channel, here, stop, platform)


def test_it_waits_for_the_nodes_that_live_says_so_now_and_then_and_asks_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = Here({"n1#1": 0.0, "n2#1": 10.0})
    here.goes_on(monkeypatch)
    assert here.adopted == [HOSTS], "n3#1 is gone, and nobody waits for it"
    assert 10.0 <= here.passed < 10.0 + 2 * adopting.LOOK_S
    *waited, (_, over) = here.said
    assert {text for _, text in waited} == {"the driver waits for n2#1, which may have partitions at work"}
    assert over == ""
    assert 1 < len(waited) <= 1 + 10.0 / adopting.SAY_S, "each time is three writes"
    assert not here.problems


def test_after_the_grace_it_goes_on_with_what_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    here = Here({"n1#1": 0.0, "n2#1": 1e9})
    here.goes_on(monkeypatch)
    assert here.adopted == [{"n1#1": "h1"}]
    assert GRACE_S <= here.passed < GRACE_S + 2 * adopting.LOOK_S


def test_a_survey_that_fails_is_repeated_until_the_grace_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    ready = {"n1#1": 0.0, "n2#1": 0.0}
    again = Here(ready, [SurveyError("no answer"), ""])
    again.goes_on(monkeypatch)
    assert len(again.adopted) == 2 and not again.problems
    asks = "the driver asks hosts what they have at work, and not all have answered: no answer"
    assert [text for _, text in again.said] == [asks, ""]
    never = Here(ready, [SurveyError("no answer")])
    never.goes_on(monkeypatch)
    assert GRACE_S <= never.passed < GRACE_S + 2 * adopting.LOOK_S
    assert never.problems == ["everything is restored from the newest checkpoint: no answer"]


def test_why_nothing_goes_on_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    here = Here({"n1#1": 0.0, "n2#1": 0.0}, ["nothing is at work"])
    here.goes_on(monkeypatch)
    assert here.problems == ["everything is restored from the newest checkpoint: nothing is at work"]


@pytest.mark.parametrize(
    "here",
    [
        Here({}, grace_s=0.0),
        Here({}, desired=None),
        Here({}, desired=Desired(1, 0, 0, "")),
        Here({}, desired=RecordError("/desired", "seq", "is missing")),
        Here({}, superseded_at=0.0),
    ],
    ids=["no-grace", "first-driver", "nothing-assigned", "unreadable", "superseded"],
)
def test_where_nothing_can_go_on_nobody_waits_and_nobody_is_asked(
    monkeypatch: pytest.MonkeyPatch, here: Here
) -> None:
    here.goes_on(monkeypatch)
    assert not here.adopted
    assert here.passed == 0.0
    assert not any(text for _, text in here.said)


def test_one_that_is_replaced_while_it_waits_asks_nobody_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    here = Here({"n1#1": 1e9, "n2#1": 1e9}, superseded_at=5.0)
    here.goes_on(monkeypatch)
    assert not here.adopted
    assert here.passed < 5.0 + 2 * adopting.LOOK_S
