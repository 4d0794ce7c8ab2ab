"""A partition host between two executors: it keeps what it has for `recovery.driverGrace`, until the next one takes it.

Executors end with their driver.  A host that the node's agent has started need not: it waits in the folder where it once
waited as a spare one (`reprise.spark_jobs.node.spare`), with all its partitions, and answers the same question.  Nothing
moves meanwhile.

It is given to nobody for whom a new process would be another one: an executor of another resource or stream, with other
variables or another import path, or after a file was changed that this process has imported.  It begins anew then, as a
spare host, and so does one that nobody has taken in time: by then its state is not there for anybody.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

from reprise.spark_jobs.node import spare
from reprise.spark_jobs.node.meeting import announce, listen

LOOK_S = 0.5
"""How soon a host that waits notices that its agent is gone."""


def digest(document: str, sink: str, checkpoints: str, stream: float) -> str:
    """What an executor is told of what its driver runs, in the variable `spare.STREAM`: the resource, where its output and
    its checkpoints are, and when the stream began.  Epochs of drivers are numbers of one stream alone."""
    return hashlib.sha256(json.dumps([document, sink, checkpoints, stream]).encode()).hexdigest()


@dataclass(slots=True)
class Code:
    """The files that this process has imported, as they were then."""

    _known: dict[str, tuple[int, ...]] = field(default_factory=dict)
    _modules: int = 0

    def look(self) -> None:
        """Take note of what has been imported since the last look."""
        if len(sys.modules) == self._modules:
            return
        self._modules = len(sys.modules)
        for path in _files():
            if path not in self._known and (found := _stamp(path)) is not None:
                self._known[path] = found

    def changed(self) -> str:
        """A file that is not any more as it was; empty for none."""
        return next((path for path, stamp in self._known.items() if _stamp(path) != stamp), "")


def _files() -> list[str]:
    found = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    return [path for path in found if isinstance(path, str)]


def _stamp(path: str) -> tuple[int, ...] | None:
    """What is another one when the file is, or the archive that it is in; None where neither is there."""
    for place in (Path(path), *Path(path).parents):
        try:
            found = place.stat()
        except NotADirectoryError:
            continue
        except OSError:
            return None
        # tools that copy may keep time and size
        return found.st_mtime_ns, found.st_size, found.st_ino, found.st_ctime_ns
    return None


def _differs(mine: Mapping[str, str], theirs: Mapping[str, str]) -> str:
    """A variable of ours, or the import path, that is another one; empty for none.  A spare host has used neither."""
    used = {name for name in {*mine, *theirs} if name.startswith("REPRISE_") or name == "PYTHONPATH"}
    return next((name for name in sorted(used - {spare.STREAM}) if mine.get(name) != theirs.get(name)), "")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a host was started as a spare one, and by whom; `outputs`: where its output went then."""

    folder: Path
    agent: int
    outputs: tuple[int, int]
    cwd: Path

    @classmethod
    def here(cls, folder: Path, agent: int) -> Place:
        """The place of this process, before anybody takes it."""
        return cls(folder, agent, (os.dup(1), os.dup(2)), Path.cwd())

    def stays(self) -> bool:
        """Have tasks that find no host wait for this one: its executor may have ended, and it has not seen that yet.  False:
        that could not be said."""
        try:
            (self.folder / spare.STARTING).write_text(str(os.getpid()), encoding="utf-8")
        except OSError:
            return False
        return True

    def begins_anew(self) -> None:
        """Be a spare host that was just started; does not return."""
        for number, before in enumerate(self.outputs, 1):
            os.dup2(before, number)
        for opened in Path("/proc/self/fd").iterdir():  # also what libraries have opened
            with contextlib.suppress(OSError):
                if int(opened.name) > 2:
                    os.set_inheritable(int(opened.name), False)
        with contextlib.suppress(OSError):
            os.chdir(self.cwd)
        os.execve(
            sys.executable,
            [sys.executable, "-m", spare.MODULE, "--spare", str(self.folder), str(self.agent)],
            spare.started_with(),
        )


def wait_for_next(
    place: Place, grace_s: float, stream: str, code: Code, clock: Callable[[], float] = time.monotonic
) -> tuple[Path, int] | None:
    """Wait for a task of another executor that goes on with `stream`; its folder and pid.  None: its agent is gone, or
    nobody has come within `grace_s`, or it is not the one for who did; who comes then waits for a spare host."""
    name, key = f"kept-{os.getpid()}-{os.urandom(4).hex()}", os.urandom(32)

    def leave() -> None:
        for file in (place.folder / spare.HANDSHAKE, place.folder / name):
            file.unlink(missing_ok=True)

    def unfit(wanted: spare.Wanted) -> str:
        if wanted.stream != stream:
            return "it has partitions of another resource or stream"
        if variable := _differs(os.environ, wanted.environment):
            return f"the variable {variable} is another one"
        return f"{changed} has changed" if (changed := code.changed()) else ""

    with listen(place.folder, name) as listener:
        announce(place.folder, spare.HANDSHAKE, name, key)
        until = clock() + grace_s
        while (left := until - clock()) > 0:
            if os.getppid() != place.agent:
                return None
            listener.settimeout(min(left, LOOK_S))
            try:
                accepted, _ = listener.accept()
            except TimeoutError:
                continue
            with Connection(accepted.detach()) as connection:
                wanted = spare.asked(connection, key)
                if wanted is not None:
                    leave()
                    return _taken(connection, wanted, wanted.refused or unfit(wanted), place)
        leave()
    place.stays()
    return None


def _taken(
    connection: Connection, wanted: spare.Wanted, refused: str, place: Place
) -> tuple[Path, int] | None:
    """Who takes it; None for one that it is not fit for, or that does not wait any more."""
    if not refused:
        (place.folder / spare.STARTING).unlink(missing_ok=True)
        spare.become(wanted.home, wanted.environment)
        if spare.agreed(connection):
            return wanted.home, wanted.executor
        refused = "whoever took this host waits for it no longer"
    place.stays()
    with contextlib.suppress(OSError):  # who asks waits for the spare host that this one is from now on
        connection.send_bytes(json.dumps({"refused": refused, "again": True}).encode())
    return None
