"""The packages that are installed into an image, as CycloneDX: `make sbom`, or `python -m tools.sbom --to FILE`.

It is read from the lock that the image is installed by, so that it has the hashes of what may be installed; what
the base image brings is not in it.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def write(to: Path, root: Path = ROOT) -> Path:
    """Write the list of a tree's image; the same lock gives the same bytes.  Raises subprocess.CalledProcessError."""
    to.parent.mkdir(parents=True, exist_ok=True)
    lock, project = root / "docker" / "requirements.lock", root / "pyproject.toml"
    command = [sys.executable, "-m", "cyclonedx_py", "requirements", str(lock), f"--pyproject={project}"]
    form = ["--output-reproducible", "--output-format=JSON", f"--output-file={to}"]
    subprocess.run([*command, *form], check=True, capture_output=True, text=True)
    return to


def main() -> None:
    """Write the list and print its path."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--to", type=Path, default=ROOT / "out" / "sbom.cdx.json", help="by default out/sbom.cdx.json"
    )
    print(write(parser.parse_args().to))


if __name__ == "__main__":
    main()
