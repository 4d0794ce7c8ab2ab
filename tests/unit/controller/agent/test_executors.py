"""Executors that a node's agent starts: for whom, when again, and with which variables; real processes, but no Spark."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from reprise.controller.agent import executors as executors_module
from reprise.controller.agent import processes, spare_host
from reprise.controller.agent.announcing import announce as announce_context
from reprise.controller.agent.applications import FOLDER, Application, _path, announce, announced, withdraw
from reprise.controller.agent.executor import ExecutorProcess
from reprise.controller.agent.executors import HANGS_S, PAUSE_S, LocalExecutors
from reprise.controller.agent.session_priority import NICE_STARTING, NICE_WORKING, STARTING_S, SessionPriority
from reprise.controller.agent.spare_host import SpareHost
from reprise.controller.zookeeper.access import AUTH
from tools.testbed.waiting import until


@dataclass(slots=True)
class Sleepers(LocalExecutors):
    """An executor sleeps, for as many seconds as it has cores."""

    def command(self, application: Application, number: int) -> list[str]:
        return ["sleep", str(application.cores)]


class Scene:
    """One node, whose clock stands still until the test moves it."""

    def __init__(self, folder: Path) -> None:
        self.applications = folder / "applications"
        self.applications.mkdir()
        self.now = 100.0

        self.autogroup = folder / "autogroup"
        self.node = Sleepers(
            "n1", "127.0.1.1", folder / "n1", self.applications, folder / "log", lambda: self.now,
            SessionPriority(self.autogroup),
        )  # fmt: skip

    def begin(self, application: Application, name: str = "flights") -> None:
        announce(self.applications, name, application)

    def running(self, name: str = "flights") -> subprocess.Popen[bytes]:
        return self.node._running[_path(self.applications, name).stem].process

    def variables(self, name: str = "flights") -> bytes:
        """Those of the executor; Linux shows none for a moment after its start."""
        return until(Path(f"/proc/{self.running(name).pid}/environ").read_bytes, "variables")

    def of(self, name: str = "flights") -> str:
        """The application whose executor runs."""
        return self.node._running[_path(self.applications, name).stem].application.id


def application(driver: int | None = None, **more: Any) -> Application:
    found = processes.inspect(driver or os.getpid())
    assert found is not None
    return Application(
        "app-1", "spark://CoarseGrainedScheduler@127.0.1.253:1", found.pid, found.started, 512,
        **{"cores": 600, **more},
    )  # fmt: skip


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    monkeypatch.setattr(SpareHost, "start", lambda *_: None)
    scene = Scene(tmp_path)
    yield scene
    for running in scene.node._running.values():
        running.process.kill()
        running.process.wait()


def test_a_node_that_starts_gets_less_of_the_processor_until_its_host_is_taken(scene: Scene) -> None:
    scene.node.start()
    waits = scene.node.scratch / "spare" / spare_host.STARTING
    waits.write_text("4711")
    scene.node._spare._environment = {spare_host.FOLDER: str(waits.parent)}
    scene.node.keep()
    assert scene.autogroup.read_text() == str(NICE_STARTING)
    waits.unlink()
    scene.node.keep()
    assert scene.autogroup.read_text() == str(NICE_WORKING)
    waits.write_text("4712")
    scene.node.keep()
    assert scene.autogroup.read_text() == str(NICE_WORKING), "others may run here"


def test_a_node_whose_host_nobody_takes_works_like_others_after_a_while(scene: Scene) -> None:
    """Its executors may have other variables, or it has no application."""
    scene.node.start()
    scene.now += STARTING_S - 0.1
    scene.node.keep()
    assert scene.autogroup.read_text() == str(NICE_STARTING)
    scene.now += 0.1
    scene.node.keep()
    assert scene.autogroup.read_text() == str(NICE_WORKING)


def test_an_executor_runs_for_each_application_in_a_folder_of_its_own(scene: Scene) -> None:
    scene.node.start()
    assert not scene.node._running
    scene.begin(application(environment={"LOADED": "yes"}))
    scene.begin(application(), "weather")
    scene.node.keep()
    scene.node.keep()
    homes = sorted(Path(f"/proc/{scene.running(name).pid}/cwd").readlink() for name in ("flights", "weather"))
    assert homes == [scene.node.scratch / "work" / "app-1" / number for number in ("0", "1")]
    assert all((home / "stderr").exists() for home in homes)
    variables = scene.variables().split(b"\0")
    assert b"LOADED=yes" in variables
    assert any(v.startswith(b"SPARK_LOCAL_DIRS=%s/" % bytes(scene.node.scratch)) for v in variables)


def test_an_executor_that_was_killed_is_followed_at_once_and_one_that_ended_after_a_pause(
    scene: Scene,
) -> None:
    scene.begin(application())
    scene.node.start()
    first = scene.running()
    first.send_signal(signal.SIGKILL)
    first.wait()
    scene.node.keep()
    second = scene.running()
    assert second is not first
    scene.begin(application(cores=0))
    second.send_signal(signal.SIGKILL)
    second.wait()
    scene.node.keep()
    scene.running().wait()
    for seconds in (0.0, PAUSE_S / 2):
        scene.now += seconds
        scene.node.keep()
        assert not scene.node._running
    scene.now += PAUSE_S / 2
    scene.node.keep()
    assert scene.node._running
    assert sorted(p.name for p in (scene.applications / "app-1").iterdir()) == ["0", "1", "2", "3"]
    assert [p.name for p in (scene.node.scratch / "local").iterdir()] == ["app-1-3"]


def test_one_that_cannot_start_is_tried_again_after_a_pause_and_the_node_stays(scene: Scene) -> None:
    scene.begin(application())
    full = scene.applications / "app-1"
    full.write_text("no folder can be made here")
    scene.node.start()
    full.unlink()
    scene.node.keep()
    assert not scene.node._running
    scene.now += PAUSE_S
    scene.node.keep()
    assert scene.running().poll() is None


def test_none_is_started_for_an_application_that_has_ended(scene: Scene) -> None:
    driver = subprocess.Popen(["sleep", "600"])
    scene.begin(application(driver.pid))
    driver.kill()
    os.waitid(os.P_PID, driver.pid, os.WEXITED | os.WNOWAIT)
    scene.node.start()
    assert not scene.node._running, "its driver is a zombie"
    driver.wait()
    scene.node.keep()
    assert not scene.node._running
    scene.begin(replace(application(), started=1))
    scene.node.keep()
    assert not scene.node._running, "another process has the number of its driver"
    scene.begin(application())
    withdraw(scene.applications, "flights", "app-1")
    scene.node.keep()
    assert not scene.node._running
    withdraw(scene.applications, "flights", "app-1")


def test_a_driver_that_was_frozen_takes_nothing_from_its_successor(scene: Scene) -> None:
    own = application()
    scene.begin(own)
    earlier = subprocess.Popen(["sleep", "600"])
    later = replace(application(earlier.pid), id="app-2")
    earlier.kill()
    earlier.wait()
    assert later.started >= own.started
    scene.begin(replace(own, id="app-0", started=own.started - 1))
    withdraw(scene.applications, "flights", "app-0")
    assert [found.id for found in announced(scene.applications).values()] == ["app-1"]
    scene.begin(later)
    scene.begin(own)
    assert [found.id for found in announced(scene.applications).values()] == ["app-1"], (
        "its successor has ended"
    )


def test_the_executor_of_a_driver_ends_when_that_has_a_successor(scene: Scene) -> None:
    """A driver that stands still keeps its connections, and executors end only with these."""
    scene.begin(application())
    scene.node.start()
    first = scene.running()
    scene.begin(replace(application(), id="app-2"))
    scene.node.keep()
    assert first.wait() == -signal.SIGKILL
    scene.node.keep()
    assert scene.running().poll() is None and scene.of() == "app-2"
    ended = scene.running()
    ended.send_signal(signal.SIGTERM)  # one that ends by itself when its driver has gone
    ended.wait()
    scene.begin(replace(application(), id="app-3"))
    scene.node.keep()
    assert scene.of() == "app-3", "a pause is for the same application"


def test_an_executor_that_outlives_its_driver_is_killed(scene: Scene) -> None:
    driver = subprocess.Popen(["sleep", "600"])
    scene.begin(application(driver.pid))
    scene.node.start()
    first = scene.running()
    driver.kill()
    driver.wait()
    for seconds in (0.0, HANGS_S):
        scene.now += seconds
        scene.node.keep()
        assert first.poll() is None
    scene.now += 0.1
    scene.node.keep()
    assert first.wait() == -signal.SIGKILL
    scene.node.keep()
    assert not scene.node._running


def test_the_host_that_waits_is_for_one_application(scene: Scene) -> None:
    """Another one would be refused by a host that has partitions, which would drop them."""

    def has(name: str) -> bool:
        return b"REPRISE_SPARE_HOST=" in scene.variables(name)

    scene.begin(application())
    scene.node.start()
    scene.begin(application(), "weather")
    scene.node.keep()
    assert has("flights") and not has("weather")
    for name in ("weather", "flights"):
        ended = scene.running(name)
        ended.kill()
        ended.wait()
    scene.node.keep()
    assert has("flights") and not has("weather")
    withdraw(scene.applications, "flights", "app-1")
    for name in ("weather", "flights"):
        ended = scene.running(name)
        ended.kill()
        ended.wait()
    scene.node.keep()
    assert has("weather")


def test_applications_that_cannot_be_read_now_end_nothing(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.begin(application())
    scene.node.start()

    def fails(_: Path) -> dict[str, Application]:
        raise OSError("too many open files")

    monkeypatch.setattr(executors_module, "announced", fails)
    scene.node.keep()
    assert scene.running().poll() is None


def test_only_this_user_reads_what_executors_are_given(scene: Scene) -> None:
    scene.begin(application(environment={"AWS_SECRET_ACCESS_KEY": "s"}))
    (file,) = scene.applications.iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    (found,) = announced(scene.applications).values()
    assert found == application(environment={"AWS_SECRET_ACCESS_KEY": "s"})


def test_outside_of_a_local_cluster_nothing_is_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(FOLDER, raising=False)
    announce_context(object())()


def test_the_command_line_names_driver_heap_and_node(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", "/java")
    node = LocalExecutors("n1", "127.0.1.1", tmp_path, tmp_path, tmp_path / "log")
    command = node.command(
        application(options=("-Dx=a b", "-Xlog:{{APP_ID}}-{{EXECUTOR_ID}}"), class_path="/mine.jar", cores=5),
        7,
    )
    assert command[:2] == ["/java/bin/java", "-cp"]
    assert command[2].startswith("/mine.jar:")
    assert command[3:7] == ["-Xmx512m", "-Dx=a b", "-Xlog:app-1-7", executors_module.BACKEND]
    assert dict(zip(command[7::2], command[8::2], strict=True)) == {
        "--driver-url": "spark://CoarseGrainedScheduler@127.0.1.253:1",
        "--app-id": "app-1",
        "--executor-id": "7",
        "--cores": "5",
        "--hostname": "127.0.1.1",
        "--bind-address": "127.0.1.1",
    }


def test_a_host_is_started_with_the_variables_of_executors(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In a folder that is there and empty; the agent's own secrets are not among the variables."""
    started: list[dict[str, str]] = []
    popen: list[dict[str, str]] = []
    monkeypatch.setattr(SpareHost, "start", lambda _self, environment, _out=None: started.append(environment))
    monkeypatch.setenv(AUTH, "secret")
    scene = Scene(tmp_path)
    scene.node.start()
    assert AUTH not in started[0]
    waiting = Path(started[0][spare_host.FOLDER])
    assert waiting.parent == tmp_path / "n1" and not list(waiting.iterdir())
    kept: list[Path] = []
    monkeypatch.setattr(SpareHost, "keep", lambda _self, output: kept.append(output))
    scene.node.keep()
    assert kept == [tmp_path / "log"]
    monkeypatch.setattr(subprocess, "Popen", lambda *_args, env, **_more: popen.append(env))
    monkeypatch.setenv("SPARK_EXECUTOR_POD_IP", "127.0.1.1")
    ExecutorProcess(["executor"], tmp_path / "executor").start()
    assert started[1] == popen[0]
    assert started[1]["SPARK_LOCAL_IP"] == "127.0.1.1"
    waiting = Path(started[1][spare_host.FOLDER])
    assert waiting == tmp_path / "spare" and not list(waiting.iterdir())


# argv: folder of applications, scratch folder.  A node with one executor, all of which is then ended.
_NODE = """
import os, sys, time
from pathlib import Path
from tests.unit.controller.agent.test_executors import Sleepers
from reprise.controller.agent.spare_host import SpareHost
SpareHost.start = lambda *_: None
applications, scratch = map(Path, sys.argv[1:])
node = Sleepers("n1", "127.0.1.1", scratch, applications, scratch / "log")
node.start()
print(len(node.others()), flush=True)
sys.stdin.readline()
node.end_all()
print(len(node.others()), len(node._running), flush=True)
"""


def test_all_executors_end_with_their_incarnation(tmp_path: Path) -> None:
    folder = tmp_path / "applications"
    folder.mkdir()
    announce(folder, "flights", application())
    node = subprocess.Popen(
        [sys.executable, "-c", _NODE, str(folder), str(tmp_path / "n1")],
        start_new_session=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert node.stdout is not None
    assert node.stdout.readline() == "1\n"
    assert node.communicate("\n", timeout=60)[0] == "0 0\n"


def test_a_driver_that_is_killed_is_noticed_though_its_file_stays(scene: Scene) -> None:
    driver = subprocess.Popen(["sleep", "600"])
    scene.begin(application(driver.pid, cores=0))
    scene.node.start()
    first = scene.running()
    driver.kill()
    driver.wait()
    first.wait()
    scene.now += 10 * PAUSE_S
    scene.node.keep()
    assert not scene.node._running
