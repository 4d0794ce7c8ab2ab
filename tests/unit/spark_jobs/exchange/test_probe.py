"""Configurations that an exchange is not made for, and what is told of one that has ended."""

from __future__ import annotations

import pytest

from reprise.controller.agent.spark_secret import AUTHENTICATION
from reprise.spark_jobs.engine import chain
from reprise.spark_jobs.exchange import probe
from reprise.spark_jobs.exchange.exchange import ExchangeError, first_line, window_bytes
from reprise.spark_jobs.exchange.settings import MOST_NODES, READER_BYTES, SETTINGS
from reprise.spark_jobs.node.pump import WINDOW_BYTES


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("spark.dynamicAllocation.enabled", "true", "executors that come and go"),
        ("spark.speculation", "TRUE ", "a task that runs twice"),
        ("spark.ssl.enabled", "true", "Spark's TLS"),
        ("spark.ssl.rpc.enabled", "true", "Spark's TLS"),
        ("spark.shuffle.manager.incremental", "org.example.Manager", "not `streaming`"),
    ],
)
def test_what_is_refused(name: str, value: str, why: str) -> None:
    said = probe.refusal({name: value})
    assert said is not None and said.startswith(name) and why in said
    assert probe.refusal({name: "streaming" if "manager" in name else "false"}) is None


def test_authentication_is_no_reason_to_refuse() -> None:
    assert probe.refusal({**chain.SETTINGS, **SETTINGS, **AUTHENTICATION}) is None


def test_another_spark_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe.pyspark, "__version__", "4.4.0")
    assert probe.refusal({}) == "Spark is 4.4.0, and the exchange is made for 4.3.x"


def test_windows_of_all_others_fit_into_what_a_node_takes_in() -> None:
    assert [nodes * window_bytes(nodes) <= READER_BYTES / 2 for nodes in (1, 2, 3, 16, 200)] == [True] * 5
    assert window_bytes(16) == 1 << 20
    assert window_bytes(MOST_NODES) >= WINDOW_BYTES


ABORTED = (
    "An error occurred while calling o93.count.\n"
    ": org.apache.spark.SparkException: Job aborted due to stage failure: Task 1 in stage 7.0 failed 1 times, "
    "most recent failure: Lost task 1.0 in stage 7.0 (TID 40) (127.0.1.2 executor 2): "
)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            f"{ABORTED}java.lang.IllegalStateException: the partition host of slot 1 has closed the connection"
            "\n\tat reprise.Relays",
            "the partition host of slot 1 has closed the connection",
        ),
        (
            f"{ABORTED}ExecutorLostFailure (executor 0 exited) Reason: Command exited with code 137\nDriver stacktrace:",
            "ExecutorLostFailure (executor 0 exited) Reason: Command exited with code 137",
        ),
        (
            f"{ABORTED}io.netty.channel.unix.Errors$NativeIoException: recvAddress(..) failed with error(-104): "
            "Connection reset by peer\n\tat io.netty",
            "a connection between relays broke: recvAddress(..) failed with error(-104): Connection reset by peer",
        ),
        ("no page at all", "no page at all"),
        ("", "RuntimeError"),
    ],
)
def test_of_a_page_of_traces_one_line_is_told(text: str, line: str) -> None:
    assert first_line(RuntimeError(text)) == line


def test_what_never_began_is_told_as_it_is() -> None:
    assert (
        first_line(ExchangeError("there is no executor at 127.0.1.9")) == "there is no executor at 127.0.1.9"
    )
