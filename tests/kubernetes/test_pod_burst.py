"""Pods are evicted through Kubernetes' eviction API, two at once: their machines stay."""

from __future__ import annotations

import pytest

from tests.kubernetes.cluster import KubeCluster
from tests.kubernetes.install import NAMESPACE
from tests.kubernetes.streaming import Streaming

pytestmark = [pytest.mark.slow, pytest.mark.wide]


def test_evicted_executors_are_one_incident_and_are_replaced_where_they_were(cluster: KubeCluster) -> None:
    with Streaming.of_topology2(cluster, "evicted") as run:
        victims = sorted(run.executors())[:2]
        for name in victims:
            eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
            cluster.api.post(f"/api/v1/namespaces/{NAMESPACE}/pods/{name}/eviction", eviction)
        run.await_incident()
        run.await_recovery()  # no machine was lost, so none has to come
        run.finish()
        assert len(run.incidents()) == 1
        assert run.incidents()[0]["status"]["kind"] == "correlated"
