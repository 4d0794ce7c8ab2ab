"""`make lock`: what is installed by hash, in the image (`requirements.lock`, `demo.lock`) and by CI (`dev.lock`).

pip resolves the project with all its extras once, for this machine; the locks are parts of that answer, so no two of them
differ in a version.  A version that is locked stays until it does not fit any more, or `--upgrade` is given.  Each file has
the hashes of what this machine would take and, for the image's other platforms, of the wheels that they would.  Neither
addresses of indices nor paths are in a lock.

What is not in wheels is built with the locked setuptools (`build.lock`) and without pip's build isolation, which would
fetch a build backend that nobody has locked.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docker"
BUILD = ("setuptools", "wheel")
IMAGE = ("s3", "gcs", "azure", "registry", "protobuf")
"""Extras with the clients of object stores and schema registries, and Protobuf: whoever takes the image need not make one of
their own for them."""
PARTS: Mapping[str, tuple[str, ...]] = {
    "requirements": IMAGE,
    "demo": (*IMAGE, "demo"),
    "dev": (*IMAGE, "demo", "dev"),
}
"""Extras by lock."""
PLATFORMS = ("manylinux_2_28_aarch64", "manylinux_2_17_aarch64", "manylinux2014_aarch64", "linux_aarch64")
"""Of the image, beside that of this machine."""
HEADER = "# Made by `make lock`; hashes of every file that may be installed.\n"


def locked(folder: Path = FOLDER) -> dict[str, str]:
    """Version by name, of all locks."""
    found = {}
    for path in sorted(folder.glob("*.lock")):
        for line in path.read_text(encoding="utf-8").splitlines():
            if "==" in line:
                name, _, rest = line.partition("==")
                found[name] = rest.split()[0]
    return found


def closure(wanted: Iterable[Requirement], known: Mapping[str, Any]) -> set[str]:
    """Names of all that these need; `known`: metadata by name."""
    found: set[str] = set()
    todo = [(canonicalize_name(need.name), frozenset(need.extras)) for need in wanted]
    seen: set[tuple[str, frozenset[str]]] = set()
    while todo:
        name, extras = todo.pop()
        if (name, extras) in seen:
            continue
        seen.add((name, extras))
        found.add(name)
        for text in known[name].get("requires_dist", ()):
            need = Requirement(text)
            if need.marker is None or any(need.marker.evaluate({"extra": e}) for e in (*extras, "")):
                todo.append((canonicalize_name(need.name), frozenset(need.extras)))
    return found


def wanted(extras: Iterable[str]) -> list[Requirement]:
    """What the project itself asks for."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    texts = list(project["dependencies"])
    for extra in extras:
        texts += project["optional-dependencies"][extra]
    return [Requirement(text) for text in texts]


def _report(*arguments: str) -> list[dict[str, Any]]:
    """What pip would install."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        common = ("--quiet", "--disable-pip-version-check", "--dry-run", "--ignore-installed")
        command = [sys.executable, "-m", "pip", "install", *common, f"--report={report}", *arguments]
        subprocess.run(command, check=True, cwd=ROOT)
        found: list[dict[str, Any]] = json.loads(report.read_text(encoding="utf-8"))["install"]
        return found


def _resolved(upgrade: bool) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        kept = Path(folder) / "kept.txt"
        pins = {} if upgrade else locked()
        kept.write_text("".join(f"{name}=={version}\n" for name, version in pins.items()), encoding="utf-8")
        return _report(f"--constraint={kept}", f".[{','.join(PARTS['dev'])}]", *BUILD)


def _elsewhere(pins: list[str]) -> list[dict[str, Any]]:
    """Wheels of the same versions on the other platforms."""
    with tempfile.TemporaryDirectory() as folder:
        platforms = [f"--platform={name}" for name in PLATFORMS]
        return _report("--no-deps", "--only-binary=:all:", f"--target={folder}", *platforms, *pins)


def main(upgrade: bool) -> None:
    """Write all locks."""
    items = {canonicalize_name(i["metadata"]["name"]): i for i in _resolved(upgrade)}
    items.pop("reprise-streams")
    versions = {name: item["metadata"]["version"] for name, item in items.items()}
    hashes = {name: {_hash(item)} for name, item in items.items()}
    wheels = [n for n, i in items.items() if str(i["download_info"]["url"]).endswith(".whl")]
    runtime = closure(wanted(PARTS["demo"]), {n: i["metadata"] for n, i in items.items()})
    for item in _elsewhere([f"{name}=={versions[name]}" for name in sorted(runtime & set(wheels))]):
        hashes[canonicalize_name(item["metadata"]["name"])].add(_hash(item))
    metadata = {name: item["metadata"] for name, item in items.items()}
    for part, extras in PARTS.items():
        _write(part, closure(wanted(extras), metadata), versions, hashes)
    _write("build", closure(map(Requirement, BUILD), metadata), versions, hashes)


def _hash(item: Mapping[str, Any]) -> str:
    return str(item["download_info"]["archive_info"]["hashes"]["sha256"])


def _write(
    part: str, names: Iterable[str], versions: Mapping[str, str], hashes: Mapping[str, Iterable[str]]
) -> None:
    lines = [HEADER]
    for name in sorted(names):
        marks = "".join(f" \\\n    --hash=sha256:{one}" for one in sorted(hashes[name]))
        lines.append(f"{name}=={versions[name]}{marks}\n")
    (FOLDER / f"{part}.lock").write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--upgrade", action="store_true", help="forget the versions that are locked")
    main(parser.parse_args().upgrade)
