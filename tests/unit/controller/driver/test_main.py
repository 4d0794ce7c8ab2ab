"""The driver's process: what its command line says reaches the driver; it ends with a signal, or says why it cannot run."""

from __future__ import annotations

import logging
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from reprise.controller.driver import __main__ as program
from reprise.controller.driver.process import DriverConfig
from reprise.spark_jobs.errors import DamagedError, SpecError
from reprise.spark_jobs.state.revision import RevisionError
from reprise.spark_jobs.topology import StreamTopology, load_text
from tests.support.scripted import TEXT

NEEDED = {
    "--zk": "zk1:2181",
    "--root": "/reprise/tests/scripted",
    "--topology": "",
    "--master": "spark://m:7077",
    "--sink": "/sink",
    "--checkpoints": "s3://bucket/checkpoints",
}
WITH_ALL = {
    "--events": "events.jsonl",
    "--java-options": "-Xss2m",
    "--driver-host": "10.0.0.7",
    "--python-path": "/code:/more",
    "--image": "registry/reprise:2",
    "--metrics-host": "0.0.0.0",
    "--metrics-port": "9100",
}


@dataclass
class Process:
    """`main` with a driver that only notes what it was given; `ends`: what it does when it is run."""

    topology: Path
    given: list[tuple[StreamTopology, DriverConfig]] = field(default_factory=list)
    handlers: dict[int, Callable[..., None]] = field(default_factory=dict)
    ran: int = 0
    ends: Callable[[], None] = lambda: None
    made: Any = None

    def driver(self, resource: StreamTopology, config: DriverConfig) -> Any:
        self.given.append((resource, config))
        self.stop, self.changed = threading.Event(), threading.Event()
        self.made = SimpleNamespace(
            run=self._run, stop=self.stop, channel=SimpleNamespace(changed=self.changed), superseded=""
        )
        return self.made

    def _run(self) -> None:
        self.ran += 1
        self.ends()

    def run(self, monkeypatch: pytest.MonkeyPatch, *more: str, without: str = "") -> DriverConfig:
        needed = {**NEEDED, "--topology": str(self.topology)}
        words = [word for name, value in needed.items() if name != without for word in (name, value)]
        monkeypatch.setattr(sys, "argv", ["driver", *words, *more])
        program.main()
        ((_, config),) = self.given
        return config


@pytest.fixture
def process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Process]:
    topology = tmp_path / "topology.json"
    topology.write_text(load_text(TEXT).document)
    made, root = Process(topology), logging.getLogger()
    monkeypatch.setattr(root, "handlers", list(root.handlers))
    monkeypatch.setattr(root, "level", root.level)
    monkeypatch.setattr(program, "Driver", made.driver)
    monkeypatch.setattr(signal, "signal", made.handlers.__setitem__)
    monkeypatch.delenv("REPRISE_JAVA_OPTIONS", raising=False)
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "as it was")
    quiet = {name: logging.getLogger(name).level for name in program.QUIET}
    for name in quiet:
        logging.getLogger(name).setLevel(logging.NOTSET)
    yield made
    for name, level in quiet.items():
        logging.getLogger(name).setLevel(level)


def test_what_must_be_said_is_enough(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    config = process.run(monkeypatch)
    assert config == DriverConfig(
        zk="zk1:2181",
        root="/reprise/tests/scripted",
        master="spark://m:7077",
        sink="/sink",
        checkpoints="s3://bucket/checkpoints",
        events=None,
        java_options="",
        driver_host="127.0.0.1",
        python_path="",
        conf={},
        image="",
        metrics_host="127.0.0.1",
        metrics_port=0,
    )
    assert process.given[0][0].name == "scripted"
    assert process.ran == 1
    assert os.environ["PYSPARK_SUBMIT_ARGS"] == "as it was"
    talkative = ("kazoo", "py4j", "botocore", "aiobotocore", "s3fs", "gcsfs", "google.auth", "adlfs")
    talkative += ("azure.core.pipeline.policies.http_logging_policy",)
    assert {logging.getLogger(name).getEffectiveLevel() for name in talkative} == {logging.WARNING}


@pytest.mark.parametrize("name", NEEDED)
def test_what_must_be_said(
    process: Process, monkeypatch: pytest.MonkeyPatch, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        process.run(monkeypatch, without=name)
    said = capsys.readouterr().err
    assert f"required: {name}" in said
    assert said.startswith("usage: python -m reprise.controller.driver ")
    assert not process.given


def test_all_that_is_said_reaches_the_driver(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    words = [f"{name}={value}" for name, value in WITH_ALL.items()]
    config = process.run(
        monkeypatch, *words, "--conf", "spark.a=1", "--conf", "spark.b=x=y", "--conf", "spark.c=", "--adopts"
    )
    assert config == DriverConfig(
        zk="zk1:2181",
        root="/reprise/tests/scripted",
        master="spark://m:7077",
        sink="/sink",
        checkpoints="s3://bucket/checkpoints",
        events=Path("events.jsonl"),
        java_options="-Xss2m",
        driver_host="10.0.0.7",
        python_path="/code:/more",
        conf={"spark.a": "1", "spark.b": "x=y", "spark.c": ""},
        image="registry/reprise:2",
        metrics_host="0.0.0.0",
        metrics_port=9100,
        adopts=True,
    )


@pytest.mark.parametrize(
    "wrong", [("--conf", "spark.a"), ("--conf", "=1"), ("--metrics-port", "x"), ("--log-format", "xml")]
)
def test_what_cannot_be_meant_is_refused(
    process: Process,
    monkeypatch: pytest.MonkeyPatch,
    wrong: tuple[str, str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        process.run(monkeypatch, *wrong)
    assert f"argument {wrong[0]}: invalid" in capsys.readouterr().err


def test_every_option_is_explained(
    process: Process, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit):
        process.run(monkeypatch, "--help")
    said = capsys.readouterr().out
    assert "the driver process of one topology" in said
    assert "--conf KEY=VALUE" in said
    described = re.split(r"\n  (?=-)", said.partition("options:")[2])[1:]
    others = "--help", "--conf", "--heap", "--log-format", "--adopts"
    assert len(described) == len(NEEDED) + len(WITH_ALL) + len(others)
    for option in described:
        assert len(option.split()) > 2, option


@pytest.mark.parametrize(
    ("image", "arguments"),
    [
        (None, "--driver-memory 768m pyspark-shell"),
        ("-Da=1 -Db=2", "--driver-memory 768m --driver-java-options '-Da=1 -Db=2' pyspark-shell"),
    ],
)
def test_the_heap_is_that_of_the_virtual_machine_which_pyspark_starts(
    process: Process, monkeypatch: pytest.MonkeyPatch, image: str | None, arguments: str
) -> None:
    if image is not None:
        monkeypatch.setenv("REPRISE_JAVA_OPTIONS", image)
    process.run(monkeypatch, "--heap", "768m")
    assert os.environ["PYSPARK_SUBMIT_ARGS"] == arguments


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_and_wakes_it(
    process: Process, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    seen: list[bool] = []

    def running() -> None:
        seen.append(process.stop.is_set() or process.changed.is_set())
        process.handlers[number](number, None)
        seen.append(process.stop.is_set() and process.changed.is_set())

    process.ends = running
    process.run(monkeypatch)
    assert seen == [False, True]


@pytest.mark.parametrize(
    "error",
    [
        RevisionError("the keys of count have changed"),
        SpecError("spec", "the keys of count have changed"),
        DamagedError("the keys of count have changed"),
    ],
)
def test_code_that_may_not_go_on_from_the_checkpoint_is_said_and_ends_the_process(
    process: Process,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: Exception,
) -> None:
    def refuse() -> None:
        raise error

    process.ends = refuse
    with pytest.raises(SystemExit) as ended:
        process.run(monkeypatch, "--log-format", "json")
    assert ended.value.code == f"refused: {error}"
    said = capsys.readouterr().err
    assert '"event": "refused"' in said
    assert '"logger": "reprise.driver"' in said
    assert "the keys of count have changed" in said


def test_a_superseded_driver_does_not_end_as_one_that_has_drained(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The operator takes a driver's pod that has Succeeded for one that has drained."""

    def superseded() -> None:
        process.made.superseded = "a later driver has taken its epoch"

    process.ends = superseded
    with pytest.raises(SystemExit) as ended:
        process.run(monkeypatch)
    assert ended.value.code == "superseded: a later driver has taken its epoch", "exit code 1, and the reason"
