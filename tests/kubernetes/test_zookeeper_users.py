"""ZooKeeper's users on a real API server and a real ZooKeeper, with the rights that the chart gives and no others.

The topology's executors ask for more CPU than there is, so its driver runs alone: what is tested is who its pods are.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reprise.controller.image.helm_test import topology
from reprise.controller.local.cluster.zookeeper import ZooKeeperServer
from reprise.controller.zookeeper.access import AUTH
from reprise.controller.zookeeper.errors import NoAuthError
from reprise.controller.zookeeper.session import ZooKeeperSession
from tests.kubernetes.cluster import REPOSITORY, KubeCluster
from tests.kubernetes.install import IMAGE, await_no_kinds
from tests.kubernetes.scenario import until
from tests.kubernetes.test_helm_install import helm
from tests.support.zookeeper import session, zookeeper
from tools.testbed.rest import MERGE, RestError

pytestmark = [pytest.mark.slow, pytest.mark.wide]
RELEASE, NAMESPACE, TOPOLOGIES, NODE = "users", "users", "users-topologies", "users-node"
KEY = "k" * 32
OURS, THEIRS = "ours", "theirs"
ROLES = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{TOPOLOGIES}/roles"
FOLDER = f"/apis/reprise.dev/v1alpha1/namespaces/{TOPOLOGIES}/streamtopologies"
SECRETS = f"/api/v1/namespaces/{TOPOLOGIES}/secrets"
PODS = f"/api/v1/namespaces/{TOPOLOGIES}/pods"
START_S, SOON_S = 240.0, 120.0


@pytest.fixture(scope="module")
def server() -> Iterator[ZooKeeperServer]:
    with zookeeper() as started:
        yield started


@pytest.fixture(scope="module")
def installed(bare: KubeCluster, server: ZooKeeperServer) -> Iterator[KubeCluster]:
    await_no_kinds(bare)
    bare.add_node(NODE, cpu="8", memory="16Gi")
    bare.wait_ready([NODE])
    for space in (NAMESPACE, TOPOLOGIES):
        bare.api.post("/api/v1/namespaces", {"metadata": {"name": space}})
    secret = {"metadata": {"name": "zk-key"}, "stringData": {"key": KEY}}
    bare.api.post(f"/api/v1/namespaces/{NAMESPACE}/secrets", secret)
    repository, tag = IMAGE.split(":")
    values = {
        "image.repository": repository, "image.tag": tag, "zookeeper.hosts": server.hosts,
        "zookeeper.auth.enabled": "true", "zookeeper.auth.secret": "zk-key", "watch.namespaces[0]": TOPOLOGIES,
        "replicas": "1", "operator.leaseSeconds": "8",
    }  # fmt: skip
    words = [word for key, value in values.items() for word in ("--set", f"{key}={value}")]
    try:
        done = helm(
            bare, "--namespace", NAMESPACE, "install", RELEASE, str(REPOSITORY / "charts" / "reprise"),
            "--wait", "--timeout", f"{START_S:.0f}s", *words,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        yield bare
    finally:
        for name in (OURS, THEIRS):
            if bare.api.find(f"{FOLDER}/{name}") is not None:
                bare.api.delete(f"{FOLDER}/{name}")
        until(lambda: bare.api.find(FOLDER) is None or not bare.api.get(FOLDER)["items"], "they go", START_S)
        helm(bare, "--namespace", NAMESPACE, "uninstall", RELEASE, "--wait", "--ignore-not-found")
        for plural in ("streamtopologies", "incidents", "recoveryplans"):
            path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{plural}.reprise.dev"
            if bare.api.find(path) is not None:
                bare.api.delete(path)
        for space in (NAMESPACE, TOPOLOGIES):
            bare.api.delete(f"/api/v1/namespaces/{space}")
        bare.kill([NODE])
        bare.api.delete(f"/api/v1/nodes/{NODE}")


@pytest.fixture(scope="module")
def control_plane(
    server: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ZooKeeperSession]:
    folder = tmp_path_factory.mktemp("control-plane")
    (folder / "key").write_text(KEY)
    with session(server, {AUTH: str(folder)}) as client:
        yield client


def create(cluster: KubeCluster, name: str) -> None:
    body = topology(name, TOPOLOGIES, "")
    body["spec"]["nodes"] = {"count": 2, "cpu": "30"}
    body["spec"]["kubernetes"] = {"driver": {"cpu": "1", "memory": "1536Mi"}}
    cluster.api.post(FOLDER, body)


def root(name: str) -> str:
    return f"/reprise/{TOPOLOGIES}/{name}"


def secrets_of(cluster: KubeCluster, name: str) -> list[dict[str, Any]]:
    found = cluster.api.get(SECRETS)["items"]
    return [one for one in found if one["metadata"]["name"].startswith(f"reprise-zookeeper-{name}-")]


def conditions(cluster: KubeCluster, name: str) -> dict[str, tuple[str, str]]:
    found = cluster.api.get(f"{FOLDER}/{name}").get("status", {}).get("conditions", [])
    return {one["type"]: (one["reason"], one.get("message", "")) for one in found}


def driver(cluster: KubeCluster, name: str) -> dict[str, Any] | None:
    found: dict[str, Any] | None = cluster.api.find(f"{PODS}/{name}-driver")
    return found


def may_make_secrets(cluster: KubeCluster, allowed: bool) -> None:
    """Give the operator's Role in the topologies' namespace this right, or take it away; as the chart writes it."""
    (role,) = [
        one for one in cluster.api.get(ROLES)["items"] if one["metadata"]["name"] == f"{RELEASE}-operator"
    ]
    others = [rule for rule in role["rules"] if rule["resources"] != ["secrets"]]
    right = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["create"]}
    assert not allowed or len(others) == len(role["rules"])
    assert allowed or right in role["rules"], "the chart gives another right than this test takes away"
    cluster.api.patch(f"{ROLES}/{RELEASE}-operator", {"rules": others + [right] * allowed}, MERGE)


def test_the_driver_is_the_topology_s_user_by_a_secret_that_the_operator_makes(
    installed: KubeCluster, server: ZooKeeperServer, control_plane: ZooKeeperSession, tmp_path: Path
) -> None:
    for name in (OURS, THEIRS):
        create(installed, name)
    until(
        lambda: control_plane.exists(f"{root(OURS)}/driver"),
        "the driver is heard",
        START_S,
        server_log(installed),
    )
    until(lambda: control_plane.exists(root(THEIRS)), "the other topology's records", START_S)
    (secret,) = secrets_of(installed, OURS)
    assert secret["immutable"] is True
    assert [one["name"] for one in secret["metadata"]["ownerReferences"]] == [OURS]
    for file, text in secret["data"].items():
        (tmp_path / file).write_bytes(base64.b64decode(text))
    allowed = {
        acl.id.id.rpartition(":")[0] for acl in control_plane.get_acls_async(f"{root(OURS)}/driver").get()
    }
    assert allowed == {"reprise", root(OURS)}
    with session(server, {AUTH: str(tmp_path)}) as topologys:
        assert int(topologys.get(f"{root(OURS)}/driver")[0]) >= 1
        topologys.create(f"{root(OURS)}/mine", b"1")
        topologys.set(f"{root(OURS)}/mine", b"2")
        topologys.delete(f"{root(OURS)}/mine")
        for ask in (topologys.get, topologys.get_children, lambda path: topologys.set(path, b"")):
            with pytest.raises(NoAuthError):
                ask(root(THEIRS))
        with pytest.raises(NoAuthError):
            topologys.create(f"{root(THEIRS)}/mine", b"")
        with pytest.raises(NoAuthError):
            topologys.create(f"/reprise/{TOPOLOGIES}/third", b"")


def test_the_operator_may_neither_read_nor_change_what_it_has_made(installed: KubeCluster) -> None:
    (secret,) = secrets_of(installed, OURS)
    account = f"system:serviceaccount:{NAMESPACE}:{RELEASE}-operator"
    for verb, allowed in (
        ("create", True),
        ("get", False),
        ("list", False),
        ("patch", False),
        ("delete", False),
    ):
        review = {
            "spec": {
                "user": account,
                "resourceAttributes": {"namespace": TOPOLOGIES, "verb": verb, "resource": "secrets"},
            }
        }
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        assert installed.api.post(path, review)["status"]["allowed"] is allowed, verb
    with pytest.raises(RestError, match="immutable"):
        installed.api.patch(f"{SECRETS}/{secret['metadata']['name']}", {"stringData": {"user": "x:y"}}, MERGE)


def test_a_secret_that_somebody_deletes_is_made_again(installed: KubeCluster) -> None:
    (secret,) = secrets_of(installed, OURS)
    before = driver(installed, OURS)
    assert before is not None
    installed.api.delete(f"{SECRETS}/{secret['metadata']['name']}")
    until(lambda: secrets_of(installed, OURS), "it is made again", SOON_S)
    (again,) = secrets_of(installed, OURS)
    assert again["data"] == secret["data"] and again["metadata"]["uid"] != secret["metadata"]["uid"]
    now = driver(installed, OURS)
    assert now is not None and now["metadata"]["uid"] == before["metadata"]["uid"]


def test_without_the_right_a_driver_runs_on_and_a_new_one_is_not_started(installed: KubeCluster) -> None:
    """The operator is a new process, as after an upgrade: it does not know which Secrets are there."""
    before = driver(installed, OURS)
    assert before is not None
    may_make_secrets(installed, False)
    (operator,) = installed.api.get(f"/api/v1/namespaces/{NAMESPACE}/pods")["items"]
    installed.api.delete(f"/api/v1/namespaces/{NAMESPACE}/pods/{operator['metadata']['name']}")
    spec = {"upgrade": "replay", "batch": {"interval": "700ms"}}
    installed.api.patch(f"{FOLDER}/{OURS}", {"spec": spec}, MERGE)
    create(installed, "third")
    try:
        says = lambda name, text: text in str(conditions(installed, name))  # noqa: E731
        until(lambda: says(OURS, "the driver goes on with the former spec"), "it says so", START_S)
        until(lambda: says("third", "no driver is started: the Secret "), "it says why", SOON_S)
        for name in (OURS, "third"):
            assert "cannot create resource" in str(conditions(installed, name)), conditions(installed, name)
        now = driver(installed, OURS)
        assert now is not None and now["metadata"]["uid"] == before["metadata"]["uid"]
        assert now["status"]["phase"] == "Running" and "deletionTimestamp" not in now["metadata"]
        assert driver(installed, "third") is None
        may_make_secrets(installed, True)
        until(lambda: driver(installed, "third"), "its driver is started", SOON_S)
        until(
            lambda: (driver(installed, OURS) or before)["metadata"]["uid"] != before["metadata"]["uid"],
            "the driver with the new spec", START_S,
        )  # fmt: skip
    finally:
        installed.api.delete(f"{FOLDER}/third")


def server_log(cluster: KubeCluster) -> Any:
    """What to show when a wait has failed."""

    def look() -> object:
        return conditions(cluster, OURS), driver(cluster, OURS), str(cluster.work_dir)

    return look
