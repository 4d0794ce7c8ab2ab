"""Pods of a topology get ZooKeeper's credentials as files, and the variables that name them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reprise.controller.kubernetes.errors import SettingsError
from reprise.controller.operator import __main__ as program
from reprise.controller.operator.pods import zk_mounts
from reprise.controller.operator.pods.manifests import config_map, driver_pod, executor_template
from reprise.controller.operator.settings import OperatorSettings
from reprise.controller.zookeeper.access import AUTH, client_options
from reprise.controller.zookeeper.users import Keys
from reprise.spark_jobs.topology import from_object
from tests.kubernetes.rule_cases import TOPOLOGY

RESOURCE = from_object(TOPOLOGY)
OWNER = {"apiVersion": "reprise.dev/v1alpha1", "kind": "StreamTopology", "name": "good", "uid": "u"}
PLAIN = OperatorSettings(namespace="n", identity="i", zk="zk:1", image="reprise")
KEYS = Keys("k" * 32)
USERS = replace(PLAIN, zk_keys=KEYS)
ROOT = f"/reprise/{RESOURCE.namespace}/{RESOURCE.name}"


def pods(settings: OperatorSettings) -> list[dict[str, Any]]:
    template = json.loads(config_map(RESOURCE, settings, OWNER)["data"]["executor.json"])
    return [driver_pod(RESOURCE, settings, OWNER, "p"), template]


def made(uid: str = "u", settings: OperatorSettings = USERS) -> dict[str, Any]:
    body = zk_mounts.secret(RESOURCE, settings, {**OWNER, "uid": uid}, {"a": "b"})
    assert body is not None
    return body


@pytest.mark.parametrize(
    ("part", "settings", "secret"),
    [
        ("tls", replace(PLAIN, zk_tls_secret="theirs"), "theirs"),
        ("auth", USERS, zk_mounts.name(RESOURCE, USERS, "u")),
    ],
)
def test_a_secret_is_mounted_where_the_variable_says(
    part: str, settings: OperatorSettings, secret: str
) -> None:
    for pod in pods(settings):
        (container,) = pod["spec"]["containers"]
        named = {e["name"]: e.get("value") for e in container["env"]}
        mounted = {m["mountPath"]: m["name"] for m in container["volumeMounts"]}
        volumes = [v for v in pod["spec"]["volumes"] if "secret" in v]
        folder = named[f"REPRISE_ZK_{part.upper()}"]
        assert [v["name"] for v in volumes] == [mounted[folder]]
        assert volumes[0]["secret"] == {"secretName": secret, "defaultMode": 0o440}


def test_without_secrets_nothing_is_mounted() -> None:
    assert zk_mounts.secret(RESOURCE, PLAIN, OWNER, {}) is None
    for pod in pods(PLAIN):
        assert "REPRISE_ZK_TLS" not in str(pod) and "secretName" not in str(pod)


def test_the_secret_makes_its_pods_the_topology_s_user_and_no_other(tmp_path: Path) -> None:
    for file, text in made()["stringData"].items():
        (tmp_path / file).write_text(text)
    options = client_options({AUTH: str(tmp_path)})
    assert options["auth_data"] == [("digest", KEYS.topology(ROOT).login)]
    assert options["allowed"](f"{ROOT}/nodes") == KEYS.allowed(f"{ROOT}/nodes")


def test_no_password_is_anywhere_but_in_the_secret() -> None:
    secrets = KEYS.key, KEYS.control_plane.password, KEYS.topology(ROOT).password
    assert secrets[2] in str(made()["stringData"]) and not {*secrets[:2]} & set(str(made()).split('"'))
    rest = [*pods(USERS), config_map(RESOURCE, USERS, OWNER), USERS, executor_template(RESOURCE, USERS)]
    for secret in secrets:
        assert secret not in str(rest)
    for secret in secrets[:2]:
        assert secret not in str(made())


def test_what_cannot_be_changed_has_another_name() -> None:
    """Of another object of that name, whose Secret goes when the object does; and of another key."""
    names = [
        made()["metadata"]["name"],
        made("another")["metadata"]["name"],
        made(settings=replace(USERS, zk_keys=Keys("j" * 32)))["metadata"]["name"],
    ]
    assert len(set(names)) == 3 and all(name.startswith(zk_mounts.PREFIX) for name in names)
    assert made() == made() and made()["metadata"]["ownerReferences"] == [OWNER]


def test_the_operator_starts_with_a_key_or_says_what_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = program._parser().parse_args(["--zk=z", "--image=i", "--namespace=n", "--identity=i"])
    monkeypatch.setenv(AUTH, str(tmp_path))
    with pytest.raises(SettingsError, match=f"there is no file {tmp_path}/key"):
        program._settings(options)
    (tmp_path / "key").write_text(KEYS.key)
    assert program._settings(options).zk_keys == KEYS
    monkeypatch.delenv(AUTH)
    assert program._settings(options).zk_keys is None
