"""The pods that are asked for: restricted, bound to their owner, and the same for the same topology."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from reprise.controller.kubernetes.errors import SettingsError
from reprise.controller.operator.pods import manifests
from reprise.controller.operator.settings import OperatorSettings
from reprise.spark_jobs.topology import StreamTopology, from_json
from tests.support.topologies import minimal as topology

SETTINGS = OperatorSettings(namespace="ops", identity="op", zk="zk:2181", image="reprise:1")
OWNER = {"kind": "StreamTopology", "name": "minimal", "uid": "u"}


def pods(resource: StreamTopology) -> list[dict[str, Any]]:
    driver = manifests.driver_pod(resource, SETTINGS, OWNER, "minimal-abc")
    return [driver, manifests.executor_template(resource, SETTINGS)]


@pytest.mark.parametrize("number", [0, 1])
def test_pods_keep_to_the_restricted_profile(number: int) -> None:
    spec = pods(topology())[number]["spec"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in spec["containers"]:
        security = container["securityContext"]
        assert security["allowPrivilegeEscalation"] is False
        assert security["readOnlyRootFilesystem"] is True
        assert security["capabilities"] == {"drop": ["ALL"]}
    assert {v["name"] for v in spec["volumes"]} >= {m["name"] for m in spec["containers"][0]["volumeMounts"]}


def test_executors_get_no_token_and_ask_only_for_their_own_progress() -> None:
    spec = pods(topology())[1]["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert next(iter(spec["containers"][0]["livenessProbe"])) == "exec"


def test_what_a_topology_asks_of_its_pods() -> None:
    resource = topology(
        image="own:2", nodeSelector={"pool": "spot"}, priorityClass="high", secrets=["s3"],
        tolerations=[{"key": "spot", "operator": "Exists"}], serviceAccount="own",
        volumes=[{"claim": "data", "mountPath": "/data"}], imagePullSecrets=["pull"],
    )  # fmt: skip
    driver, executor = (pod["spec"] for pod in pods(resource))
    for spec in (driver, executor):
        assert spec["nodeSelector"] == {"pool": "spot"}
        assert spec["tolerations"][0] == {"key": "spot", "operator": "Exists"}
        assert spec["priorityClassName"] == "high"
        assert spec["imagePullSecrets"] == [{"name": "pull"}]
        assert spec["containers"][0]["envFrom"] == [{"secretRef": {"name": "s3"}}]
        assert {"name": "claim-0", "mountPath": "/data", "readOnly": False} in spec["containers"][0][
            "volumeMounts"
        ]
    assert driver["serviceAccountName"] == "own"
    assert driver["containers"][0]["image"] == "own:2"
    assert manifests.spark_conf(resource, SETTINGS, "p")["spark.kubernetes.container.image"] == "own:2"


@pytest.mark.parametrize(
    ("spread", "kind"), [("required", "required"), ("preferred", "preferred"), ("none", "")]
)
def test_executors_are_spread_over_machines(spread: str, kind: str) -> None:
    affinity = pods(topology(executor={"spread": spread}))[1]["spec"]["affinity"]
    keys = list(affinity.get("podAntiAffinity", {}))
    assert [key.startswith(kind) for key in keys] == ([True] if kind else [])


def test_the_config_holds_the_topology_itself() -> None:
    resource = topology()
    data = manifests.config_map(resource, SETTINGS, OWNER)["data"]
    assert from_json(data["topology.json"]) == resource
    assert json.loads(data["executor.json"])["kind"] == "Pod"


def test_spark_answers_nobody_without_the_applications_secret() -> None:
    """Whatever the topology's own properties say: what the operator sets stands above them."""
    conf = manifests.spark_conf(topology(), SETTINGS, "p")
    assert conf["spark.authenticate"] == conf["spark.network.crypto.enabled"] == "true"
    assert conf["spark.network.crypto.saslFallback"] == "false"
    assert conf["spark.network.crypto.cipher"].startswith("AES/GCM")
    assert not [word for word in conf if "secret" in word]  # Spark makes it; it is in no argument of a pod


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize(("asked", "driver", "executor"), [({}, 2, 8), ({"storage": "512Mi"}, 0.5, 0.5)])
def test_what_a_pod_writes_to_its_machine_has_an_end(
    number: int, asked: dict[str, str], driver: float, executor: float
) -> None:
    """By default spilled buffers (4Gi) and copies of states (2Gi) fit."""
    spec = pods(topology(driver=asked, executor=asked))[number]["spec"]
    limit = int((driver, executor)[number] * 2**30)
    volumes = [v["emptyDir"] for v in spec["volumes"] if "emptyDir" in v]
    assert volumes and all(int(v["sizeLimit"]) == limit for v in volumes)
    resources = spec["containers"][0]["resources"]
    assert int(resources["limits"]["ephemeral-storage"]) == limit
    assert int(resources["requests"]["ephemeral-storage"]) == min(limit, 2**30)
    volume = "spark.kubernetes.executor.volumes.emptyDir.spark-local-dir-1"
    conf = manifests.spark_conf(topology(executor=asked), SETTINGS, "p")
    assert int(conf[f"{volume}.options.sizeLimit"]) == int(executor * 2**30)


def test_a_driver_keeps_no_list_of_its_writes_that_nobody_reads() -> None:
    assert not [a for a in pods(topology())[0]["spec"]["containers"][0]["args"] if a.startswith("--events")]


def test_the_same_topology_has_the_same_revision_and_other_images_have_another() -> None:
    assert manifests.revision(topology(), SETTINGS) == manifests.revision(topology(), SETTINGS)
    other = OperatorSettings(namespace="ops", identity="op", zk="zk:2181", image="reprise:2")
    assert manifests.revision(topology(), SETTINGS) != manifests.revision(topology(), other)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"denied_egress": ("10.0.0.1/33",)}, "denied_egress.*10.0.0.1/33"),
        ({"zk": ""}, "zk"),
        ({"writes_per_s": 0}, "writes_per_s"),
        ({"health_port": 70000}, "health_port"),
    ],
)
def test_a_setting_that_cannot_work_is_named(change: dict[str, Any], named: str) -> None:
    good = {"namespace": "ops", "identity": "op", "zk": "zk", "image": "i"}
    with pytest.raises(SettingsError, match=named):
        OperatorSettings(**(good | change))


UNREACHABLE, NOT_READY = LOST = ("node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready")


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize(
    ("own", "seconds"),
    [
        ([], {UNREACHABLE: 5, NOT_READY: 5}),
        (
            [{"operator": "Exists"}],
            {UNREACHABLE: 5, NOT_READY: 5},
        ),  # of the taints of a pool, not of these two
        (
            [{"key": UNREACHABLE, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}],
            {UNREACHABLE: 60, NOT_READY: 5},
        ),
        ([{"key": NOT_READY, "operator": "Exists"}], {UNREACHABLE: 5, NOT_READY: None}),
        (
            [{"key": NOT_READY, "operator": "Exists", "effect": "NoSchedule"}],
            {UNREACHABLE: 5, NOT_READY: 5},
        ),
    ],
)
def test_pods_leave_a_machine_that_is_lost_in_seconds(
    number: int, own: list[dict[str, Any]], seconds: dict[str, int | None]
) -> None:
    spec = pods(topology(tolerations=own))[number]["spec"]
    found = [t for t in spec["tolerations"] if t.get("key") in LOST and t.get("effect") != "NoSchedule"]
    assert {t["key"]: t.get("tolerationSeconds") for t in found} == seconds
    assert len(found) == len(LOST)


def test_executors_have_a_longer_grace_where_they_are_to_be_emptied_in_it() -> None:
    resource = topology()
    before = manifests.executor_template(resource, SETTINGS)["spec"]
    assert before["terminationGracePeriodSeconds"] == 10
    assert "REPRISE_GRACE_S" not in {entry["name"] for entry in before["containers"][0]["env"]}
    after = manifests.executor_template(resource, dataclasses.replace(SETTINGS, notice_s=45))["spec"]
    assert after["terminationGracePeriodSeconds"] == 55
    assert {"name": "REPRISE_GRACE_S", "value": "45"} in after["containers"][0]["env"]
    driver = manifests.driver_pod(resource, dataclasses.replace(SETTINGS, notice_s=45), OWNER, "minimal-abc")
    assert driver["spec"]["terminationGracePeriodSeconds"] == 10
    with pytest.raises(SettingsError, match="notice_s"):
        dataclasses.replace(SETTINGS, notice_s=-1)
