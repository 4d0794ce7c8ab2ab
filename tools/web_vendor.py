"""The libraries of the page, as files of this repository: which, of which version, and that they are unchanged.

The page must work where there is no internet, and a checkout without Node, so files of npm packages are kept here as they
were published.  `vendor.lock` names packages, versions and npm's own integrity hashes, and the hash of each file kept.
`python -m tools.web_vendor` compares; `--fetch` takes everything anew with `npm pack`.  To raise a version: change
it and its `integrity` (`npm view NAME@VERSION dist.integrity`) in the lock, then `--fetch`.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from reprise.controller.web.errors import WebError

ROOT = Path(__file__).parents[1]
LOCK = Path(__file__).with_suffix(".lock")


def read_lock() -> dict[str, Any]:
    """As in the file, which this project writes itself."""
    lock: dict[str, Any] = json.loads(LOCK.read_text(encoding="utf-8"))
    return lock


def differences(lock: dict[str, Any]) -> list[str]:
    """Files that are not there, or not as they were fetched; and files beside them that nobody asked for."""
    wanted: dict[str, str] = lock["sha256"]
    found = [name for name, digest in wanted.items() if _sha256(ROOT / name) != digest]
    for folder in {package["folder"] for package in lock["packages"]}:
        found += [
            str(p.relative_to(ROOT))
            for p in (ROOT / folder).iterdir()
            if str(p.relative_to(ROOT)) not in wanted
        ]
    return sorted(found)


def fetch(lock: dict[str, Any]) -> None:
    """All packages anew.  WebError when npm cannot get one, or its content is not what the lock says."""
    digests = {}
    for package in lock["packages"]:
        folder = ROOT / package["folder"]
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as part:
            tarball = _pack(f"{package['name']}@{package['version']}", Path(part))
            _check(tarball, package["integrity"])
            with tarfile.open(tarball) as archive:
                for source, target in package["files"].items():
                    entry = archive.extractfile(f"package/{source}")
                    assert entry is not None
                    (folder / target).write_bytes(entry.read())
                    digests[f"{package['folder']}/{target}"] = _sha256(folder / target)
    LOCK.write_text(json.dumps({**lock, "sha256": digests}, indent=2) + "\n", encoding="utf-8")


def _pack(name: str, folder: Path) -> Path:
    command = ["npm", "pack", "--silent", "--pack-destination", str(folder), name]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise WebError("npm is not on the PATH; it is needed to fetch libraries, not to use them") from error
    found = next(folder.glob("*.tgz"), None)
    if done.returncode != 0 or found is None:
        raise WebError(f"npm pack {name}: {done.stderr[-1000:]}")
    return found


def _check(tarball: Path, integrity: str) -> None:
    kind, _, wanted = integrity.partition("-")
    found = base64.b64encode(hashlib.new(kind, tarball.read_bytes()).digest()).decode()
    if found != wanted:
        raise WebError(f"{tarball.name}: its {kind} is {found}, the lock says {wanted}")


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else ""


def main() -> int:
    """Exit code 1 when something differs."""
    parser = argparse.ArgumentParser(prog="python -m tools.web_vendor", description=__doc__)
    parser.add_argument("--fetch", action="store_true", help="take all files anew from npm")
    lock = read_lock()
    try:
        if parser.parse_args().fetch:
            fetch(lock)
            lock = read_lock()
    except WebError as error:
        print(error, file=sys.stderr)
        return 1
    different = differences(lock)
    for name in different:
        print(f"{name}: not as it was fetched", file=sys.stderr)
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
