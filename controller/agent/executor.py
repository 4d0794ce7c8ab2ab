"""Spark's executor as a process of the agent: the command line that Spark's own image would run, from its environment.

Spark's Kubernetes backend starts the container with the argument `executor` and the rest in SPARK_* variables.  The
executor gets a fresh working folder, as the partition host of a node lives in it (`reprise.spark_jobs.node.shim`).
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from reprise.controller.agent import processes, spare_host
from reprise.controller.agent.executors import OfSession
from reprise.controller.agent.java import find_java
from reprise.controller.agent.jvm import class_path, conf_dir, spark_home
from reprise.controller.agent.spare_host import SpareHost
from reprise.controller.errors import StartError

BACKEND = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
_OPTION = "SPARK_JAVA_OPT_"
_ARGUMENTS = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}


def command_line(environment: Mapping[str, str], java_home: Path, home: Path) -> list[str]:
    """Raises StartError naming the variable that Spark has not set.

    REPRISE_JAVA_OPTIONS (for all JVMs of the image) come before Spark's, so that a setting of the topology wins.
    """
    try:
        memory = environment["SPARK_EXECUTOR_MEMORY"]
        arguments = [word for flag, name in _ARGUMENTS.items() for word in (flag, environment[name])]
    except KeyError as error:
        raise StartError(f"{error.args[0]} is not set: this is not a pod that Spark has asked for") from error
    numbered = [name for name in environment if name.startswith(_OPTION) and name[len(_OPTION) :].isdigit()]
    options = [environment[name] for name in sorted(numbered, key=lambda name: int(name[len(_OPTION) :]))]
    image = shlex.split(environment.get("REPRISE_JAVA_OPTIONS", ""))
    java = [str(java_home / "bin" / "java"), "-cp", class_path(home), *image]
    return [*java, *options, f"-Xms{memory}", f"-Xmx{memory}", BACKEND, *arguments]


@dataclass(slots=True)
class ExecutorProcess(OfSession):
    """The process of at most one executor, started once."""

    command: Sequence[str]
    scratch: Path
    """The executor's folder."""
    _process: subprocess.Popen[bytes] | None = None
    _spare: SpareHost = field(default_factory=SpareHost)

    @classmethod
    def of(cls, environment: Mapping[str, str], scratch: Path) -> ExecutorProcess:
        """The process that Spark's environment variables describe."""
        java = find_java(scratch / "java")
        return cls(command_line(environment, java, spark_home()), scratch / "executor")

    def start(self) -> None:
        """Start it in a fresh folder; its output is the container's."""
        shutil.rmtree(self.scratch, ignore_errors=True)
        waiting = self.scratch.with_name("spare")
        shutil.rmtree(waiting, ignore_errors=True)
        for folder in (self.scratch, waiting):
            folder.mkdir(parents=True)
        home = spark_home()
        environment = os.environ | {
            "SPARK_HOME": str(home),
            "SPARK_CONF_DIR": str(conf_dir(home)),
            "SPARK_LOCAL_IP": os.environ["SPARK_EXECUTOR_POD_IP"],  # not what the host's name resolves to
            spare_host.FOLDER: str(waiting),
        }
        self._process = subprocess.Popen(
            self.command, env=environment, cwd=self.scratch, stdin=subprocess.DEVNULL
        )
        self._spare.start(environment)

    def keep(self) -> None:
        """Another one is never needed: a pod ends with its executor."""

    @property
    def alive(self) -> bool:
        """Whether the executor runs.  The driver itself knows which ones have registered."""
        return self._process is not None and self._process.poll() is None

    def end_all(self) -> None:
        """See `Executors`."""
        processes.kill(self.others)
        if self._process is not None:
            self._process.wait()
        self._process = None
        self._spare.ended()
