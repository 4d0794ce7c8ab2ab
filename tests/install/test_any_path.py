"""A clone works wherever it is: below a folder of the project's name, with a space or 120 characters in its path, and where
nobody may write beside it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLACES = {"its own name": "reprise/reprise", "a space": "two words/reprise", "long": f"{'long' * 30}/reprise"}
STARTS_NOTHING = (
    "tests/unit/docs", "tests/unit/tools", "tests/unit/docker", "tests/unit/controller/cli", "tests/unit/controller/local",
    "tests/unit/controller/web", "tests/unit/spark_jobs/topology", "tests/unit/spark_jobs/storage",
)  # fmt: skip
OBEYS_MODES = ("setpriv", "--bounding-set=-dac_override,-dac_read_search") if os.geteuid() == 0 else ()
"""Root may write where the mode of a folder forbids it, but for a process without these capabilities."""
ON_SPARK = "tests/e2e/test_random_faults.py::test_each_process_is_lost_once"

pytestmark = [pytest.mark.slow, pytest.mark.wide]


def copy(to: Path) -> None:
    """A repository with the files of this checkout that git knows, as they are now."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in filter(None, listed.stdout.split("\0")):
        (to / name).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_symlink() or (ROOT / name).exists():
            shutil.copy2(ROOT / name, to / name, follow_symlinks=False)
    for command in ("init", "-q"), ("add", "-A"):
        subprocess.run(["git", *command], cwd=to, check=True)


def passes(clone: Path, *words: str) -> str:
    """The last lines of a run of tests there, which must pass."""
    done = subprocess.run(
        [*OBEYS_MODES, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words],
        cwd=clone, env=os.environ | {"PYTHONPATH": str(clone)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]
    return done.stdout


@pytest.mark.parametrize("place", PLACES)
def test_a_clone_works_at(place: str, tmp_path: Path) -> None:
    clone = tmp_path / PLACES[place]
    copy(clone)
    clone.parent.chmod(0o555)
    try:
        denied = subprocess.run(
            [*OBEYS_MODES, "touch", clone.parent / "file"], capture_output=True, check=False
        )
        assert denied.returncode != 0
        passes(clone, "-m", "not slow and not wide and not soak", *STARTS_NOTHING)
        assert "1 passed" in passes(clone, ON_SPARK)
    finally:
        clone.parent.chmod(0o755)
