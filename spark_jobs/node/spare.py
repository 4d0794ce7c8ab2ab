"""A partition host that is there before it is asked for.

To start a host takes about a second of CPU, nearly all of it imports.  The node's agent starts one beside the JVM, with
nothing to do, and the first task that needs a host takes it: it becomes that executor's, with the environment, the import
path and the folder that it would have had if the task had started it.  Where it could not be the same, as a variable that
interpreter or libraries read at their start is another one, the task starts a host itself.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import sys
import threading
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from reprise.spark_jobs.node.daemon import is_archive
from reprise.spark_jobs.node.meeting import admit, announce, announced, listen
from reprise.spark_jobs.version import VERSION

FOLDER = "REPRISE_SPARE_HOST"
"""Variable of the executor: folder where a spare host waits."""
STREAM = "REPRISE_STREAM"
"""Variable of the executor: which stream its driver runs, where hosts outlive executors; a host that has waited with
partitions of another one is not taken (`reprise.spark_jobs.node.outliving`)."""
MODULE = "reprise.spark_jobs.node.host_process"
"""What a host runs, whoever starts it."""
HANDSHAKE = "spare-host.json"
STARTING = "spare-host.pid"
"""File beside it, written by the agent: pid of the host that it has started, until that is taken."""
COMING_S = 10.0
"""How long a task waits for a spare host that has not begun to listen: it has its imports sooner than another one would."""
LOG = "partition-host.log"
"""What a host prints, in the executor's folder."""
ONE_THREAD = {"POLARS_MAX_THREADS": "1", "OMP_NUM_THREADS": "1"}
"""Libraries of a host compute in one thread: an executor has one core."""
GO = b"go"
ANSWER_S = 10.0
_UNREAD_PREFIXES = ("SPARK_", "PYSPARK_", "PYTHON_", "REPRISE_", "BASH_FUNC_")
_UNREAD = frozenset({"PYTHONPATH", "PYTHONUNBUFFERED", "PWD", "OLDPWD", "SHLVL", "_", "TMPDIR"})
"""Variables that neither the interpreter nor a library has read while a spare host imported what it needs."""


def code() -> list[str | int]:
    """Which code a process has: the version, and when a module of the data plane was changed last (ns), as it may have
    been replaced while a host waits."""
    modules = Path(__file__).resolve().parents[1].rglob("*.py")
    return [VERSION, max(module.stat().st_mtime_ns for module in modules)]


CODE = code()
"""Of this process: taken before a host imports the rest, so that what is replaced meanwhile counts as changed."""


def claim(home: Path, executor: int) -> bool:
    """Take the spare host of this node for the executor with this folder and pid; False where none can be had."""
    folder = os.environ.get(FOLDER)
    if not folder:
        return False
    answer = _claimed(Path(folder), home, executor)
    if answer is not None and answer.get("again"):  # it had partitions, and begins anew
        answer = _claimed(Path(folder), home, executor)
    return answer is not None and not answer["refused"]


def _claimed(folder: Path, home: Path, executor: int) -> dict[str, Any] | None:
    """What the host there answers, which is also in the log of `home` where it refuses; None where there is none."""
    try:
        connection = _awaited(folder)
        if connection is None:
            return None
        with connection:
            wanted = {
                "home": str(home),
                "executor": executor,
                "environment": {**os.environ, **ONE_THREAD},
                "code": CODE,
                "stream": os.environ.get(STREAM, ""),
            }
            connection.send_bytes(json.dumps(wanted).encode())
            if not connection.poll(ANSWER_S):
                return None
            answer: dict[str, Any] = json.loads(connection.recv_bytes())
            if not (refused := answer["refused"]):
                connection.send_bytes(GO)
    except (OSError, EOFError, ValueError):
        return None
    if refused:
        with (home / LOG).open("a", encoding="utf-8") as log:
            log.write(f"the spare host cannot be used: {refused}\n")
    return answer


def _awaited(folder: Path) -> Connection | None:
    """A connection to the spare host that is there, or is starting; None where there is none, or it does not come."""
    deadline = time.monotonic() + COMING_S
    while (connection := announced(folder, HANDSHAKE)) is None:
        if not _starts(folder) or time.monotonic() > deadline:
            return None
        time.sleep(0.02)
    return connection


def _starts(folder: Path) -> bool:
    """Whether the agent has started one that nobody has taken yet, and that lives."""
    try:
        pid = int((folder / STARTING).read_text(encoding="utf-8"))
        state = (
            Path(f"/proc/{pid}/stat")
            .read_text(encoding="utf-8", errors="replace")
            .rpartition(")")[2]
            .split()[0]
        )
    except (OSError, ValueError, IndexError):
        return False
    return state not in "ZX"


def wait_for_claim(folder: Path, agent: int) -> tuple[Path, int]:
    """Be the spare host of `folder` until a task takes it; its executor's folder and pid.  Ends with the agent."""
    taken = threading.Event()
    threading.Thread(target=_end_with, args=(agent, taken), daemon=True).start()
    name, key = f"spare-{os.getpid()}-{secrets.token_hex(4)}", secrets.token_bytes(32)
    with listen(folder, name) as listener:
        announce(folder, HANDSHAKE, name, key)
        while True:
            accepted, _ = listener.accept()
            with Connection(accepted.detach()) as connection:
                wanted = asked(connection, key)
                if wanted is None or _refuses(connection, wanted):
                    continue
                (folder / STARTING).unlink(missing_ok=True)
                (folder / HANDSHAKE).unlink(missing_ok=True)
                (folder / name).unlink(missing_ok=True)
                become(wanted.home, wanted.environment)
                if not agreed(connection):
                    sys.exit("whoever took this host waits for it no longer")
                taken.set()
                return wanted.home, wanted.executor


def refusal(mine: Mapping[str, str], theirs: Mapping[str, str], imported: Iterable[str], home: Path) -> str:
    """Why a process with the variables `mine` and with these modules cannot stand for one that is started in the folder
    `home` with `theirs`; empty if it can."""
    differ = sorted(name for name in {*mine, *theirs} if mine.get(name) != theirs.get(name))
    if read := [name for name in differ if not name.startswith(_UNREAD_PREFIXES) and name not in _UNREAD]:
        return f"the variable {read[0]} is another one"
    # Spark names folders twice that agent and driver both have; the first mention of one decides what is found
    before, after = dict.fromkeys(_folders(mine)), dict.fromkeys(_folders(theirs))
    if [entry for entry in before if entry in after] != [entry for entry in after if entry in before]:
        return "PYTHONPATH has another order"
    new = [entry for entry in after if entry not in {*before, *sys.path}]
    return _hiding([home, *map(Path, new)], {name for name in imported if "." not in name})


def _hiding(folders: Iterable[Path], tops: Collection[str]) -> str:
    """Why modules of these names might be others with the folders on the path; empty if they are the same."""
    for entry in folders:
        if entry.is_file() and not is_archive(entry):
            return f"{entry} is not a folder"
        there = {path.name.split(".")[0] for path in entry.iterdir()} if entry.is_dir() else set()
        if hidden := sorted(there.intersection(tops)):
            return f"{entry} has another {hidden[0]}"
    return ""


def _end_with(agent: int, taken: threading.Event) -> None:
    while not taken.wait(1.0):
        if os.getppid() != agent:
            os._exit(0)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What somebody with the key wants a host for: folder, pid, variables and stream of its executor."""

    home: Path
    executor: int
    environment: Mapping[str, str]
    stream: str
    refused: str
    """Why this process cannot be what is wanted; empty if it can."""
    other_code: bool
    """It has none of the code that is wanted."""


def asked(connection: Connection, key: bytes) -> Wanted | None:
    """What somebody wants who has the key; None for a stranger, or what cannot be read."""
    try:
        if not admit(connection, key) or not connection.poll(ANSWER_S):
            return None
        wanted = json.loads(connection.recv_bytes())
        home, theirs = Path(wanted["home"]), dict(wanted["environment"])
        refused = refusal(started_with(), theirs, list(sys.modules), home)
        if other := wanted["code"] != CODE:
            refused = f"it has other code: {CODE}"
        return Wanted(home, int(wanted["executor"]), theirs, str(wanted.get("stream", "")), refused, other)
    except (OSError, EOFError, ValueError, KeyError, TypeError):
        return None


def _refuses(connection: Connection, wanted: Wanted) -> bool:
    """Say so where this process cannot be what is wanted; one with other code ends."""
    if not wanted.refused:
        return False
    with contextlib.suppress(OSError):
        connection.send_bytes(json.dumps({"refused": wanted.refused}).encode())
    if wanted.other_code:
        sys.exit(wanted.refused)  # the agent starts another one
    return True


def agreed(connection: Connection) -> bool:
    """Whether the task still waits: one that does not has started a host itself."""
    try:
        connection.send_bytes(json.dumps({"refused": ""}).encode())
        return connection.poll(ANSWER_S) and connection.recv_bytes() == GO
    except (OSError, EOFError):
        return False


def become(home: Path, theirs: Mapping[str, str]) -> None:
    """What Python would have made of these variables, and of being started in `home`, with its output in the log there."""
    log = os.open(home / LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for output in (1, 2):
        os.dup2(log, output)
    os.close(log)
    before = _folders(started_with())
    sys.path[:] = [str(home), *_folders(theirs), *(entry for entry in sys.path[1:] if entry not in before)]
    os.environ.clear()
    os.environ.update(theirs)
    os.chdir(home)


def started_with() -> dict[str, str]:
    """Variables of this process before libraries added their own."""
    pairs = os.fsdecode(Path("/proc/self/environ").read_bytes()).split("\0")
    return {name: value for name, found, value in (pair.partition("=") for pair in pairs) if found}


def _folders(variables: Mapping[str, str]) -> list[str]:
    return [entry for entry in variables.get("PYTHONPATH", "").split(os.pathsep) if entry]
