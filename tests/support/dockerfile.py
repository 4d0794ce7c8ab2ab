"""A Dockerfile as instructions, and its stages carried out without a container engine.

A stage is carried out in a mount namespace of its own in which a fresh folder lies over /opt, the only place that our
Dockerfile writes to, and copies of passwd and group over those of the machine.  Nothing of the machine is changed, and
all paths in the image are the real ones.  Its base image is this machine's Python of the same version.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

USER = 10001


_LOOPBACK_UP = (
    "import fcntl, socket, struct; "
    "fcntl.ioctl(socket.socket(), 0x8914, struct.pack('16sH14x', b'lo', 0x41))"  # SIOCSIFFLAGS: up, running
)
_ISOLATION = (
    "mount -o remount,bind,ro /opt",
    shlex.join([f"{sys.base_prefix}/bin/python3", "-c", _LOOPBACK_UP]),
    "mount -t tmpfs -o mode=1777 tmpfs /tmp",
)


@dataclass(frozen=True, slots=True)
class Instruction:
    word: str
    arguments: str
    flags: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Stage:
    """One FROM and what follows it."""

    base: str
    name: str
    steps: list[Instruction] = field(default_factory=list)

    def last(self, word: str) -> str:
        """Arguments of the last instruction of a kind."""
        return next(step.arguments for step in reversed(self.steps) if step.word == word)

    def environment(self) -> dict[str, str]:
        """Of all ENV instructions."""
        pairs = [word for step in self.steps if step.word == "ENV" for word in shlex.split(step.arguments)]
        return dict(pair.split("=", 1) for pair in pairs)


def parse(text: str) -> list[Stage]:
    """The stages; ValueError for an instruction outside of them other than ARG."""
    lines = [line for line in text.replace("\\\n", " ").splitlines() if line and not line.startswith("#")]
    stages: list[Stage] = []
    for line in lines:
        word, _, rest = line.partition(" ")
        flags = {}
        while rest.startswith("--"):
            flag, _, rest = rest.partition(" ")
            flags[flag[2:].partition("=")[0]] = flag.partition("=")[2]
        if word == "FROM":
            base, _, name = rest.partition(" AS ")
            stages.append(Stage(base, name or str(len(stages))))
        elif stages:
            stages[-1].steps.append(Instruction(word, rest.strip(), flags))
        elif word != "ARG":
            raise ValueError(f"{word} before FROM")
    return stages


class Build:
    """Carries stages out in `folder`, from the files of `context`."""

    def __init__(self, folder: Path, context: Path) -> None:
        self.folder, self.context = folder, context

    def root(self, stage: str) -> Path:
        """What lies over /opt in a stage."""
        return self.folder / stage / "opt"

    def carry_out(self, stage: Stage, base: Stage | None = None) -> None:
        """COPY by copying, RUN by running; subprocess.CalledProcessError for a step that fails.  `base`: a stage that was
        carried out before, in place of the machine; its files are shared, and its variables hold."""
        self.root(stage.name).parent.mkdir(parents=True)
        here = "/etc" if base is None else str(self.root(base.name).parent)
        for name in ("passwd", "group"):
            shutil.copy(f"{here}/{name}", self.folder / stage.name / name)
        if base is None:
            self.root(stage.name).mkdir()
        else:
            links = ["cp", "--archive", "--link", str(self.root(base.name)), str(self.root(stage.name))]
            subprocess.run(links, check=True)
        environment = None if base is None else _of_base(base.environment() | stage.environment())
        where = "/"
        for step in stage.steps:
            if step.word == "WORKDIR":
                where = step.arguments
            elif step.word == "COPY":
                self._copy(stage, step, where)
            elif step.word == "RUN":
                command = ["sh", "-ec", step.arguments]
                self.run(stage.name, command, where=where, environment=environment).check_returncode()

    def _copy(self, stage: Stage, step: Instruction, where: str) -> None:
        *sources, target = step.arguments.split()
        origin = self.root(step.flags["from"]).parent if "from" in step.flags else self.context
        into = self._host(stage.name, os.path.normpath(f"{where}/{target}"))
        for source in sources:
            path = origin / source.lstrip("/")
            goal = into / path.name if target.endswith("/") else into
            goal.parent.mkdir(parents=True, exist_ok=True)
            if path.is_dir():
                shutil.copytree(path, goal, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(path, goal)

    def _host(self, stage: str, path: str) -> Path:
        if not path.startswith("/opt/"):
            raise ValueError(f"{path} is not below /opt, the only place that the image is made in")
        return self.root(stage) / path.removeprefix("/opt/")

    def run(
        self,
        stage: str,
        command: Iterable[str],
        *,
        where: str = "/tmp",
        environment: Mapping[str, str] | None = None,
        isolated: bool = False,
        timeout_s: float = 900,
    ) -> subprocess.CompletedProcess[str]:
        """Inside a stage.  `isolated`: as the image's user, on a read-only /opt, with no network but loopback."""
        here = self.folder / stage
        script = [
            "mount --make-rprivate /",
            "mount -t proc proc /proc",  # of the new process space: Spark looks its Python workers up there
            f"mount --bind {here}/opt /opt",
            *(f"mount --bind {here}/{name} /etc/{name}" for name in ("passwd", "group")),
            *_reachable(here / "python"),
            *(_ISOLATION if isolated else ()),
            f"mkdir -p {shlex.quote(where)} && cd {shlex.quote(where)}",
        ]
        become = (
            ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "--no-new-privs"]
            if isolated
            else []
        )
        inner = " && ".join([*script, f"exec {shlex.join([*become, *command])}"])
        spaces = ["unshare", "--mount", "--pid", "--fork", "--kill-child", *(["--net"] if isolated else [])]
        return subprocess.run(
            [*spaces, "sh", "-c", inner],
            env=dict(environment) if environment is not None else _plain(),
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_s,
        )


def _plain() -> dict[str, str]:
    """The machine's own, with the Python that the tests run on found first."""
    path = f"{sys.base_prefix}/bin:{os.environ.get('PATH', os.defpath)}"
    return {"PATH": path, "HOME": os.environ.get("HOME", "/tmp")} | {
        key: value for key, value in os.environ.items() if key.startswith(("PIP_", "SSL_", "REQUESTS_"))
    }


def _of_base(environment: Mapping[str, str]) -> dict[str, str]:
    """An image's variables, with this machine's Python in the place of that of the base image."""
    path = environment["PATH"].replace("/usr/local/bin", f"{sys.base_prefix}/bin")
    return _plain() | environment | {"PATH": path}


def _reachable(python: Path) -> list[str]:
    """Makes the base image's Python readable to the image's user, where it lies in a closed home folder."""
    closed = [p for p in reversed(Path(sys.base_prefix).parents) if not p.stat().st_mode & 0o001]
    if not closed:
        return []
    prefix = shlex.quote(sys.base_prefix)
    return [
        f"mkdir -p {python}",
        f"mount --bind {prefix} {python}",
        f"mount -t tmpfs -o mode=755 tmpfs {shlex.quote(str(closed[0]))}",
        f"mkdir -p {prefix}",
        f"mount --move {python} {prefix}",
    ]


def entrypoint(stage: Stage) -> list[str]:
    """The exec form; ValueError when it is not."""
    value = json.loads(stage.last("ENTRYPOINT"))
    if not isinstance(value, list):
        raise ValueError("ENTRYPOINT must be a list")
    return [str(word) for word in value]
