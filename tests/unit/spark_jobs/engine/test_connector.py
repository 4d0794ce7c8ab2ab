"""Which jobs a driver gets by what is asked for and what a probe finds."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from reprise.spark_jobs.engine import continuous
from reprise.spark_jobs.engine.chain import ChainError
from reprise.spark_jobs.engine.continuous import EXCHANGES, Connector, ContinuousJobs


@dataclass
class Scene:
    """What was probed, made and said, in order; `answers`: of the probes."""

    log: list[str] = field(default_factory=list)
    answers: list[str | None] = field(default_factory=list)

    def probe(self, *_: Any) -> str | None:
        self.log.append("probe")
        return self.answers.pop(0)

    def connector(self, exchange: str) -> Connector:
        context = cast(Any, SimpleNamespace(getConf=dict))
        return Connector(context, exchange, 2, lambda text: self.log.append(f"said {text}"))


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    found = Scene()
    monkeypatch.setattr(continuous, "refusal", lambda _: None)
    monkeypatch.setattr(continuous, "probe", found.probe)
    monkeypatch.setattr(continuous, "Chain", lambda _, hosts: found.log.append(f"chain of {len(hosts)}"))
    monkeypatch.setattr(
        continuous,
        "ContinuousJobs",
        lambda _, hosts, number: found.log.append(f"exchange {number} of {len(hosts)}"),
    )
    return found


FIRST = 2 * EXCHANGES + 1


def test_chained_asks_nothing(scene: Scene) -> None:
    scene.connector("chained").connect(["a", "b"])
    assert scene.log == ["chain of 2"]


@pytest.mark.parametrize("exchange", ["auto", "continuous"])
def test_what_works_is_probed_once_and_numbered_on(scene: Scene, exchange: str) -> None:
    scene.answers = [None]
    one = scene.connector(exchange)
    one.connect(["a"])
    one.connect(["a", "b"])
    assert scene.log == ["probe", f"exchange {FIRST} of 1", f"exchange {FIRST + 1} of 2"]


def test_auto_says_once_why_it_stays_with_the_chain(scene: Scene) -> None:
    scene.answers = ["no janino"]
    one = scene.connector("auto")
    one.connect(["a"])
    one.connect(["a", "b"])
    said = "said messages travel with the stages of jobs, and not by an exchange: no janino"
    assert scene.log == ["probe", said, "chain of 1", "chain of 2"]


def test_continuous_that_does_not_work_fails_and_is_asked_again(scene: Scene) -> None:
    scene.answers = ["a node was lost", None]
    one = scene.connector("continuous")
    with pytest.raises(ChainError, match="`continuous`, and that does not work here: a node was lost"):
        one.connect(["a"])
    one.connect(["a"])
    assert scene.log == ["probe", "probe", f"exchange {FIRST} of 1"]


def test_an_exchange_that_has_ended_fails_the_next_job() -> None:
    jobs = ContinuousJobs.__new__(ContinuousJobs)
    jobs.link = 7
    jobs._exchange = cast(Any, SimpleNamespace(failure="its node was lost"))
    with pytest.raises(ChainError, match="exchange 7 has ended: its node was lost"):
        jobs.run((1, 1), [], 1, cast(Any, None), 1.0)
