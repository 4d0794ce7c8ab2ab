"""Which jobs a driver gets by what is asked for and what a probe finds."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from reprise.spark_jobs.engine import continuous
from reprise.spark_jobs.engine.chain import ChainError
from reprise.spark_jobs.engine.continuous import EXCHANGES, PROBES, Connector, ContinuousJobs
from reprise.spark_jobs.exchange.settings import MOST_NODES
from reprise.spark_jobs.node.seal import KEY_BYTES
from tools.testbed.waiting import until


@dataclass
class Scene:
    """What was probed and made, in order; `answers`: of the probes."""

    log: list[str] = field(default_factory=list)
    answers: list[str | None] = field(default_factory=list)

    def probe(self, *_: Any) -> str | None:
        self.log.append("probe")
        return self.answers.pop(0)

    def connector(self, why_chained: str = "") -> Connector:
        context = cast(Any, SimpleNamespace(getConf=dict))
        return Connector(context, why_chained, 2, lambda: None)


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    found = Scene()
    monkeypatch.setattr(continuous, "refusal", lambda _: None)
    monkeypatch.setattr(continuous, "probe", found.probe)
    monkeypatch.setattr(
        continuous, "Chain", lambda _, hosts, why: found.log.append(f"chain of {len(hosts)}: {why}")
    )
    monkeypatch.setattr(
        continuous,
        "ContinuousJobs",
        lambda _, hosts, number, _changed: found.log.append(f"exchange {number} of {len(hosts)}"),
    )
    return found


FIRST = 2 * EXCHANGES + 1


def test_where_no_exchange_is_wanted_none_is_probed(scene: Scene) -> None:
    scene.connector("it is not wanted").connect(["a", "b"])
    assert scene.log == ["chain of 2: it is not wanted"]


def test_a_configuration_that_refuses_one_is_not_probed(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(continuous, "refusal", lambda _: "spark.speculation is true")
    scene.connector().connect(["a", "b"])
    assert scene.log == ["chain of 2: spark.speculation is true"]


def test_what_works_is_probed_once_and_numbered_on(scene: Scene) -> None:
    scene.answers = [None]
    one = scene.connector()
    one.connect(["a", "b"])
    one.connect(["a"])
    assert scene.log == ["probe", f"exchange {FIRST} of 2", f"exchange {FIRST + 1} of 1"]


def test_a_probe_of_one_node_proves_nothing_about_links_between_nodes(scene: Scene) -> None:
    scene.answers = [None, "no route to host"]
    one = scene.connector()
    one.connect(["a"])
    one.connect(["a", "b"])
    assert scene.log == ["probe", f"exchange {FIRST} of 1", "probe", "chain of 2: no route to host"]


def test_a_probe_that_fails_is_repeated_for_other_hosts(scene: Scene) -> None:
    scene.answers = ["a node was lost", None]
    one = scene.connector()
    one.connect(["a", "b"])
    one.connect(["a", "c"])
    one.connect(["a", "b"])
    exchanges = [f"exchange {FIRST} of 2", f"exchange {FIRST + 1} of 2"]
    assert scene.log == ["probe", "chain of 2: a node was lost", "probe", *exchanges]


def test_of_many_nodes_jobs_carry_the_messages(scene: Scene) -> None:
    scene.answers = [None]
    one = scene.connector()
    for count in (MOST_NODES, MOST_NODES + 1, MOST_NODES):
        one.connect([f"10.0.0.{number}" for number in range(count)])
    why = "an exchange carries messages of up to 64 nodes, and there are 65"
    assert scene.log == [
        "probe",
        f"exchange {FIRST} of 64",
        f"chain of 65: {why}",
        f"exchange {FIRST + 1} of 64",
    ]


def test_after_some_failed_probes_it_stays_with_the_chain(scene: Scene) -> None:
    scene.answers = ["no janino"] * PROBES
    one = scene.connector()
    for _ in range(PROBES + 2):
        one.connect(["a", "b"])
    assert scene.log == ["probe", "chain of 2: no janino"] * PROBES + ["chain of 2: no janino"] * 2


def test_an_exchange_that_has_ended_fails_the_next_job() -> None:
    jobs = ContinuousJobs.__new__(ContinuousJobs)
    jobs.link = 7
    jobs._exchange = cast(Any, SimpleNamespace(failure="its node was lost"))
    with pytest.raises(ChainError, match="exchange 7 has ended: its node was lost"):
        jobs.run((1, 1), [], 1, cast(Any, None), 1.0)


class Relays:
    """Of an exchange, which are connected when a test says so."""

    def __init__(self, *_: object) -> None:
        self.desk, self.failure = self, ""
        self.connected = threading.Event()

    def start(self) -> None:
        """They begin at once."""

    def ready(self, within_s: float) -> bool:
        return self.connected.wait(within_s)


@pytest.fixture
def continuous_jobs(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, Callable[[], None]], ContinuousJobs]:
    monkeypatch.setattr(continuous, "Chain", lambda *_: None)
    monkeypatch.setattr(continuous, "Exchange", Relays)
    monkeypatch.setattr(continuous, "Relays", SimpleNamespace(compiled=lambda _: None))
    monkeypatch.setattr(continuous, "STAND_S", 0.01)
    return lambda number, changed: ContinuousJobs(cast(Any, None), ["a"], number, changed)


def test_each_exchange_has_a_key_of_its_own(continuous_jobs: Any) -> None:
    made = [continuous_jobs(number, lambda: None) for number in (1, 2)]
    keys = {bytes.fromhex(jobs.link_key) for jobs in made}
    assert [len(key) for key in keys] == [KEY_BYTES] * 2
    for jobs in made:
        jobs._exchange.connected.set()


def test_the_driver_is_woken_when_all_relays_are_connected(continuous_jobs: Any) -> None:
    woken = threading.Event()
    jobs = continuous_jobs(1, woken.set)
    assert not (woken.wait(0.1) or jobs.stands)
    jobs._exchange.connected.set()
    assert woken.wait(20.0) and jobs.stands and not jobs.ended


def test_relays_of_an_exchange_that_has_ended_are_not_awaited(continuous_jobs: Any) -> None:
    before = set(threading.enumerate())
    jobs = continuous_jobs(1, lambda: None)
    jobs._exchange.failure = "its node was lost"
    until(lambda: set(threading.enumerate()) <= before, "nobody waits")
    assert not jobs.stands and jobs.ended == "its node was lost"
