"""Machines are drained one after the other, each after the one before has been made good: never a correlated failure."""

from __future__ import annotations

import pytest

from tests.kubernetes.cluster import KubeCluster
from tests.kubernetes.install import NAMESPACE
from tests.kubernetes.streaming import BACK_S, Streaming
from tools.testbed.rest import MERGE

pytestmark = [pytest.mark.slow, pytest.mark.wide]


def test_each_drained_machine_is_a_small_incident(cluster: KubeCluster) -> None:
    with Streaming.of_topology2(cluster, "drained") as run:
        for number, machine in enumerate(run.machines()[:2], start=1):
            cluster.api.patch(f"/api/v1/nodes/{machine}", {"spec": {"unschedulable": True}}, MERGE)
            run.add_machine()
            pod = next(pod for pod, where in run.executors().items() if where == machine)
            eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}}
            cluster.api.post(f"/api/v1/namespaces/{NAMESPACE}/pods/{pod}/eviction", eviction)
            run.until(lambda number=number: len(run.incidents()) == number, "its own incident", BACK_S)
            run.await_recovery()
        run.finish()
        assert [i["status"]["kind"] for i in run.incidents()] == ["blocking", "blocking"]
