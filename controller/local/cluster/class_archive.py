"""Start JVMs in half the CPU time: one class-data archive for master, executors, drivers and
ZooKeeper.

Most of the CPU that a young Spark JVM burns is spent on reading, checking and linking the same nine thousand
classes. The JVM can map them ready-made from an archive file. The archive is made once for a (Java, pyspark)
pair by a training run: a cluster of one node, whose JVMs list the classes that they load, runs a small job;
then `java -Xshare:dump` turns the joint list into one archive. It is kept in the user's cache folder and
shared by every cluster on the machine (the mapped pages too). A static archive and not one dumped at exit: it
needs no base archive, which the bundled JRE lacks, and the lists survive a SIGKILL.

Invariant: an archive only ever makes things faster. A JVM ignores one that does not match; when making it
fails, the reason is left in the cache folder, and clusters start without.
"""

import contextlib
import fcntl
import hashlib
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from reprise.controller.agent import processes
from reprise.controller.agent.jvm import Jvm, class_path
from reprise.controller.errors import EmbeddedError, StartError
from reprise.controller.local.cluster import launch
from reprise.controller.local.cluster.class_archive_pruning import prune
from reprise.controller.local.cluster.process_reaper import ProcessReaper

_LAYOUT = "3"
"""Raise when flags or training change in a way that calls for a new archive."""
_TRAINING_TIMEOUT_S = 600.0
_DUMP_TIMEOUT_S = 240.0
_TRY_AGAIN_AFTER_S = 86400.0


def cache_dir() -> Path:
    """REPRISE_CACHE_DIR, else the XDG cache folder."""
    if chosen := os.environ.get("REPRISE_CACHE_DIR"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "reprise"


def archive_key(java_home: Path, spark_home: Path) -> str:
    """Names all that an archive depends on: the Java, and the jars with their sizes and times."""
    java = (java_home / "bin" / "java").resolve()
    parts = [_LAYOUT, str(spark_home), str(java)]
    with contextlib.suppress(OSError):
        parts.append((java.parent.parent / "release").read_text(encoding="utf-8"))
    with contextlib.suppress(OSError):
        parts.append(java.read_text(encoding="utf-8") if java.stat().st_size < 4096 else "")  # our wrapper
    for jar in sorted((spark_home / "jars").glob("*.jar")):
        status = jar.stat()
        parts.append(f"{jar.name} {status.st_size} {status.st_mtime_ns}")
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def merge_class_lists(lists: Iterable[str]) -> list[str]:
    """One list out of those of several JVMs. Newer JVMs number the entries; the numbers clash, so they go,
    and so do entries of custom class loaders, which mean nothing without them."""
    merged: dict[str, None] = {}
    for text in lists:
        for line in text.splitlines():
            if line and not line.startswith("#") and " source: " not in line:
                merged[line if line.startswith("@") else line.split(" id: ", 1)[0]] = None
    return list(merged)


def ensure_archive(jvm: Jvm, reaper: ProcessReaper, progress: Callable[[str], None]) -> Path | None:
    """The archive for this Java and pyspark, made now if it is missing; None if it cannot be made."""
    folder = cache_dir()
    key = archive_key(jvm.java_home, jvm.home)
    archive, failure = folder / f"classes-{key}.jsa", folder / f"classes-{key}.failed"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if failure.exists() and failure.stat().st_mtime < time.time() - _TRY_AGAIN_AFTER_S:
            failure.unlink(missing_ok=True)
        if not archive.exists() and not failure.exists():
            progress(
                "making the class archive (JVMs start faster with it), once for this Java and pyspark; a minute or more"
            )
            with _alone(folder / f"classes-{key}.lock"):
                if not archive.exists() and not failure.exists():
                    _make(jvm, reaper, archive, failure)
            if gone := prune(folder):
                progress(f"{len(gone)} class archives that nobody has used lately are removed from {folder}")
        if failure.exists():
            progress(f"no class archive, JVMs start slower: see {failure}")
            return None
        os.utime(archive)  # the newest were used last: class_archive_pruning
    except OSError as error:
        progress(f"no class archive, JVMs start slower: {error}")
        return None
    return archive


@contextlib.contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """One maker at a time; the kernel lifts the lock of one that dies."""
    with lock.open("w", encoding="utf-8") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


def _make(jvm: Jvm, reaper: ProcessReaper, archive: Path, failure: Path) -> None:
    work = reaper.scratch / "class-archive"
    work.mkdir(exist_ok=True)
    fresh = archive.with_suffix(f".{os.getpid()}")
    try:
        _probe(jvm, reaper, work)
        _train(jvm, reaper, work)
        texts = [path.read_text(encoding="utf-8") for path in work.glob("*.classes")]
        (work / "all.list").write_text("\n".join(merge_class_lists(texts)), encoding="utf-8")
        _dump(jvm, reaper, work / "all.list", fresh)
        fresh.replace(archive)
    except EmbeddedError as error:
        failure.write_text(
            f"{error}\n\nThe next start after a day, or without this file, tries again.\n", encoding="utf-8"
        )
    finally:
        fresh.unlink(missing_ok=True)


def _train(jvm: Jvm, reaper: ProcessReaper, work: Path) -> None:
    command = [sys.executable, "-m", "reprise.controller.local.cluster.class_archive_training", str(work)]
    environment = {"JAVA_HOME": str(jvm.java_home)}
    _run(command, environment, reaper, work / "training.log", _TRAINING_TIMEOUT_S)


def _probe(jvm: Jvm, reaper: ProcessReaper, work: Path) -> None:
    """Find out in seconds whether this Java takes an archive for this class path at all (21 does not
    always)."""
    tiny, target = work / "probe.list", work / "probe.jsa"
    tiny.write_text("java/lang/Object\norg/slf4j/Logger\n", encoding="utf-8")
    _dump(jvm, reaper, tiny, target)
    strict = replace(jvm, archive=target, options=("-Xshare:on",)).command("-version", heap_mb=64)
    _run(strict, jvm.environment("127.0.0.1"), reaper, work / "probe.log", _DUMP_TIMEOUT_S)


def _dump(jvm: Jvm, reaper: ProcessReaper, class_list: Path, target: Path) -> None:
    log = class_list.with_suffix(".log")
    command = [
        str(jvm.java_home / "bin" / "java"), "-cp", class_path(jvm.home), "-Xshare:dump",
        f"-XX:SharedClassListFile={class_list}", f"-XX:SharedArchiveFile={target}", "-XX:+UseSerialGC",
    ]  # fmt: skip
    _run(command, jvm.environment("127.0.0.1"), reaper, log, _DUMP_TIMEOUT_S)
    if not target.exists():
        raise StartError(f"java -Xshare:dump wrote no archive: {launch.tail(log)}")


def _run(
    command: list[str], environment: dict[str, str], reaper: ProcessReaper, log: Path, timeout_s: float
) -> None:
    process, session = launch.spawn(command, environment | reaper.environment(), log)
    try:
        launch.wait_until(lambda: process.poll() is not None, command[-1], timeout_s, log=log)
    finally:
        processes.kill(lambda: processes.members([session]))
        process.wait()
    if process.returncode != 0:
        raise StartError(f"{' '.join(command[:4])} ended with {process.returncode}: {launch.tail(log)}")
