"""A pytest plugin: the CPU seconds of each test, with those of all processes that it started.

Problem: wall time of a test depends on what else the machine does; its CPU time hardly does.  So budgets are in CPU seconds.
The plugin writes one JSON object to the file that `VARIABLE` names: test id -> CPU seconds of set-up, call and teardown.
A process that nobody waited for before the test ended is missing from the sum.
"""

from __future__ import annotations

import json
import os
import resource
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

VARIABLE = "REPRISE_CPU_SECONDS"
_OF_REPORT = "cpu_s"
_found: defaultdict[str, float] = defaultdict(float)


def _used_s(with_living: bool) -> float:
    """CPU seconds of this process and of its ended children; `with_living`: of all processes below it, too."""
    times = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    total = sum(used.ru_utime + used.ru_stime for used in times)
    for process in psutil.Process().children(recursive=True) if with_living else []:
        try:
            total += sum(process.cpu_times()[:4])
        except psutil.Error:  # it ended meanwhile: its parent has its time
            continue
    return total


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    item.stash[_BEFORE] = _used_s(_starts_processes(item))
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report = yield
    now = _used_s(_starts_processes(item))
    setattr(report, _OF_REPORT, now - item.stash[_BEFORE])
    item.stash[_BEFORE] = now
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """With pytest-xdist the controller gets the reports of its workers here."""
    _found[report.nodeid] += getattr(report, _OF_REPORT, 0.0)


def pytest_sessionfinish() -> None:
    if (file := os.environ.get(VARIABLE)) and "PYTEST_XDIST_WORKER" not in os.environ:
        Path(file).write_text(json.dumps(_found), encoding="utf-8")


def _starts_processes(item: pytest.Item) -> bool:
    return item.get_closest_marker("slow") is not None


_BEFORE = pytest.StashKey[float]()
