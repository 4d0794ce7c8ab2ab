"""A driver and executors of different versions: an error that names both, before anything is read wrongly."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable
from dataclasses import fields
from types import SimpleNamespace
from typing import Any

import pytest

from reprise.algorithms.failure import Failure
from reprise.algorithms.positions import Positions
from reprise.controller.driver import nodes
from reprise.controller.driver.nodes import SparkNodes
from reprise.spark_jobs.contract import Range
from reprise.spark_jobs.engine import chain
from reprise.spark_jobs.engine.chain import ChainError
from reprise.spark_jobs.engine.dispatch import Dispatch
from reprise.spark_jobs.errors import VersionError
from reprise.spark_jobs.node import shim
from reprise.spark_jobs.node.command import Ack, Command, Install, Report, Shadow, Usage
from reprise.spark_jobs.node.orders import ORDER_FIELDS, Orders, Told
from reprise.spark_jobs.node.shim import Stage, Warm
from reprise.spark_jobs.node.wire import Message
from reprise.spark_jobs.state.skips import Skip
from reprise.spark_jobs.topology import expand, from_object
from reprise.spark_jobs.version import PROTOCOL, VERSION
from tests.support.topologies import document, operator, source

HERE = "127.0.1.7"
OTHER = "0.0.9 (protocol 1)"
COMMAND = Command(job=1, epoch=1, slot=0, topology="", sink="", checkpoints="")
REPORT = Report(slot=0, host="h", positions={}, installed={})
TOPOLOGY = expand(from_object(document(source(), operator("o", "s", output={}))))


@pytest.mark.parametrize("other", [OTHER, None])
@pytest.mark.parametrize(
    ("message", "data", "read"),
    [
        (COMMAND, Dispatch(TOPOLOGY).orders(["n"], [COMMAND])[0], lambda data: Orders().read(data)),
        (REPORT, REPORT.encode(), Report.decode),
    ],
)
def test_a_message_of_another_version_is_refused_by_both_names(
    message: Any, data: bytes, read: Callable[[bytes], Any], other: str | None
) -> None:
    """Whatever else it holds: of an earlier version, or of a later one with fields that nobody here knows."""
    raw = json.loads(data) | {"version": other, "surprise": 1}
    if other is None:
        del raw["version"]
    with pytest.raises(VersionError) as refused:
        read(json.dumps(raw).encode())
    assert VERSION in str(refused.value) and (other or "of an earlier version") in str(refused.value)
    assert read(data) == message


@pytest.mark.parametrize("task", [Stage((1, 1), 0, False), Warm()])
@pytest.mark.parametrize("other", [OTHER, None])
def test_a_task_of_another_version_says_so_before_it_asks_its_host(
    monkeypatch: pytest.MonkeyPatch, task: Any, other: str | None
) -> None:
    asked: list[str] = []
    monkeypatch.setenv("SPARK_LOCAL_IP", HERE)
    monkeypatch.setattr(shim, "_host", lambda: asked.append("host"))
    monkeypatch.setattr(shim, "exchange", lambda *_: asked.append("exchange") or ([0], [b""]))
    sent = copy.copy(task)
    if other is None:
        del sent.version
    else:
        sent.version = other
    with pytest.raises(VersionError, match=rf"the executor at {HERE} has .*must run the same image"):
        list(sent(0, [(0, ("at", HERE))]))
    assert asked == []
    list(copy.copy(task)(0, [(0, ("at", HERE))]))
    assert asked


@pytest.mark.parametrize(
    ("line", "said"), [(f"VersionError: driver {OTHER}", True), ("OSError: no room", False)]
)
def test_a_node_of_another_version_is_told_to_people_and_not_used(
    monkeypatch: pytest.MonkeyPatch, line: str, said: bool
) -> None:
    def collect() -> None:
        raise RuntimeError(f"Traceback\nspark_jobs.errors.{line}\n")

    rdd = SimpleNamespace(mapPartitionsWithIndex=lambda _: SimpleNamespace(collect=collect))
    monkeypatch.setattr(chain, "_placed", lambda *_: rdd)
    monkeypatch.setattr(nodes, "ANOTHER_VERSION_S", 0.0)
    with pytest.raises(VersionError if said else ChainError, match=f"node at {HERE} is not ready"):
        chain.warm(None, HERE)  # type: ignore[arg-type]
    there = SparkNodes(None, "driver", SimpleNamespace(changed=SimpleNamespace(set=lambda: None)))  # type: ignore[arg-type]
    told: list[str] = []
    there.say = told.append
    there._warm_up("n1#1", HERE, f"{HERE}:40001")
    assert [OTHER in text for text in told] == ([True] if said else [])
    assert not there._warm


@pytest.mark.parametrize(
    "line",
    [
        "ModuleNotFoundError: No module named 'reprise'",
        "ModuleNotFoundError: No module named 'spark_jobs.node'",
        "/usr/bin/python3: No module named reprise.spark_jobs.node.daemon",
        "/usr/bin/python3: Error while finding module specification for 'reprise.spark_jobs.node.daemon'"
        " (ModuleNotFoundError: No module named 'reprise')",
        "AttributeError: Can't get attribute 'Warm' on <module 'reprise.spark_jobs.node.shim' from '/x/shim.py'>",
    ],
)
def test_an_executor_that_lacks_the_driver_s_code_is_of_another_version(
    monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    """Of a build whose packages have other names: its Python cannot even read the task."""

    def collect() -> None:
        raise RuntimeError(
            "An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.\n"
            f"  File 'worker.py', line 1, in main\n    obj = loads(data)\n{line}\n\tat org.apache.spark.Task.run"
        )

    rdd = SimpleNamespace(mapPartitionsWithIndex=lambda _: SimpleNamespace(collect=collect))
    monkeypatch.setattr(chain, "_placed", lambda *_: rdd)
    with pytest.raises(VersionError) as refused:
        chain.warm(None, HERE)  # type: ignore[arg-type]
    for part in (HERE, VERSION, line.partition(": ")[2], "must run the same image"):
        assert part in str(refused.value)


def test_the_protocols_number_goes_with_what_its_messages_hold() -> None:
    """Who changes a message of the data plane raises `PROTOCOL` and writes the new digest here."""
    held = [
        [kind.__name__, [f.name for f in fields(kind)]]
        for kind in (Command, Report, Install, Ack, Usage, Failure, Message, Positions, Skip)
    ]
    held += [["Range", list(Range._fields)], ["Shadow", list(Shadow._fields)]]
    held.append(["Orders", sorted(ORDER_FIELDS), [f.name for f in fields(Told)]])
    digest = hashlib.sha256(json.dumps(held).encode()).hexdigest()[:12]
    assert (PROTOCOL, digest) == (46, "3bc388b72bb0")
