"""Spark's Python daemon imports pyspark from where it is installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark

from reprise.spark_jobs.engine.chain import SETTINGS
from reprise.spark_jobs.node.daemon import without_archives

INSTALLED = Path(pyspark.__file__).parent
LIB = INSTALLED / "python" / "lib"


def test_archives_of_the_installed_pyspark_go_and_those_of_another_stay() -> None:
    mine = [str(LIB / "pyspark.zip"), str(next(LIB.glob("py4j-*-src.zip")))]
    others = ["/opt/spark/python/lib/pyspark.zip", "", "/code", str(LIB / "mine.zip")]
    assert without_archives([*mine, *others], INSTALLED) == others
    assert without_archives([*mine, *others], None) == [*mine, *others]
    assert without_archives(mine, Path("/opt/spark")) == mine


def test_the_daemon_that_spark_is_told_to_start_has_no_module_from_an_archive() -> None:
    """With the path that Spark gives it."""
    archives = os.pathsep.join([str(LIB / "pyspark.zip"), *map(str, LIB.glob("py4j-*-src.zip"))])
    path = os.pathsep.join(filter(None, (archives, os.environ.get("PYTHONPATH", ""))))
    module = SETTINGS["spark.python.daemon.module"]
    program = (
        f"import sys, {module} as ours\n"
        "sys.path[:] = ours.without_archives(sys.path, ours._installed())\n"
        "import pyspark.daemon\n"
        "print(pyspark.daemon.__file__, any(p.endswith('.zip') and 'pyspark' in p for p in sys.path))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == [str(INSTALLED / "daemon.py"), "False"]
    plain = subprocess.run(
        [sys.executable, "-c", "import pyspark.daemon; print(pyspark.daemon.__file__)"],
        env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert plain.stdout.startswith(str(LIB / "pyspark.zip")), "without it, the archive comes first"
