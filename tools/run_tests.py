"""Runs the tests part by part: every part runs, whatever fails, and the command fails if one did.

Problem: the tests start Spark clusters, brokers and a Kubernetes control plane on a machine of two cores.  Two clusters side
by side make each other late, and a test that fails must not hide those behind it.  So each part runs alone, with as many
workers as it can use, and one table at the end has wall time, CPU seconds and verdict of each part.  A part that takes
more CPU seconds than its share, and a test that takes more than `TEST_CPU_S`, are listed below it; they fail nothing.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import os
import random
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.testbed import cpu_seconds

PR_SET_CHILD_SUBREAPER = 36
TEST_CPU_S = 3.0
"""A test of `make test` that takes more CPU seconds is listed."""
IN_MEMORY_BYTES = 2**30
"""Tests that start nothing write many thousand small files: into memory where so much of it is free."""

SPARK = (
    "tests/e2e", "tests/install", "tests/kafka/test_resume.py", "tests/kafka/test_standbys.py",
    "tests/stores/test_spark_s3.py", "tests/web/test_run.py", "tests/monitoring/test_alerts_fire.py",
    "tests/unit/controller/local/run/test_endings.py",
)  # fmt: skip
"""Folders and files with tests that start a Spark cluster; they run in one lane."""
KUBERNETES = ("tests/kubernetes",)
ELSEWHERE = tuple(f"--ignore={path}" for path in (*SPARK, *KUBERNETES))
CONTROL_PLANE = ("python", "-m", "tools.testbed.build")
"""Unpacks or builds Kubernetes' servers, where they are not in the cache."""
LINT = (("ruff", "check", "."), ("ruff", "format", "--check", "."), ("mypy",), ("lint-imports",))
MARKS = {
    "fast": "not slow and not wide and not soak and not long",
    "test": "not wide and not soak",
    "all": "not soak",
    "soak": "soak",
}
"""What each level takes, by the marks that pyproject.toml explains."""
SHARES_S = {"lint": 30.0, "unit": 500.0, "services": 160.0, "spark": 400.0, "kubernetes": 160.0}
"""CPU seconds of the parts of `make test`, on the machine of the table in CONTRIBUTING.md."""

EXAMPLES = "REPRISE_TEST_EXAMPLES"
"""Variable with the share of the examples of each property."""
SHARE_OF_EXAMPLES = {"fast": 0.1, "test": 0.25}
SOAK_SEED = "REPRISE_SOAK_SEED"
"""Variable with the first seed of random schedules; `soak` draws one and prints it where it is not set."""


@dataclass(frozen=True, slots=True)
class Part:
    """Commands that run one after the other, each a program of the environment."""

    name: str
    commands: tuple[tuple[str, ...], ...]
    in_memory: bool = False
    """Whether its tests write many thousand small files: into memory, where there is room."""


def parts(level: str) -> tuple[Part, ...]:
    """What a level runs, a key of `MARKS`."""
    marks = MARKS[level]
    two = ("-n", "2", "--dist", "loadfile")
    lint = Part("lint", LINT)
    if level == "fast":  # one worker waits at times
        unit = _pytest(marks, "-n", "3", "--dist", "loadfile")
        return lint, Part("unit", (unit,), in_memory=True)
    if level == "soak":
        return (Part("soak", (_pytest(marks, "-n", "2", "--dist", "load", "tests/unit"),), in_memory=True),)
    return (
        lint,
        Part("unit", (_pytest(f"not slow and {marks}", *two),), in_memory=True),
        Part("services", (_pytest(f"slow and {marks}", *two, *ELSEWHERE),)),
        Part("spark", (_pytest(f"slow and {marks}", *SPARK),)),
        Part("build", (CONTROL_PLANE,)),
        Part("kubernetes", (_pytest(f"slow and {marks}", *KUBERNETES),)),
    )


def _pytest(marks: str, *words: str) -> tuple[str, ...]:
    return ("python", "-m", "pytest", "-q", "-p", cpu_seconds.__name__, "-m", marks, *words)


@dataclass(frozen=True, slots=True)
class Result:
    """What a part took, in seconds, and its exit codes."""

    name: str
    wall_s: float
    cpu_s: float
    codes: tuple[int, ...]
    tests: Mapping[str, float]
    """CPU seconds by test."""

    @property
    def verdict(self) -> str:
        return "passed" if not any(self.codes) else f"FAILED ({', '.join(map(str, self.codes))})"


def run(part: Part, level: str) -> Result:
    """All commands of a part, also behind one that failed."""
    began, used = time.monotonic(), _cpu_of_children()
    tests: dict[str, float] = {}
    codes = []
    with tempfile.TemporaryDirectory(prefix="reprise-tests-") as folder:
        file = Path(folder) / "cpu.json"
        variables = {**os.environ, **_variables(part, level), cpu_seconds.VARIABLE: str(file)}
        for command in part.commands:
            print(f"\n== {part.name}: {' '.join(command)}", flush=True)
            program = str(Path(sys.executable).parent / command[0])
            codes.append(_run([program, *command[1:]], variables))
            if file.exists():
                tests |= json.loads(file.read_text(encoding="utf-8"))
                file.unlink()
    return Result(part.name, time.monotonic() - began, _cpu_of_children() - used, tuple(codes), tests)


def _run(command: list[str], variables: Mapping[str, str]) -> int:
    """Its exit code.  Meanwhile all orphans below this process are waited for, so that their CPU time counts."""
    child = os.posix_spawn(command[0], command, variables)
    while True:
        ended, status = os.waitpid(-1, 0)
        if ended == child:
            return os.waitstatus_to_exitcode(status)


def _adopt_orphans() -> None:
    """Processes whose parent was killed become children of this one (Linux, prctl(2))."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _variables(part: Part, level: str) -> dict[str, str]:
    """Sets have the same order in each run; small files are in memory where there is room."""
    found = {"PYTHONHASHSEED": "0", EXAMPLES: str(SHARE_OF_EXAMPLES.get(level, 1.0))}
    if level == "soak":
        found[SOAK_SEED] = os.environ.get(SOAK_SEED) or str(random.randrange(10**9))
        print(f"{SOAK_SEED}={found[SOAK_SEED]}", flush=True)
    memory = Path("/dev/shm")
    if part.in_memory and memory.is_dir() and shutil.disk_usage(memory).free > IN_MEMORY_BYTES:
        found["PYTEST_DEBUG_TEMPROOT"] = str(memory)
    return found


def table(results: Sequence[Result], shares_s: Mapping[str, float]) -> str:
    """Parts with their seconds; where there are shares, what is over its budget."""
    lines = ["", f"{'part':<12}{'wall s':>8}{'CPU s':>8}{'share':>8}{'tests':>8}  verdict"]
    for one in results:
        share = f"{shares_s[one.name]:.0f}" if one.name in shares_s else "-"
        seconds = f"{one.wall_s:>8.0f}{one.cpu_s:>8.0f}{share:>8}"
        lines.append(f"{one.name:<12}{seconds}{len(one.tests):>8}  {one.verdict}")
    lines.append(f"{'sum':<12}{sum(r.wall_s for r in results):>8.0f}{sum(r.cpu_s for r in results):>8.0f}")
    for one in results:
        if one.cpu_s > shares_s.get(one.name, math.inf):
            lines.append(f"over its share: {one.name}, {one.cpu_s:.0f} CPU s of {shares_s[one.name]:.0f}")
    if shares_s:
        used = sorted((used, test) for one in results for test, used in one.tests.items())
        lines += [f"over {TEST_CPU_S:g} CPU s: {s:.1f} {test}" for s, test in used[::-1] if s > TEST_CPU_S]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """`python -m tools.run_tests LEVEL [--part NAME ...] [PATH ...]`."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.run_tests",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("level", choices=MARKS, help="which tests; `make help` explains the levels")
    parser.add_argument("--part", action="append", help="run only this part; may be given again")
    parser.add_argument("paths", nargs="*", help="run only the level's tests below these paths, in one lane")
    options = parser.parse_args(arguments)
    chosen = parts(options.level)
    if options.paths:
        chosen = (Part("chosen", (_pytest(MARKS[options.level], *options.paths),)),)
    if options.part:
        names = [part.name for part in chosen]
        if unknown := set(options.part).difference(names):
            parser.error(f"no such part: {', '.join(sorted(unknown))} (there are {', '.join(names)})")
        chosen = tuple(part for part in chosen if part.name in options.part)
    _adopt_orphans()
    results = [run(part, options.level) for part in chosen]
    print(table(results, SHARES_S if options.level == "test" else {}), flush=True)
    return int(any(any(result.codes) for result in results))


if __name__ == "__main__":
    sys.exit(main())
