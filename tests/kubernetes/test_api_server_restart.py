"""The API server is away while machines die: recovery does not need it, and what people see catches up."""

from __future__ import annotations

import pytest

from tests.kubernetes.cluster import KubeCluster
from tests.kubernetes.streaming import PLAN_S, Streaming

pytestmark = [pytest.mark.slow, pytest.mark.wide]


def test_plans_are_made_without_the_api_server_and_shown_when_it_is_back(cluster: KubeCluster) -> None:
    with Streaming.of_topology2(cluster, "deaf") as run:
        victims = run.machines()[:2]
        seq = int(run.progress()["seq"])
        cluster.control_plane.kill("kube-apiserver")
        cluster.kill(victims)
        run.until(lambda: int(run.progress().get("seq", 0)) > seq, "a plan is being carried out", PLAN_S)
        cluster.control_plane.start_part("kube-apiserver")
        cluster.control_plane.wait_ready()
        run.await_incident()
        for _ in range(2):
            run.add_machine()
        run.await_recovery()
        run.finish()
