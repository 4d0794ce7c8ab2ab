"""A host that waits for an executor: who takes it, what it is then, and when it is left alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil
import pytest

from reprise.controller.agent import spare_host
from reprise.controller.agent.spare_host import SpareHost
from reprise.spark_jobs.node import shim, spare
from reprise.spark_jobs.node.meeting import announced
from tests.support.spare_node import PHASE, SpareNode

PLAIN = {"TZ": "UTC", "PYTHONHASHSEED": "0", "PYTHONPATH": "/a:/b"}


@pytest.mark.parametrize(
    ("changed", "refused"),
    [
        ({}, ""),
        ({"SPARK_EXECUTOR_DIRS": "/x", "PYTHON_WORKER_FACTORY_SECRET": "s", "PWD": "/y"}, ""),
        ({"PYTHONPATH": "/b:/nowhere"}, ""),
        ({"PYTHONPATH": "/nowhere:/a:/b:/a:/b"}, ""),
        ({"PYTHONPATH": "/b:/a:/b"}, "PYTHONPATH has another order"),
        ({"PYTHONHASHSEED": "1"}, "the variable PYTHONHASHSEED is another one"),
        ({"TZ": "Asia/Tokyo"}, "the variable TZ is another one"),
        ({"LD_PRELOAD": "/lib/other.so"}, "the variable LD_PRELOAD is another one"),
    ],
)
def test_it_stands_only_for_a_process_with_the_same_variables(
    changed: Mapping[str, str], refused: str
) -> None:
    assert spare.refusal(PLAIN, {**PLAIN, **changed}, ["json"], Path("/nowhere")) == refused


@pytest.mark.parametrize(
    "module", ["polars.py", "polars/__init__.py", "polars.cpython-311-x86_64-linux-gnu.so"]
)
@pytest.mark.parametrize("where", ["path", "home"])
def test_a_folder_that_would_hide_what_it_has_imported_is_refused(
    tmp_path: Path, module: str, where: str
) -> None:
    folder, plain = tmp_path / "folder", tmp_path / "plain"
    (folder / module).parent.mkdir(parents=True)
    plain.mkdir()
    (folder / module).touch()
    (folder / "mine.py").touch()
    theirs = {**PLAIN, "PYTHONPATH": f"{folder if where == 'path' else plain}:/a"}
    home = folder if where == "home" else plain
    assert spare.refusal(PLAIN, theirs, ["polars", "json.decoder"], home) == f"{folder} has another polars"
    assert spare.refusal(PLAIN, theirs, ["json", "json.mine"], home) == ""


def test_an_archive_or_another_order_is_refused_and_spark_s_own_archives_are_not(tmp_path: Path) -> None:
    sparks = [
        str(tmp_path / f) for f in ("pyspark.zip", "py4j-0.10.9.9-src.zip", "spark-core_2.13-4.3.0.jar")
    ]
    for file in (*sparks, tmp_path / "deps.zip"):
        Path(file).touch()
    own = {**PLAIN, "PYTHONPATH": ":".join([*sparks, "/a", "/b"])}
    assert spare.refusal(PLAIN, own, ["polars"], tmp_path) == ""
    other = {**PLAIN, "PYTHONPATH": f"/a:/b:{tmp_path / 'deps.zip'}"}
    assert spare.refusal(PLAIN, other, ["polars"], tmp_path) == f"{tmp_path / 'deps.zip'} is not a folder"
    turned = {**PLAIN, "PYTHONPATH": "/b:/a"}
    assert spare.refusal(PLAIN, turned, ["polars"], tmp_path) == "PYTHONPATH has another order"


def test_agent_and_host_use_the_same_names() -> None:
    assert spare_host.FOLDER == spare.FOLDER
    assert spare_host.STARTING == spare.STARTING
    assert spare_host.MODULE == spare.MODULE == "reprise.spark_jobs.node.host_process"
    assert spare.ONE_THREAD.items() <= spare_host.ENVIRONMENT.items()


def test_where_the_agent_has_started_none_nobody_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(spare.FOLDER, raising=False)
    assert not spare.claim(tmp_path, 1)
    monkeypatch.setenv(spare.FOLDER, str(tmp_path))
    assert not spare.claim(tmp_path, 1)
    (tmp_path / spare.HANDSHAKE).write_text("{")
    assert not spare.claim(tmp_path, 1)


def before(folder: Path) -> str:
    """PYTHONPATH with one more folder."""
    return os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))


def test_a_host_that_cannot_be_started_ends_nothing_and_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """No process can be forked, or no file be opened: the node works on without."""
    now = [0.0]
    started: list[object] = []

    def none(*_: object, **named: object) -> object:
        started.append(named["stdout"])
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(subprocess, "Popen", none)
    here = SpareHost(lambda: now[0])
    here.keep(tmp_path / "log")
    assert not started, "nothing was asked for yet"
    here.start({spare.FOLDER: str(tmp_path)})
    here.keep(tmp_path / "log")
    assert len(started) == 1
    assert "event=no-spare-host" in caplog.text
    now[0] = spare_host.PAUSE_S
    here.keep(tmp_path / "log")
    assert started[1] is not None
    now[0] *= 2
    here.keep(tmp_path / "no folder" / "log")
    assert started[2] is None, "without a log rather than not at all"
    here.ended()
    now[0] *= 2
    here.keep()
    assert len(started) == 3, "a node that has ended its processes wants none"


class Node(SpareNode):
    """An agent with a spare host, and the folder of an executor."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(folder, monkeypatch)
        self.home, self.code = folder / "executor", folder / "code"
        for each in (self.home, self.code):
            each.mkdir()
        self.now = 0.0
        self.spare = SpareHost(lambda: self.now)
        self.spare.start(self.variables)

    def ready(self) -> None:
        os.environ.pop(PHASE, None)
        self.await_file(self.waiting / spare.HANDSHAKE)

    def await_file(self, path: Path) -> None:
        deadline = time.monotonic() + 600
        while not path.exists():
            assert time.monotonic() < deadline and self.process.poll() is None
            time.sleep(0.01)


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    monkeypatch.setattr(spare, "COMING_S", 3600.0)  # its imports take as long as a busy machine lets them
    found = Node(tmp_path, monkeypatch)
    yield found
    found.end()


def test_the_first_task_takes_it_and_the_next_one_finds_none(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.ready()
    assert (node.waiting / spare.HANDSHAKE).stat().st_mode & 0o777 == 0o600
    monkeypatch.setenv("PYTHONPATH", before(node.code))
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as executor:
        assert spare.claim(node.home, executor.pid)
        assert not spare.claim(node.home, executor.pid)
        assert not any(node.waiting.iterdir())
        node.await_file(node.home / shim.HANDSHAKE)
        record = json.loads((node.home / shim.HANDSHAKE).read_text())
        assert record["pid"] == node.process.pid
        assert psutil.Process(node.process.pid).cwd() == str(node.home)
        connection = announced(node.home, shim.HANDSHAKE)
        assert connection is not None
        with connection:
            connection.send_bytes(json.dumps({"ask": shim.BUSY}).encode())
            assert json.loads(connection.recv_bytes()) == {"busy": None}
        assert (node.home / spare.LOG).exists()
        executor.communicate(b"\n")
    assert node.process.wait(300) == 0, "it ends with its executor"
    node.spare.keep()
    assert node.process.poll() is not None, "not so soon after the last start"
    node.now = spare_host.PAUSE_S
    node.spare.keep()
    assert node.process.poll() is None
    node.ready()


def test_a_task_that_comes_before_it_is_ready_waits_for_it_and_starts_no_second_host(node: Node) -> None:
    os.environ.pop(PHASE, None)
    assert not (node.waiting / spare.HANDSHAKE).exists()
    assert spare.claim(node.home, os.getpid())
    node.await_file(node.home / shim.HANDSHAKE)
    assert json.loads((node.home / shim.HANDSHAKE).read_text())["pid"] == node.process.pid
    assert not any(node.waiting.iterdir())


def test_nobody_waits_for_one_that_has_ended_or_does_not_come(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.process.send_signal(signal.SIGSTOP)
    monkeypatch.setattr(spare, "COMING_S", 0.1)
    assert not spare.claim(node.home, os.getpid())
    monkeypatch.setattr(spare, "COMING_S", 3600.0)
    node.process.kill()  # and its agent has not seen that yet
    os.waitid(os.P_PID, node.process.pid, os.WEXITED | os.WNOWAIT)
    assert (node.waiting / spare.STARTING).exists()
    assert not spare.claim(node.home, os.getpid())


@pytest.mark.slow
def test_one_that_cannot_be_the_same_says_why_and_goes_on_waiting(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.ready()
    with monkeypatch.context() as other:
        other.setenv("TZ", "Asia/Tokyo")
        assert not spare.claim(node.home, os.getpid())
    assert (
        node.home / spare.LOG
    ).read_text() == "the spare host cannot be used: the variable TZ is another one\n"
    assert spare.claim(node.home, os.getpid())


@pytest.mark.slow
def test_one_with_other_code_ends_so_that_the_agent_starts_another(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The package was replaced while it waited."""
    node.ready()
    monkeypatch.setattr(spare, "CODE", ["0.0.1", 7])
    assert not spare.claim(node.home, os.getpid())
    assert node.process.wait(300) != 0
    assert "it has other code" in (node.home / spare.LOG).read_text()


@pytest.mark.slow
def test_who_does_not_wait_for_the_answer_gets_no_second_host(node: Node) -> None:
    """The task has started a host itself by then, and two would fight for the executor's folder."""
    node.ready()
    connection = announced(node.waiting, spare.HANDSHAKE)
    assert connection is not None
    wanted = {
        "home": str(node.home),
        "executor": os.getpid(),
        "environment": {**node.variables, **spare.ONE_THREAD},
        "code": spare.CODE,
    }
    connection.send_bytes(json.dumps(wanted).encode())
    connection.close()
    assert node.process.wait(300) != 0
    assert not (node.home / shim.HANDSHAKE).exists()


@pytest.mark.slow
def test_it_ends_with_the_agent(tmp_path: Path) -> None:
    (tmp_path / "spare").mkdir()
    program = (
        "import os, sys; from reprise.controller.agent.spare_host import SpareHost; s = SpareHost();"
        "s.start({**os.environ, 'REPRISE_SPARE_HOST': sys.argv[1]}); print(s._process.pid, flush=True); input()"
    )
    agent = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "spare")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert agent.stdout is not None
    host = psutil.Process(int(agent.stdout.readline()))
    while not (tmp_path / "spare" / spare.HANDSHAKE).exists():
        time.sleep(0.01)
    agent.kill()
    agent.communicate()
    host.wait(300)


def test_what_it_becomes_is_what_python_makes_of_those_variables(tmp_path: Path) -> None:
    """Beside an interpreter that was started with them."""
    code, home = tmp_path / "code", tmp_path / "home"
    code.mkdir()
    home.mkdir()
    theirs = {
        **os.environ,
        "PYTHONPATH": before(code),
        "ONLY": "theirs",
    }
    say = "import json, os, sys; print(json.dumps([sys.path[1:], dict(os.environ), os.getcwd()]), file=open('said', 'w'))"
    mine = {**os.environ, "ONLY_MINE": "1"}
    become = (
        f"from reprise.spark_jobs.node.spare import Path, become; become(Path({str(home)!r}), {theirs!r})"
    )
    subprocess.run([sys.executable, "-c", f"{become}; {say}"], env=mine, check=True, cwd=Path.cwd())
    became = json.loads((home / "said").read_text())
    subprocess.run([sys.executable, "-c", say], env=theirs, check=True, cwd=home)
    assert became == json.loads((home / "said").read_text())


def test_the_shim_takes_the_spare_host_before_it_starts_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And where it is refused, it starts one as ever."""
    asked: list[str] = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(shim, "_connection", None)
    monkeypatch.setattr(shim, "_executor_pid", lambda: 7)
    monkeypatch.setattr(shim, "_start", lambda home, pid: asked.append(f"start {home} {pid}"))
    monkeypatch.setattr(shim, "START_TIMEOUT_S", 0.0)
    for taken in (True, False):
        monkeypatch.setattr(
            spare, "claim", lambda home, pid, taken=taken: asked.append(f"claim {home} {pid}") or taken
        )
        with pytest.raises(shim.HostLostError):
            shim._host()
    assert asked == [f"claim {tmp_path} 7", f"claim {tmp_path} 7", f"start {tmp_path} 7"]
