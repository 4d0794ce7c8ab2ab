"""ZooKeeper is away for longer than any session: the topology goes on, and nothing is taken for lost."""

from __future__ import annotations

import pytest

from tests.kubernetes.cluster import KubeCluster
from tests.kubernetes.streaming import BACK_S, PLAN_S, Streaming

pytestmark = [pytest.mark.slow, pytest.mark.wide]


def test_loss_of_zookeeper_is_not_loss_of_nodes(cluster: KubeCluster) -> None:
    with Streaming.of_topology2(cluster, "keeperless") as run:
        before = run.executors()
        cluster.zookeeper.kill()
        run.until(lambda: run.condition("Observed")[0] == "False", "the outage is said", PLAN_S)
        assert run.condition("Ready")[0] == "Unknown"
        cluster.zookeeper.start()
        run.until(lambda: run.condition("Observed")[0] == "True", "it is seen again", BACK_S)
        assert run.executors() == before
        run.finish()
        assert run.incidents() == []
