"""A machine is lost while a recovery is under way: only its partitions are lost, what the others did is kept."""

from __future__ import annotations

import pytest

from tests.kubernetes.cluster import KubeCluster
from tests.kubernetes.streaming import PLAN_S, Streaming

pytestmark = [pytest.mark.slow, pytest.mark.wide]


def test_a_loss_during_a_recovery_belongs_to_the_same_incident(cluster: KubeCluster) -> None:
    with Streaming.of_topology2(cluster, "twice") as run:
        first = run.machines()
        cluster.kill(first[:2])
        run.await_incident()
        cluster.kill([first[2]])
        run.until(
            lambda: run.incidents()[0]["status"]["lost"]["count"] >= 3, "the third loss is counted", PLAN_S
        )
        for _ in range(3):
            run.add_machine()
        run.await_recovery()
        run.finish()
        assert len(run.incidents()) == 1
