"""Exactly once by a continuous exchange: real Spark, real SIGKILL, and the output as without faults."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from reprise.spark_jobs.exchange.settings import EXECUTOR_CORES
from tests.e2e import scenario
from tests.e2e.test_exactly_once import SCENARIOS
from tests.support.told_cluster import ToldCluster

pytestmark = [pytest.mark.slow, pytest.mark.wide]


@pytest.fixture(scope="module")
def with_relays(cluster: ToldCluster) -> Iterator[ToldCluster]:
    """Nodes whose Workers have as many cores as an executor with relays takes."""
    with cluster.announcing(cluster.config.cpu_milli, EXECUTOR_CORES) as nodes:
        yield nodes


@pytest.mark.parametrize("name", ["second burst", "zombies", "driver killed in an incident"])
def test_output_is_as_without_faults(name: str, with_relays: ToldCluster, tmp_path: Path) -> None:
    resource = scenario.topology2(**{"spark.exchange": "continuous"})
    result = scenario.survive(resource, with_relays, tmp_path, SCENARIOS[name])
    assert result.incident["incidents"], "the faults must have been noticed"
    assert "event=exchange number=" in (result.out / "logs" / "driver.log").read_text()
