"""Sessions of real, tiny processes."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from reprise.controller.agent import processes
from reprise.controller.agent.processes import Process, Session
from reprise.controller.errors import EmbeddedError
from tools.testbed.waiting import until

# a leader with two children, one of them in a process group of its own, as pyspark's daemon is
_FAMILY = """
import os, subprocess, sys, time
subprocess.Popen(["sleep", "600"])
subprocess.Popen(["sleep", "600"], process_group=0)
print("ready", flush=True)
time.sleep(600)
"""


@pytest.fixture
def family() -> Iterator[tuple["subprocess.Popen[str]", Session]]:
    environment = os.environ | {"REPRISE_TEST_MARK": "family"}
    leader = subprocess.Popen(
        [sys.executable, "-c", _FAMILY],
        start_new_session=True,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert leader.stdout is not None
    assert leader.stdout.readline() == "ready\n"
    session = Session.of(leader.pid)
    yield leader, session
    processes.kill(lambda: processes.members([session]))
    leader.wait()
    leader.stdout.close()


@pytest.mark.parametrize("command", ["java", "a b", "evil) R 1 1 (", ""])
def test_parse_stat_counts_fields_from_the_last_parenthesis(command: str) -> None:
    rest = ["S", "11", "12", "13"] + ["0"] * 15 + ["777", "0"]
    found = processes.parse_stat(f"42 ({command}) " + " ".join(rest))
    assert found == Process(pid=42, parent=11, session=13, state="S", started=777)


def test_members_are_all_of_the_session_whatever_their_group(
    family: tuple["subprocess.Popen[str]", Session],
) -> None:
    leader, session = family
    found = processes.members([session])
    assert len(found) == 3
    assert leader.pid in {p.pid for p in found}
    assert len({os.getpgid(p.pid) for p in found}) == 2


def test_a_recycled_session_id_has_no_members(family: tuple["subprocess.Popen[str]", Session]) -> None:
    _, session = family
    assert processes.members([Session(session.leader, session.started - 1)]) == []


def test_orphans_of_a_dead_leader_are_still_members(family: tuple["subprocess.Popen[str]", Session]) -> None:
    leader, session = family
    leader.kill()
    leader.wait()
    assert len(processes.members([session])) == 2


def test_kill_leaves_nobody(family: tuple["subprocess.Popen[str]", Session]) -> None:
    leader, session = family
    processes.kill(lambda: processes.members([session]))
    assert processes.members([session]) == []
    assert leader.wait() == -signal.SIGKILL


def test_freeze_and_thaw(family: tuple["subprocess.Popen[str]", Session]) -> None:
    _, session = family

    def states() -> set[str]:
        return {p.state for p in processes.members([session])}

    processes.freeze(lambda: processes.members([session]))
    assert states() == {"T"}
    processes.thaw(lambda: processes.members([session]))
    until(lambda: "T" not in states())


def test_send_spares_a_recycled_pid(family: tuple["subprocess.Popen[str]", Session]) -> None:
    leader, session = family
    processes.send(Process(leader.pid, 0, leader.pid, "S", session.started - 1), signal.SIGKILL)
    assert leader.poll() is None


def test_carrying_finds_by_environment(family: tuple["subprocess.Popen[str]", Session]) -> None:
    _, session = family
    assert {p.session for p in processes.carrying(b"REPRISE_TEST_MARK=family")} == {session.leader}
    assert processes.carrying(b"REPRISE_TEST_MARK=fam") == []


def test_session_of_a_process_that_leads_none() -> None:
    child = subprocess.Popen(["sleep", "600"])
    try:
        with pytest.raises(EmbeddedError, match="leads no session"):
            Session.of(child.pid)
    finally:
        child.kill()
        child.wait()
