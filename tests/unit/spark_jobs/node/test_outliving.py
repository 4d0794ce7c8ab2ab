"""A partition host that outlives its executor: who gets it, with what, and for how long.  The processes are real ones."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from zipfile import ZipFile

import psutil
import pytest

from reprise.controller.agent.spare_host import MODULE, SpareHost
from reprise.spark_jobs.engine.dispatch import Dispatch
from reprise.spark_jobs.errors import LateRequestError
from reprise.spark_jobs.node import host_process, shim, spare
from reprise.spark_jobs.node.command import Command, Install, Report
from reprise.spark_jobs.node.host import Host
from reprise.spark_jobs.node.links import SOCKET
from reprise.spark_jobs.node.meeting import announced
from reprise.spark_jobs.node.outliving import Code, Place, digest, wait_for_next
from reprise.spark_jobs.topology import StreamTopology, expand, load_text
from tests.support.spare_node import PHASE, SpareNode
from tools.testbed import waiting

pytestmark = [pytest.mark.slow, pytest.mark.wide]

TEXT = """
apiVersion: reprise.dev/v1alpha1
kind: StreamTopology
metadata: {{name: kept}}
spec:
  sources:
    - {{name: in, class: "reprise.spark_jobs.sources:HashtagSource", with: {{rate: 10, interval: 100ms, batches: 9}}}}
  operators:
    - {{name: keep, class: "reprise.spark_jobs.operators:Filter", with: {{where: "TRUE"}}, inputs: [{{from: in}}],
        output: {{}}}}
  recovery: {{driverGrace: {grace}}}
"""
WAIT_S = 60.0


def resource_of(grace: str = "30s") -> StreamTopology:
    return load_text(TEXT.format(grace=grace))


class Node(SpareNode):
    """An agent with one host, and executors of it."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(folder, monkeypatch)
        monkeypatch.setattr(spare, "COMING_S", WAIT_S)  # imports take longer where others compute
        self.folder, self._made, self._patch = folder, 0, monkeypatch
        self.spare = SpareHost()
        self.spare.start(self.variables, folder / "agent.log")

    @contextmanager
    def executor(self, stream: str) -> Iterator[tuple[Path, bool]]:
        """Its folder, and whether it has got the host."""
        os.environ.pop(PHASE, None)
        self._made += 1
        home = self.folder / f"executor-{self._made}"
        home.mkdir()
        self._patch.setenv(spare.STREAM, stream)
        with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
            yield home, spare.claim(home, process.pid)
            process.communicate(b"\n")


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    found = Node(tmp_path, monkeypatch)
    yield found
    found.end()


def until(path: Path) -> None:
    waiting.until(path.exists, str(path), WAIT_S)


def met(home: Path) -> Connection:
    until(home / shim.HANDSHAKE)
    connection = announced(home, shim.HANDSHAKE)
    assert connection is not None
    return connection


def asked(home: Path, command: Command, resource: StreamTopology) -> Report:
    """What the host of an executor reports after a job of one stage."""
    order = Dispatch(expand(resource)).orders(["n"], [command])[0]
    head = {"epoch": command.epoch, "job": command.job, "stage": 0, "last": True, "blobs": 1}
    with met(home) as connection:
        connection.send_bytes(json.dumps(head).encode())
        connection.send_bytes(order)
        answer = json.loads(connection.recv_bytes())
        assert "error" not in answer, answer
        return Report.decode(connection.recv_bytes())


def stream_of(resource: StreamTopology, folder: Path, began: float = 0.0) -> str:
    return digest(resource.document, str(folder / "sink"), str(folder / "checkpoints"), began)


def command_of(
    resource: StreamTopology, folder: Path, epoch: int, job: int, survey: bool = False, link: int = 0
) -> Command:
    hosted = {} if survey else {"keep.0": "1.1.1"}
    return Command(
        job, epoch, 0, resource.document, str(folder / "sink"), str(folder / "checkpoints"), hosted,
        {p: Install(0) for p in hosted}, dict.fromkeys(hosted, 0), dict.fromkeys(hosted, 0), survey=survey,
        link=link,
    )  # fmt: skip


def at_work(home: Path, resource: StreamTopology, folder: Path, link: int = 0) -> None:
    for job in range(1, 200):
        if asked(home, command_of(resource, folder, 1, job, link=link), resource).positions == {"keep.0": 0}:
            return
        time.sleep(0.05)
    raise AssertionError("it was not installed")


@pytest.mark.parametrize("link", [0, 5], ids=["jobs", "exchange"])
def test_the_next_executor_gets_it_with_what_it_has_and_an_earlier_driver_is_refused(
    node: Node, tmp_path: Path, link: int
) -> None:
    resource = resource_of()
    with node.executor(stream_of(resource, tmp_path)) as (home, got):
        assert got
        at_work(home, resource, tmp_path, link)
        assert (home / SOCKET).exists()
        until(node.waiting / spare.STARTING)  # tasks that come before it waits are to wait for it
    with node.executor(stream_of(resource, tmp_path)) as (later, got):
        assert got, "also where the host had not yet seen that its executor has ended"
        until(later / shim.HANDSHAKE)
        assert json.loads((later / shim.HANDSHAKE).read_text())["pid"] == node.process.pid
        report = asked(later, command_of(resource, tmp_path, 2, 1, survey=True), resource)
        assert (report.positions, report.installed) == ({"keep.0": 0}, {"keep.0": "1.1.1"})
        assert (report.led_by, report.refused) == (1, "")
        with pytest.raises(AssertionError, match="epoch 1, job 300 refused: epoch 2, job 1 has begun"):
            asked(later, command_of(resource, tmp_path, 1, 300), resource)
        assert psutil.Process(node.process.pid).cwd() == str(later)
        assert (later / SOCKET).exists(), "relays of this executor find it here"
        assert not (home / SOCKET).exists()
        report = asked(later, command_of(resource, tmp_path, 2, 2, link=2 * link), resource)
        assert (report.positions, report.installed) == ({"keep.0": 0}, {"keep.0": "1.1.1"})


@pytest.mark.parametrize("why", ["stream", "path", "variable", "code"])
def test_for_whom_it_is_not_the_one_it_begins_anew_in_the_same_process(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    resource = resource_of()
    stream = stream_of(resource, tmp_path)
    folders = [str(tmp_path / name) for name in ("one", "two")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([*folders, os.environ.get("PYTHONPATH", "")]))
    with node.executor(stream) as (home, got):
        assert got
        at_work(home, resource, tmp_path)
    until(node.waiting / spare.HANDSHAKE)
    assert json.loads((node.waiting / spare.HANDSHAKE).read_text())["name"].startswith("kept-")
    if why == "stream":
        stream = stream_of(resource, tmp_path / "another run of it")
    elif why == "path":
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join([*folders[::-1], os.environ["PYTHONPATH"]]))
    elif why == "variable":
        monkeypatch.setenv("REPRISE_LOG_FORMAT", "json")
    else:
        monkeypatch.setattr(spare, "CODE", ["0.0.1", 7])
    with node.executor(stream) as (later, got):
        said = (later / spare.LOG).read_text()
        assert {
            "stream": "another resource or stream",
            "path": "the variable PYTHONPATH is another one",
            "variable": "the variable REPRISE_LOG_FORMAT is another one",
            "code": "other code",
        }[why] in said
        assert got == (why != "code"), "a new process is refused for the same reason"
        if got:
            report = asked(later, command_of(resource, tmp_path, 2, 1, survey=True), resource)
            assert (report.installed, report.refused) == ({}, "it has begun just now")
    assert not [*home.glob("spill-*")], "its files go with what it had"


def test_nobody_comes_in_time_and_nothing_is_left_of_it_but_a_spare_host(node: Node, tmp_path: Path) -> None:
    resource = resource_of("1s")
    with node.executor(stream_of(resource, tmp_path)) as (home, got):
        assert got
        at_work(home, resource, tmp_path)
    deadline = time.monotonic() + WAIT_S
    while True:
        until(node.waiting / spare.HANDSHAKE)
        name = json.loads((node.waiting / spare.HANDSHAKE).read_text())["name"]
        if name.startswith("spare-"):
            break
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert node.process.poll() is None
    assert not [*home.glob("spill-*")], "its files go with what it had"
    with node.executor(stream_of(resource, tmp_path)) as (later, got):
        assert got
        report = asked(later, command_of(resource, tmp_path, 2, 1, survey=True), resource)
        assert report.installed == {}


def test_a_file_that_was_imported_and_is_another_one_now_is_named(tmp_path: Path) -> None:
    code, file = Code(), tmp_path / "imported_once.py"
    file.write_text("N = 1\n")
    sys.path.insert(0, str(tmp_path))
    try:
        __import__("imported_once")
        code.look()
        assert code.changed() == ""
        file.write_text("N = 22\n")
        assert code.changed() == str(file)
        file.unlink()
        assert code.changed() == str(file)
    finally:
        sys.path.remove(str(tmp_path))
        sys.modules.pop("imported_once", None)


def test_an_archive_and_a_file_that_has_kept_time_and_size_are_seen_to_be_others(tmp_path: Path) -> None:
    code, file, archive = Code(), tmp_path / "kept_time.py", tmp_path / "archive.zip"
    file.write_text("N = 1\n")
    with ZipFile(archive, "w") as made:
        made.writestr("of_an_archive.py", "N = 1\n")
    sys.path[:0] = [str(tmp_path), str(archive)]
    try:
        __import__("kept_time"), __import__("of_an_archive")
        code.look()
        assert code.changed() == ""
        was = file.stat()
        other = tmp_path / "other"
        other.write_text("N = 2\n")
        os.utime(other, ns=(was.st_atime_ns, was.st_mtime_ns))
        other.replace(file)
        assert code.changed() == str(file)
        code._known.pop(str(file))
        with ZipFile(archive, "w") as made:
            made.writestr("of_an_archive.py", "N = 22\n")
        assert code.changed() == str(archive / "of_an_archive.py")
    finally:
        for entry in (str(tmp_path), str(archive)):
            sys.path.remove(entry)
        for module in ("kept_time", "of_an_archive"):
            sys.modules.pop(module, None)


def test_it_does_not_wait_where_its_agent_is_gone(tmp_path: Path) -> None:
    assert wait_for_next(Place(tmp_path, -1, (1, 2), tmp_path), WAIT_S, "", Code()) is None


def test_a_new_program_is_left_no_open_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[list[str]] = []
    monkeypatch.setattr(os, "execve", lambda _, arguments, __: begun.append(arguments))
    with (tmp_path / "file").open("w") as opened:
        os.set_inheritable(opened.fileno(), True)
        place = Place.here(tmp_path, os.getppid())
        place.begins_anew()
        assert begun == [[sys.executable, "-m", MODULE, "--spare", str(tmp_path), str(os.getppid())]]
        assert not os.get_inheritable(opened.fileno())
        assert os.get_inheritable(1)
    for copy in place.outputs:
        os.close(copy)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_host_that_can_serve_nobody_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task starts another one then; one that lives and answers nobody would hold up its node for good."""

    def fails(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(host_process, "serve", fails)
    service = host_process.Service(Host("h", tmp_path / "spill"), tmp_path, Code())
    assert not host_process._serve_executor(service, "h", tmp_path, os.getpid(), None)
    assert not (tmp_path / "h").exists()


def test_a_survey_waits_for_what_an_earlier_driver_has_under_way_and_tells_of_it(tmp_path: Path) -> None:
    """Its executor may have ended in the middle of a batch; output that is being written is written to its end."""
    resource = resource_of()
    service = host_process.Service(Host("h", tmp_path / "spill"), tmp_path, Code())
    dispatch = Dispatch(expand(resource))
    begun, go_on, order = threading.Event(), threading.Event(), threading.Lock()
    ended: list[str] = []
    run = service.host.run

    def slowly(budget_s: float) -> bool:
        begun.set()
        assert go_on.wait(WAIT_S)
        moved = run(budget_s)
        with order:
            ended.append("batch")
        return moved

    def asks(command: Command) -> Report | None:
        head = {"epoch": command.epoch, "job": command.job, "stage": 0, "last": True}
        return service.answer(head, dispatch.orders(["n"], [command]))[1]

    for job in range(1, 200):
        report = asks(command_of(resource, tmp_path, 1, job))
        if report is not None and report.positions:
            break
        time.sleep(0.05)
    service.host.run = slowly  # type: ignore[method-assign]
    before = threading.Thread(target=asks, args=(command_of(resource, tmp_path, 1, 300),))
    before.start()
    assert begun.wait(WAIT_S)
    found: list[Report | None] = []

    def surveys() -> None:
        found.append(asks(command_of(resource, tmp_path, 2, 1, survey=True)))
        with order:
            ended.append("survey")

    survey = threading.Thread(target=surveys)
    survey.start()
    survey.join(0.3)
    assert survey.is_alive(), "it is not told of a batch that is half done"
    go_on.set()
    before.join(WAIT_S)
    survey.join(WAIT_S)
    (report,) = found
    assert report is not None and report.installed == {"keep.0": "1.1.1"} and report.led_by == 1
    assert ended == ["batch", "survey"]
    with pytest.raises(LateRequestError, match="epoch 2, job 1 has begun"):
        asks(command_of(resource, tmp_path, 1, 301))
