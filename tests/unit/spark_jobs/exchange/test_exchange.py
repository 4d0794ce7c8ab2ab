"""The life of an exchange and of its probe, with a Spark that does what it is told to."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from reprise.spark_jobs.exchange import exchange as module
from reprise.spark_jobs.exchange import probe as probing
from reprise.spark_jobs.exchange.exchange import LONGEST, Exchange, ExchangeError, executor_ids, first_line
from reprise.spark_jobs.exchange.relays import Relays
from tools.testbed.waiting import until


class Ids:
    """What Spark answers about the executors of a host: an option of a list."""

    def __init__(self, ids: Sequence[str] | None) -> None:
        self._ids = ids

    def isEmpty(self) -> bool:
        return not self._ids

    def get(self) -> Ids:
        return self

    def mkString(self, between: str) -> str:
        return between.join(self._ids or [])


class Spark:
    """A SparkContext with executors by host; jobs of a group end when it is cancelled."""

    def __init__(self, executors: dict[str, Sequence[str] | None]) -> None:
        self.properties: dict[str, Any] = {}
        self.cancelled: list[str] = []
        self.over = threading.Event()
        scheduler = SimpleNamespace(getExecutorsAliveOnHost=lambda host: Ids(executors.get(host)))
        self._jsc = SimpleNamespace(sc=lambda: SimpleNamespace(taskScheduler=lambda: scheduler))

    def setJobGroup(self, group: str, description: str, interruptOnCancel: bool = False) -> None:
        self.properties |= {"group": group, "interrupt": interruptOnCancel}

    def setLocalProperty(self, name: str, value: str) -> None:
        self.properties[name] = value

    def cancelJobGroup(self, group: str) -> None:
        self.cancelled.append(group)
        self.over.set()


class Carrier:
    """Relays whose job does `run`; `met`: whether executors reach the driver."""

    def __init__(self, run: Callable[[], Any], met: bool = True) -> None:
        self.run, self.met = run, met
        self.asked: list[tuple[Any, ...]] = []

    def exchange(self, *arguments: Any) -> Any:
        self.asked.append(arguments)
        return SimpleNamespace(count=self.run)

    def desk(self, number: int, slots: int) -> Any:
        return SimpleNamespace(close=lambda: None, met=lambda _milliseconds: self.met)

    def trial(self, *arguments: Any) -> Any:
        self.asked.append(arguments)
        return SimpleNamespace(collect=self.run)


HOSTS = ("127.0.1.1", "127.0.1.2")


def spark() -> Spark:
    return Spark({"127.0.1.1": ["2", "10"], "127.0.1.2": ["7"]})


def exchange(context: Spark, carrier: Carrier) -> Exchange:
    return Exchange(context, carrier, HOSTS, 3)  # type: ignore[arg-type]


def test_of_two_executors_at_one_address_the_newest_is_taken_by_number() -> None:
    assert executor_ids(spark(), HOSTS) == ["10", "7"]  # type: ignore[arg-type]


def test_hosts_without_an_executor_are_named() -> None:
    context = Spark({"a": ["1"], "b": None, "c": []})
    with pytest.raises(ExchangeError, match=r"there is no executor at b, c$"):
        executor_ids(context, ["a", "b", "c"])  # type: ignore[arg-type]


def test_an_exchange_runs_until_it_is_stopped() -> None:
    context = spark()

    def run() -> None:
        context.over.wait(30.0)
        raise RuntimeError("Job 3 cancelled part of cancelled job group")

    carrier = Carrier(run)
    one = exchange(context, carrier)
    one.start()
    until(lambda: carrier.asked)
    assert one.failure is None
    assert carrier.asked == [(HOSTS, ["10", "7"], 3)]
    one.stop()
    assert one.failure == "it was stopped" and set(context.cancelled) == {"reprise-exchange-3"}
    assert context.properties == {
        "group": "reprise-exchange-3", "interrupt": True, "sql.streaming.queryId": "reprise-exchange-3",
    }  # fmt: skip
    one.stop()  # once more does nothing


def test_an_exchange_that_is_stopped_before_its_job_is_known_is_cancelled_again() -> None:
    """The first word to cancel comes before the job is there, and is lost."""
    context, words = spark(), threading.Semaphore(0)

    def cancel(group: str) -> None:
        context.cancelled.append(group)
        words.release()

    context.cancelJobGroup = cancel  # type: ignore[method-assign]

    def run() -> None:
        for _ in range(2):
            assert words.acquire(timeout=30.0)
        raise RuntimeError("cancelled")

    one = exchange(context, Carrier(run))
    one.start()
    one.stop()
    assert one.failure == "it was stopped" and len(context.cancelled) >= 2


def test_a_job_that_cannot_be_cancelled_is_waited_for_no_longer_than_it_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "STOP_S", 0.1)
    context, over = spark(), threading.Event()
    one = exchange(context, Carrier(lambda: over.wait(30.0)))
    one.start()
    one.stop()
    assert one.failure is None, "it is not said to have ended"
    over.set()


@pytest.mark.parametrize(
    ("run", "why"),
    [
        (lambda: 4, "its tasks have ended"),
        (lambda: (_ for _ in ()).throw(RuntimeError("io.netty.X: no\n\tat y")), "io.netty.X: no"),
    ],
)
def test_an_exchange_that_ends_by_itself_says_why(run: Callable[[], Any], why: str) -> None:
    one = exchange(spark(), Carrier(run))
    one.start()
    until(lambda: one.failure)
    assert one.failure == why


def test_an_exchange_over_a_host_that_is_gone_never_begins() -> None:
    context = Spark({"127.0.1.1": ["1"]})
    carrier = Carrier(lambda: 0)
    one = exchange(context, carrier)
    one.start()
    until(lambda: one.failure)
    assert one.failure == "there is no executor at 127.0.1.2" and not carrier.asked


def probed(
    monkeypatch: pytest.MonkeyPatch, context: Spark, run: Callable[[], Any], met: bool = True
) -> str | None:
    monkeypatch.setattr(Relays, "compiled", classmethod(lambda *_: Carrier(run, met)))
    return probing.probe(context, HOSTS)  # type: ignore[arg-type]


def test_a_probe_passes_when_a_frame_of_each_has_come_to_each(monkeypatch: pytest.MonkeyPatch) -> None:
    context = spark()
    assert probed(monkeypatch, context, lambda: [2, 2]) is None
    assert context.properties["group"] == probing.GROUP and not context.cancelled


def test_a_probe_fails_where_executors_do_not_reach_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """Orders and reports go that way."""
    why = "not all of 2 nodes have reached the driver within 10 s"
    assert probed(monkeypatch, spark(), lambda: [2, 2], met=False) == why


@pytest.mark.parametrize(
    ("run", "why"),
    [
        (lambda: [2, 1], "of 2 frames to each of 2 nodes, [2, 1] arrived"),
        (lambda: [2], "of 2 frames to each of 2 nodes, [2] arrived"),
        (lambda: 1 // 0, "a tiny exchange over 2 nodes failed: integer division or modulo by zero"),
    ],
)
def test_a_probe_that_fails_says_what_arrived_or_was_raised(
    monkeypatch: pytest.MonkeyPatch, run: Callable[[], Any], why: str
) -> None:
    assert probed(monkeypatch, spark(), run) == why


def test_a_probe_that_does_not_end_is_given_up_and_its_job_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probing, "PROBE_S", 0.2)
    context = spark()
    said = probed(monkeypatch, context, lambda: context.over.wait(30.0) and [2, 2])
    assert said == "a tiny exchange over 2 nodes did not end within 0 s"
    assert context.cancelled == [probing.GROUP]


def test_a_line_of_what_ended_a_job_is_never_longer_than_a_record_takes() -> None:
    assert len(first_line(RuntimeError("x" * 5000))) == LONGEST
    assert len(first_line(RuntimeError("java.io.IOException: " + "x" * 5000))) == LONGEST
