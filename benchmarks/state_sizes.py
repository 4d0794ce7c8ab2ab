"""A large state by each way of keeping it: bytes of a snapshot, how long it holds up rows, latency, and recovery.

    python -m benchmarks.state_sizes --out DIR [--megabytes 128 512 1024 4096] [--touched 0.01 0.1 1]
        [--keys random together] [--ways synchronous asynchronous arrays paged eventual rocksdb] [--rate 50000]
        [--snapshots 2] [--memory MB] [--timeout S] [--go-on]

Ways: `arrays`, `paged` and `eventual` are those of a topology; `synchronous` and `asynchronous` are what Kwon, Balazinska
and Greenberg compare with ("Fault-tolerant Stream Processing using a Distributed, Replicated File System", section 6.1.3),
which cannot be chosen; `rocksdb` is Spark Structured Streaming with its RocksDB state store and changelog, the same query
over the same rows.  One partition, a folder as the store, each case in a process of its own.  Of Reprise it is the operator
with what stores it, without Spark; of Structured Streaming the whole query, whose latency has the cost of micro-batches.

Between two snapshots come ten batches with the share of keys that is `--touched`, `--rate` rows a second.  `pause`: in which
no batch is applied because of a snapshot, the greatest; of Structured Streaming the greatest commit of its state store.
`recovery`: from files that are not in the kernel's cache, until five batches behind the last snapshot are applied again,
without the start of a process.

A case that takes more memory than `--memory` is ended, and so said.  `DIR/figures.json` is written after each case; with
`--go-on` those in it are not measured again.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import psutil

from benchmarks.state_sizes_load import Load, bytes_a_key
from benchmarks.state_sizes_reprise import WAYS as OURS
from reprise.controller.agent.java import find_java
from reprise.controller.local.report.layout import write_atomically

PEER = "rocksdb"
WAYS = (*OURS, PEER)
LOOK_S = 0.2


@dataclass(frozen=True, slots=True)
class Case:
    """One way with one state."""

    megabytes: int
    touched: float
    keys: str
    way: str

    def __str__(self) -> str:
        return f"{self.megabytes} MB, {self.touched:.0%} of the keys {self.keys}, {self.way}"


@dataclass(frozen=True, slots=True)
class Figures:
    """Of one case; `failed`: why there are none."""

    case: Case
    state_keys: int
    failed: str = ""
    memory_mb: float = 0.0
    """The most that was in memory, of all of its processes."""
    first_mb: float = 0.0
    """Of the first snapshot, which has all of the state."""
    written_mb: float = 0.0
    """Of a snapshot, mean."""
    pause_ms: float = 0.0
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    """From when a batch was due until it was applied."""
    greatest_ms: float = 0.0
    recovery_s: float = 0.0
    from_disk: bool = True
    """Whether a recovery read a disk; not where the folder is in memory."""


class CaseError(Exception):
    """A process that did not say its figures; says why."""


class Process:
    """A case's process, with those that it starts: ended when it takes too much memory or too long."""

    def __init__(self, command: Sequence[str], environment: dict[str, str], folder: Path, name: str) -> None:
        self._out, self._log = folder / f"{name}.out", folder / f"{name}.log"
        with self._out.open("wb") as out, self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command, env=environment, stdout=out, stderr=log, start_new_session=True
            )
        self.memory_mb = 0.0

    def said(self, memory_mb: float, timeout_s: float) -> dict[str, Any]:
        """The figures that it says.  CaseError."""
        deadline = time.monotonic() + timeout_s
        while True:
            ended = self._process.poll() is not None
            if (found := self._out.read_text()).endswith("\n"):
                figures: dict[str, Any] = json.loads(found.splitlines()[-1])
                return figures
            if ended:
                raise CaseError(self._why())
            self.memory_mb = max(self.memory_mb, self._memory_mb())
            if self.memory_mb > memory_mb:
                raise CaseError(f"took more than the {memory_mb:.0f} MB of --memory")
            if time.monotonic() > deadline:
                raise CaseError(f"took longer than the {timeout_s:.0f} s of --timeout")
            time.sleep(LOOK_S)

    def end(self) -> None:
        """As a node ends that fails."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _memory_mb(self) -> float:
        held = 0
        with suppress(psutil.NoSuchProcess):
            whole = psutil.Process(self._process.pid)
            for one in (whole, *whole.children(recursive=True)):
                with suppress(psutil.NoSuchProcess):
                    held += one.memory_info().rss
        return held / 2**20

    def _why(self) -> str:
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return f"ended with {self._process.returncode}: {lines[-1] if lines else 'it said nothing'}"


def measured(case: Case, options: argparse.Namespace, folder: Path) -> Figures:
    """The figures of one case, in an empty folder."""
    load = Load(
        max(1000, case.megabytes * 2**20 // bytes_a_key()),
        case.touched,
        case.keys == "together",
        options.snapshots,
        options.rate,
    )
    found = Figures(case, load.keys)
    said, most = dict[str, Any](), 0.0
    try:
        for name, command, environment in processes(case, load, folder):
            process = Process(command, environment, folder, name)
            try:
                said |= process.said(options.memory, options.timeout)
            finally:
                process.end()
                most = max(most, process.memory_mb)
    except CaseError as error:
        return replace(found, failed=str(error), memory_mb=most)
    return replace(found, memory_mb=most, **said)


def processes(case: Case, load: Load, folder: Path) -> Iterator[tuple[str, list[str], dict[str, str]]]:
    """What is run, one after the other: its name, command line and environment."""
    here = str(Path(__file__).resolve().parents[1])
    environment = {**os.environ, "PYTHONPATH": here}
    given = ["--load", json.dumps(asdict(load)), "--folder", str(folder / "store")]
    python = [sys.executable, "-m"]
    if case.way != PEER:
        yield "reprise", [*python, "benchmarks.state_sizes_reprise", "--way", case.way, *given], environment
        return
    environment |= {
        "JAVA_HOME": str(find_java(folder / "java")),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_SUBMIT_ARGS": f"--master local[2] --driver-memory 2g "
        f"--driver-java-options -Djava.io.tmpdir={folder} pyspark-shell",
    }
    for phase in ("run", "recover"):
        yield phase, [*python, "benchmarks.state_sizes_structured", "--phase", phase, *given], environment


def cases(options: argparse.Namespace) -> list[Case]:
    """Small states first."""
    return [
        Case(megabytes, touched, keys, way)
        for megabytes in sorted(options.megabytes)
        for touched in options.touched
        for keys in options.keys
        for way in options.ways
    ]


def shown(found: Sequence[Figures]) -> Iterator[str]:
    """Markdown."""
    yield (
        "| state, MB | keys touched | way | a snapshot, MB | pause, ms | latency p50, p99, greatest, ms | recovery, s "
        "| memory, MB |"
    )
    yield "|--:|---|---|--:|--:|--:|--:|--:|"
    for one in found:
        case = one.case
        head = f"| {case.megabytes:,} | {case.touched:.0%} {case.keys} | {case.way} |"
        if one.failed:
            yield f"{head} {one.failed} | | | | {one.memory_mb:,.0f} |"
            continue
        latency = f"{one.p50_ms:,.0f}, {one.p99_ms:,.0f}, {one.greatest_ms:,.0f}"
        recovery = f"{one.recovery_s:.2f}" + ("" if one.from_disk else " (not from a disk)")
        yield f"{head} {one.written_mb:,.2f} | {one.pause_ms:,.1f} | {latency} | {recovery} | {one.memory_mb:,.0f} |"


def parsed(text: str) -> list[Figures]:
    """The inverse of what is written."""
    return [Figures(**{**one, "case": Case(**one["case"])}) for one in json.loads(text)]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.state_sizes", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--megabytes", type=int, nargs="+", default=[128, 512, 1024, 4096])
    parser.add_argument(
        "--touched", type=float, nargs="+", default=[0.01, 0.1, 1.0], help="shares of the keys"
    )
    parser.add_argument("--keys", nargs="+", choices=("random", "together"), default=["random"])
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--rate", type=float, default=50_000.0, help="rows a second")
    parser.add_argument("--snapshots", type=int, default=2, help="of each case, beside the first")
    most = psutil.virtual_memory().total * 0.75 / 2**20
    parser.add_argument("--memory", type=float, default=most, help="MB of one case; three quarters of all")
    parser.add_argument("--timeout", type=float, default=3600.0, help="of one process, seconds")
    parser.add_argument("--go-on", action="store_true", help="with the figures that are in --out already")
    options = parser.parse_args(arguments)
    if not all(0 < share <= 1 for share in options.touched):
        parser.error("--touched: shares are above 0 and at most 1")
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "figures.json"
    found = parsed(path.read_text()) if options.go_on and path.exists() else []
    known, every = {one.case for one in found}, cases(options)
    for number, case in enumerate(every, 1):
        if case in known:
            continue
        sys.stderr.write(f"{number} of {len(every)}: {case} ")
        sys.stderr.flush()
        began = time.monotonic()
        folder = options.out / "case"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        try:
            found.append(measured(case, options, folder.resolve()))
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        sys.stderr.write(f"{time.monotonic() - began:.0f} s {found[-1].failed}\n")
        write_atomically(path, json.dumps([asdict(one) for one in found], indent=1) + "\n")
    for line in shown(found):
        print(line)
    return 1 if any(one.failed for one in found) else 0


if __name__ == "__main__":
    sys.exit(main())
