"""Four of eight machines lose power at once, and new ones come one by one."""

from __future__ import annotations

import pytest

from tests.kubernetes.cluster import KubeCluster
from tests.kubernetes.streaming import Streaming

pytestmark = [pytest.mark.slow, pytest.mark.wide]


def test_four_of_eight_machines(cluster: KubeCluster) -> None:
    with Streaming.of_topology2(cluster, "eight", nodes=8) as run:
        cluster.kill(run.machines()[:4])
        run.await_incident()
        for _ in range(4):
            cluster.wait_ready([run.add_machine()])
        run.await_recovery()
        run.finish()
        assert run.incidents()[0]["status"]["lost"]["count"] >= 4
