"""`kubectl reprise` before a real API server: the plugin is found, reads what the operator would have written, and pauses.

No operator runs here, so there is no page: this is what a laptop sees when only the API server answers.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from reprise.controller.crd.base import TopologyReference
from reprise.controller.crd.convert import incident_object, incident_status, plan_object
from reprise.controller.crd.crds import KINDS
from reprise.controller.local.cluster import launch
from tests.kubernetes.cluster import REPOSITORY, KubeCluster
from tests.kubernetes.install import await_no_kinds
from tests.support import oncall
from tools.testbed import clients
from tools.testbed.rest import Rest

NAMESPACE = "on-call"
FOLDER = f"/apis/reprise.dev/v1alpha1/namespaces/{NAMESPACE}"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
SEEN = oncall.after_the_burst()


def kubectl(cluster: KubeCluster, *arguments: str) -> subprocess.CompletedProcess[str]:
    """With the programs of this environment on the path, where kubectl looks for plugins."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    config = str(cluster.control_plane.kubeconfig)
    return subprocess.run(
        [str(clients.ensure() / "kubectl"), *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={**os.environ, "PATH": path, "KUBECONFIG": config, "NO_COLOR": "1", "COLUMNS": "120"},
    )


def _established(api: Rest, plural: str) -> bool:
    found = api.find(f"{DEFINITIONS}/{plural}.reprise.dev") or {}
    conditions = found.get("status", {}).get("conditions") or []
    return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)


def _store(api: Rest, plural: str, body: dict[str, Any]) -> None:
    """An object, then its status."""
    status = body.pop("status", None)
    made = api.post(f"{FOLDER}/{plural}", body)
    if status is not None:
        api.put(f"{FOLDER}/{plural}/{body['metadata']['name']}/status", {**made, "status": status})


@pytest.fixture(scope="module")
def stored(bare: KubeCluster) -> Iterator[KubeCluster]:
    """A topology in the middle of an incident."""
    await_no_kinds(bare)
    assert kubectl(bare, "apply", "--server-side", "-f", str(REPOSITORY / "crds")).returncode == 0
    api = bare.api
    for kind in KINDS:
        launch.wait_until(lambda kind=kind: _established(api, kind.plural), kind.plural, 180)
    api.post("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    topology = yaml.safe_load(oncall.TEXT)
    topology["metadata"]["namespace"] = NAMESPACE
    made = api.post(f"{FOLDER}/streamtopologies", topology)
    reference = TopologyReference(name="oncall", uid=made["metadata"]["uid"])
    priorities = {query.id: query.priority for query in oncall.TOPOLOGY.queries.values()}
    assert SEEN.incident is not None
    incident = incident_object(SEEN.incident, reference, NAMESPACE)
    incident["status"] = incident_status(SEEN.incident, "oncall", SEEN.newest_plan, priorities)
    _store(api, "incidents", incident)
    for plan in SEEN.plans.values():
        _store(api, "recoveryplans", plan_object(plan, reference, NAMESPACE, priorities))
    status = {"incident": incident["metadata"]["name"], "position": 20}
    api.put(f"{FOLDER}/streamtopologies/oncall/status", {**made, "status": status})
    yield bare
    kubectl(bare, "delete", "-f", str(REPOSITORY / "crds"))
    api.delete(f"/api/v1/namespaces/{NAMESPACE}")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["status", "oncall"], ["on-call/oncall", "correlated, waiting", "from the resources alone"]),
        (["plan", "oncall"], ["oncall-inc-000002-p2 arrival", "comes back", "waits"]),
        (["history"], ["queries-lost", "node-lost"]),
    ],
)
def test_what_the_resources_say(stored: KubeCluster, words: list[str], expected: list[str]) -> None:
    done = kubectl(stored, "reprise", *words, "-n", NAMESPACE)
    assert done.returncode == 0, done.stderr
    for word in expected:
        assert word in done.stdout


def test_what_needs_the_page_says_so(stored: KubeCluster) -> None:
    done = kubectl(stored, "reprise", "explain", "oncall", "count.1", "-n", NAMESPACE)
    assert done.returncode == 4
    assert "give --url" in done.stderr


def test_pause_and_resume_own_one_field(stored: KubeCluster) -> None:
    for command, paused in (("pause", True), ("resume", False)):
        done = kubectl(stored, "reprise", command, "oncall", "-n", NAMESPACE)
        assert done.returncode == 0, done.stderr
        found = stored.api.get(f"{FOLDER}/streamtopologies/oncall")
        assert found["spec"]["paused"] is paused
    mine = [entry for entry in found["metadata"]["managedFields"] if entry["manager"] == "reprise-cli"]
    assert [list(entry["fieldsV1"]["f:spec"]) for entry in mine] == [["f:paused"]]
