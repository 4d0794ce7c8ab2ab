"""A cluster of Apache Flink for one job: a JobManager and TaskManagers as processes, without its scripts.

The distribution is that of the package `apache-flink-libraries` on PyPI (`flink.lock`), unpacked once into the user's cache.
The Janino that comes with Spark compiles the job, a Java file in `flink/`.  All JVMs get the flags of Reprise's executors.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tarfile
import tempfile
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import urljoin

import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JJavaError

from reprise.controller.agent.java import find_java
from reprise.controller.agent.jvm import FAST_START
from reprise.controller.local.cluster import addresses
from reprise.controller.local.cluster.class_archive import cache_dir
from reprise.controller.local.run.services import Service
from reprise.spark_jobs.exchange.relays import compile_jar

LOCK = Path(__file__).with_name("flink.lock")
JOBS = Path(__file__).with_name("flink")
PACKAGE = "apache-flink-libraries"
INDEX = "https://pypi.org/simple"
HOST = "127.0.0.1"
CHECKPOINT_S = 10
ANSWER_S = 2.0
ARCHIVE_S = 120.0
"""A JVM takes long to end when it writes an archive."""
OPENED = (
    "java.util", "java.lang", "java.net", "java.io", "java.nio", "java.lang.reflect", "java.text", "java.time",
    "java.util.concurrent", "java.util.concurrent.atomic", "java.util.concurrent.locks",
)  # fmt: skip
"""Packages of java.base that Flink's own scripts open."""
JOBMANAGER_MB, FRAMEWORK_MB = 512, 144
"""Heaps, without that of the job."""
ENTRIES = {
    "jobmanager": "org.apache.flink.container.entrypoint.StandaloneApplicationClusterEntryPoint",
    "taskmanager": "org.apache.flink.runtime.taskexecutor.TaskManagerRunner",
}
LOGGING = """\
rootLogger.level = INFO
rootLogger.appenderRef.out.ref = out
appender.out.name = out
appender.out.type = CONSOLE
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{yyyy-MM-dd HH:mm:ss,SSS} %-5p %-60c %x - %m%n
"""


class FlinkError(Exception):
    """Flink cannot be had, has ended, or does not answer."""


def distribution(progress: Callable[[str], None]) -> Path:
    """The folder of Flink's jars.  FlinkError when the package cannot be had."""
    name, sha256 = (line for line in LOCK.read_text(encoding="utf-8").splitlines() if line[:1] != "#")
    folder = cache_dir() / "jars" / f"flink-{sha256[:12]}"
    if folder.exists():
        return folder
    progress("fetching Flink (330 MB), once for this machine")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        archive = Path(scratch) / name
        _fetch(name, archive)
        with archive.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != sha256:
            raise FlinkError(f"{name} has SHA-256 {found}, expected {sha256}")
        jars = Path(scratch) / "jars"
        jars.mkdir()
        with tarfile.open(archive) as members:
            for member in members:
                if "/deps/lib/" in member.name and member.name.endswith(".jar"):
                    source = members.extractfile(member)
                    assert source is not None
                    with source, (jars / Path(member.name).name).open("wb") as target:
                        shutil.copyfileobj(source, target)
        jars.rename(folder)
    return folder


def _fetch(name: str, target: Path) -> None:
    """From the page of the package in a package index, which pip's variable names."""
    index = os.environ.get("PIP_INDEX_URL", INDEX).rstrip("/")
    page = f"{index}/{PACKAGE}/"
    try:
        with urllib.request.urlopen(page, timeout=60) as answer:
            links = re.findall(r'href="([^"]+)"', answer.read().decode())
        link = next((link for link in links if f"/{name}" in link), None)
        if link is None:
            raise FlinkError(f"the package index has no {name}")
        with urllib.request.urlopen(urljoin(page, link), timeout=60) as answer, target.open("wb") as file:
            shutil.copyfileobj(answer, file)
    except OSError as error:
        raise FlinkError(f"{name} cannot be fetched: {error}") from error


def compiled(name: str, jars: Path) -> Path:
    """The jar of the job `name`, made once for its source and this Flink."""
    source = JOBS / f"{name}.java"
    digest = hashlib.sha256(source.read_bytes() + jars.name.encode()).hexdigest()[:12]
    target = jars.with_name(f"flink-{name.lower()}-{digest}.jar")
    if target.exists():
        return target
    spark = Path(pyspark.__file__).parent / "jars"
    compiler_jars = [*spark.glob("janino-*.jar"), *spark.glob("commons-compiler-*.jar"), *jars.glob("*.jar")]
    port, token = launch_gateway(
        jarpath=str(next(spark.glob("py4j-*.jar"))),
        classpath=os.pathsep.join(map(str, compiler_jars)),
        java_path=str(find_java(cache_dir()) / "bin" / "java"),
        die_on_exit=True,
        enable_auth=True,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token))
    try:
        part = target.with_suffix(f".{os.getpid()}")
        compile_jar(gateway.jvm, source.read_text(encoding="utf-8"), part)
        part.replace(target)
    except Py4JJavaError as error:
        raise FlinkError(f"{source}: {error.java_exception.getMessage()}") from error
    finally:
        gateway.shutdown()
    return target


class Flink:
    """One application cluster.  A context manager: leaving it kills all processes."""

    def __init__(
        self,
        out: Path,
        name: str,
        jars: Sequence[Path],
        settings: Mapping[str, str],
        environment: Mapping[str, str],
        heap_mb: int = 256,
    ) -> None:
        """`out`: an empty folder.  `name`: of the job.  `jars`: folders, Flink's own first.  `heap_mb`: of the tasks of a
        TaskManager.  `environment`: marks the processes of whoever ends them if this process cannot."""
        self.out, self._name, self._environment, self._heap_mb = out, name, environment, heap_mb
        self._services: dict[str, Service] = {}
        self._started = 0
        self._options: Mapping[str, Sequence[str]] = {}
        self._rpc, self._rest = addresses.free_ports(HOST, 2)
        self._java = find_java(cache_dir())
        self._class_path = class_path(compiled(name, jars[0]), *jars)
        for folder in ("logs", "conf", "tmp"):
            (out / folder).mkdir(parents=True)
        (out / "conf" / "config.yaml").write_text(
            "".join(f"{key}: {value}\n" for key, value in (self._settings() | dict(settings)).items())
        )
        (out / "conf" / "log4j.properties").write_text(LOGGING)

    def __enter__(self) -> Flink:
        return self

    def __exit__(self, *_: object) -> None:
        for service in self._services.values():
            service.crash()

    def start(
        self, job: Sequence[str], nodes: int, options: Mapping[str, Sequence[str]] = MappingProxyType({})
    ) -> None:
        """Start all, with the arguments of the job.  `options`: of the JVM, by kind of process."""
        self._options = options
        self._spawn("jobmanager", "jobmanager", [f"--job-classname={self._name}", *job])
        for _ in range(nodes):
            self.add_node()

    def add_node(self) -> str:
        """Start a TaskManager; its name."""
        self._started += 1
        name = f"n{self._started}"
        self._spawn(name, "taskmanager", [f"-Dtaskmanager.resource-id={name}"])
        return name

    def kill(self, names: Sequence[str]) -> None:
        """SIGKILL, all at once."""
        lost = [self._services.pop(name) for name in names]
        with ThreadPoolExecutor(len(lost)) as pool:
            list(pool.map(Service.crash, lost))

    def terminate(self) -> None:
        """SIGTERM to all, and wait until they have ended."""
        for service in self._services.values():
            service.stop(ARCHIVE_S)

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(name for name in self._services if name != "jobmanager")

    @property
    def alive(self) -> bool:
        """Whether the JobManager is."""
        return self._services["jobmanager"].alive

    @property
    def log(self) -> Path:
        return self.out / "logs" / "jobmanager.log"

    def there(self) -> frozenset[str]:
        """TaskManagers that are registered; none while the JobManager does not answer."""
        return frozenset(one["id"] for one in self._get("/taskmanagers").get("taskmanagers", ()))

    def running(self) -> bool:
        """Whether all tasks of the job run."""
        jobs = self._get("/jobs/overview").get("jobs", ())
        return bool(jobs) and all(
            job["state"] == "RUNNING" and job["tasks"]["running"] == job["tasks"]["total"] for job in jobs
        )

    def completed(self) -> float:
        """When the newest completed checkpoint was triggered, unix seconds; 0: none was."""
        for job in self._get("/jobs/overview").get("jobs", ()):
            latest = self._get(f"/jobs/{job['jid']}/checkpoints").get("latest", {}).get("completed")
            if latest:
                return float(latest["trigger_timestamp"]) / 1e3
        return 0.0

    def _get(self, path: str) -> dict[str, Any]:
        try:
            with urllib.request.urlopen(f"http://{HOST}:{self._rest}{path}", timeout=ANSWER_S) as answer:
                found: dict[str, Any] = json.load(answer)
                return found
        except (OSError, ValueError):
            return {}

    def _spawn(self, name: str, kind: str, arguments: Sequence[str]) -> None:
        heap_mb = JOBMANAGER_MB if kind == "jobmanager" else FRAMEWORK_MB + self._heap_mb
        command = [
            str(self._java / "bin" / "java"), f"-Xmx{heap_mb}m", *FAST_START, *self._options.get(kind, ()),
            *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENED),
            f"-Dlog4j.configurationFile=file://{self.out}/conf/log4j.properties",
            f"-Djava.io.tmpdir={self.out}/tmp", "-cp", self._class_path,
            ENTRIES[kind], f"--configDir={self.out}/conf", *arguments,
        ]  # fmt: skip
        service = Service(name, command, dict(self._environment), self.out / "logs" / f"{name}.log")
        service.start()
        self._services[name] = service

    def _settings(self) -> dict[str, str]:
        return {
            "jobmanager.rpc.address": HOST,
            "jobmanager.rpc.port": str(self._rpc),
            "jobmanager.bind-host": HOST,
            "rest.port": str(self._rest),
            "rest.address": HOST,
            "rest.bind-address": HOST,
            "taskmanager.host": HOST,
            "taskmanager.bind-host": HOST,
            "taskmanager.numberOfTaskSlots": "1",
            "taskmanager.cpu.cores": "1.0",
            "taskmanager.memory.framework.heap.size": "128m",
            "taskmanager.memory.framework.off-heap.size": "128m",
            "taskmanager.memory.task.heap.size": f"{self._heap_mb}m",
            "taskmanager.memory.task.off-heap.size": "0b",
            "taskmanager.memory.managed.size": "32m",
            "taskmanager.memory.network.min": "96m",
            "taskmanager.memory.network.max": "96m",
            "taskmanager.memory.jvm-metaspace.size": "192m",
            "taskmanager.memory.jvm-overhead.min": "64m",
            "taskmanager.memory.jvm-overhead.max": "64m",
            "state.backend.type": "hashmap",
            "execution.checkpointing.interval": f"{CHECKPOINT_S} s",
            "execution.checkpointing.mode": "EXACTLY_ONCE",
            "execution.checkpointing.dir": f"file://{self.out}/checkpoints",
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": str(2**31 - 1),
            "restart-strategy.fixed-delay.delay": "1 s",
            "io.tmp.dirs": str(self.out / "tmp"),
            "blob.server.port": "0",
            "web.submit.enable": "false",
        }


def class_path(job: Path, *folders: Path) -> str:
    """Of all processes; the same for all, as a class-data archive is for one class path."""
    return os.pathsep.join(
        map(str, [job, *(jar for folder in folders for jar in sorted(folder.glob("*.jar")))])
    )
