"""Exactly once by a continuous exchange: real Spark, real SIGKILL, and the output as without faults."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from reprise.controller.local.cluster import EmbeddedCluster
from reprise.spark_jobs.exchange.settings import EXECUTOR_CORES
from tests.e2e import scenario
from tests.e2e.test_exactly_once import SCENARIOS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    """Its Workers give as many cores as an executor with relays takes."""
    with scenario.cluster(4, worker_cores=EXECUTOR_CORES) as started:
        yield started


@pytest.mark.parametrize(
    "name",
    [
        "8 of 10",
        *(pytest.param(n, marks=pytest.mark.soak) for n in SCENARIOS if n != "8 of 10"),
    ],
)
def test_output_is_as_without_faults(
    name: str, cluster: EmbeddedCluster, expected: Path, tmp_path: Path
) -> None:
    resource = scenario.topology2(**{"spark.exchange": "continuous"})
    result = scenario.run(resource, cluster, tmp_path / "out", SCENARIOS[name])
    scenario.assert_exactly_once(result, expected)
    assert result.incident["incidents"], "the faults must have been noticed"
    assert "event=exchange number=" in (result.out / "logs" / "driver.log").read_text()
