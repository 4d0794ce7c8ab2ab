"""Modules of a topology out of a ConfigMap, on the import path of its driver and executors.

Problem: a ConfigMap can change, or be deleted and made anew, while a topology runs, and a kubelet then changes the files of
pods that are there.  An executor that comes later, or a module that is imported later, would be of other code than what has
made the output so far, and nobody would know.

Invariant: a process of a topology imports from a copy that was compared with the hash in the topology's spec before anything
of it was imported, and that nobody changes.  So the code is what the spec says, whoever may write ConfigMaps, and another
hash is other code, which takes effect after a drain (`reprise.spark_jobs.state.revision`).  A pod that finds something
else does not start.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import sysconfig
from collections.abc import Mapping, MutableMapping
from importlib.machinery import PathFinder, all_suffixes
from pathlib import Path

from reprise.controller.errors import StartError

FOLDER, SHA256 = "REPRISE_CODE", "REPRISE_CODE_SHA256"
MOUNTED = "/var/data/reprise-code"
"""Where the pod sees the ConfigMap."""
COPIED = Path("/var/data/reprise/code")
"""In the pod's own volume."""
_SEVERAL_VERSIONS = ".."
"""Names that begin so are the kubelet's, and no key of a ConfigMap."""
_OWN = frozenset({*sys.stdlib_module_names, "reprise", "sitecustomize", "usercustomize"})
"""Modules that a file of the same name would stand before in every process, beside those that are installed."""


def variables(sha256: str) -> list[dict[str, str]]:
    """What a container with the ConfigMap at `MOUNTED` is told."""
    return [{"name": FOLDER, "value": MOUNTED}, {"name": SHA256, "value": sha256}]


def hash_of(files: Mapping[str, bytes]) -> str:
    """What `sha256sum FILE... | sha256sum` says of these files in order of their names."""
    lines = (f"{hashlib.sha256(files[name]).hexdigest()}  {name}\n" for name in sorted(files))
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def take(environment: MutableMapping[str, str], copied: Path = COPIED) -> None:
    """Copy the code and put it first on the import path of the processes that get this environment; nothing where the
    topology names none.  StartError for code that is not what the topology says."""
    if (folder := environment.get(FOLDER)) is None:
        return
    wanted = environment.get(SHA256, "")
    files = _read(Path(folder))
    if (found := hash_of(files)) != wanted:
        raise StartError(
            f"spec.kubernetes.code.sha256: the ConfigMap holds other code: {wanted} is asked for, and that of its "
            f"{len(files)} files is {found} ({', '.join(sorted(files)) or 'nothing'})"
        )
    if hides := _hiding(files):
        raise StartError(f"spec.kubernetes.code: {hides} would hide a module that others import; rename it")
    shutil.rmtree(copied, ignore_errors=True)
    copied.mkdir(parents=True)
    for name, data in files.items():
        (copied / name).write_bytes(data)
    former = environment.get("PYTHONPATH", "")
    environment["PYTHONPATH"] = os.pathsep.join([str(copied), *([former] if former else [])])


def _hiding(files: Mapping[str, bytes]) -> str:
    """The first file that would be imported in place of a module of Python, of us, or of what is installed; or nothing."""
    endings = tuple(all_suffixes())
    installed = sorted({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})
    for name in sorted(files):
        module = name.partition(".")[0]
        found = module in _OWN or PathFinder.find_spec(module, installed) is not None
        if name.endswith(endings) and found:
            return name
    return ""


def files_in(folder: Path) -> dict[str, bytes]:
    """The files of a mounted ConfigMap, without the folders in which a kubelet keeps versions of them."""
    return {
        path.name: path.read_bytes()
        for path in folder.iterdir()
        if not path.name.startswith(_SEVERAL_VERSIONS)
    }


def _read(folder: Path) -> dict[str, bytes]:
    """Its files as they are now.  Where a kubelet changes them meanwhile, the hash of what was read is that of neither."""
    try:
        return files_in(folder)
    except OSError as error:
        raise StartError(f"spec.kubernetes.code: {folder} cannot be read: {error}") from error
