"""What people are told to install is this project: on the index another one has the name of the import root."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import version

from reprise.spark_jobs.version import product
from tests.unit.docs.test_names import ROOT, texts

NAMES = re.compile(r"""pip install [^\n`]*?['"]?\b(reprise[\w-]*)(?:\[(\w+)\])?""")


def test_the_distribution_is_named_as_it_is_called() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found = {match for path in texts() for match in NAMES.findall(path.read_text(errors="ignore"))}
    assert (project["name"], "demo") in found
    extras = {"", *project["optional-dependencies"]}
    assert {name for name, _ in found} == {project["name"]}
    assert {extra for _, extra in found} <= extras
    assert product() == version(project["name"]) == project["version"]
