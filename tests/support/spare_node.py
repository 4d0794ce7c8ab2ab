"""A node whose agent has started a host that waits for an executor."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from reprise.controller.agent.spare_host import SpareHost
from reprise.spark_jobs.node import spare

PHASE = "PYTEST_CURRENT_TEST"
"""Changes between the start of a test and its body."""


class SpareNode:
    """`spare` is of whoever derives from it, and started with `variables`."""

    spare: SpareHost

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.waiting = folder / "spare"
        self.waiting.mkdir()
        monkeypatch.setenv(spare.FOLDER, str(self.waiting))
        monkeypatch.setenv("PYTHONHASHSEED", "0")
        self.variables = {k: v for k, v in os.environ.items() if k != PHASE}

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self.spare._process is not None
        return self.spare._process

    def end(self) -> None:
        self.process.kill()
        self.spare.ended()
