"""The operator is killed in the middle of a recovery, with a second one standing by: it goes on where the first was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.kubernetes.cluster import KubeCluster
from tests.kubernetes.install import NAMESPACE
from tests.kubernetes.rest import MERGE
from tests.kubernetes.scenario import until
from tests.kubernetes.streaming import Streaming

DEPLOYMENT = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/reprise-operator"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/reprise-operator"


def holder(cluster: KubeCluster) -> str:
    lease: dict[str, Any] | None = cluster.api.find(LEASE)
    return "" if lease is None else str(lease["spec"].get("holderIdentity") or "")


def test_a_second_operator_takes_over_in_the_middle_of_a_recovery(
    cluster: KubeCluster, tmp_path: Path
) -> None:
    cluster.api.patch(DEPLOYMENT, {"spec": {"replicas": 2}}, MERGE)
    until(lambda: cluster.api.get(DEPLOYMENT)["status"].get("readyReplicas") == 2, "two operators", 120)
    run = Streaming.start(cluster, "headless", tmp_path)
    cluster.kill(run.machines()[:2])
    run.await_incident()
    first = holder(cluster)
    cluster.api.delete(f"/api/v1/namespaces/{NAMESPACE}/pods/{first}", {"gracePeriodSeconds": 0})
    until(lambda: holder(cluster) not in ("", first), "another one leads", 180)
    run.add_machines("w5", "w6")
    run.await_recovery()
    run.finish()
    assert len(run.incidents()) == 1, "the same incident, and nothing was decided twice"
    assert len(run.plans()) == run.incidents()[0]["status"]["plans"]["count"]
