"""What a topology says of its pods is in them, and what they must be stands above it."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from reprise.controller.agent import user_code
from reprise.controller.operator.pods import manifests, pod_template
from reprise.spark_jobs.topology.pods import PodSettings, Variable
from tests.unit.controller.operator.pods.test_manifests import SETTINGS, pods, topology

NUMBER = {"driver": 0, "executor": 1}
ROLES = list(NUMBER)
HASH = "0" * 64


def pod(role: str, **kubernetes: Any) -> dict[str, Any]:
    return pods(topology(**kubernetes))[NUMBER[role]]


def container(role: str, **kubernetes: Any) -> dict[str, Any]:
    found: dict[str, Any] = pod(role, **kubernetes)["spec"]["containers"][0]
    return found


@pytest.mark.parametrize("role", ROLES)
def test_labels_and_annotations_come_beside_ours(role: str) -> None:
    bare = pod(role)["metadata"]
    found = pod(role, labels={"team": "a"}, annotations={"safe": "no"}, **{role: {"labels": {"team": "b"}}})[
        "metadata"
    ]
    assert found["labels"] == bare["labels"] | {"team": "b"}
    assert found["annotations"].pop("safe") == "no"
    assert set(found["annotations"]) == set(bare.get("annotations", {}))
    assert found["labels"]["reprise.dev/role"] == role


@pytest.mark.parametrize("role", ROLES)
def test_names_of_ours_stay_ours_whatever_gets_past_the_list(role: str) -> None:
    ours = manifests.labels("minimal", role)
    assert pod_template.names({"reprise.dev/role": "x", "team": "a"}, ours) == ours | {"team": "a"}
    resource = topology()
    said = tuple(Variable(name, "x") for name in ("REPRISE_ZK", "POD_IP", "LEVEL"))
    settings = dataclasses.replace(getattr(resource.kubernetes, role), env=said)
    resource = dataclasses.replace(
        resource, kubernetes=dataclasses.replace(resource.kubernetes, **{role: settings})
    )
    env = pods(resource)[NUMBER[role]]["spec"]["containers"][0]["env"]
    names = [entry["name"] for entry in env]
    assert len(names) == len(set(names)) and "LEVEL" in names
    mine = {"driver": "POD_IP", "executor": "REPRISE_ZK"}[role]
    assert next(entry for entry in env if entry["name"] == mine).get("value") != "x"


@pytest.mark.parametrize("role", ROLES)
def test_variables_come_from_the_topology_and_from_secrets(role: str) -> None:
    reference = {"name": "topology-level", "key": "level"}
    env = container(
        role,
        env=[
            {"name": "A", "value": "$(PATH) costs $1"},
            {"name": "B", "valueFrom": {"secretKeyRef": reference}},
        ],
    )["env"]
    assert {"name": "A", "value": "$$(PATH) costs $$1"} in env, "Kubernetes would put a variable there"
    assert {"name": "B", "valueFrom": {"secretKeyRef": reference}} in env


@pytest.mark.parametrize("role", ROLES)
def test_secrets_are_files_that_the_pods_group_reads(role: str) -> None:
    found = pod(role, volumes=[{"secret": "topology-tls", "mountPath": "/etc/kafka"}])["spec"]
    secret = {"secretName": "topology-tls", "defaultMode": 0o440}
    assert {"name": "secret-0", "secret": secret} in found["volumes"]
    mount = {"name": "secret-0", "mountPath": "/etc/kafka", "readOnly": True}
    assert mount in found["containers"][0]["volumeMounts"]


@pytest.mark.parametrize("role", ROLES)
def test_code_is_mounted_and_its_hash_told(role: str) -> None:
    found = pod(role, code={"configMap": "topology-code", "sha256": HASH})["spec"]
    assert {"name": "code", "configMap": {"name": "topology-code", "defaultMode": 0o444}} in found["volumes"]
    mount = {"name": "code", "mountPath": user_code.MOUNTED, "readOnly": True}
    assert mount in found["containers"][0]["volumeMounts"]
    env = {entry["name"]: entry.get("value") for entry in found["containers"][0]["env"]}
    assert (env[user_code.FOLDER], env[user_code.SHA256]) == (user_code.MOUNTED, HASH)
    scratch = next(m for m in found["containers"][0]["volumeMounts"] if m["name"] == "scratch")
    assert str(user_code.COPIED).startswith(f"{scratch['mountPath']}/"), (
        "it is copied to where a pod may write"
    )
    assert not str(user_code.COPIED).startswith(user_code.MOUNTED)


@pytest.mark.parametrize("role", ROLES)
def test_who_the_processes_are_is_said_and_that_they_are_not_root_is_ours(role: str) -> None:
    said = {
        "runAsUser": 7,
        "runAsGroup": 0,
        "fsGroup": 8,
        "supplementalGroups": [9],
        "fsGroupChangePolicy": "Always",
    }
    spec = pod(role, securityContext=said)["spec"]
    ours = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    assert spec["securityContext"] == said | ours
    assert spec["containers"][0]["securityContext"] == container(role)["securityContext"]
    default = {"runAsUser": 10001, "runAsGroup": 10001, "fsGroup": 10001}
    assert pod(role)["spec"]["securityContext"] == default | ours
    resource = topology()
    loose = {"runAsNonRoot": False, "seccompProfile": {"type": "Unconfined"}}
    past = dataclasses.replace(resource, kubernetes=dataclasses.replace(resource.kubernetes, security=loose))
    assert pod_template.security(past) == default | ours


def test_driver_and_executors_may_go_to_different_machines() -> None:
    kubernetes: dict[str, Any] = {
        "nodeSelector": {"arch": "x"},
        "tolerations": [{"key": "all", "operator": "Exists"}],
        "driver": {"nodeSelector": {"pool": "on-demand"}},
        "executor": {
            "nodeSelector": {"pool": "spot"},
            "tolerations": [{"key": "spot", "operator": "Exists"}],
        },
    }
    resource = topology(**kubernetes)
    driver, executor = (found["spec"] for found in pods(resource))
    assert driver["nodeSelector"] == {"arch": "x", "pool": "on-demand"}
    assert executor["nodeSelector"] == {"arch": "x", "pool": "spot"}
    assert [t["key"] for t in driver["tolerations"]][:1] == ["all"]
    assert [t["key"] for t in executor["tolerations"]][:2] == ["all", "spot"]
    conf = manifests.spark_conf(resource, SETTINGS, "p")
    assert conf["spark.kubernetes.executor.node.selector.pool"] == "spot"


TERM = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
NODES = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 5, "preference": TERM}]}


@pytest.mark.parametrize("spread", ["required", "preferred", "none"])
def test_an_affinity_to_machines_comes_beside_the_spread_over_them(spread: str) -> None:
    said = {"affinity": {"nodeAffinity": NODES}}
    driver, executor = (p["spec"] for p in pods(topology(driver=said, executor=said | {"spread": spread})))
    assert driver["affinity"] == {"nodeAffinity": NODES}
    bare = pod("executor", executor={"spread": spread})["spec"]["affinity"]
    assert executor["affinity"] == {"nodeAffinity": NODES} | bare
    assert bool(bare) is (spread != "none")


def test_executors_of_this_topology_are_what_a_spread_counts() -> None:
    constraint = {"topologyKey": "zone", "maxSkew": 2, "whenUnsatisfiable": "DoNotSchedule"}
    spec = pod("executor", executor={"topologySpreadConstraints": [constraint]})["spec"]
    mine = {"reprise.dev/topology": "minimal", "reprise.dev/role": "executor"}
    assert spec["topologySpreadConstraints"] == [{**constraint, "labelSelector": {"matchLabels": mine}}]
    assert "topologySpreadConstraints" not in pod("executor")["spec"]


EVERYTHING: dict[str, Any] = {
    "labels": {"team": "a"},
    "annotations": {"team": "a"},
    "env": [{"name": "A", "value": "x"}],
    "code": {"configMap": "topology-code", "sha256": HASH},
    "securityContext": {"runAsUser": 7},
    "volumes": [{"secret": "topology-tls", "mountPath": "/etc/kafka"}],
    "tolerations": [{"operator": "Exists"}],
}
OURS = {
    "driver": ("restartPolicy", "serviceAccountName", "terminationGracePeriodSeconds"),
    "executor": ("automountServiceAccountToken", "terminationGracePeriodSeconds"),
}


@pytest.mark.parametrize("role", ROLES)
def test_what_recovery_rests_on_is_the_same_whatever_is_said(role: str) -> None:
    bare, found = pod(role)["spec"], pod(role, **EVERYTHING)["spec"]
    assert {key: found[key] for key in OURS[role]} == {key: bare[key] for key in OURS[role]}
    assert len(found["containers"]) == 1 and "initContainers" not in found
    assert not any(key.startswith("host") for key in found)
    inside, before = found["containers"][0], bare["containers"][0]
    kept = ("name", "args", "resources", "livenessProbe", "ports", "securityContext", "command")
    assert {key: inside.get(key) for key in kept} == {key: before.get(key) for key in kept}
    assert all(volume.keys() & {"emptyDir", "configMap", "secret"} for volume in found["volumes"])


def test_another_hash_starts_a_driver_anew_after_a_drain() -> None:
    one = topology(code={"configMap": "topology-code", "sha256": HASH})
    other = topology(code={"configMap": "topology-code", "sha256": "1" * 64})
    assert manifests.revision(one, SETTINGS) != manifests.revision(other, SETTINGS)
    assert manifests.output_revision(one, SETTINGS) != manifests.output_revision(other, SETTINGS)


def test_a_topology_without_any_of_it_has_the_pods_of_before() -> None:
    assert isinstance(topology().kubernetes.driver, PodSettings)
    driver, executor = pods(topology())
    assert "code" not in json.dumps([v["name"] for v in executor["spec"]["volumes"]])
    assert "annotations" not in executor["metadata"]
    assert user_code.FOLDER not in json.dumps([driver, executor])
