"""A machine is lost while a recovery is under way: only its partitions are lost, what the others did is kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kubernetes.cluster import KubeCluster
from tests.kubernetes.streaming import PLAN_S, Streaming

pytestmark = pytest.mark.soak


def test_a_loss_during_a_recovery_belongs_to_the_same_incident(cluster: KubeCluster, tmp_path: Path) -> None:
    run = Streaming.start(cluster, "twice", tmp_path, batches=240)
    first = run.machines()
    cluster.kill(first[:2])
    run.await_incident()
    cluster.kill([first[2]])
    run.until(lambda: run.incidents()[0]["status"]["lost"]["count"] >= 3, "the third loss is counted", PLAN_S)
    run.add_machines("w5", "w6", "w7")
    run.await_recovery()
    run.finish()
    assert len(run.incidents()) == 1
