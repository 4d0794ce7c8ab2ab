"""Pods of a topology get ZooKeeper's credentials as files, and the variables that name them."""

from __future__ import annotations

from typing import Any

import pytest

from controller.operator.manifests import driver_pod, executor_template
from controller.operator.settings import OperatorSettings
from spark_jobs.topology import from_object
from tests.kubernetes.rule_cases import TOPOLOGY

RESOURCE = from_object(TOPOLOGY)
OWNER = {"apiVersion": "reprise.dev/v1alpha1", "kind": "StreamTopology", "name": "good", "uid": "u"}


def pods(**secrets: str) -> list[dict[str, Any]]:
    settings = OperatorSettings(namespace="n", identity="i", zk="zk:1", image="reprise", **secrets)  # type: ignore[arg-type]
    return [driver_pod(RESOURCE, settings, OWNER, "p"), executor_template(RESOURCE, settings)]


@pytest.mark.parametrize("part", ["tls", "auth"])
def test_a_secret_is_mounted_where_the_variable_says(part: str) -> None:
    for pod in pods(**{f"zk_{part}_secret": "theirs"}):
        (container,) = pod["spec"]["containers"]
        named = {e["name"]: e.get("value") for e in container["env"]}
        mounted = {m["mountPath"]: m["name"] for m in container["volumeMounts"]}
        volumes = [v for v in pod["spec"]["volumes"] if "secret" in v]
        folder = named[f"REPRISE_ZK_{part.upper()}"]
        assert [v["name"] for v in volumes] == [mounted[folder]]
        assert volumes[0]["secret"] == {"secretName": "theirs", "defaultMode": 0o440}


def test_without_secrets_nothing_is_mounted() -> None:
    for pod in pods():
        assert "REPRISE_ZK_TLS" not in str(pod) and "secretName" not in str(pod)
