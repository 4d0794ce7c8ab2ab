"""The fork server: an agent and its warm host are one session, and end together."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from reprise.controller.agent import processes, spare_host
from reprise.controller.errors import StartError
from reprise.controller.local.cluster.fork_server import ForkServer
from reprise.spark_jobs.node import fork_server, spare
from tools.testbed.waiting import until

AGENT = """
import os, sys, time
from pathlib import Path
from reprise.controller.agent.spare_host import FOLDER, WARM, SpareHost
spare = SpareHost()
assert WARM not in os.environ
spare.start({FOLDER: sys.argv[1]}, Path(sys.argv[1]) / "host.log")
print(type(spare._process).__name__, flush=True)
time.sleep(float(sys.argv[2]))
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ForkServer]:
    found = ForkServer({}, tmp_path / "fork-server.log")
    yield found
    found.close()


def lives(pid: int) -> bool:
    process = processes.inspect(pid)
    return process is not None and process.state not in "ZX"


def test_agent_and_host_are_one_session_and_the_host_ends_with_its_agent(
    server: ForkServer, tmp_path: Path
) -> None:
    session = server.spawn([sys.executable, "-c", AGENT, str(tmp_path), "600"], {}, tmp_path / "agent.log")
    try:
        log = tmp_path / "agent.log"
        until((tmp_path / spare.HANDSHAKE).exists, "the host announces itself", report=log.read_text)
        until(lambda: log.read_text() == "_Forked\n", "the agent has it", report=log.read_text)
        host = psutil.Process(int((tmp_path / spare.STARTING).read_text()))
        assert (host.ppid(), os.getsid(host.pid)) == (session.leader, session.leader)
        assert sum(host.cpu_times()[:2]) < 0.6, "it imports nothing"
    finally:
        os.kill(session.leader, signal.SIGKILL)
    until(lambda: not lives(host.pid), "the host ends")
    assert session.lead() is None


def test_a_host_whose_agent_ends_as_soon_as_it_has_a_folder_ends(server: ForkServer, tmp_path: Path) -> None:
    server.spawn([sys.executable, "-c", AGENT, str(tmp_path), "0"], {}, tmp_path / "agent.log")
    until(lambda: (tmp_path / "agent.log").read_text() == "_Forked\n", "the agent has the host")
    host = int((tmp_path / spare.STARTING).read_text())
    until(lambda: not lives(host), "the host ends")


def test_a_host_whose_agent_ends_before_it_has_a_folder_ends(server: ForkServer, tmp_path: Path) -> None:
    session = server.spawn(
        [sys.executable, "-c", "import os; print(os.environ['REPRISE_WARM_HOST'])"], {}, tmp_path / "log"
    )
    log = tmp_path / "log"
    until(lambda: log.read_text().endswith("\n"), "the agent names the host")
    host = int(log.read_text().split()[0])
    assert host != session.leader
    until(lambda: not lives(host), "the host ends")


def test_a_command_that_does_not_start_is_named_and_the_next_one_starts(
    server: ForkServer, tmp_path: Path
) -> None:
    with pytest.raises(StartError, match=r"/no/such/program does not start: .*No such file"):
        server.spawn(["/no/such/program"], {}, tmp_path / "log")
    session = server.spawn(["/bin/sleep", "60"], {}, tmp_path / "log")
    assert session.lead() is not None
    os.kill(session.leader, signal.SIGKILL)


def test_an_agent_that_ends_at_once_is_the_leader_of_no_living_session(
    server: ForkServer, tmp_path: Path
) -> None:
    sessions = [server.spawn(["/bin/true"], {}, tmp_path / "log") for _ in range(10)]
    until(lambda: [session.lead() for session in sessions] == [None] * 10, "no session is led")


def test_a_fork_server_that_was_killed_is_started_again(server: ForkServer, tmp_path: Path) -> None:
    server._process.kill()
    server._process.wait()
    session = server.spawn(["/bin/sleep", "60"], {}, tmp_path / "log")
    assert session.lead() is not None
    os.kill(session.leader, signal.SIGKILL)


def test_one_that_does_not_answer_is_killed_and_the_next_node_is_not_taken_for_this_one(
    server: ForkServer, tmp_path: Path
) -> None:
    os.kill(server._process.pid, signal.SIGSTOP)
    server._timeout_s = 0.3
    with pytest.raises(StartError, match=r"does not answer: timed out"):
        server.spawn(["/bin/sleep", "60"], {}, tmp_path / "log")
    server._timeout_s = 60.0
    session = server.spawn([sys.executable, "-c", "import time; time.sleep(60)"], {}, tmp_path / "log")
    leader = psutil.Process(session.leader)
    until(lambda: leader.cmdline()[-1:] == ["import time; time.sleep(60)"], "the second node starts")
    os.kill(session.leader, signal.SIGKILL)


def test_what_modules_print_at_their_import_is_no_answer(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('{}')\n")
    server = ForkServer({"PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"}, tmp_path / "log")
    try:
        os.kill(server.spawn(["/bin/sleep", "60"], {}, tmp_path / "node.log").leader, signal.SIGKILL)
    finally:
        server.close()
    assert (tmp_path / "log").read_text().startswith("{}")


def test_both_sides_use_the_same_names() -> None:
    assert spare_host.WARM == fork_server.WARM
