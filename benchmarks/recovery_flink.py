"""The counts of `benchmarks.recovery_work` by Apache Flink: a JobManager and TaskManagers as processes, without its scripts.

The distribution is that of the package `apache-flink-libraries` on PyPI (`flink.lock`), unpacked once into the user's cache.
The Janino that comes with Spark compiles `flink/Counts.java`.  All JVMs get the flags of Reprise's executors and a
class-data archive, which a short run of the same job makes.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tarfile
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import urljoin

import numpy as np
import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JJavaError

from benchmarks.recovery_work import QUERIES, Feed, Tweets
from reprise.controller.agent.java import find_java
from reprise.controller.agent.jvm import FAST_START
from reprise.controller.local.cluster import addresses
from reprise.controller.local.cluster.class_archive import cache_dir
from reprise.controller.local.report.history import Writes
from reprise.controller.local.run.services import Service
from reprise.spark_jobs.exchange.relays import compile_jar

LOCK = Path(__file__).with_name("flink.lock")
SOURCE = Path(__file__).with_name("flink") / "Counts.java"
MAIN = "Counts"
PACKAGE = "apache-flink-libraries"
INDEX = "https://pypi.org/simple"
HOST = "127.0.0.1"
CHECKPOINT_S = 10
START_S = 120.0
ANSWER_S = 2.0
COMMIT_S = 3.0
"""From a checkpoint until all sinks have finished its files."""
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
TUNED = {
    "jobmanager.scheduler": "adaptive",
    "jobmanager.adaptive-scheduler.submission.resource-stabilization-timeout": "2 s",
    "jobmanager.adaptive-scheduler.executing.resource-stabilization-timeout": "2 s",
    "jobmanager.adaptive-scheduler.executing.cooldown-after-rescaling": "2 s",
    "heartbeat.timeout": "5000",
    "heartbeat.interval": "1000",
}
"""Runs on the slots that are there, takes further ones after 2 s, and gives up a lost TaskManager after two failed
heartbeats of a second."""


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


def compiled(jars: Path) -> Path:
    """The jar of the job, made once for this source and this Flink."""
    digest = hashlib.sha256(SOURCE.read_bytes() + jars.name.encode()).hexdigest()[:12]
    target = jars.with_name(f"flink-counts-{digest}.jar")
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
        compile_jar(gateway.jvm, SOURCE.read_text(encoding="utf-8"), part)
        part.replace(target)
    except Py4JJavaError as error:
        raise FlinkError(f"{SOURCE}: {error.java_exception.getMessage()}") from error
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
        self._options: Mapping[str, Sequence[str]] = {}
        self._rpc, self._rest = addresses.free_ports(HOST, 2)
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
            "taskmanager.memory.task.heap.size": "256m",
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
    """JVM options by kind of process that name its class-data archive; made by a run with few tweets if it is not there.
    No options where this Java writes no archive."""
    job_jar, java = compiled(jars), find_java(cache_dir())
    release = java / "release"
    version = release.read_bytes() if release.exists() else bytes(java)
    digest = hashlib.sha256(version + " ".join([job_jar.name, *FAST_START]).encode()).hexdigest()[:12]
    folder = jars.with_name(f"flink-archives-{digest}")
    if not folder.exists():
        progress("making class-data archives for Flink, once for this machine")
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            made = Path(scratch) / "archives"
            made.mkdir()
            _train(Path(scratch), made, jars, environment)
            made.rename(folder)
    written = {kind: folder / f"{kind}.jsa" for kind in ENTRIES}
    if not all(path.exists() for path in written.values()):
        progress("this Java writes no class-data archives: Flink starts without")
        return {}
    return {kind: [f"-XX:SharedArchiveFile={path}"] for kind, path in written.items()}


def _train(scratch: Path, archives: Path, jars: Path, environment: Mapping[str, str]) -> None:
    feed = scratch / "tweets"
    feed.mkdir()
    (feed / "tweets.txt").write_text("".join(f"{tweet} tag{tweet % 7}\n" for tweet in range(1000)))
    with Flink(scratch / "run", {"execution.checkpointing.interval": "1 s"}, environment, jars) as flink:
        options = {kind: [f"-XX:ArchiveClassesAtExit={archives}/{kind}.jsa"] for kind in ENTRIES}
        flink.start(job(feed, flink.out, 0.0, 1), 1, options)
        deadline = time.monotonic() + START_S
        while not list((flink.out / "sink").glob("*/*/part-*")):
            if not flink.alive or time.monotonic() > deadline:
                raise FlinkError(f"Flink did not run: {flink.log.read_text()[-500:]}")
            time.sleep(0.2)
        flink.terminate()


Counted = tuple[int, int, str]
"""Tweet, position of a hashtag in it, hashtag."""


@dataclass(frozen=True, slots=True)
class Computed:
    """When the results of one query were computed: (tweet, position) -> unix seconds, at first and at last."""

    first: Mapping[tuple[int, int], float]
    last: Mapping[tuple[int, int], float]


def computed(out: Path, query: int) -> Computed:
    """From what its tasks have logged; a line that was not written whole does not count."""
    first: dict[tuple[int, int], float] = {}
    last: dict[tuple[int, int], float] = {}
    for path in (out / "probe" / str(query)).glob("*"):
        for line in path.read_text().rpartition("\n")[0].splitlines():
            tweet, position, milliseconds = map(int, line.split(" "))
            key, at = (tweet, position), milliseconds / 1e3
            first[key] = min(at, first.get(key, at))
            last[key] = max(at, last.get(key, at))
    return Computed(first, last)


def writes(found: Computed, feed: Feed, tweets: Tweets) -> Writes:
    """When the last first result of each batch was there, up to the first batch that lacks one.

    It is not committed then: files are finished with checkpoints."""
    written: list[float] = []
    for number in range(1, tweets.batches + 1):
        keys = [(tweet, position) for tweet, tags in tweets.batch(number) for position in range(len(tags))]
        if not all(key in found.first for key in keys):
            break
        written.append(max(found.first[key] for key in keys))
    batches = np.arange(1, len(written) + 1, dtype=np.int64)
    return Writes(batches, np.array([feed.due(int(batch)) for batch in batches]), np.array(written))


def committed(out: Path, query: int) -> tuple[Counter[Counted], dict[str, list[int]]]:
    """What is in the finished files of a query: how often each hashtag of a tweet was counted, and the counts by hashtag."""
    seen: Counter[Counted] = Counter()
    counts: dict[str, list[int]] = {}
    for path in (out / "sink" / str(query)).glob("*/part-*"):
        for line in path.read_text().splitlines():
            tweet, position, tag, count = line.split(" ")
            seen[int(tweet), int(position), tag] += 1
            counts.setdefault(tag, []).append(int(count))
    return seen, counts


def miscounted(out: Path, found: Sequence[Computed], tweets: Tweets, checkpoint: float) -> list[str]:
    """What of the committed results is not counted exactly once.  `found`: of each query.  `checkpoint`: when the last
    completed one was triggered, unix seconds; all that was computed before it is in finished files."""
    given = {
        (tweet, position, tag)
        for number in range(1, tweets.batches + 1)
        for tweet, tags in tweets.batch(number)
        for position, tag in enumerate(tags)
    }
    wrong = []
    for number, query in enumerate(QUERIES):
        seen, counts = committed(out, number)
        there = {(tweet, position) for tweet, position, _ in seen}
        missing = sum(at < checkpoint and key not in there for key, at in found[number].last.items())
        other = sum(times != 1 or key not in given for key, times in seen.items())
        gaps = sum(sorted(of) != list(range(1, len(of) + 1)) for of in counts.values())
        if missing or other or gaps or not seen:
            wrong.append(
                f"{query}: of {len(seen)} results {missing} are missing, {other} are wrong or there twice, and the "
                f"counts of {gaps} hashtags have gaps"
            )
    return wrong
