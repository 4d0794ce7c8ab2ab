"""What is loaded into the processes that run on Kubernetes: only what they need there."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]
PRINT = "import json, sys; import {}; print(json.dumps(sorted(sys.modules)))"


@functools.cache
def loaded(module: str) -> list[str]:
    """Names of all modules of a fresh process that has imported this one."""
    command = [sys.executable, "-c", PRINT.format(module)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    names: list[str] = json.loads(done.stdout.splitlines()[-1])
    assert module in names
    return names


def below(names: list[str], packages: tuple[str, ...]) -> list[str]:
    return [name for name in names if name.startswith(tuple(f"{p}." for p in packages)) or name in packages]


@pytest.mark.wide
@pytest.mark.parametrize(
    "module", ["reprise.controller.operator.__main__", "reprise.controller.coordinator.__main__"]
)
def test_no_cluster_of_one_machine_no_faults_and_no_plots_are_loaded_where_decisions_are_made(
    module: str,
) -> None:
    names = loaded(module)
    assert "reprise.scheduler.decide" in names
    unwanted = (
        "reprise.controller.cli",
        "reprise.controller.local",
        "reprise.controller.simulated_world",
        "matplotlib",
        "pyspark",
        "rich",
        "click",
    )
    assert below(names, unwanted) == []
    assert below(names, ("tools", "tests", "examples", "benchmarks")) == []


def test_an_agent_loads_neither_planners_nor_the_data_plane() -> None:
    names = loaded("reprise.controller.agent.pod_agent")
    unwanted = (
        "reprise.algorithms",
        "reprise.scheduler",
        "reprise.spark_jobs",
        "numpy",
        "pyarrow",
        "polars",
        "pyspark",
    )
    small = {
        "reprise.spark_jobs",
        "reprise.spark_jobs.credentials",  # what the log takes passwords out with
        "reprise.spark_jobs.platform",  # clocks and threads
    }
    assert set(below(names, unwanted)) <= small


def test_nothing_is_loaded_under_a_second_name() -> None:
    """From a clone, `controller` is a folder that Python could import beside `reprise.controller`."""
    names = loaded("reprise.controller.operator.__main__")
    assert below(names, ("algorithms", "controller", "scheduler", "spark_jobs")) == []
