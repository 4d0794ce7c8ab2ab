"""What is published of a version: `make release`, or `python -m tools.release --out DIR`.

| piece | for whom |
|---|---|
| `reprise_streams-V-py3-none-any.whl` | pip |
| `reprise_streams-V.tar.gz` | the source distribution: the tree of the commit; it builds to a wheel of the same content |
| `reprise-V.tgz` | Helm: the chart |
| `reprise-crds-V.yaml` | kubectl: the three definitions, where Helm is not used and before an upgrade with it |
| `reprise-image-context-V.tar.gz` | `docker build -`: what the image is built from |
| `reprise-V.cdx.json` | the packages that are installed into the image, in CycloneDX |
| `kubectl-reprise-V.tar.gz`, `reprise-krew-V.yaml` | Krew: the plugin `kubectl reprise`, and the manifest that leads to it |
| `SHA256SUMS` | `sha256sum --check` |

All pieces are made of the commit that is checked out, and of nothing else: a tree with changes that are not committed is
refused, and files that git does not know cannot get in.  Who has the commit can make them again and gets the same bytes,
with the same versions of Python, zlib, Helm and cyclonedx-bom: all times are the commit's, or `SOURCE_DATE_EPOCH`.  A
version is written in pyproject.toml, in the chart, in the changelog and in the README; they must agree.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from tools import krew_plugin, sbom, wheel
from tools.testbed.build import BuildError
from tools.testbed.clients import ensure

ROOT = Path(__file__).parents[1]
SUMS = "SHA256SUMS"
FIRST, LAST = (int(datetime(year, 1, 1, tzinfo=UTC).timestamp()) for year in (1980, 2108))
HEADING = re.compile(r"^## (\S+)(.*)$", re.MULTILINE)
STATUS = re.compile(r"^Version (\d[^\s,]*)", re.MULTILINE)
AS_COMMITTED = ("-c", "core.autocrlf=false", "-c", "core.attributesFile=/dev/null")
"""A user's own settings of git do not change the files of a commit."""
URL = "https://releases.invalid/reprise"
"""Where the pieces are said to be found where nobody says: the project has no address of its own."""
CONTEXT = ("Dockerfile", ".dockerignore")
"""Of the image context, whatever `.dockerignore` says."""


class ReleaseError(Exception):
    """Why there is no release; names the file or the option."""


@dataclass(frozen=True, slots=True)
class Commit:
    """The tree that is released, as a folder of its own."""

    tree: Path
    project: Mapping[str, Any]
    epoch: int
    """Seconds since 1970, the time of all files."""

    @property
    def version(self) -> str:
        """The version that all places agree on."""
        return str(self.project["version"])


def make(out: Path, root: Path = ROOT, url: str = URL) -> tuple[Path, ...]:
    """Write all pieces into an empty folder; their paths, the sums last.

    `url`: below which they will be found.  Raises ReleaseError, and then writes nothing.
    """
    if out.exists() and any(out.iterdir()):
        raise ReleaseError(f"--out: {out} is not empty")
    if changed := git(root, "status", "--porcelain", "--untracked-files=all"):
        raise ReleaseError(f"the tree has changes that are not committed:\n{changed.rstrip()}")
    epoch = moment(os.environ.get("SOURCE_DATE_EPOCH") or git(root, "log", "-1", "--format=%ct").strip())
    with tempfile.TemporaryDirectory(prefix="release-") as folder:
        tree, made = Path(folder) / "tree", Path(folder) / "made"
        export(root, tree, epoch)
        project = tomllib.loads((tree / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        agree(tree, str(project["version"]))
        made.mkdir()
        try:
            pieces = write(Commit(tree, project, epoch), made, url)
        except subprocess.CalledProcessError as error:
            raise ReleaseError(f"{error.cmd[0]}: {error.stderr.strip()}") from error
        (made / SUMS).write_text(sums(pieces), encoding="utf-8")
        out.mkdir(parents=True, exist_ok=True)
        return tuple(Path(shutil.move(piece, out / piece.name)) for piece in (*pieces, made / SUMS))


def moment(text: str) -> int:
    """Seconds since 1970, of a time that a wheel can have: zip begins with 1980."""
    if not text.isascii() or not text.isdigit() or not FIRST <= int(text) < LAST:
        raise ReleaseError(
            f"SOURCE_DATE_EPOCH: must be seconds since 1970, from 1980 to 2107, and is {text!r}"
        )
    return int(text)


def git(root: Path, *arguments: str) -> str:
    """What git says of a clone."""
    command, english = ["git", "-C", str(root), *arguments], {**os.environ, "LC_ALL": "C"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=english)
    if done.returncode != 0:
        raise ReleaseError(f"git {arguments[0]}: {done.stderr.strip()}")
    return done.stdout


def export(root: Path, to: Path, epoch: int) -> None:
    """The files of the commit, with one time."""
    command = ["git", "-C", str(root), *AS_COMMITTED, "archive", "HEAD"]
    archive = subprocess.run(command, capture_output=True, check=True)
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as members:
        members.extractall(to, filter="data")
    for path in (to, *to.rglob("*")):
        os.utime(path, (epoch, epoch), follow_symlinks=False)


def agree(tree: Path, version: str) -> None:
    """Refuse a tree whose places name several versions."""
    chart = yaml.safe_load((tree / "charts/reprise/Chart.yaml").read_text(encoding="utf-8"))
    status = STATUS.search((tree / "README.md").read_text(encoding="utf-8"))
    places = {
        "CHANGELOG.md, its first section": _newest(tree)[0],
        "README.md, Status": status[1] if status else "none",
        "charts/reprise/Chart.yaml, version": str(chart["version"]),
        "charts/reprise/Chart.yaml, appVersion": str(chart["appVersion"]),
    }
    wrong = [f"{place}: {found}" for place, found in places.items() if found != version]
    if wrong:
        raise ReleaseError(f"pyproject.toml has version {version}, and others have not: {'; '.join(wrong)}")


def _newest(tree: Path) -> tuple[str, str]:
    """The changelog's newest version, and what is said behind it."""
    found = HEADING.search((tree / "CHANGELOG.md").read_text(encoding="utf-8"))
    return (found[1], found[2].strip()) if found else ("none", "")


def write(commit: Commit, made: Path, url: str) -> tuple[Path, ...]:
    """All pieces but the sums."""
    built = wheel.build(made, commit.tree, datetime.fromtimestamp(commit.epoch, UTC))
    plugin = plugin_archive(commit, made, built)
    return (
        built,
        source(commit, made),
        chart(commit, made),
        crds(commit, made),
        image_context(commit, made),
        sbom.write(made / f"reprise-{commit.version}.cdx.json", commit.tree),
        plugin,
        _written(
            made / f"reprise-krew-{commit.version}.yaml", krew_plugin.manifest(commit.version, plugin, url)
        ),
    )


def _written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def plugin_archive(commit: Commit, made: Path, built: Path) -> Path:
    """What Krew unpacks: the launcher, the wheel that it runs, and the licence."""
    path = made / f"kubectl-reprise-{commit.version}.tar.gz"
    with tempfile.TemporaryDirectory(prefix="plugin-") as folder:
        for member in (commit.tree / krew_plugin.LAUNCHER, built, commit.tree / "LICENSE"):
            shutil.copy2(member, folder)
        flat = Commit(Path(folder), commit.project, commit.epoch)
        return pack(path, flat, files(flat.tree, ["."]), "")


def source(commit: Commit, made: Path) -> Path:
    """The source distribution (PEP 517, PEP 625): all files of the commit, and the metadata."""
    name = wheel.file_name(commit.project)
    metadata = commit.tree / "PKG-INFO"
    metadata.write_text(wheel.metadata(commit.tree, commit.project), encoding="utf-8")
    try:
        return pack(made / f"{name}.tar.gz", commit, files(commit.tree, ["."]), f"{name}/")
    finally:
        metadata.unlink()


def chart(commit: Commit, made: Path) -> Path:
    """The chart as Helm packs it, which leaves out what `.helmignore` names and keeps the times of the files."""
    try:
        helm = ensure() / "helm"
    except BuildError as error:
        raise ReleaseError(str(error)) from error
    command = [str(helm), "package", str(commit.tree / "charts/reprise"), "--destination", str(made)]
    subprocess.run(command, capture_output=True, text=True, check=True)
    return made / f"reprise-{commit.version}.tgz"


def crds(commit: Commit, made: Path) -> Path:
    """The definitions as one file for `kubectl apply`."""
    path = made / f"reprise-crds-{commit.version}.yaml"
    texts = [one.read_text(encoding="utf-8") for one in sorted((commit.tree / "crds").glob("*.yaml"))]
    path.write_text("---\n".join(texts), encoding="utf-8")
    return path


def image_context(commit: Commit, made: Path) -> Path:
    """What `docker build` would be given in a clone."""
    path = made / f"reprise-image-context-{commit.version}.tar.gz"
    return pack(path, commit, files(commit.tree, [*CONTEXT, *let_through(commit.tree)]), "")


def let_through(tree: Path) -> list[str]:
    """What `.dockerignore` lets through.  It says so file by file and folder by folder; ReleaseError for another way."""
    lines = (tree / ".dockerignore").read_text(encoding="utf-8").splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    named = [rule[1:] for rule in rules if rule.startswith("!")]
    others = {rule for rule in rules if not rule.startswith("!")} - {
        "**/__pycache__"
    }  # git knows none of these
    if others != {"*"} or any(set(name) & set("*?[") for name in named):
        raise ReleaseError(
            ".dockerignore: it must leave out everything (*) and name what is let through (!PATH)"
        )
    return named


def files(tree: Path, names: Iterable[str]) -> list[Path]:
    """Files and links at these paths and below, in order."""
    below = [path for name in names for path in (tree / name, *(tree / name).rglob("*"))]
    return sorted({path for path in below if path.is_symlink() or path.is_file()})


def pack(path: Path, commit: Commit, members: Iterable[Path], prefix: str) -> Path:
    """A tar archive that has nothing of this machine: no owner, no other time, links as links."""
    with (
        path.open("wb") as raw,
        gzip.GzipFile("", "wb", fileobj=raw, mtime=commit.epoch) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for member in members:
            entry = archive.gettarinfo(member, f"{prefix}{member.relative_to(commit.tree)}")
            entry.uid = entry.gid = 0
            entry.uname = entry.gname = ""
            entry.mtime, entry.mode = commit.epoch, 0o755 if entry.mode & 0o100 else 0o644
            with member.open("rb") if entry.isfile() else io.BytesIO() as data:
                archive.addfile(entry, data)
    return path


def sums(pieces: Iterable[Path]) -> str:
    """What `sha256sum` prints of the pieces."""
    lines = [f"{hashlib.sha256(piece.read_bytes()).hexdigest()}  {piece.name}\n" for piece in pieces]
    return "".join(sorted(lines, key=lambda line: line.split()[1]))


def main() -> int:
    """Write the release and print the paths; exit code 1 with the reason."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.release", description="What is published of a version."
    )
    parser.add_argument("--out", type=Path, required=True, help="an empty folder")
    parser.add_argument(
        "--url", default=URL, help="below which the pieces will be found; the manifest of Krew has it"
    )
    given = parser.parse_args()
    try:
        pieces = make(given.out, url=given.url)
    except ReleaseError as error:
        print(error, file=sys.stderr)
        return 1
    print(*pieces, sep="\n")
    version, said = _newest(ROOT)
    if "not released" in said:
        print(
            f"CHANGELOG.md calls {version} not released: give it a date before this is published",
            file=sys.stderr,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
