"""`helm install`, `helm test` and the hand-over of an installed operator, with its pods really running."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kubernetes.cluster import REPOSITORY, KubeCluster
from tests.kubernetes.install import IMAGE, await_no_kinds
from tests.kubernetes.scenario import until
from tools.testbed import clients

RELEASE, NAMESPACE, NODE = "rec", "installed", "helm-node"
TOPOLOGIES = "installed-topologies"
"""Not beside the operator, as the chart wants it."""
DEPLOYMENT = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{RELEASE}-operator"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
READY_S = 180
"""Two starts of Python with everything it imports, on a machine that does other things."""
LEASE_S = 30
"""Long enough that a busy machine renews it in time."""


def helm(cluster: KubeCluster, *arguments: str, space: str = NAMESPACE) -> subprocess.CompletedProcess[str]:
    config = f"--kubeconfig={cluster.control_plane.kubeconfig}"
    command = [str(clients.ensure() / "helm"), config, "--namespace", space, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=READY_S + 60)


def operators(cluster: KubeCluster) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = cluster.api.get(PODS, labelSelector="app.kubernetes.io/component=operator")[
        "items"
    ]
    return found


def holder(cluster: KubeCluster) -> str:
    return str(lease(cluster).get("holderIdentity") or "")


def transitions(cluster: KubeCluster) -> int:
    return int(lease(cluster)["leaseTransitions"])


def lease(cluster: KubeCluster) -> dict[str, Any]:
    """Its spec; empty before there is one."""
    leases = cluster.api.get(f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases")["items"]
    return next((dict(one["spec"]) for one in leases), {})


@pytest.fixture(scope="module")
def installed(bare: KubeCluster) -> Iterator[KubeCluster]:
    await_no_kinds(bare)
    bare.add_node(NODE, cpu="8", memory="16Gi")
    bare.wait_ready([NODE])
    bare.api.post("/api/v1/namespaces", {"metadata": {"name": TOPOLOGIES}})
    repository, tag = IMAGE.split(":")
    values = {
        "image.repository": repository, "image.tag": tag, "zookeeper.hosts": bare.zookeeper.hosts,
        "watch.namespaces[0]": TOPOLOGIES, "rbac.readNodes": "true", "rbac.readCapacity": "true",
        "operator.leaseSeconds": str(LEASE_S), "tests.timeoutSeconds": str(READY_S),
    }  # fmt: skip
    words = [word for key, value in values.items() for word in ("--set", f"{key}={value}")]
    try:
        done = helm(
            bare, "install", RELEASE, str(REPOSITORY / "charts" / "reprise"), "--create-namespace",
            "--wait", "--timeout", f"{READY_S}s", *words,
        )  # fmt: skip
        assert done.returncode == 0, (done.stderr, _logs(bare))
        yield bare
    finally:
        helm(bare, "uninstall", RELEASE, "--wait", "--ignore-not-found")
        for plural in ("streamtopologies", "incidents", "recoveryplans"):
            path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{plural}.reprise.dev"
            if bare.api.find(path) is not None:
                bare.api.delete(path)
        bare.api.delete(f"/api/v1/namespaces/{NAMESPACE}")
        bare.api.delete(f"/api/v1/namespaces/{TOPOLOGIES}")
        bare.kill([NODE])
        bare.api.delete(f"/api/v1/nodes/{NODE}")


def _logs(cluster: KubeCluster) -> dict[str, str]:
    folder = cluster.work_dir / "pods"
    return {str(path.name): _end(path) for path in sorted(folder.rglob("*.log"))}


def _end(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")[-1500:]


def test_both_replicas_are_ready_and_one_leads(installed: KubeCluster) -> None:
    status = installed.api.get(DEPLOYMENT)["status"]
    assert status["readyReplicas"] == 2
    until(lambda: holder(installed) in {p["metadata"]["name"] for p in operators(installed)}, "a leader", 60)


def test_helm_test_reconciles_a_topology_and_leaves_nothing(installed: KubeCluster) -> None:
    done = helm(installed, "test", RELEASE, "--timeout", f"{READY_S}s")
    assert done.returncode == 0, (done.stdout, done.stderr, _logs(installed))
    assert "Succeeded" in done.stdout
    folder = f"/apis/reprise.dev/v1alpha1/namespaces/{TOPOLOGIES}/streamtopologies"
    until(lambda: installed.api.get(folder)["items"] == [], "the topology is gone", 60)


def test_a_leader_that_is_told_to_end_gives_its_lease_back(installed: KubeCluster) -> None:
    """By what the Lease counts and not by seconds: given back and taken are two changes of its holder, taken from one who
    is gone is one."""
    until(lambda: installed.api.get(DEPLOYMENT)["status"].get("readyReplicas") == 2, "two operators", READY_S)
    first, before = holder(installed), transitions(installed)
    installed.api.delete(f"{PODS}/{first}")
    until(lambda: holder(installed) not in ("", first), "the other one leads", READY_S)
    assert transitions(installed) == before + 2, "it had to wait for the Lease to run out"
