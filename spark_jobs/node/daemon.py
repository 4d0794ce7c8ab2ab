"""Spark's Python daemon, with pyspark from where it is installed.

Spark puts its own copy of pyspark in front of everything that a daemon may import: an archive, from which Python keeps no
compiled modules, so that each node compiles them anew.  Where that archive belongs to the pyspark that is installed
here, the installed modules are the same ones.  Starting the daemon costs a quarter of the CPU then, measured in
docs/decisions/0025-a-node-starts-at-once.md.
"""

from __future__ import annotations

import importlib.machinery
import sys
from collections.abc import Sequence
from pathlib import Path

ARCHIVES = ("pyspark.zip", "py4j-*-src.zip", "spark-core_*.jar")


def without_archives(path: Sequence[str], installed: Path | None) -> list[str]:
    """`path` less the archives of the pyspark that is installed in the folder `installed` (None: none is)."""
    own = installed.resolve() / "python" / "lib" if installed is not None else None
    return [entry for entry in path if not (Path(entry).resolve().parent == own and is_archive(Path(entry)))]


def is_archive(entry: Path) -> bool:
    """Whether this is one of the archives that Spark puts in front of the import path, by its name."""
    return any(entry.match(pattern) for pattern in ARCHIVES)


def _installed() -> Path | None:
    """Where the import system finds pyspark behind all archives."""
    plain = [entry for entry in sys.path if not is_archive(Path(entry))]
    spec = importlib.machinery.PathFinder.find_spec("pyspark", plain)
    return Path(spec.origin).parent if spec is not None and spec.origin else None


def main() -> None:
    """What `python -m pyspark.daemon` does."""
    sys.path[:] = without_archives(sys.path, _installed())
    from pyspark.daemon import manager

    manager()


if __name__ == "__main__":
    main()
