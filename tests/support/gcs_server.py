"""A server that speaks as Google Cloud Storage does, conditions of uploads included: fake-gcs-server, a Go module.

It is built when it is first asked for (two minutes of CPU), and kept in the user's cache.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from reprise.controller.local.cluster import launch
from reprise.controller.local.cluster.class_archive import cache_dir
from reprise.controller.local.cluster.process_reaper import ProcessReaper
from tests.support.object_stores import BUCKET, answers
from tools.testbed.build import BuildError, find_go
from tools.testbed.cached import made_once
from tools.testbed.waiting import until

MODULE = "github.com/fsouza/fake-gcs-server@v1.56.1"
PORT = 4443


def ensure() -> Path:
    """The program, built now if need be.  Raises BuildError."""
    folder = cache_dir() / MODULE.rpartition("/")[2].replace("@", "-")
    if not folder.is_dir():
        with made_once(folder) as part:
            done = subprocess.run(
                [find_go(), "install", "-trimpath", "-ldflags", "-s -w", MODULE],
                env=os.environ | {"CGO_ENABLED": "0", "GOBIN": str(part), "GOFLAGS": "-mod=mod"},
                capture_output=True, text=True, check=False, cwd=part,
            )  # fmt: skip
            if done.returncode != 0:
                raise BuildError(f"{MODULE} cannot be built: {done.stderr[-1000:]}")
    return folder / "fake-gcs-server"


@contextmanager
def gcs_server() -> Iterator[str]:
    """Start it with an empty bucket `tests`; its address."""
    program = ensure()
    prefix, reaper = ProcessReaper.with_prefix()
    try:
        host, data = f"{prefix}.1", reaper.scratch / "data"
        (data / BUCKET).mkdir(parents=True)
        command = [str(program), "-backend", "memory", "-data", str(data), "-scheme", "http", "-host", host]
        command += ["-port", str(PORT), "-log-level", "warn"]
        launch.spawn(command, reaper.environment(), reaper.scratch / "log")
        until(lambda: answers(f"http://{host}:{PORT}/storage/v1/b"), "fake-gcs-server", poll_s=0.1)
        yield f"{host}:{PORT}"
    finally:
        reaper.close()
