"""The stubs in `typings` say what the installed libraries have: names, parameters and their order."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TYPINGS = Path("typings")


def test_stubs_are_those_of_the_libraries_that_are_installed() -> None:
    """What a stub leaves out is not used; what it says must be true."""
    packages = sorted(folder.name for folder in TYPINGS.iterdir() if folder.is_dir())
    assert packages
    done = subprocess.run(
        [
            sys.executable, "-m", "mypy.stubtest", *packages, "--ignore-missing-stub", "--concise",
            "--allowlist", str(TYPINGS / "allowlist.txt"),
        ],
        capture_output=True, text=True, check=False, env=os.environ | {"MYPYPATH": str(TYPINGS.resolve())},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
