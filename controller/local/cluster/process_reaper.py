"""Leaves nothing behind, even when the process that started everything is SIGKILLed.

The reaper is a small process in a session of its own. Its standard input is a pipe whose other end only the
owner holds, so the pipe closes when the owner ends, however that happens. Then the reaper kills every process
that carries the owner's mark in its environment, and all of the session that such a process leads, and
removes the scratch folder.

Why a mark in the environment and not a list of process ids: a list has a moment between the start of a
process and the entry of its id, and ids get recycled; a mark is inherited by everything that is started
later, by whomever.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path

from reprise.controller.agent import processes
from reprise.controller.errors import EmbeddedError, StartError
from reprise.controller.local.cluster import addresses

MARK = "REPRISE_EMBEDDED_OWNER"
_PARENT_CHECK_S = 1.0
"""A child forked by the owner may hold the pipe open, so the reaper also looks whether its parent has
changed."""


def marked(token: str) -> list[processes.Process]:
    """Every living process that carries the mark, or whose session leader does; never the caller itself."""
    carriers = {p.pid: p for p in processes.carrying(f"{MARK}={token}".encode())}
    if any(pid == p.session for pid, p in carriers.items()):
        carriers |= {p.pid: p for p in processes.living() if p.session in carriers}
    carriers.pop(os.getpid(), None)
    return list(carriers.values())


def sweep(token: str, scratch: Path) -> None:
    """Kill all that carry the mark, then remove the folder."""
    try:
        processes.kill(lambda: marked(token))
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


class ProcessReaper:
    """The owner's side: a marked environment, a scratch folder, and the promise that both go with the
    owner."""

    def __init__(self, parent_dir: Path | None = None, keep_open: tuple[int, ...] = ()) -> None:
        """`keep_open`: descriptors that the reaper holds as long as it lives (a claimed address)."""
        self.token = uuid.uuid4().hex
        self.scratch = Path(tempfile.mkdtemp(prefix="reprise-", dir=parent_dir))
        try:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "reprise.controller.local.cluster.process_reaper",
                    self.token,
                    str(self.scratch),
                    str(os.getpid()),
                ],
                stdin=subprocess.PIPE,
                start_new_session=True,
                pass_fds=keep_open,
            )
        except OSError as error:
            shutil.rmtree(self.scratch, ignore_errors=True)
            raise StartError(f"the reaper does not start: {error}") from error

    @staticmethod
    def with_prefix(parent_dir: Path | None = None) -> tuple[str, ProcessReaper]:
        """A claimed prefix of loopback addresses, e.g. `127.0.5`, and the reaper that holds the claim while it lives."""
        prefix, claim = addresses.claim_prefix()
        try:
            return prefix, ProcessReaper(parent_dir, keep_open=(claim.fileno(),))
        finally:
            claim.close()

    def environment(self) -> dict[str, str]:
        """What the environment of everything started for this owner must hold."""
        return {MARK: self.token}

    def close(self) -> None:
        """Kill everything, remove the folder. Safe to call twice."""
        sweep(self.token, self.scratch)
        if self._process.stdin is not None and not self._process.stdin.closed:
            self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired as error:
            self._process.kill()
            raise EmbeddedError("the reaper did not end") from error


def main(token: str, scratch: str, parent: int) -> None:
    """Wait for the owner's end, then sweep."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    while os.getppid() == parent:
        readable, _, _ = select.select([sys.stdin.fileno()], [], [], _PARENT_CHECK_S)
        if readable and not os.read(sys.stdin.fileno(), 1):
            break
    sweep(token, Path(scratch))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
