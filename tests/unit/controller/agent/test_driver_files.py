"""A driver that would read another spec than its pod was made for does not start."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from reprise.controller.agent import driver_files
from reprise.controller.errors import StartError
from reprise.controller.operator.pods import manifests
from reprise.controller.operator.settings import OperatorSettings
from reprise.spark_jobs.topology import StreamTopology
from tests.support.topologies import minimal

SETTINGS = OperatorSettings(namespace="ops", identity="op-1", zk="zk:2181", image="reprise:1")
OWNER = manifests.owner(
    {
        "apiVersion": "reprise.dev/v1alpha1",
        "kind": "StreamTopology",
        "metadata": {"name": "minimal", "uid": "u1"},
    }
)


def mounted(folder: Path, resource: StreamTopology) -> Path:
    """The ConfigMap of a driver, as a pod sees it."""
    (folder / "..data").mkdir(parents=True)
    for name, text in manifests.config_map(resource, SETTINGS, OWNER)["data"].items():
        (folder / name).write_text(text)
    return folder


def environment(resource: StreamTopology) -> dict[str, str]:
    (container,) = manifests.driver_pod(resource, SETTINGS, OWNER, "a")["spec"]["containers"]
    return {entry["name"]: entry.get("value", "") for entry in container["env"]}


def level(number: int) -> dict[str, Any]:
    return {"env": [{"name": "LEVEL", "value": str(number)}]}


def test_the_files_of_a_pod_are_taken(tmp_path: Path) -> None:
    driver_files.check(environment(minimal()), mounted(tmp_path / "c", minimal()))


@pytest.mark.parametrize("of", [level(2), {"executor": level(2)}, {"labels": {"a": "b"}}])
def test_those_of_another_spec_are_refused(tmp_path: Path, of: dict[str, Any]) -> None:
    with pytest.raises(StartError, match="of another spec than its pod"):
        driver_files.check(environment(minimal()), mounted(tmp_path / "c", minimal(**of)))


def test_a_driver_that_was_told_nothing_checks_nothing(tmp_path: Path) -> None:
    driver_files.check({}, tmp_path / "none")


def test_the_driver_ends_before_it_does_anything(tmp_path: Path) -> None:
    folder = mounted(tmp_path / "c", minimal(**level(2)))
    done = subprocess.run(
        [sys.executable, "-m", "reprise.controller.driver", "--zk=none:1", "--root=/r", "--master=local[1]", "--sink=s",
         "--checkpoints=c", f"--topology={folder}/topology.json"],
        env=environment(minimal()), cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("refused: the driver's ConfigMap is of another spec")
