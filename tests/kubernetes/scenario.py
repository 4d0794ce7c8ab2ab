"""What the end-to-end tests share: topologies that fit a test cluster, waiting, and the verdict on output."""

from __future__ import annotations

import json
import re
import urllib.request
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from reprise.controller.local.report.compare import compare
from reprise.spark_jobs.topology import StreamTopology, from_json
from tests.e2e.scenario import write_expected
from tests.kubernetes.cluster import REPOSITORY, KubeCluster
from tests.kubernetes.install import DATA, NAMESPACE, data_folder
from tools.testbed import waiting

GROUP = "/apis/reprise.dev/v1alpha1"
FOLDER = f"{GROUP}/namespaces/{NAMESPACE}"


def manifest(example: str, name: str, *, nodes: int, cpu: str) -> dict[str, Any]:
    """An example of the project on `nodes` pods, with storage that the pods share and hashtags without an end.  Executors
    fit on machines of the topology's own only, and the driver on the infra machine only."""
    body: dict[str, Any] = yaml.safe_load((REPOSITORY / "examples" / example).read_text(encoding="utf-8"))
    body["metadata"] = {"name": name, "namespace": NAMESPACE}
    body["spec"]["sources"][0] |= {
        "class": "tests.kubernetes.numbers:Tags",
        "with": {"rate": 100, "seed": 3, "folder": f"{DATA}/{name}"},
    }
    body["spec"] |= {
        "nodes": {"count": nodes, "cpu": cpu},
        "checkpoint": {"everyBatches": 10, "location": f"{DATA}/{name}/checkpoints"},
        "sink": {"location": f"{DATA}/{name}/sink"},
        "kubernetes": {
            "volumes": [{"claim": "data", "mountPath": DATA}],
            "driver": {"cpu": "2", "memory": "1536Mi"},
            "executor": {"spread": "required"},
        },
    }
    conf = body["spec"].setdefault("spark", {}).setdefault("conf", {})
    conf["spark.kubernetes.executor.node.selector.pool"] = name
    return body


def resource_of(body: dict[str, Any]) -> StreamTopology:
    return from_json(json.dumps(body))


def expected(body: dict[str, Any], folder: Path) -> Path:
    """The definition's output of a topology."""
    return write_expected(resource_of(body), folder)


def apply(cluster: KubeCluster, body: dict[str, Any]) -> None:
    cluster.api.post(f"{FOLDER}/streamtopologies", body)


def topology(cluster: KubeCluster, name: str) -> dict[str, Any]:
    found: dict[str, Any] = cluster.api.get(f"{FOLDER}/streamtopologies/{name}")
    return found


def status(cluster: KubeCluster, name: str) -> dict[str, Any]:
    return dict(topology(cluster, name).get("status") or {})


def condition(cluster: KubeCluster, name: str, kind: str) -> tuple[str, str]:
    """(status, reason); Unknown while there is none."""
    for entry in status(cluster, name).get("conditions") or []:
        if entry["type"] == kind:
            return entry["status"], entry["reason"]
    return "Unknown", ""


def objects(cluster: KubeCluster, plural: str, name: str) -> list[dict[str, Any]]:
    """Incidents or RecoveryPlans of a topology, oldest first."""
    found = cluster.api.get(f"{FOLDER}/{plural}", labelSelector=f"reprise.dev/topology={name}")["items"]
    return sorted(found, key=lambda item: item["metadata"]["name"])


def pods(cluster: KubeCluster, name: str, role: str) -> list[dict[str, Any]]:
    selector = f"reprise.dev/topology={name},reprise.dev/role={role}"
    found: list[dict[str, Any]] = cluster.api.get(
        f"/api/v1/namespaces/{NAMESPACE}/pods", labelSelector=selector
    )["items"]
    return found


def operator_address(cluster: KubeCluster) -> str:
    """Of the only operator."""
    (pod,) = cluster.api.get(
        f"/api/v1/namespaces/{NAMESPACE}/pods", labelSelector="app.kubernetes.io/component=operator"
    )["items"]
    return str(pod["status"]["podIP"])


def fetch(url: str) -> bytes:
    """What a server of a pod answers, as Prometheus or a browser would get it."""
    with urllib.request.urlopen(url, timeout=300) as answer:
        return bytes(answer.read())


def until(
    condition: Callable[[], Any], what: str, seconds: float, report: Callable[[], object] = dict
) -> Any:
    """Poll until it is true; its answer.  The failure carries `report()`."""
    return waiting.until(condition, what, seconds, report, poll_s=0.1)


def horizon(cluster: KubeCluster, name: str) -> int:
    return int(status(cluster, name).get("position") or 0)


def progress(cluster: KubeCluster, name: str) -> dict[str, Any]:
    """The driver's own record: the truth behind the status."""
    return record(cluster, name, "progress")


def record(cluster: KubeCluster, name: str, place: str) -> dict[str, Any]:
    """One of a topology's records in ZooKeeper; empty where there is none."""
    from reprise.controller.zookeeper.client import connected
    from reprise.controller.zookeeper.znode import unpack

    with connected(cluster.zookeeper.hosts, 10.0) as client:
        path = f"/reprise/{NAMESPACE}/{name}/{place}"
        raw = client.get(path)[0] if client.exists(path) else b"{}"
        found: dict[str, Any] = json.loads(unpack(raw) or b"{}")
        return found


def assert_exactly_once(cluster: KubeCluster, name: str, wanted: Path) -> None:
    """Every row of every (partition, batch) once, and equal to the definition's."""
    found = compare(wanted, data_folder(cluster) / name)
    assert found.identical, (found.missing[:5], found.extra[:5], found.different[:5], found.twice[:5])
    assert found.equal > 0


PASSES = {
    "UnknownError", "ConflictError", "SessionError", "TimeoutError", "ConnectionError", "ConnectionRefusedError",
    "ConnectionResetError", "ConnectionAbortedError", "BrokenPipeError",
}  # fmt: skip
"""Exceptions of a server that is away, or was asked by another at the same time."""
PASSED = 40
"""A log may have so many of one of these: more is an operator that looks in vain for two minutes."""
_ENTRY = re.compile(r"^(?=\d{4}-\d\d-\d\d )", re.MULTILINE)
_RAISED = re.compile(r"^(?:\w+\.)*(\w+)(?=: |$)", re.MULTILINE)


def defects(cluster: KubeCluster) -> set[str]:
    """What operators have logged, each with its traceback, of exceptions that nobody foresaw and that do not pass: the
    looking goes on, and only seconds are lost."""
    found = set[str]()
    for log in (cluster.work_dir / "pods").rglob("*.log"):
        passed = Counter[str]()
        for entry in _ENTRY.split(log.read_text(encoding="utf-8", errors="replace")):
            if "look-failed" in entry:
                raised = "".join(_RAISED.findall(entry)[-1:])
                passed[raised] += 1
                if raised not in PASSES or passed[raised] > PASSED:
                    found.add(f"{log.parent.parent.name}: {entry}")
    return found


def machine_of(pod: dict[str, Any]) -> str:
    return str(pod["spec"].get("nodeName") or "")


def report(cluster: KubeCluster, name: str) -> Callable[[], object]:
    """What to show when a wait has failed."""

    def look() -> object:
        shown = {p["metadata"]["name"]: p["status"].get("phase") for p in pods(cluster, name, "executor")}
        return {"status": status(cluster, name), "executors": shown, "logs": str(cluster.work_dir)}

    return look
