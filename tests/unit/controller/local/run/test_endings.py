"""However a run ends, nothing that it started outlives it, and its folder says how it ended."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from reprise.controller.agent import processes
from reprise.controller.local.cluster.process_reaper import MARK
from reprise.controller.local.report.compare import compare
from reprise.spark_jobs.topology import load_topology, override
from tests.e2e.scenario import write_expected

MINIMAL = Path(__file__).parents[5] / "examples" / "minimal.yaml"
REPRISE = [sys.executable, "-c", "from reprise.controller.cli import main; main()"]
SMALL = ["--nodes", "2", "--set", "nodes.cpu=400m", "--set", "batch.interval=200ms"]
BATCHES = 60

pytestmark = [pytest.mark.slow, pytest.mark.wide]


def _until(ready: Callable[[], Any], timeout_s: float = 240.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not ready():
        assert time.monotonic() < deadline, f"not within {timeout_s} s"
        time.sleep(0.1)


def _record(out: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads((out / "run.json").read_text())
    except FileNotFoundError:
        return {}
    return found


def _mark(pid: int) -> bytes:
    """The reaper's mark, from the environment of the run's driver process."""
    for process in processes.living():
        if process.parent == pid:
            environment = Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")
            if found := [entry for entry in environment if entry.startswith(MARK.encode() + b"=")]:
                return found[0]
    raise AssertionError("the run has no marked process")


def _start(out: Path, *more: str) -> subprocess.Popen[str]:
    command = [*REPRISE, "run", "-f", str(MINIMAL), "--out", str(out), *SMALL, *more]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], Path, bytes]]:
    """A run whose stream has begun."""
    out = tmp_path / "out"
    run = _start(out, "--set", "sources[tweets].with.batches=100000")
    try:
        _until(lambda: run.poll() is not None or "zero" in _record(out))
        assert run.poll() is None, run.communicate()[0]
        yield run, out, _mark(run.pid)
    finally:
        if run.poll() is None:
            run.kill()
        run.communicate()


def test_ctrl_c_ends_everything(running: tuple[subprocess.Popen[str], Path, bytes]) -> None:
    run, out, mark = running
    status = subprocess.run(
        [*REPRISE, "status", "--out", str(out)], capture_output=True, text=True, check=False
    )
    assert status.returncode == 0, status.stderr
    assert "count.0" in status.stdout
    _until(lambda: list((out / "checkpoints").glob("cp-*/COMPLETE.*json")))
    run.send_signal(signal.SIGINT)
    assert run.wait(240) == 130
    assert processes.carrying(mark) == []
    assert _record(out)["outcome"] == "interrupted"
    assert (out / "incident.json").exists()
    last = subprocess.run(
        [*REPRISE, "status", "--out", str(out)], capture_output=True, text=True, check=False
    )
    assert last.returncode == 0, last.stderr
    assert "the run has ended (interrupted)" in last.stderr
    assert "count.0" in last.stdout


def test_a_run_that_is_killed_leaves_no_process_and_a_resumed_one_writes_what_it_would_have(
    tmp_path: Path,
) -> None:
    out, stream = tmp_path / "out", ["--set", f"sources[tweets].with.batches={BATCHES}"]
    run = _start(out, *stream)
    try:
        _until(lambda: run.poll() is not None or list((out / "checkpoints").glob("cp-*/COMPLETE.*json")))
        assert run.poll() is None, run.communicate()[0]
        mark = _mark(run.pid)
        assert len(processes.carrying(mark)) >= 6
    finally:
        run.kill()
        run.communicate()
    _until(lambda: not processes.carrying(mark))
    gone = subprocess.run(
        [*REPRISE, "status", "--out", str(out)], capture_output=True, text=True, check=False
    )
    assert gone.returncode == 4
    assert "its process is gone" in gone.stderr
    resource = override(load_topology(MINIMAL), {"sources[tweets].with.batches": BATCHES})
    whole = write_expected(resource, tmp_path / "whole")
    assert not compare(whole, out).identical, "it was not interrupted in time"
    resumed = _start(out, *stream, "--resume")
    text = resumed.communicate(timeout=300)[0]
    assert resumed.returncode == 0, text
    assert compare(whole, out).identical
    assert _record(out)["checkpoints"][0] > 0
