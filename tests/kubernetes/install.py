"""The operator on a test cluster as the chart would install it: kinds, accounts, rights, storage, the Deployment."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from tests.kubernetes import rbac
from tests.kubernetes.cluster import REPOSITORY, SESSION_S, KubeCluster
from tools.testbed.rest import MERGE, RestError
from tools.testbed.waiting import until

NAMESPACE = "streams"
DATA = "/var/lib/reprise"
"""Where pods see the shared folder."""
IMAGE = "reprise:test"
SWITCHES = "reprise-switches"
METRICS_PORT, WEB_PORT = 9090, 8088
"""Of the operator's pod, and the first of drivers' pods too."""
_CORE = "/api/v1"
_KINDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_RIGHTS = "/apis/rbac.authorization.k8s.io/v1"


def install(cluster: KubeCluster, *, replicas: int = 1, options: tuple[str, ...] = ()) -> None:
    """Everything but nodes and topologies; operator pods go to machines with the label role=infra."""
    api = cluster.api
    await_no_kinds(cluster)
    for path in sorted((REPOSITORY / "crds").glob("*.yaml")):
        api.post(_KINDS, yaml.safe_load(path.read_text(encoding="utf-8")))
    namespace = f"{_CORE}/namespaces/{NAMESPACE}"
    until(lambda: api.find(namespace) is None, "the namespace of tests that ran before is deleted")
    api.post(f"{_CORE}/namespaces", {"metadata": {"name": NAMESPACE}})
    _accounts(cluster)
    _storage(cluster)
    api.post(f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments", deployment(cluster, replicas, options))
    # a pod that is scheduled before its claim is bound may wait for minutes until it is looked at again
    claim = f"{_CORE}/namespaces/{NAMESPACE}/persistentvolumeclaims/data"
    until(lambda: api.get(claim).get("status", {}).get("phase") == "Bound", "the claim is bound")


def await_no_kinds(cluster: KubeCluster) -> None:
    """Until the definitions of tests that ran before are deleted: those applied meanwhile would go with them.

    An API server whose cache was just being made anew ("storage is (re)initializing") looks at a definition that is being
    deleted only when that changes, or at its next resync, up to five minutes later.  So each look changes an annotation."""
    for file in (REPOSITORY / "crds").glob("*.yaml"):
        path = f"{_KINDS}/{yaml.safe_load(file.read_text(encoding='utf-8'))['metadata']['name']}"
        until(lambda path=path: _is_gone(cluster, path), f"{path} is gone", poll_s=0.5)


def _is_gone(cluster: KubeCluster, path: str) -> bool:
    if cluster.api.find(path) is None:
        return True
    with suppress(RestError):  # it is gone by now
        cluster.api.patch(path, {"metadata": {"annotations": {"seen": str(time.time())}}}, MERGE)
    return False


def _accounts(cluster: KubeCluster) -> None:
    api, base = cluster.api, f"{_RIGHTS}/namespaces/{NAMESPACE}"
    roles = {
        "reprise-operator": ("reprise-operator", rbac.OPERATOR + rbac.OPERATOR_HOME),
        "reprise-driver": ("reprise-driver", rbac.DRIVER),
    }
    for name, (account, rules) in roles.items():
        api.post(f"{_CORE}/namespaces/{NAMESPACE}/serviceaccounts", {"metadata": {"name": account}})
        api.post(f"{base}/roles", {"metadata": {"name": name}, "rules": rules})
        api.post(f"{base}/rolebindings", _binding(name, account, "Role"))
    api.post(
        f"{_RIGHTS}/clusterroles",
        {"metadata": {"name": "reprise-operator"}, "rules": rbac.OPERATOR_CLUSTER + rbac.OPERATOR_CAPACITY},
    )
    api.post(
        f"{_RIGHTS}/clusterrolebindings", _binding("reprise-operator", "reprise-operator", "ClusterRole")
    )


def _binding(name: str, account: str, kind: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": NAMESPACE}],
    }


def data_folder(cluster: KubeCluster) -> Path:
    """The shared folder as the tests see it."""
    return cluster.work_dir.resolve() / "data"


def _storage(cluster: KubeCluster) -> None:
    data_folder(cluster).mkdir(parents=True, exist_ok=True)
    size = {"storage": "10Gi"}
    volume = {
        "metadata": {"name": "data"},
        "spec": {
            "capacity": size,
            "accessModes": ["ReadWriteMany"],
            "storageClassName": "shared",
            "hostPath": {"path": str(data_folder(cluster))},
            "claimRef": {"namespace": NAMESPACE, "name": "data"},
        },
    }
    claim = {
        "metadata": {"name": "data"},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "storageClassName": "shared",
            "volumeName": "data",
            "resources": {"requests": size},
        },
    }
    cluster.api.post(f"{_CORE}/persistentvolumes", volume)
    cluster.api.post(f"{_CORE}/namespaces/{NAMESPACE}/persistentvolumeclaims", claim)


def deployment(cluster: KubeCluster, replicas: int, options: tuple[str, ...]) -> dict[str, Any]:
    labels = {"app.kubernetes.io/name": "reprise", "app.kubernetes.io/component": "operator"}
    fields = {
        "POD_NAME": "metadata.name",
        "POD_NAMESPACE": "metadata.namespace",
        "POD_IP": "status.podIP",
    }
    arguments = [
        "operator", f"--zk={cluster.zookeeper.hosts}", f"--image={IMAGE}", f"--watch={NAMESPACE}",
        f"--switches={SWITCHES}", "--capacity", "--own-namespace",
        "--own-account=reprise-operator", "--network-policies", f"--session-timeout={SESSION_S:g}", "--lease-s=16",
        f"--metrics-port={METRICS_PORT}", f"--web-port={WEB_PORT}", "--web-host=$(POD_IP)", *options,
    ]  # fmt: skip
    container = {
        "name": "operator",
        "image": IMAGE,
        "args": arguments,
        "env": [
            {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in fields.items()
        ],
        "ports": [{"name": "health", "containerPort": 8080}],
        "startupProbe": {
            "httpGet": {"path": "/healthz", "port": "health"},
            "periodSeconds": 2,
            "failureThreshold": 60,
        },
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": "health"}, "periodSeconds": 2},
        "livenessProbe": {"httpGet": {"path": "/healthz", "port": "health"}, "periodSeconds": 10},
    }
    spec = {
        "serviceAccountName": "reprise-operator",
        "nodeSelector": {"role": "infra"},
        "terminationGracePeriodSeconds": 20,
        "containers": [container],
    }
    return {
        "metadata": {"name": "reprise-operator", "labels": labels},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }
