"""The Spark Worker of a node, as its agent sees it: start it, ask whether it has registered, end all that it
started."""

import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from reprise.controller.agent import processes, spare_host
from reprise.controller.agent.jvm import REGISTERED
from reprise.controller.agent.processes import Process, Session
from reprise.controller.agent.spare_host import SpareHost
from reprise.controller.zookeeper.access import AUTH, TLS


class Worker(Protocol):
    """What an agent needs of what it runs; see `WorkerProcess`."""

    @property
    def registered_at(self) -> float | None: ...

    @property
    def alive(self) -> bool: ...

    @property
    def registered(self) -> bool: ...

    def start(self) -> None: ...

    def keep_spare(self) -> None: ...

    def freeze(self) -> None: ...

    def thaw(self) -> None: ...

    def end_all(self) -> None: ...


@dataclass(slots=True)
class WorkerProcess:
    """The process of at most one Worker at a time, in the session of this process."""

    command: Sequence[str]
    """Everything but the working folder, which is appended by the caller's `--work-dir`."""
    scratch: Path
    """Folders of the node; emptied with each new Worker."""
    log: Path
    _process: subprocess.Popen[bytes] | None = None
    _spare: SpareHost = field(default_factory=SpareHost)
    _log_start: int = 0
    registered_at: float | None = None
    """When the master had accepted this Worker, seconds since the epoch; None: not yet, or there is no Worker."""

    def start(self) -> None:
        """A fresh Worker with fresh folders."""
        shutil.rmtree(self.scratch, ignore_errors=True)
        folders = {name: self.scratch / name for name in ("work", "local", "tmp", "spare")}
        for folder in folders.values():
            folder.mkdir(parents=True)
        own = {
            name: value for name, value in os.environ.items() if name not in (AUTH, TLS)
        }  # the agent's alone
        environment = own | {
            "SPARK_LOCAL_DIRS": str(folders["local"]),
            "TMPDIR": str(folders["tmp"]),
            spare_host.FOLDER: str(folders["spare"]),
        }
        self.registered_at = None
        with self.log.open("ab") as out:
            self._log_start = out.tell()
            self._process = subprocess.Popen(
                self.command, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT
            )
        self._spare.start(environment, self.log)

    def keep_spare(self) -> None:
        """Have a partition host ready for the next executor."""
        self._spare.keep(self.log)

    @property
    def alive(self) -> bool:
        """Whether the Worker runs."""
        return self._process is not None and self._process.poll() is None

    @property
    def registered(self) -> bool:
        """Whether the master has accepted this Worker. Read from its log: nothing else tells it without
        polling the master from every node."""
        if self.registered_at is None:
            with self.log.open("rb") as text:
                text.seek(self._log_start)
                if REGISTERED.encode() in text.read():
                    self.registered_at = round(time.time(), 3)
        return self.registered_at is not None

    def others(self) -> list[Process]:
        """Every process of this session but the caller: Worker, executor, Python workers and what they
        started."""
        own = os.getpid()
        return [p for p in processes.members([Session.of(os.getsid(0))]) if p.pid != own]

    def freeze(self) -> None:
        """Stop every process of the session but the caller where it is."""
        processes.freeze(self.others)

    def thaw(self) -> None:
        """Let every process of the session go on."""
        processes.thaw(self.others)

    def end_all(self) -> None:
        """Kill every process of the session but the caller."""
        processes.kill(self.others)
        if self._process is not None:
            self._process.wait()
        self._process = None
        self._spare.ended()
