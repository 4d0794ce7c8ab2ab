"""What runs on a node below its agent: Spark's executors, their Python processes, and a partition host that waits.

All of it is in the agent's session, so that it can be stopped, let go on and ended together.
"""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from reprise.controller.agent import processes, spare_host
from reprise.controller.agent.applications import Application, announced, next_number
from reprise.controller.agent.jvm import class_path, spark_home
from reprise.controller.agent.processes import Process, Session
from reprise.controller.agent.session_priority import NICE_STARTING, NICE_WORKING, STARTING_S, SessionPriority
from reprise.controller.agent.spare_host import SpareHost
from reprise.controller.zookeeper.access import AUTH, TLS

log = logging.getLogger("reprise.node_agent")
BACKEND = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
HANGS_S = 10.0
"""An executor ends with its driver, or is killed after that."""
PAUSE_S = 5.0
"""Until the next one starts where an executor has ended by itself, or could not start."""


class Executors(Protocol):
    """What an agent needs of the executors of its node."""

    def start(self) -> None:
        """Begin with fresh folders."""

    def keep(self) -> None:
        """Start what should run and does not; called again and again."""

    def freeze(self) -> None:
        """Stop every process of the session but the caller where it is."""

    def thaw(self) -> None:
        """Let every process of the session go on."""

    def end_all(self) -> None:
        """Kill every process of the session but the caller."""


class OfSession:
    """All processes of this session but the caller."""

    def others(self) -> list[Process]:
        """Executors, Python workers and what they started."""
        own = os.getpid()
        return [p for p in processes.members([Session.of(os.getsid(0))]) if p.pid != own]

    def freeze(self) -> None:
        """See `Executors`."""
        processes.freeze(self.others)

    def thaw(self) -> None:
        """See `Executors`."""
        processes.thaw(self.others)


@dataclass(slots=True)
class _Running:
    """The last executor of an application."""

    application: Application
    process: subprocess.Popen[bytes]
    local: Path
    """Folder of its shuffle files, removed with it."""
    alone_since: float | None = None
    """When its driver was first missing."""


@dataclass(slots=True)
class LocalExecutors(OfSession):
    """An executor for each application of a cluster on one machine."""

    node: str
    host: str
    scratch: Path
    """Folders of the node; emptied at each start."""
    applications: Path
    """Folder of the announced applications."""
    log: Path
    """Where a partition host that waits prints."""
    clock: Callable[[], float] = time.monotonic
    priority: SessionPriority = field(default_factory=SessionPriority)
    _starts_until: float = 0.0
    """The node has the priority of one that starts, until an executor has the partition host that waits."""
    _spare: SpareHost = field(default_factory=SpareHost)
    _running: dict[str, _Running] = field(default_factory=dict)
    """By the name of the application."""
    _pauses: dict[str, tuple[str, float]] = field(default_factory=dict)
    """The application whose executor ended by itself or did not start, and when the next one may."""
    _spare_for: str = ""
    """The application whose executors take the partition host that waits; there is one."""

    def start(self) -> None:
        """See `Executors`."""
        shutil.rmtree(self.scratch, ignore_errors=True)
        for name in ("work", "local", "tmp", "spare"):
            (self.scratch / name).mkdir(parents=True)
        self._starts_until = self.clock() + STARTING_S
        self.priority.set(NICE_STARTING)
        self._start_executors()
        self._spare.start(self._environment(), self.log)

    def keep(self) -> None:
        """See `Executors`."""
        self._start_executors()
        if self._spare.is_taken:
            self._starts_until = 0.0
        self.priority.set(NICE_STARTING if self.clock() < self._starts_until else NICE_WORKING)
        self._spare.keep(self.log)

    def end_all(self) -> None:
        """See `Executors`."""
        processes.kill(self.others)
        for running in self._running.values():
            running.process.wait()
        self._running.clear()
        self._spare.ended()

    def _environment(self) -> dict[str, str]:
        own = {n: value for n, value in os.environ.items() if n not in (AUTH, TLS)}  # the agent's alone
        return own | {
            "TMPDIR": str(self.scratch / "tmp"),
            spare_host.FOLDER: str(self.scratch / "spare"),
        }

    def _start_executors(self) -> None:
        try:
            wanted = announced(self.applications)
        except OSError as error:  # no file descriptor is left, for instance
            log.warning("event=applications-unread node=%s reason=%r", self.node, str(error))
            return
        for name, running in list(self._running.items()):
            if running.process.poll() is not None:
                self._ended(name)
            elif self._is_orphan(running, wanted.get(name, running.application)):
                running.process.kill()  # a later look finds that it has ended
        if self._spare_for not in wanted.keys() | self._running.keys():
            self._spare_for = next(iter(wanted), "")
        for name, application in wanted.items():
            paused, until = self._pauses.get(name, ("", 0.0))
            waits = paused == application.id and self.clock() < until
            if name not in self._running and application.lives and not waits:
                try:
                    self._running[name] = self._started(name, application)
                except OSError as error:  # its disk is full, for instance
                    self._pauses[name] = application.id, self.clock() + PAUSE_S
                    log.warning("event=executor-not-started node=%s reason=%r", self.node, str(error))

    def _is_orphan(self, running: _Running, successor: Application) -> bool:
        """Whether an executor has to be ended: its driver has a successor, or is gone and the executor hangs."""
        if successor.id != running.application.id:
            return True
        if running.application.lives:
            running.alone_since = None
            return False
        running.alone_since = self.clock() if running.alone_since is None else running.alone_since
        return self.clock() - running.alone_since > HANGS_S

    def _ended(self, name: str) -> None:
        """Most executors that end by themselves have lost their driver, so the next one waits."""
        running = self._running.pop(name)
        code = running.process.returncode
        log.info(
            "event=executor-ended node=%s application=%s code=%d", self.node, running.application.id, code
        )
        shutil.rmtree(running.local, ignore_errors=True)
        if code >= 0:
            self._pauses[name] = running.application.id, self.clock() + PAUSE_S

    def _started(self, name: str, application: Application) -> _Running:
        number = next_number(self.applications, application.id)
        home = self.scratch / "work" / application.id / str(number)
        local = self.scratch / "local" / f"{application.id}-{number}"
        for folder in (home, local):
            folder.mkdir(parents=True)
        environment = self._environment() | dict(application.environment) | {"SPARK_LOCAL_DIRS": str(local)}
        if name != self._spare_for:
            del environment[spare_host.FOLDER]
        with (home / "stdout").open("ab") as out, (home / "stderr").open("ab") as err:
            process = subprocess.Popen(
                self.command(application, number),
                env=environment,
                cwd=home,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
            )
        log.info("event=executor-started node=%s application=%s id=%d", self.node, application.id, number)
        return _Running(application, process, local)

    def command(self, application: Application, number: int) -> list[str]:
        """Command line of the application's executor with that id."""
        java = str(Path(os.environ["JAVA_HOME"], "bin", "java"))
        path = ":".join(filter(None, [application.class_path, class_path(spark_home())]))
        known = {
            "{{APP_ID}}": application.id,
            "{{EXECUTOR_ID}}": str(number),
        }  # as Spark does elsewhere
        options = list(application.options)
        for placeholder, value in known.items():
            options = [option.replace(placeholder, value) for option in options]
        return [
            *(java, "-cp", path, f"-Xmx{application.memory_mb}m", *options, BACKEND),
            *("--driver-url", application.scheduler, "--app-id", application.id),
            *("--executor-id", str(number), "--cores", str(application.cores)),
            *("--hostname", self.host, "--bind-address", self.host),
        ]
