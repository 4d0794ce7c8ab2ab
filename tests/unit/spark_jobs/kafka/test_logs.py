"""How long the driver waits for what the brokers say of a source's logs, by the clock of its process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import TopicCollection, TopicPartition

from reprise.spark_jobs.errors import NotYetError, SourceError
from reprise.spark_jobs.kafka import logs as module
from reprise.spark_jobs.kafka.logs import ALARM_S, NO_ID, Logs, Snapshot
from reprise.spark_jobs.kafka.settings import Settings
from reprise.spark_jobs.platform import PLATFORM, Running
from tests.support.fake_kafka import trouble


class Process:
    """Its threads run when it is told to, and its clock moves when somebody moves it."""

    def __init__(self) -> None:
        self.now, self.waiting = 100.0, list[Callable[[], object]]()
        self.platform = replace(
            PLATFORM, elapsed=lambda: self.now, begin=self._begin, event=lambda: NoWait(self)
        )

    def _begin(self, run: Callable[[], object], _name: str) -> Running:
        self.waiting.append(run)
        return threading.Thread()

    def go_on(self) -> None:
        self.waiting.pop()()


class NoWait(threading.Event):
    """Waiting takes time of the process and none of the test."""

    def __init__(self, process: Process) -> None:
        super().__init__()
        self._process = process

    def wait(self, timeout: float | None = None) -> bool:
        self._process.now += 0.0 if self.is_set() else timeout or 0.0
        return self.is_set()


class Client:
    """One topic with one partition; `fails`: whether calls do."""

    fails = False
    topic_id = "id of t"

    def __init__(self, _settings: Any) -> None: ...

    def list_topics(self, timeout: float) -> Any:
        if self.fails:
            raise trouble()
        return SimpleNamespace(topics={"t": SimpleNamespace(error=None, partitions=[0])}, cluster_id="c")

    def list_offsets(self, asked: Mapping[TopicPartition, Any], **_: Any) -> Any:
        return {at: SimpleNamespace(result=lambda _timeout: SimpleNamespace(offset=4)) for at in asked}

    def describe_topics(self, asked: TopicCollection, **_: Any) -> Any:
        return {"t": SimpleNamespace(result=lambda _timeout: SimpleNamespace(topic_id=self.topic_id))}

    def poll(self, _timeout: float) -> int:
        return 0


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Process:
    monkeypatch.setattr(module, "AdminClient", Client)
    return Process()


def made(process: Process) -> Logs:
    return Logs(
        ("b:1",), Settings({}), ("t",), None, committed=True, discover_s=30.0, standby_after_s=10.0,
        platform=process.platform,
    )  # fmt: skip


def test_an_answer_that_is_late_is_found_by_a_later_look_and_not_asked_for_twice(process: Process) -> None:
    logs = made(process)
    with pytest.raises(NotYetError, match="no answer yet from b:1"):
        logs.look()
    with pytest.raises(NotYetError):
        logs.look()
    process.go_on()
    assert logs.look() == Snapshot({"t/0": 4}, {"t/0": 4}, ids={"t": "c/id of t"})
    assert process.waiting == []


def test_brokers_that_have_not_answered_for_long_are_named_with_the_time(process: Process) -> None:
    logs = made(process)
    with pytest.raises(NotYetError):
        logs.look()
    process.now = 100.0 + ALARM_S
    with pytest.raises(SourceError, match=f"b:1 have not answered for {ALARM_S:.0f} s"):
        logs.look()


def test_what_asking_has_raised_is_said_once_and_then_it_is_asked_again(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = made(process)
    monkeypatch.setattr(Client, "fails", True)
    with pytest.raises(NotYetError):
        logs.look()
    process.go_on()
    with pytest.raises(SourceError, match="TIMED_OUT"):
        logs.look()
    monkeypatch.setattr(Client, "fails", False)
    with pytest.raises(NotYetError):
        logs.look()
    process.go_on()
    assert logs.look().ends == {"t/0": 4}


def test_a_cluster_without_ids_of_topics_gives_none(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Client, "topic_id", NO_ID)
    logs = made(process)
    with pytest.raises(NotYetError):
        logs.look()
    process.go_on()
    assert logs.look() == Snapshot({"t/0": 4}, {"t/0": 4})
