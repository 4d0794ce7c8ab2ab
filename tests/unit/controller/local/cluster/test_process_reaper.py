"""Nothing outlives its owner: the reaper against real processes."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from reprise.controller.agent import processes
from reprise.controller.local.cluster import launch
from reprise.controller.local.cluster.process_reaper import MARK, ProcessReaper, marked
from tools.testbed.waiting import until

# an owner that starts a process in a session of its own, and a grandchild below it, then waits
_OWNER = """
import sys, time
from pathlib import Path
from reprise.controller.local.cluster import launch
from reprise.controller.local.cluster.process_reaper import ProcessReaper
reaper = ProcessReaper(Path(sys.argv[1]))
launch.spawn(["sh", "-c", "sleep 600 & sleep 600"], reaper.environment(), reaper.scratch / "log")
print(reaper.token, reaper.scratch, flush=True)
time.sleep(600)
"""


def test_sigkill_of_the_owner_ends_everything(tmp_path: Path) -> None:
    owner = subprocess.Popen([sys.executable, "-c", _OWNER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    token, scratch = owner.stdout.readline().split()
    until(lambda: len(marked(token)) == 3)
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    owner.stdout.close()
    until(lambda: not marked(token) and not Path(scratch).exists())


def test_close_ends_everything_frozen_or_not_and_can_be_repeated(tmp_path: Path) -> None:
    reaper = ProcessReaper(tmp_path)
    process, session = launch.spawn(["sleep", "600"], reaper.environment(), reaper.scratch / "log")
    processes.freeze(lambda: processes.members([session]))
    reaper.close()
    reaper.close()
    assert process.wait() == -signal.SIGKILL
    assert not reaper.scratch.exists()


def test_spares_the_session_of_a_marked_process_that_does_not_lead_it(tmp_path: Path) -> None:
    """A marked process in a user's shell session must not take the shell with it."""
    reaper = ProcessReaper(tmp_path)
    shell = "REPRISE_INNER=1 sleep 601 & " + f"{MARK}={reaper.token} sleep 602 & echo ready; wait"
    user = subprocess.Popen(["sh", "-c", shell], start_new_session=True, stdout=subprocess.PIPE)
    assert user.stdout is not None
    session = processes.Session.of(user.pid)
    try:
        assert user.stdout.readline() == b"ready\n"
        until(lambda: len(marked(reaper.token)) == 1)
        reaper.close()
        assert len(processes.members([session])) == 2
        assert user.poll() is None
    finally:
        processes.kill(lambda: processes.members([session]))
        user.wait()
        user.stdout.close()


def test_own_process_is_never_marked(tmp_path: Path) -> None:
    reaper = ProcessReaper(tmp_path)
    try:
        assert os.getpid() not in {p.pid for p in marked(reaper.token)}
    finally:
        reaper.close()
