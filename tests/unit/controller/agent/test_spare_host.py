"""The host that waits beside an executor: when one is started, when another, and what happens when none can be."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from reprise.controller.agent import spare_host
from reprise.controller.agent.spare_host import ENVIRONMENT, FOLDER, PAUSE_S, STARTING, SpareHost


class Started:
    """A process that was started; `code`: how it has ended, None while it runs."""

    def __init__(self, command: list[str], **more: Any) -> None:
        self.command, self.more, self.pid = command, more, 4711
        self.out = more["stdout"] and more["stdout"].name
        self.code: int | None = None
        self.reaped = False

    def poll(self) -> int | None:
        return self.code

    def wait(self) -> None:
        self.reaped = True


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Started]:
    every: list[Started] = []

    def popen(command: list[str], **more: Any) -> Started:
        every.append(Started(command, **more))
        return every[-1]

    monkeypatch.setattr(subprocess, "Popen", popen)
    return every


@pytest.fixture
def environment(tmp_path: Path) -> Mapping[str, str]:
    folder = tmp_path / "spare"
    folder.mkdir()
    return {FOLDER: str(folder), "TZ": "UTC", "OMP_NUM_THREADS": "8"}


def test_it_has_the_variables_of_its_executor_and_says_who_it_is_while_it_starts(
    started: list[Started], environment: Mapping[str, str], tmp_path: Path
) -> None:
    (tmp_path / "spare" / STARTING).write_text("1")  # of one that was killed
    SpareHost().start(environment, tmp_path / "log")
    (host,) = started
    assert host.more["env"] == {**environment, **ENVIRONMENT}
    assert host.command[-3:] == ["--spare", environment[FOLDER], str(os.getpid())]
    assert (tmp_path / "spare" / STARTING).read_text() == "4711"
    assert host.out == str(tmp_path / "log") and host.more["stderr"] == subprocess.STDOUT


def test_without_a_file_its_output_goes_where_that_of_the_agent_goes(
    started: list[Started], environment: Mapping[str, str], tmp_path: Path
) -> None:
    SpareHost().start(environment)
    SpareHost().start(environment, tmp_path / "no" / "folder")
    assert [(host.more["stdout"], host.more["stderr"]) for host in started] == [(None, None)] * 2


def test_another_one_is_started_when_it_has_ended_and_not_at_once(
    started: list[Started], environment: Mapping[str, str]
) -> None:
    now = [100.0]
    spare = SpareHost(lambda: now[0])
    spare.keep()
    assert not started, "nobody has said for whom"
    spare.start(environment)
    now[0] += 10 * PAUSE_S
    spare.keep()
    assert len(started) == 1, "it runs"
    started[0].code = 1
    spare.keep()
    assert len(started) == 2
    started[1].code = 1
    now[0] += PAUSE_S - 0.1
    spare.keep()
    assert len(started) == 2, "one that cannot start is not tried again at once"
    now[0] += 0.1
    spare.keep()
    assert len(started) == 3


def test_with_its_session_it_is_forgotten_and_reaped(
    started: list[Started], environment: Mapping[str, str]
) -> None:
    now = [100.0]
    spare = SpareHost(lambda: now[0])
    spare.start(environment)
    spare.ended()
    spare.ended()
    assert started[0].reaped
    started[0].code, now[0] = -9, 1000.0
    spare.keep()
    assert len(started) == 1, "the executor that it was for is gone, too"


@pytest.mark.parametrize("fails", ["start", "folder"])
def test_one_that_cannot_be_started_is_a_warning_and_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
    environment: Mapping[str, str],
    caplog: pytest.LogCaptureFixture,
    fails: str,
) -> None:
    tried: list[str] = []

    def popen(*_: Any, **__: Any) -> None:
        tried.append("start")
        raise OSError("no memory")

    monkeypatch.setattr(subprocess, "Popen", popen)
    if fails == "folder":
        environment = {**environment, FOLDER: "/proc/self/nowhere"}
    now = [0.0]
    spare = SpareHost(lambda: now[0])
    with caplog.at_level("WARNING", spare_host.log.name):
        spare.start(environment)
    assert "event=no-spare-host" in caplog.text
    now[0] = PAUSE_S
    spare.keep()
    assert caplog.text.count("event=no-spare-host") == 2
    spare.ended()
