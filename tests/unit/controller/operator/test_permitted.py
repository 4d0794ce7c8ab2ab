"""What a spec may ask for: namespaces, accounts, Secrets and properties that would be a way round them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from reprise.controller.operator.permitted import permit
from reprise.controller.operator.settings import OperatorSettings
from reprise.spark_jobs.errors import SpecError
from reprise.spark_jobs.topology import StreamTopology, from_json

EXAMPLE = Path(__file__).parents[4] / "examples" / "minimal.yaml"
SETTINGS = OperatorSettings(
    namespace="ops", identity="op", zk="zk:2181", image="reprise:1", own_account="rec-operator",
    accounts=("s3-*",), zk_tls_secret="topology-zk", own_secrets=("topology-key",), secrets=("topology-*", "reprise-*"),
)  # fmt: skip

VARIABLE = {"name": "A", "valueFrom": {"secretKeyRef": {"name": "topology-key", "key": "key"}}}


def topology(
    namespace: str = "streams", conf: dict[str, str] | None = None, **kubernetes: Any
) -> StreamTopology:
    body = yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))
    body["metadata"]["namespace"] = namespace
    body["spec"]["kubernetes"] = kubernetes
    body["spec"]["spark"] = {"conf": conf or {}}
    return from_json(json.dumps(body))


@pytest.mark.parametrize(
    "kubernetes",
    [
        {},
        {"serviceAccount": "reprise-driver"},
        {"serviceAccount": "s3-writer"},
        {"secrets": ["topology-a"], "imagePullSecrets": ["topology-pull"]},
        {"code": {"configMap": "topology-code", "sha256": "0" * 64}},
        {"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "topology-a", "key": "k"}}}]},
        {"volumes": [{"secret": "topology-a", "mountPath": "/etc/a"}]},
    ],
)
def test_what_is_on_the_lists_is_permitted(kubernetes: dict[str, Any]) -> None:
    permit(topology(**kubernetes, conf={"spark.executor.extraJavaOptions": "-Da=b"}), SETTINGS)


@pytest.mark.parametrize(
    ("asked", "field", "reason"),
    [
        ({"namespace": "ops"}, "metadata.namespace", "the operator's own"),
        ({"serviceAccount": "default"}, "spec.kubernetes.serviceAccount", "not among the accounts"),
        ({"secrets": ["topology-a", "db"]}, "spec.kubernetes.secrets[1]", "not among the Secrets"),
        ({"secrets": ["topology-key"]}, "spec.kubernetes.secrets[0]", "the control plane's own"),
        ({"secrets": ["topology-zk"]}, "spec.kubernetes.secrets[0]", "for the way to ZooKeeper alone"),
        (
            {"secrets": ["reprise-zookeeper-x-1"]},
            "spec.kubernetes.secrets[0]",
            "for the way to ZooKeeper alone",
        ),
        (
            {"code": {"configMap": "code", "sha256": "0" * 64}},
            "spec.kubernetes.code.configMap",
            "not among the ConfigMaps that topologies may have .topology-",
        ),
        (
            {"volumes": [{"claim": "a", "mountPath": "/a"}, {"secret": "db", "mountPath": "/b"}]},
            "spec.kubernetes.volumes[1].secret",
            "not among the Secrets",
        ),
        *(
            (asked, f"spec.kubernetes{part}.env[A].valueFrom.secretKeyRef.name", "the control plane's own")
            for part, asked in (
                ("", {"env": [VARIABLE]}),
                (".driver", {"driver": {"env": [VARIABLE]}}),
                (".executor", {"executor": {"env": [VARIABLE]}}),
            )
        ),
        ({"imagePullSecrets": ["pull"]}, "spec.kubernetes.imagePullSecrets[0]", "not among the Secrets"),
    ],
)
def test_what_is_not_is_refused_with_field_and_reason(asked: dict[str, Any], field: str, reason: str) -> None:
    with pytest.raises(SpecError, match=reason) as refused:
        permit(topology(**asked), SETTINGS)
    assert refused.value.field == field


def test_the_operators_own_account_is_refused_whatever_the_list_says() -> None:
    beside = replace(SETTINGS, own_namespace=True, accounts=("*",))
    permit(topology("ops", serviceAccount="default"), beside)
    with pytest.raises(SpecError, match="operator's own account"):
        permit(topology("ops", serviceAccount="rec-operator"), beside)


@pytest.mark.parametrize(
    "name",
    [
        "spark.authenticate",
        "spark.authenticate.secret",
        "spark.network.crypto.enabled",
        "spark.kubernetes.authenticate.serviceAccountName",
        "spark.kubernetes.driver.secrets.db",
        "spark.kubernetes.executor.secretKeyRef.PASSWORD",
        "spark.kubernetes.executor.volumes.hostPath.root.mount.path",
        "spark.kubernetes.executor.podTemplateFile",
        "spark.kubernetes.container.image.pullSecrets",
        "spark.kubernetes.executor.container.image",
        "spark.kubernetes.executor.label.reprise.dev/topology",
        "spark.kubernetes.executor.annotation.a",
        "spark.executorEnv.REPRISE_ROOT",
        "spark.kubernetes.hadoop.configMapName",
        "spark.kubernetes.executor.hadoopConfigMapName",
        "spark.kubernetes.executor.securityContext.allowPrivilegeEscalation",
        "spark.kubernetes.executor.terminationGracePeriodSeconds",
    ],
)
def test_no_property_of_spark_is_a_way_round(name: str) -> None:
    with pytest.raises(SpecError) as refused:
        permit(topology(conf={name: "x"}), SETTINGS)
    assert refused.value.field == f"spec.spark.conf[{name}]"
