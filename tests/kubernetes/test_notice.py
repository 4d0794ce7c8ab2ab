"""Kubernetes says that two of four machines will be taken away, of one by a condition and of the other by a taint: what runs
there moves to the other two while it can, what has a standby there goes on at it, and the loss of the machines is no
incident."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tests.kubernetes import scenario
from tests.kubernetes.cluster import KubeCluster
from tests.kubernetes.streaming import BACK_S, PLAN_S, START_S, Streaming
from tools.testbed.rest import STRATEGIC

pytestmark = [pytest.mark.slow, pytest.mark.wide]
LARGE, ROOMY = "2500m", "2"
"""Of a machine and of its executor: two of them have room for everything."""
SPOT = "aws-node-termination-handler/spot-itn"
WITH_STANDBY = "o0.0"


def test_two_of_four_machines_that_were_announced_to_go_are_no_incident(cluster: KubeCluster) -> None:
    body = scenario.manifest("topology2.yaml", "notice", nodes=4, cpu=ROOMY)
    (operator,) = (o for o in body["spec"]["operators"] if f"{o['name']}.0" == WITH_STANDBY)
    operator["availability"] = "active-standby"
    run = Streaming(cluster, "notice", body)
    with run.at_work([LARGE] * 4):
        executors, machines = run.executors(), run.machines()
        assert len(machines) == 4, "one executor a machine"
        run.until(
            lambda: run.status().get("standbys") == {"ready": 1, "wanted": 1}, "its standby is ready", START_S
        )
        node, standby = run.places(WITH_STANDBY)
        assert node != standby
        going = [executors[node], next(m for pod, m in executors.items() if pod not in (node, standby))]
        pods = {pod for pod, machine in executors.items() if machine in going}
        said_of_its_end(cluster, going[0])
        tainted(cluster, going[1])
        run.until(lambda: drained(run) == pods, "everything has moved", BACK_S)
        run.until(run.available, "what has moved is at work", BACK_S)
        assert hosting(run).isdisjoint(pods)
        assert run.places(WITH_STANDBY)[0] == standby
        promoted = f"event=standby-promoted partition={WITH_STANDBY} node={standby}#"
        assert promoted in run.driver_logs()[-1], "it was restored there"
        moved = [line for line in run.decided() if " rule=moved " in line]
        assert "where their standbys are" in moved[0], "it was moved by a checkpoint"
        at = run.progress()["horizon"]
        cluster.kill(going)
        run.until(lambda: pods.isdisjoint(run.executors()), "the pods are ended", PLAN_S)
        run.until(lambda: run.progress()["horizon"] > at + 20, "the stream goes on", BACK_S)
        run.finish()
        assert run.incidents() == []
        assert run.plans() == []


def said_of_its_end(cluster: KubeCluster, machine: str) -> None:
    """As the termination handler of OpenShift does."""
    condition = {
        "type": "Terminating",
        "status": "True",
        "reason": "TerminationRequested",
        "lastTransitionTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    cluster.api.patch(f"/api/v1/nodes/{machine}/status", {"status": {"conditions": [condition]}}, STRATEGIC)


def tainted(cluster: KubeCluster, machine: str) -> None:
    """As the handler of spot interruptions of AWS does."""
    taint = {"key": SPOT, "value": "", "effect": "NoSchedule"}
    cluster.api.patch(f"/api/v1/nodes/{machine}", {"spec": {"taints": [taint]}}, STRATEGIC)


def drained(run: Streaming) -> set[str]:
    """Pods that are to be emptied and have nothing left, as the operator's page has it."""
    return {node["name"] for node in run.document()["nodes"] if node["state"] == "drained"}


def hosting(run: Streaming) -> set[str]:
    """Pods that have partitions."""
    return {node["name"] for node in run.document()["nodes"] if node["partitions"]}
