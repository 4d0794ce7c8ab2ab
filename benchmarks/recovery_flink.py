"""The counts of `benchmarks.recovery_work` by Apache Flink.

A class-data archive, which a short run of the same job makes, lets its JVMs start as fast as Reprise's executors.
"""

from __future__ import annotations

import hashlib
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.flink_cluster import ENTRIES, Flink, FlinkError, compiled
from benchmarks.recovery_work import QUERIES, Feed, Tweets
from reprise.controller.agent.java import find_java
from reprise.controller.agent.jvm import FAST_START
from reprise.controller.local.cluster.class_archive import cache_dir
from reprise.controller.local.report.history import Writes

JOB = "Counts"
START_S = 120.0
COMMIT_S = 3.0
"""From a checkpoint until all sinks have finished its files."""
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
    job_jar, java = compiled(JOB, jars), find_java(cache_dir())
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
    with Flink(
        scratch / "run", JOB, [jars], {"execution.checkpointing.interval": "1 s"}, environment
    ) as flink:
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
