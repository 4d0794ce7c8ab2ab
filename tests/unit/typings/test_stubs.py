"""The stubs in `typings` say what the installed libraries have: names, parameters and their order."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TYPINGS = ROOT / "typings"


LEFT_OUT = ("stub does not have", "disjoint base")
"""A stub need not have every parameter, nor say which classes are of C."""


@pytest.mark.slow
@pytest.mark.wide
def test_stubs_are_those_of_the_libraries_that_are_installed() -> None:
    """What a stub leaves out is not used; what it says must be true."""
    files = (file.relative_to(TYPINGS).with_suffix("") for file in TYPINGS.rglob("*.pyi"))
    modules = sorted(".".join(file.parts) for file in files if file.name != "__init__")
    done = subprocess.run(
        [
            sys.executable, "-m", "mypy.stubtest", *modules, "--ignore-missing-stub", "--concise",
            "--allowlist", str(TYPINGS / "allowlist.txt"),
        ],
        cwd=ROOT, capture_output=True, text=True, check=False, env=os.environ | {"MYPYPATH": str(TYPINGS)},
    )  # fmt: skip
    found = done.stdout.splitlines()
    assert all(line.startswith(("kazoo.", "pyarrow.", "pyspark.")) for line in found), (
        done.stdout + done.stderr
    )
    wrong = [line for line in found if not any(mark in line for mark in LEFT_OUT)]
    assert done.returncode in (0, 1) and not wrong, "\n".join(wrong)
