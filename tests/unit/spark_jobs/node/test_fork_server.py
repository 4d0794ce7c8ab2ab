"""The fork server: an agent and its warm host are one session, and end together."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from reprise.controller.agent import processes, spare_host
from reprise.controller.errors import StartError
from reprise.controller.local.cluster.fork_server import ForkServer
from reprise.spark_jobs.node import fork_server, spare

AGENT = """
import os, sys, time
from pathlib import Path
from reprise.controller.agent.spare_host import FOLDER, WARM, SpareHost
spare = SpareHost()
assert WARM not in os.environ
spare.start({FOLDER: sys.argv[1]}, Path(sys.argv[1]) / "host.log")
print(type(spare._process).__name__, flush=True)
time.sleep(600)
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ForkServer]:
    found = ForkServer({}, tmp_path / "fork-server.log")
    yield found
    found.close()


def lives(pid: int) -> bool:
    process = processes.inspect(pid)
    return process is not None and process.state not in "ZX"


def within_seconds(condition: Callable[[], bool], limit_s: float = 30.0) -> bool:
    deadline = time.monotonic() + limit_s
    while not (held := condition()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return held


def test_agent_and_host_are_one_session_and_the_host_ends_with_its_agent(
    server: ForkServer, tmp_path: Path
) -> None:
    session = server.spawn([sys.executable, "-c", AGENT, str(tmp_path)], {}, tmp_path / "agent.log")
    try:
        log = tmp_path / "agent.log"
        assert within_seconds((tmp_path / spare.HANDSHAKE).exists), log.read_text()
        assert within_seconds(lambda: log.read_text() == "_Forked\n"), log.read_text()
        host = psutil.Process(int((tmp_path / spare.STARTING).read_text()))
        assert (host.ppid(), os.getsid(host.pid)) == (session.leader, session.leader)
        assert sum(host.cpu_times()[:2]) < 0.3, "it imports nothing"
    finally:
        os.kill(session.leader, signal.SIGKILL)
    host.wait(10)
    assert session.lead() is None


def test_a_host_whose_agent_ends_before_it_has_a_folder_ends(server: ForkServer, tmp_path: Path) -> None:
    session = server.spawn(
        [sys.executable, "-c", "import os; print(os.environ['REPRISE_WARM_HOST'])"], {}, tmp_path / "log"
    )
    log = tmp_path / "log"
    assert within_seconds(lambda: log.read_text().endswith("\n"))
    host = int(log.read_text().split()[0])
    assert host != session.leader
    assert within_seconds(lambda: not lives(host))


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
    assert within_seconds(lambda: [session.lead() for session in sessions] == [None] * 10)


def test_a_fork_server_that_was_killed_is_started_again(server: ForkServer, tmp_path: Path) -> None:
    server._process.kill()
    server._process.wait()
    session = server.spawn(["/bin/sleep", "60"], {}, tmp_path / "log")
    assert session.lead() is not None
    os.kill(session.leader, signal.SIGKILL)


def test_one_that_does_not_answer_is_killed_and_the_next_node_is_not_taken_for_this_one(
    tmp_path: Path,
) -> None:
    server = ForkServer({}, tmp_path / "fork-server.log", timeout_s=0.3)
    os.kill(server._process.pid, signal.SIGSTOP)
    with pytest.raises(StartError, match=r"does not answer: nothing within 0\.3 s"):
        server.spawn(["/bin/sleep", "60"], {}, tmp_path / "log")
    server._timeout_s = 30.0
    session = server.spawn([sys.executable, "-c", "import time; time.sleep(60)"], {}, tmp_path / "log")
    assert psutil.Process(session.leader).cmdline()[-1] == "import time; time.sleep(60)"
    os.kill(session.leader, signal.SIGKILL)
    server.close()


def test_both_sides_use_the_same_names() -> None:
    assert spare_host.WARM == fork_server.WARM
