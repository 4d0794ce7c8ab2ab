"""Exactly once where messages travel with the stages of jobs: real Spark, real SIGKILL, and the output as without faults."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e import scenario
from tests.e2e.test_exactly_once import SCENARIOS
from tests.support.told_cluster import ToldCluster

pytestmark = [pytest.mark.slow, pytest.mark.wide]


@pytest.mark.parametrize("name", ["second burst", "zombies", "driver killed in an incident"])
def test_output_is_as_without_faults(name: str, cluster: ToldCluster, tmp_path: Path) -> None:
    resource = scenario.topology2(**{"spark.exchange": "chained"})
    result = scenario.survive(resource, cluster, tmp_path, SCENARIOS[name])
    assert result.incident["incidents"], "the faults must have been noticed"
    log = (result.out / "logs" / "driver.log").read_text()
    assert "event=chained " in log and "event=exchange " not in log
