"""The counts of `benchmarks.recovery_work` by Apache Flink: a JobManager and TaskManagers as processes, without its scripts.

The distribution is that of the package `apache-flink-libraries` on PyPI (`flink.lock`), unpacked once into the user's cache.
The Janino that comes with Spark compiles `flink/Counts.java`.  All JVMs get the flags of Reprise's executors and a
class-data archive, which a short run of the same job makes.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.request
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from benchmarks.recovery_work import QUERIES, Feed, Tweets
from reprise.controller.agent.java import find_java
from reprise.controller.agent.jvm import FAST_START
from reprise.controller.local.cluster.class_archive import cache_dir
from reprise.controller.local.report.history import Writes
from reprise.controller.local.run.services import Service

LOCK = Path(__file__).with_name("flink.lock")
SOURCE = Path(__file__).with_name("flink") / "Counts.java"
MAIN = "Counts"
RPC_PORT, REST_PORT = 26123, 26181
HOST = "127.0.0.1"
CHECKPOINT = "10 s"
START_S = 120.0
ARCHIVE_S = 120.0
"""A JVM takes long to end when it writes an archive."""
OPENED = (
    "java.util", "java.lang", "java.net", "java.io", "java.nio", "java.lang.reflect", "java.text", "java.time",
    "java.util.concurrent", "java.util.concurrent.atomic", "java.util.concurrent.locks",
)  # fmt: skip
"""Packages of java.base that Flink's own scripts open."""
HEAP_MB = {"jobmanager": 512, "taskmanager": 400}
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
TUNED = {"jobmanager.scheduler": "adaptive", "heartbeat.timeout": "5000", "heartbeat.interval": "1000"}
"""Runs on what is left, and gives lost TaskManagers up after seconds instead of a minute."""


class FlinkError(Exception):
    """Flink cannot be had, has ended, or does not answer."""


def distribution(progress: Callable[[str], None]) -> Path:
    """The folder of Flink's jars.  FlinkError when the package cannot be had."""
    requirement = LOCK.read_text(encoding="utf-8")
    folder = cache_dir() / "jars" / f"flink-{hashlib.sha256(requirement.encode()).hexdigest()[:12]}"
    if folder.exists():
        return folder
    progress("fetching Flink (330 MB), once for this machine")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        download = [
            *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"),
            *("--requirement", str(LOCK), "--dest", scratch),
        ]
        ended = subprocess.run(download, capture_output=True, text=True, check=False)
        archives = list(Path(scratch).glob("*.tar.gz"))
        if ended.returncode or not archives:
            raise FlinkError(f"pip cannot download {LOCK.name}: {ended.stderr.strip()[-500:]}")
        jars = Path(scratch) / "jars"
        jars.mkdir()
        with tarfile.open(archives[0]) as archive:
            for member in archive:
                if "/deps/lib/" in member.name and member.name.endswith(".jar"):
                    source = archive.extractfile(member)
                    assert source is not None
                    with source, (jars / Path(member.name).name).open("wb") as target:
                        shutil.copyfileobj(source, target)
        jars.rename(folder)
    return folder


def compiled(jars: Path) -> Path:
    """The jar of the job, made once for this source and this Flink."""
    digest = hashlib.sha256(SOURCE.read_bytes() + jars.name.encode()).hexdigest()[:12]
    target = jars.with_name(f"flink-counts-{digest}.jar")
    if target.exists():
        return target
    spark = Path(pyspark.__file__).parent / "jars"
    compiler_jars = [*spark.glob("janino-*.jar"), *spark.glob("commons-compiler-*.jar"), *jars.glob("*.jar")]
    port = launch_gateway(
        jarpath=str(next(spark.glob("py4j-*.jar"))),
        classpath=os.pathsep.join(map(str, compiler_jars)),
        java_path=str(find_java(cache_dir()) / "bin" / "java"),
        die_on_exit=True,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port))
    try:
        compiler = gateway.jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setTargetVersion(8)
        compiler.cook(SOURCE.read_text(encoding="utf-8"))
        made = compiler.getBytecodes()
        with zipfile.ZipFile(target, "w") as jar:
            for name in made.keySet():
                jar.writestr(f"{name}.class", bytes(made.get(name)))
    finally:
        gateway.shutdown()
    return target


class Flink:
    """One application cluster.  A context manager: leaving it kills all processes."""

    def __init__(
        self, out: Path, settings: Mapping[str, str], environment: Mapping[str, str], jars: Path
    ) -> None:
        """`out`: an empty folder.  `environment`: marks the processes of whoever ends them if this process cannot."""
        self.out, self._environment, self._jars = out, environment, jars
        self._services: dict[str, Service] = {}
        self._started = 0
        self._java = find_java(cache_dir())
        self._job = compiled(jars)
        for name in ("logs", "conf", "tmp"):
            (out / name).mkdir(parents=True)
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
        self._spawn("jobmanager", "jobmanager", [f"--job-classname={MAIN}", *job])
        for _ in range(nodes):
            self.add_node()

    def add_node(self) -> str:
        """Start a TaskManager; its name."""
        self._started += 1
        name = f"n{self._started}"
        self._spawn(name, "taskmanager", [f"-Dtaskmanager.resource-id={name}"])
        return name

    def kill(self, names: Sequence[str]) -> None:
        """SIGKILL."""
        for name in names:
            self._services.pop(name).crash()

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

    def _get(self, path: str) -> dict[str, Any]:
        try:
            with urllib.request.urlopen(f"http://{HOST}:{REST_PORT}{path}", timeout=5) as answer:
                found: dict[str, Any] = json.load(answer)
                return found
        except (OSError, ValueError):
            return {}

    def _spawn(self, name: str, kind: str, arguments: Sequence[str]) -> None:
        command = [
            str(self._java / "bin" / "java"), f"-Xmx{HEAP_MB[kind]}m", *FAST_START, *self._options.get(kind, ()),
            *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENED),
            f"-Dlog4j.configurationFile=file://{self.out}/conf/log4j.properties",
            f"-Djava.io.tmpdir={self.out}/tmp", "-cp", class_path(self._job, self._jars),
            ENTRIES[kind], f"--configDir={self.out}/conf", *arguments,
        ]  # fmt: skip
        service = Service(name, command, dict(self._environment), self.out / "logs" / f"{name}.log")
        service.start()
        self._services[name] = service

    def _settings(self) -> dict[str, str]:
        return {
            "jobmanager.rpc.address": HOST,
            "jobmanager.rpc.port": str(RPC_PORT),
            "jobmanager.bind-host": HOST,
            "rest.port": str(REST_PORT),
            "rest.address": HOST,
            "rest.bind-address": HOST,
            "taskmanager.host": HOST,
            "taskmanager.bind-host": HOST,
            "taskmanager.numberOfTaskSlots": "1",
            "taskmanager.cpu.cores": "1.0",
            "taskmanager.memory.framework.heap.size": "128m",
            "taskmanager.memory.framework.off-heap.size": "128m",
            "taskmanager.memory.task.heap.size": "256m",
            "taskmanager.memory.task.off-heap.size": "0b",
            "taskmanager.memory.managed.size": "32m",
            "taskmanager.memory.network.min": "96m",
            "taskmanager.memory.network.max": "96m",
            "taskmanager.memory.jvm-metaspace.size": "192m",
            "taskmanager.memory.jvm-overhead.min": "64m",
            "taskmanager.memory.jvm-overhead.max": "64m",
            "state.backend.type": "hashmap",
            "execution.checkpointing.interval": CHECKPOINT,
            "execution.checkpointing.mode": "EXACTLY_ONCE",
            "execution.checkpointing.dir": f"file://{self.out}/checkpoints",
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": str(2**31 - 1),
            "restart-strategy.fixed-delay.delay": "1 s",
            "io.tmp.dirs": str(self.out / "tmp"),
            "blob.server.port": "0",
            "web.submit.enable": "false",
        }


def class_path(job: Path, jars: Path) -> str:
    """Of all processes; the same for all, as a class-data archive is for one class path."""
    return os.pathsep.join(map(str, [job, *sorted(jars.glob("*.jar"))]))


def job(feed: Path, out: Path, service_ms: float, parallelism: int) -> list[str]:
    """The arguments of the job."""
    return [
        f"-Dparallelism.default={parallelism}",
        str(feed),
        str(out),
        str(round(service_ms * 1e6)),
        str(len(QUERIES)),
    ]


def archives(
    jars: Path, environment: Mapping[str, str], progress: Callable[[str], None]
) -> dict[str, list[str]]:
    """JVM options by kind of process that name its class-data archive; made by a run with few tweets if it is not there."""
    job_jar = compiled(jars)
    paths = {kind: job_jar.with_name(f"{job_jar.stem}-{kind}.jsa") for kind in ENTRIES}
    if not all(path.exists() for path in paths.values()):
        progress("making class-data archives for Flink, once for this machine")
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch)
            made = {kind: folder / path.name for kind, path in paths.items()}
            feed = folder / "tweets"
            feed.mkdir()
            (feed / "tweets.txt").write_text("".join(f"{tweet} tag{tweet % 7}\n" for tweet in range(1000)))
            with Flink(
                folder / "run", {"execution.checkpointing.interval": "1 s"}, environment, jars
            ) as flink:
                options = {kind: [f"-XX:ArchiveClassesAtExit={path}"] for kind, path in made.items()}
                flink.start(job(feed, flink.out, 0.0, 1), 1, options)
                deadline = time.monotonic() + START_S
                while not list((flink.out / "sink").glob("*/*/part-*")):
                    if not flink.alive or time.monotonic() > deadline:
                        raise FlinkError(f"Flink did not run: {flink.log.read_text()[-500:]}")
                    time.sleep(0.2)
                flink.terminate()
            for kind, path in made.items():
                if not path.exists():
                    raise FlinkError(f"the {kind} of Flink wrote no class-data archive")
                shutil.move(path, paths[kind])
    return {kind: [f"-XX:SharedArchiveFile={path}"] for kind, path in paths.items()}


def writes(out: Path, feed: Feed, tweets: Tweets) -> dict[str, Writes]:
    """When the last result of each batch was computed, by query; a result counts when it was there first.

    It is not yet committed then: files are finished with checkpoints."""
    found: dict[str, Writes] = {}
    for number, query in enumerate(QUERIES):
        first = np.full(tweets.rows * tweets.batches, np.inf)
        for path in (out / "probe" / str(number)).glob("*"):
            rows = _complete_rows(path)
            np.minimum.at(first, rows[:, 0], rows[:, 1] / 1e3)
        last = first.reshape(tweets.batches, tweets.rows).max(axis=1)
        batches = np.flatnonzero(np.isfinite(last)) + 1
        due = np.array([feed.due(int(batch)) for batch in batches])
        found[f"{query}.0"] = Writes(batches.astype(np.int64), due, last[batches - 1])
    return found


def _complete_rows(path: Path) -> np.ndarray[Any, np.dtype[np.int64]]:
    """(tweet, milliseconds) of the lines that were written whole."""
    whole = path.read_text().rpartition("\n")[0]
    return np.array(whole.split(), dtype=np.int64).reshape(-1, 2)


def miscounted(out: Path, expected: Mapping[str, int]) -> list[str]:
    """What of the committed results is not counted exactly once: the counts of a hashtag are 1, 2, ..., each once."""
    wrong = []
    for number, query in enumerate(QUERIES):
        seen: dict[str, list[int]] = {}
        for path in (out / "sink" / str(number)).glob("*/part-*"):
            for line in path.read_text().splitlines():
                _, tag, count = line.split(" ")
                seen.setdefault(tag, []).append(int(count))
        other = sum(
            sorted(counts) != list(range(1, len(counts) + 1)) or len(counts) > expected.get(tag, 0)
            for tag, counts in seen.items()
        )
        if other or not seen:
            wrong.append(f"{query} has {other} of {len(seen)} hashtags wrong")
    return wrong
