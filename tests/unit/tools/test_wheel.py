"""The wheel that is put together without an index holds what setuptools would put into it, and says the same of itself."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import os
import subprocess
import sys
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from tools.wheel import ROOT, build

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


SETUPTOOLS = """
import tomllib
from setuptools import Distribution, find_packages
options = tomllib.load(open("pyproject.toml", "rb"))["tool"]["setuptools"]
found = Distribution({
    "packages": find_packages(include=options["packages"]["find"]["include"]),
    "package_data": options["package-data"], "include_package_data": False, "script_name": "setup.py",
})
command = found.get_command_obj("build_py")
command.build_lib = "there"
command.ensure_finalized()
print(*command.get_outputs(include_bytecode=False), sep="\\n")
"""
"""What setuptools would copy; nothing is built.  In a process of its own, as it replaces distutils in its own."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    return zipfile.ZipFile(build(tmp_path_factory.mktemp("wheel")))


def test_it_holds_what_setuptools_finds(wheel: zipfile.ZipFile) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SETUPTOOLS],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    wanted = {os.path.relpath(path, "there") for path in done.stdout.split()}
    assert {name for name in wheel.namelist() if ".dist-info/" not in name} == wanted


def test_it_holds_each_file_that_is_in_the_repository(wheel: zipfile.ZipFile) -> None:
    names = set(wheel.namelist())
    assert {"reprise/py.typed", "reprise/operators.py", "reprise/shipped/start/topology.yaml"} <= names
    assert {
        "reprise/shipped/charts/reprise/Chart.yaml",
        "reprise/shipped/charts/reprise/templates/tests/reconcile.yaml",
    } <= names
    assert {
        f"reprise/shipped/runbooks/{path.name}" for path in (ROOT / "docs" / "runbooks").glob("*.md")
    } <= names
    assert {f"reprise/shipped/crds/{path.name}" for path in (ROOT / "crds").glob("*.yaml")} <= names
    chart = [path for path in (ROOT / "charts").rglob("*") if path.is_file()]
    assert {f"reprise/shipped/{path.relative_to(ROOT)}" for path in chart} <= names
    assert not [
        name for name in names if "__pycache__" in name or name.startswith(("tests", "tools", "benchmarks"))
    ]
    for folder in ("algorithms", "scheduler", "spark_jobs", "controller"):
        for path in (ROOT / folder).rglob("*.py"):
            assert f"reprise/{path.relative_to(ROOT)}" in names


def test_its_record_names_every_file_with_its_digest(wheel: zipfile.ZipFile) -> None:
    (record,) = [name for name in wheel.namelist() if name.endswith("/RECORD")]
    rows = {row[0]: row[1:] for row in csv.reader(io.StringIO(wheel.read(record).decode()))}
    assert rows.keys() == set(wheel.namelist())
    for name in set(rows) - {record}:
        data = wheel.read(name)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        assert rows[name] == [f"sha256={digest}", str(len(data))]


def test_it_says_what_the_project_says(wheel: zipfile.ZipFile) -> None:
    (metadata,) = [name for name in wheel.namelist() if name.endswith("/METADATA")]
    found = Parser().parsestr(wheel.read(metadata).decode())
    project = PROJECT["project"]
    assert (found["Name"], found["Version"], found["Requires-Python"]) == (
        project["name"], project["version"], project["requires-python"],
    )  # fmt: skip
    needs = found.get_all("Requires-Dist")
    assert needs is not None
    assert [need for need in needs if "extra ==" not in need] == project["dependencies"]
    assert found.get_all("Provides-Extra") == list(project["optional-dependencies"])
    assert found.get_payload() == (ROOT / "README.md").read_text()
    (scripts,) = [name for name in wheel.namelist() if name.endswith("/entry_points.txt")]
    assert "reprise = reprise.controller.cli:main" in wheel.read(scripts).decode()


def test_the_same_files_give_the_same_wheel(tmp_path: Path) -> None:
    assert build(tmp_path / "a").read_bytes() == build(tmp_path / "b").read_bytes()
