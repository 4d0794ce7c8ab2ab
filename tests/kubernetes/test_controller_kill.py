"""The operator is killed in the middle of a recovery, with a second one standing by: it goes on where the first was."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

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


@pytest.fixture
def two_operators(cluster: KubeCluster) -> Iterator[None]:
    """For this test alone: others ask the only one for its page and its metrics."""
    scale(cluster, 2)
    yield
    scale(cluster, 1)


def scale(cluster: KubeCluster, replicas: int) -> None:
    cluster.api.patch(DEPLOYMENT, {"spec": {"replicas": replicas}}, MERGE)
    until(lambda: ready(cluster) == replicas, f"{replicas} operators", 120)


def ready(cluster: KubeCluster) -> int | None:
    """Operators that are ready; None while others are on their way out."""
    count = int(cluster.api.get(DEPLOYMENT)["status"].get("readyReplicas") or 0)
    pods = cluster.api.get(
        f"/api/v1/namespaces/{NAMESPACE}/pods", labelSelector="app.kubernetes.io/component=operator"
    )["items"]
    return count if len(pods) == count else None


@pytest.mark.usefixtures("two_operators")
def test_a_second_operator_takes_over_in_the_middle_of_a_recovery(cluster: KubeCluster) -> None:
    with Streaming.of_topology2(cluster, "headless") as run:
        cluster.kill(run.machines()[:2])
        run.await_incident()
        first = holder(cluster)
        cluster.api.delete(f"/api/v1/namespaces/{NAMESPACE}/pods/{first}", {"gracePeriodSeconds": 0})
        until(lambda: holder(cluster) not in ("", first), "another one leads", 180)
        for _ in range(2):
            run.add_machine()
        run.await_recovery()
        run.finish()
        assert len(run.incidents()) == 1, "the same incident, and nothing was decided twice"
        assert len(run.plans()) == run.incidents()[0]["status"]["plans"]["count"]
