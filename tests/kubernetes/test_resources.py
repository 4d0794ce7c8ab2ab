"""The kinds and the chart before a real API server: it takes what is good, refuses what is not, and says why."""

from __future__ import annotations

import copy
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from reprise.controller.crd.crds import KINDS
from reprise.controller.local.cluster import launch
from reprise.spark_jobs.topology import load_topology
from tests.kubernetes.cluster import REPOSITORY, KubeCluster
from tests.kubernetes.install import await_no_kinds
from tests.kubernetes.rule_cases import (
    GOOD,
    INCIDENT,
    INCIDENT_STATUS,
    MISTAKES,
    NAMESPACE,
    RECORDS,
    TOPOLOGY,
    TRANSITIONS,
    Case,
    at,
    changed,
)
from tests.support import openapi_schemas
from tests.support.chart import render
from tests.unit.chart.test_templates import CHOICES, EVERYTHING
from tools.testbed import clients, judges
from tools.testbed.rest import Rest, RestError

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
GROUP = "/apis/reprise.dev/v1alpha1"
PLURALS = {kind.kind: kind.plural for kind in KINDS}
STRICT = {"fieldValidation": "Strict"}
DRY = {"dryRun": "All", **STRICT}
EXAMPLES = sorted((REPOSITORY / "examples").glob("*.yaml"))


@pytest.fixture(scope="module")
def api(bare: KubeCluster) -> Iterator[Rest]:
    """With the definitions applied as people apply them; removed again at the end."""
    await_no_kinds(bare)
    _kubectl(bare, "apply", "--server-side", "-f", str(REPOSITORY / "crds"))
    api = bare.api
    api.post("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    for kind in KINDS:
        launch.wait_until(lambda kind=kind: _established(api, kind.plural), kind.plural, 180)
    yield api
    _kubectl(bare, "delete", "-f", str(REPOSITORY / "crds"))
    api.delete(f"/api/v1/namespaces/{NAMESPACE}")


def _kubectl(cluster: KubeCluster, *arguments: str) -> str:
    command = [
        str(clients.ensure() / "kubectl"),
        f"--kubeconfig={cluster.control_plane.kubeconfig}",
        *arguments,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "would violate PodSecurity" not in done.stderr, done.stderr
    return done.stdout


def _established(api: Rest, plural: str) -> bool:
    found = api.find(f"{DEFINITIONS}/{plural}.reprise.dev")
    conditions = (found.get("status", {}).get("conditions") or []) if found else []
    return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)


def _folder(body: dict[str, Any]) -> str:
    return f"{GROUP}/namespaces/{NAMESPACE}/{PLURALS[body['kind']]}"


def _try(api: Rest, case: Case) -> str:
    """What the API server says: empty when it takes the object.  Nothing stays."""
    if case.old is None:
        return _refusal(lambda: api.post(f"{_folder(case.new)}?{_query()}", case.new))
    path = f"{_folder(case.old)}/{case.old['metadata']['name']}"
    stored = api.post(_folder(case.old), {k: v for k, v in case.old.items() if k != "status"})
    try:
        version = stored["metadata"]["resourceVersion"]
        if "status" in case.old:
            body = {**case.old, "metadata": {**case.old["metadata"], "resourceVersion": version}}
            version = api.put(f"{path}/status", body)["metadata"]["resourceVersion"]
        new = {**case.new, "metadata": {**case.new["metadata"], "resourceVersion": version}}
        part = "/status" if case.new["spec"] == case.old["spec"] else ""
        return _refusal(lambda: api.put(f"{path}{part}?{_query()}", new))
    finally:
        api.delete(path)


def _query() -> str:
    return "&".join(f"{key}={value}" for key, value in DRY.items())


def _refusal(send: Any) -> str:
    try:
        send()
    except RestError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("case", MISTAKES, ids=lambda c: c.name)
def test_a_mistake_is_refused_with_its_reason(api: Rest, case: Case) -> None:
    said = _try(api, case)
    assert said.startswith("422") and case.refused in said, said


@pytest.mark.parametrize("case", GOOD, ids=lambda c: c.name)
def test_what_is_good_is_taken(api: Rest, case: Case) -> None:
    assert _try(api, case) == ""


@pytest.mark.parametrize("case", [*TRANSITIONS, *RECORDS], ids=lambda c: c.name)
def test_what_may_change_later_and_what_may_not(api: Rest, case: Case) -> None:
    said = _try(api, case)
    assert case.refused in said if case.refused else said == "", said


def test_an_unknown_field_is_refused_and_not_forgotten(api: Rest) -> None:
    odd = changed(TOPOLOGY, at("recovery", {"stratgy": "blocking"}))
    said = _refusal(lambda: api.post(f"{_folder(odd)}?{_query()}", odd))
    assert said.startswith("400") and "unknown field" in said and "spec.recovery.stratgy" in said


def test_defaults_are_filled_in(api: Rest) -> None:
    stored = api.post(f"{_folder(TOPOLOGY)}?{_query()}", TOPOLOGY)["spec"]
    assert (stored["recovery"]["cpuCap"], stored["batch"]["interval"]) == (80, "500ms")
    assert stored["operators"][0]["resources"] == {"cpu": "1m"}
    assert stored["operators"][0]["with"]["explode"] == ["hashtags"], "free-form fields are kept"


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_an_example_is_applied_as_it_is_and_means_the_same(bare: KubeCluster, api: Rest, path: Path) -> None:
    assert api is bare.api
    text = _kubectl(
        bare, "apply", f"--namespace={NAMESPACE}", "--dry-run=server", "-o", "json", "-f", str(path)
    )
    served = json.loads(text)["spec"]
    ours = json.loads(load_topology(path).document)["spec"]
    for name, default in (("driverGrace", "0s"), ("rebalance", False)):
        if served["recovery"][name] == default:  # which our document leaves out
            del served["recovery"][name]
    assert _without_empty(served) == _without_empty(ours)


def _without_empty(value: Any) -> Any:
    """An empty map or list is one that is not there."""
    if isinstance(value, dict):
        cleaned = {key: _without_empty(child) for key, child in value.items()}
        return {key: child for key, child in cleaned.items() if child not in ({}, [])}
    return [_without_empty(child) for child in value] if isinstance(value, list) else value


def test_get_shows_what_the_person_on_call_asks_first(bare: KubeCluster, api: Rest) -> None:
    api.post(_folder(INCIDENT), INCIDENT)
    path = f"{_folder(INCIDENT)}/{INCIDENT['metadata']['name']}"
    api.patch(f"{path}/status", {"status": INCIDENT_STATUS}, "application/merge-patch+json")
    try:
        shown = _kubectl(bare, "get", "reprise", "-n", NAMESPACE)
        header, row = [re.split(r"\s{2,}", line.strip()) for line in shown.strip().splitlines()]
        cells = dict(zip(header, row, strict=False))
        assert (cells["PHASE"], cells["LOST"], cells["QUERIES"]) == ("recovering", "1", "1/1")
        assert _kubectl(bare, "get", "inc", "-n", NAMESPACE, "-o", "name").strip().endswith("good-inc-000007")
        assert "closedAt" in _kubectl(bare, "explain", "incident.status")
    finally:
        api.delete(path)


@pytest.mark.parametrize("values", CHOICES, ids=lambda v: ",".join(v)[:40] or "defaults")
def test_the_api_server_takes_everything_that_the_chart_renders(
    bare: KubeCluster, api: Rest, values: dict[str, str], tmp_path: Path
) -> None:
    assert api is bare.api
    objects = [o for o in render(**values) if not o["apiVersion"].startswith("monitoring.coreos.com")]
    spaces = {o["metadata"].get("namespace") for o in objects} - {None, NAMESPACE, "default"}
    for space in spaces:
        api.post("/api/v1/namespaces", {"metadata": {"name": space}})
    # the profile that the chart keeps to, enforced
    modes = ("enforce", "warn")  # pods are refused, what makes pods is warned of
    labels = [f"pod-security.kubernetes.io/{mode}=restricted" for mode in modes]
    _kubectl(bare, "label", "namespace", NAMESPACE, *labels, "--overwrite")
    manifest, accounts = tmp_path / "chart.yaml", tmp_path / "accounts.yaml"
    manifest.write_text(yaml.safe_dump_all(objects))
    # a pod is refused while its account is not there, and a dry run leaves none
    accounts.write_text(yaml.safe_dump_all(o for o in objects if o["kind"] == "ServiceAccount"))
    _kubectl(bare, "apply", "--server-side", "-f", str(accounts))
    try:
        said = _kubectl(
            bare, "apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", str(manifest)
        )
        assert said.count("serverside-applied (server dry run)") == len(objects)
    finally:
        _kubectl(bare, "delete", "-f", str(accounts))
        _kubectl(
            bare, "label", "namespace", NAMESPACE, *(f"pod-security.kubernetes.io/{mode}-" for mode in modes)
        )
        for space in spaces:
            api.delete(f"/api/v1/namespaces/{space}")


def test_kubeconform_takes_all_manifests_and_nothing_with_a_field_that_is_not_there(
    bare: KubeCluster, api: Rest, tmp_path: Path
) -> None:
    """By the schemas of the API server itself, so without one: what a pipeline of a platform team checks."""
    rendered = [o for values in CHOICES for o in render(**values)]
    shipped = [
        o
        for path in (*sorted((REPOSITORY / "crds").glob("*.yaml")), *EXAMPLES)
        for o in yaml.safe_load_all(path.read_text(encoding="utf-8"))
    ]
    objects = [*rendered, *shipped]
    # kinds of Prometheus' operator, which is not installed: no server here knows them
    foreign = [o for o in objects if o["apiVersion"].startswith("monitoring.coreos.com")]
    assert {o["kind"] for o in foreign} == {"ServiceMonitor", "PodMonitor", "PrometheusRule"}
    ours = [o for o in objects if o not in foreign]
    openapi_schemas.write(bare.api, ours, tmp_path)

    def judge(wanted: list[dict[str, Any]]) -> dict[str, Any]:
        (tmp_path / "manifests.yaml").write_text(yaml.safe_dump_all(wanted))
        location = f"{tmp_path}/{openapi_schemas.LOCATION}"
        command = [
            str(judges.ensure() / "kubeconform"), "-strict", "-summary", "-output", "json",
            "-schema-location", location, str(tmp_path / "manifests.yaml"),
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    found = judge(ours)
    assert found["resources"] == []
    assert found["summary"] == {"valid": len(ours), "invalid": 0, "errors": 0, "skipped": 0}
    assert len(ours) > 100 and {"Deployment", "CustomResourceDefinition", "StreamTopology"} <= {
        o["kind"] for o in ours
    }
    deployment = copy.deepcopy(next(o for o in ours if o["kind"] == "Deployment"))
    deployment["spec"]["template"]["spec"]["containers"][0]["comand"] = ["x"]
    topology = copy.deepcopy(next(o for o in ours if o["kind"] == "StreamTopology"))
    topology["spec"]["nodes"]["count"] = "many"
    refused = judge([deployment, topology])
    assert refused["summary"]["invalid"] == 2
    said = [one["msg"] for one in refused["resources"]]
    assert any("comand" in text for text in said) and any("count" in text for text in said), said


def test_the_choices_cover_every_template() -> None:
    rendered = {o["kind"] for o in render(**EVERYTHING)}
    assert {
        "Deployment",
        "StatefulSet",
        "PodDisruptionBudget",
        "PriorityClass",
        "NetworkPolicy",
        "ServiceMonitor",
    } <= rendered
