"""Spark applications that want an executor on each node of a local cluster, and the files in which they announce that.

Spark's own master has executors started by Workers, one JVM more on each node.  Agents start executors themselves, as pods
on Kubernetes do: an application announces where its scheduler listens, and the executors register there.

The folder belongs to the cluster's user alone: variables of executors may hold credentials.  The secret of Spark's
processes is not in it (`spark_secret`).
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from reprise.controller.agent import processes
from reprise.controller.private_file import write_private

FOLDER = "REPRISE_APPLICATIONS"
"""Variable of a driver: the folder of its cluster's applications."""
_SUFFIX = ".json"


@dataclass(frozen=True, slots=True)
class Application:
    """One Spark application, as its driver describes it to agents of the same machine."""

    id: str
    scheduler: str
    """URL at which executors register."""
    pid: int
    """The driver's process; with `started` it is that one and no later one."""
    started: int
    memory_mb: int
    """Heap of an executor."""
    cores: int
    options: tuple[str, ...] = ()
    """For the executor's JVM."""
    class_path: str = ""
    """Before Spark's own."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Further variables of executors."""

    @property
    def lives(self) -> bool:
        """Whether its driver runs; without it no executor can register."""
        driver = processes.inspect(self.pid)
        return driver is not None and driver.started == self.started and driver.state not in "ZX"


def announce(folder: Path, name: str, application: Application) -> None:
    """Ask every node for an executor of this application instead of the last one with that name.  The request of a driver
    that was started later, and lives, stays."""
    path = _path(folder, name)
    if (other := _read(path)) is not None and other.lives and other.started > application.started:
        return
    fresh = path.with_suffix(f".{os.getpid()}")
    fresh.unlink(missing_ok=True)
    write_private(fresh, json.dumps(asdict(application)))
    fresh.replace(path)


def withdraw(folder: Path, name: str, application: str) -> None:
    """Ask for no more executors of the application with that id; those that run end with their driver."""
    path = _path(folder, name)
    if (found := _read(path)) is not None and found.id == application:
        path.unlink(missing_ok=True)


def announced(folder: Path) -> dict[str, Application]:
    """The applications of a cluster, by the names of their files.  OSError: they cannot be read now."""
    found = {path.stem: _read(path) for path in folder.glob(f"*{_SUFFIX}")}
    return {name: application for name, application in found.items() if application is not None}


def _path(folder: Path, name: str) -> Path:
    return folder / f"{hashlib.sha256(name.encode()).hexdigest()[:32]}{_SUFFIX}"


def _read(path: Path) -> Application | None:
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return Application(**{**raw, "options": tuple(raw["options"])})


def next_number(folder: Path, application: str) -> int:
    """A number that no other executor of the application has, greater than those of the executors before."""
    numbers = folder / application
    numbers.mkdir(mode=0o700, exist_ok=True)
    number = len(list(numbers.iterdir()))
    while True:
        try:
            write_private(numbers / str(number), "")
            return number
        except FileExistsError:  # another node's
            number += 1
