"""The project's wheel, put together without an index: `python -m tools.wheel --to DIR`.

`pip wheel .` asks a package index for a new setuptools first, which a machine without one cannot do.  The project is Python
and data files alone, so its wheel is a zip of them with three small texts (PEP 427; core metadata 2.4).  What belongs into
it is read from pyproject.toml, as setuptools reads it, and a test holds the two against each other.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import re
import tomllib
import zipfile
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PACKAGE = "reprise"
TIME = datetime(2020, 1, 1, tzinfo=UTC)
"""Of every entry, so that the same files give the same wheel."""


def build(folder: Path, root: Path = ROOT, time: datetime = TIME) -> Path:
    """Write the wheel of a clone into a folder; its path."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    name = file_name(project["project"])
    info = f"{name}.dist-info"
    files = {str(path): (root / path).read_bytes() for path in contents(root, project["tool"]["setuptools"])}
    files |= {f"{info}/{path}": text.encode() for path, text in texts(root, project["project"]).items()}
    record = "".join(f"{path},{_digest(data)},{len(data)}\n" for path, data in files.items())
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    folder.mkdir(parents=True, exist_ok=True)
    wheel = folder / f"{name}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in files.items():
            entry = zipfile.ZipInfo(path, time.timetuple()[:6])
            entry.external_attr, entry.compress_type = 0o644 << 16, zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
    return wheel


def file_name(project: Mapping[str, Any]) -> str:
    """What the names of wheel and source distribution begin with."""
    return f"{re.sub(r'[-_.]+', '_', project['name'])}-{project['version']}"


def contents(root: Path, setuptools: Mapping[str, Any]) -> list[Path]:
    """Files of all packages below the import root, and their data, relative to the root of the clone, in order."""
    found = {path for folder in packages(root / PACKAGE) for path in folder.glob("*.py")}
    for package, patterns in setuptools["package-data"].items():
        folder = root.joinpath(*package.split("."))
        found |= {path for pattern in patterns for path in folder.glob(pattern) if path.is_file()}
    return sorted(path.relative_to(root) for path in found if "__pycache__" not in path.parts)


def packages(folder: Path) -> Iterator[Path]:
    """The folder and those below it that are packages, links included."""
    if (folder / "__init__.py").is_file():
        yield folder
        for below in folder.iterdir():
            if below.is_dir():
                yield from packages(below)


def texts(root: Path, project: Mapping[str, Any]) -> dict[str, str]:
    """What is told of the distribution, by name of the file."""
    scripts = "".join(f"{name} = {target}\n" for name, target in project["scripts"].items())
    return {
        "METADATA": metadata(root, project),
        "WHEEL": "Wheel-Version: 1.0\nGenerator: tools.wheel\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "entry_points.txt": f"[console_scripts]\n{scripts}",
        "top_level.txt": f"{PACKAGE}\n",
        **{
            f"licenses/{name}": (root / name).read_text(encoding="utf-8") for name in project["license-files"]
        },
    }


def metadata(root: Path, project: Mapping[str, Any]) -> str:
    """The core metadata: fields, a blank line, and the README."""
    lines = [
        "Metadata-Version: 2.4",
        f"Name: {project['name']}",
        f"Version: {project['version']}",
        f"Summary: {project['description']}",
        f"License-Expression: {project['license']}",
        *(f"License-File: {name}" for name in project["license-files"]),
        *(f"Project-URL: {label}, {url}" for label, url in project["urls"].items()),
        *(f"Classifier: {classifier}" for classifier in project["classifiers"]),
        f"Requires-Python: {project['requires-python']}",
        "Description-Content-Type: text/markdown",
        *(f"Requires-Dist: {needed}" for needed in project["dependencies"]),
    ]
    for extra, needs in project["optional-dependencies"].items():
        lines.append(f"Provides-Extra: {extra}")
        lines += [f'Requires-Dist: {needed}; extra == "{extra}"' for needed in needs]
    return "\n".join(lines) + "\n\n" + (root / str(project["readme"])).read_text(encoding="utf-8")


def _digest(data: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def main() -> None:
    """Write the wheel and print its path."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--to", type=Path, default=ROOT / "out" / "dist", help="folder; by default out/dist")
    print(build(parser.parse_args().to))


if __name__ == "__main__":
    main()
