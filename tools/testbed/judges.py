"""Programs that judge what is shown to Kubernetes' people and tools: kstatus, by which Flux goes, and kubeconform.

Both are Go modules, built once a machine and kept in the user's cache under the hash of the module's files, as the control
plane is; that takes a minute where nothing is there yet.  Invariant: the folder of a hash is either complete or not there.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

from reprise.controller.local.cluster.class_archive import cache_dir
from tools.testbed.build import BuildError, find_go
from tools.testbed.cached import made_once

MODULE = Path(__file__).parent / "judges"
PROGRAMS = {"kstatus": ".", "kubeconform": "github.com/yannh/kubeconform/cmd/kubeconform"}
FILES = ("go.mod", "go.sum", "main.go", "tools.go")


def ensure() -> Path:
    """The folder with the programs, built now if need be.  Raises BuildError."""
    digest = hashlib.sha256(b"".join((MODULE / name).read_bytes() for name in FILES)).hexdigest()[:16]
    folder = cache_dir() / f"judges-{digest}"
    if not folder.is_dir():
        cache_dir().mkdir(parents=True, exist_ok=True)
        with made_once(folder) as part:
            for program, package in PROGRAMS.items():
                _build(part / program, package)
    return folder


def _build(program: Path, package: str) -> None:
    done = subprocess.run(
        [find_go(), "build", "-trimpath", "-ldflags", "-s -w", "-o", str(program), package],
        cwd=MODULE,
        env=os.environ | {"CGO_ENABLED": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise BuildError(f"{program.name}: go build failed: {done.stderr[-2000:]}")
