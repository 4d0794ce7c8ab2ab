"""What becomes of a nice level that Linux takes, refuses for a while, or does not know."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path

import pytest

from reprise.controller.agent.session_priority import NICE_STARTING, NICE_WORKING, SessionPriority

AUTOGROUP = Path("/proc/self/autogroup")


@pytest.mark.skipif(not AUTOGROUP.exists(), reason="this kernel has no autogroups")
def test_a_session_is_lowered_and_raised_again() -> None:
    code = f"""
import os, time
from pathlib import Path
from reprise.controller.agent.session_priority import SessionPriority
os.setsid()
priority, file = SessionPriority(), Path("{AUTOGROUP}")
for level in ({NICE_STARTING}, {NICE_WORKING}):
    while not file.read_text().strip().endswith(f" nice {{level}}"):
        priority.set(level)
        time.sleep(0.05)
    print(level)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.split() == [str(NICE_STARTING), str(NICE_WORKING)]


@pytest.mark.parametrize("code", [errno.EAGAIN, errno.EMFILE])
def test_a_change_that_is_refused_is_made_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    file = tmp_path / "autogroup"
    priority = SessionPriority(file)

    def refuse(*_args: object, **_more: object) -> int:
        raise OSError(code, "not now")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_text", refuse)
        priority.set(NICE_STARTING)
    assert not file.exists()
    priority.set(NICE_STARTING)
    assert file.read_text() == str(NICE_STARTING)


def test_a_machine_without_such_groups_is_no_error(tmp_path: Path) -> None:
    SessionPriority(tmp_path / "nowhere" / "autogroup").set(NICE_STARTING)
