"""Exactly once by a continuous exchange: real Spark, real SIGKILL, and the output as without faults.

A Worker of these clusters has as many cores as an executor with relays takes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from reprise.controller.local.cluster import EmbeddedCluster
from reprise.controller.local.run.config import RunResult
from reprise.spark_jobs.exchange.settings import EXECUTOR_CORES
from tests.e2e import scenario
from tests.e2e.test_exactly_once import SCENARIOS

pytestmark = [pytest.mark.slow, pytest.mark.wide]

FEW = 4


@pytest.fixture(scope="module")
def few() -> Iterator[EmbeddedCluster]:
    """Nodes that hold all of Topology 2 between them."""
    with scenario.cluster(FEW, cpu_milli=600, worker_cores=EXECUTOR_CORES) as started:
        yield started


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    """Nodes for the scenarios with ten."""
    with scenario.cluster(4, worker_cores=EXECUTOR_CORES) as started:
        yield started


def verdict(result: RunResult, expected: Path) -> None:
    scenario.assert_exactly_once(result, expected)
    assert result.incident["incidents"], "the faults must have been noticed"
    assert "event=exchange number=" in (result.out / "logs" / "driver.log").read_text()


def test_two_of_four_nodes_are_killed(few: EmbeddedCluster, expected: Path, tmp_path: Path) -> None:
    resource = scenario.topology2(FEW, **{"nodes.cpu": "600m", "spark.exchange": "continuous"})
    faults = [{"batch": 12, "kill": ["n3", "n4"]}, {"on": "plan", "add": 2}]
    verdict(scenario.run(resource, few, tmp_path / "out", faults), expected)


@pytest.mark.parametrize("name", SCENARIOS)
def test_output_is_as_without_faults(
    name: str, cluster: EmbeddedCluster, expected: Path, tmp_path: Path
) -> None:
    resource = scenario.topology2(**{"spark.exchange": "continuous"})
    verdict(scenario.run(resource, cluster, tmp_path / "out", SCENARIOS[name]), expected)
