"""Prometheus and promtool for the tests: Debian's package, fetched and unpacked into the user's cache.

Nothing is installed and no service is started; neither takes root.  `REPRISE_PROMETHEUS` names a folder with both programs
on a machine that is no Debian.  Where they cannot be had the tests fail and say what is missing.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

from reprise.controller.local.cluster.class_archive import cache_dir
from tools.testbed.cached import made_once

PROGRAMS = ("prometheus", "promtool")
MISSING = (
    "Prometheus is needed to test alerts and dashboards: set REPRISE_PROMETHEUS to a folder with prometheus and promtool "
    "(https://prometheus.io/download), or run `apt-get update` so that Debian's package can be fetched: "
)


class MissingProgramError(Exception):
    """Prometheus cannot be had here; says what to do."""


def ensure() -> Path:
    """The folder that holds the programs."""
    if chosen := os.environ.get("REPRISE_PROMETHEUS"):
        return _checked(Path(chosen))
    folder = cache_dir() / "prometheus"
    if not folder.is_dir():
        with made_once(folder) as part, tempfile.TemporaryDirectory(dir=folder.parent) as package:
            _fetch(Path(package))
            for program in (Path(package) / "usr" / "bin").iterdir():
                program.rename(part / program.name)
    return _checked(folder)


def _fetch(part: Path) -> None:
    part.chmod(0o755)
    _run(["apt-get", "download", "prometheus"], part)
    package = next(part.glob("prometheus_*.deb"), None)
    if package is None:
        raise MissingProgramError(MISSING + "apt-get has brought no package")
    _run(["dpkg", "-x", str(package), str(part)], part)


def _run(command: list[str], folder: Path) -> None:
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=300)
    except OSError as error:
        raise MissingProgramError(f"{MISSING}{command[0]}: {error.strerror}") from error
    if done.returncode != 0:
        raise MissingProgramError(f"{MISSING}{' '.join(command)}: {done.stderr[-500:]}")


def _checked(folder: Path) -> Path:
    absent = [name for name in PROGRAMS if not (folder / name).is_file()]
    if absent:
        raise MissingProgramError(f"{MISSING}{folder} has no {', '.join(absent)}")
    return folder
