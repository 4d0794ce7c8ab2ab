"""Four of eight machines lose power at once, and new ones come one by one."""

from __future__ import annotations

from pathlib import Path

from tests.kubernetes.cluster import KubeCluster
from tests.kubernetes.streaming import CPU, Streaming


def test_four_of_eight_machines(cluster: KubeCluster, tmp_path: Path) -> None:
    four = [f"w{number}" for number in range(5, 9)]
    for name in four:
        cluster.add_node(name, cpu=CPU, memory="4Gi", labels={"role": "worker"})
    cluster.wait_ready(four)
    run = Streaming.start(cluster, "eight", tmp_path, nodes=8)
    cluster.kill(run.machines()[:4])
    run.await_incident()
    for name in (f"w{number}" for number in range(9, 13)):
        run.add_machines(name)
        cluster.wait_ready([name])
    run.await_recovery()
    run.finish()
    assert run.incidents()[0]["status"]["lost"]["count"] >= 4
