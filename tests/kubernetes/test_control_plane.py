"""The test cluster itself: real servers, real clients, nodes that die and freeze, nothing left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reprise.controller.local.cluster.process_reaper import marked
from tests.kubernetes.cluster import REPOSITORY, KubeCluster
from tests.kubernetes.scenario import until
from tools.testbed import build, clients
from tools.testbed.control_plane import NODE_GRACE_S

PODS = "/api/v1/namespaces/default/pods"


def kubectl(cluster: KubeCluster, *arguments: str) -> str:
    program = str(clients.ensure() / "kubectl")
    config = f"--kubeconfig={cluster.control_plane.kubeconfig}"
    done = subprocess.run(
        [program, config, *arguments], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def pod(name: str, script: str, **spec: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "busybox", "command": ["sh", "-c", script]}
    return {
        "metadata": {"name": name},
        "spec": {
            "containers": [container],
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            **spec,
        },
    }


def phase(cluster: KubeCluster, name: str) -> str:
    found = cluster.api.find(f"{PODS}/{name}")
    return "gone" if found is None else str(found["status"].get("phase"))


@pytest.fixture(scope="module")
def nodes(bare: KubeCluster) -> Iterator[KubeCluster]:
    bare.add_node("a1")
    bare.add_node("a2")
    bare.wait_ready(["a1", "a2"])
    yield bare
    bare.kill([name for name in ("a1", "a2", "a3") if name in bare.nodes])
    for name in ("a1", "a2", "a3"):
        if bare.api.find(f"/api/v1/nodes/{name}") is not None:
            bare.api.delete(f"/api/v1/nodes/{name}")


def test_kubectl_sees_the_version_that_was_built(nodes: KubeCluster) -> None:
    found = json.loads(kubectl(nodes, "version", "-o", "json"))
    assert found["serverVersion"]["gitVersion"] == build.version()
    assert "a1" in kubectl(nodes, "get", "nodes")


def test_a_pod_has_its_volumes_account_and_environment(nodes: KubeCluster) -> None:
    nodes.api.post(
        "/api/v1/namespaces/default/configmaps", {"metadata": {"name": "words"}, "data": {"one": "uno"}}
    )
    script = (
        "test $(cat /etc/reprise/one) = uno && test -s /var/run/secrets/kubernetes.io/serviceaccount/token"
        " && test $NAME = volumes && test $IP = $(echo $IP | grep ^127.) && touch /var/data/x"
    )
    body = pod(
        "volumes",
        script,
        volumes=[{"name": "w", "configMap": {"name": "words"}}, {"name": "e", "emptyDir": {}}],
    )
    container = body["spec"]["containers"][0]
    container["volumeMounts"] = [
        {"name": "w", "mountPath": "/etc/reprise"},
        {"name": "e", "mountPath": "/var/data"},
    ]
    fields = {"NAME": "metadata.name", "IP": "status.podIP"}
    container["env"] = [{"name": n, "valueFrom": {"fieldRef": {"fieldPath": p}}} for n, p in fields.items()]
    nodes.api.post(PODS, body)
    until(lambda: phase(nodes, "volumes") in ("Succeeded", "Failed"), "the pod ends", 180)
    assert phase(nodes, "volumes") == "Succeeded"
    assert not Path("/etc/reprise/one").exists(), "mounts are the pod's alone"


@pytest.mark.wide
def test_init_containers_run_first_and_a_failing_pod_fails(nodes: KubeCluster) -> None:
    body = pod("init", "test -f /var/data/ready", volumes=[{"name": "e", "emptyDir": {}}])
    mounts = [{"name": "e", "mountPath": "/var/data"}]
    body["spec"]["containers"][0]["volumeMounts"] = mounts
    first = {
        "name": "first",
        "image": "busybox",
        "command": ["touch", "/var/data/ready"],
        "volumeMounts": mounts,
    }
    body["spec"]["initContainers"] = [first]
    nodes.api.post(PODS, body)
    nodes.api.post(PODS, pod("bad", "exit 7"))
    until(lambda: phase(nodes, "init") == "Succeeded" and phase(nodes, "bad") == "Failed", "both end", 180)
    state = nodes.api.get(f"{PODS}/bad")["status"]["containerStatuses"][0]["state"]
    assert state["terminated"]["exitCode"] == 7


@pytest.mark.wide
def test_a_power_cut_takes_every_process_and_kubernetes_notices(nodes: KubeCluster) -> None:
    nodes.add_node("a3")
    nodes.wait_ready(["a3"])
    nodes.api.post(PODS, pod("doomed", "exec sleep 4711", nodeName="a3"))
    until(lambda: phase(nodes, "doomed") == "Running", "it runs", 180)
    until(lambda: _sleepers("4711"), "its shell has become what it runs", 60)
    nodes.kill(["a3"])
    gone = "its processes are gone: the kernel ends them with the namespace"
    until(lambda: not _sleepers("4711"), gone, 60)
    # the grace, looked at every second; several times that on a busy machine
    until(lambda: not nodes.is_ready("a3"), "NotReady", 5 * NODE_GRACE_S)
    assert phase(nodes, "doomed") == "Running", "what a lost pod looks like: Running for ever"


@pytest.mark.wide
def test_a_frozen_node_goes_on_where_it_was(nodes: KubeCluster) -> None:
    nodes.api.post(PODS, pod("frozen", "exec sleep 4712", nodeName="a2"))
    until(lambda: phase(nodes, "frozen") == "Running", "it runs", 180)
    nodes.freeze(["a2"])
    until(lambda: not nodes.is_ready("a2"), "NotReady", 5 * NODE_GRACE_S)
    nodes.thaw(["a2"])
    until(lambda: nodes.is_ready("a2"), "Ready again", 180)


def _sleepers(seconds: str) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if words[:2] == [b"sleep", seconds.encode()]:
                found.append(int(entry.name))
    return found


_OWNER = """
import pathlib, sys, time
from tests.kubernetes.cluster import KubeCluster
cluster = KubeCluster(pathlib.Path(sys.argv[1]), class_archive=False)
cluster.start()
cluster.add_node("n1")
cluster.wait_ready(["n1"])
print(cluster._reaper.token, flush=True)
time.sleep(600)
"""


@pytest.mark.wide
def test_sigkill_of_the_owner_leaves_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _OWNER, str(tmp_path)]
    owner = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
    )
    assert owner.stdout is not None
    token = owner.stdout.readline().strip()
    assert len(marked(token)) >= 6  # etcd, three servers, ZooKeeper, a kubelet
    owner.kill()
    owner.wait()
    owner.stdout.close()
    until(lambda: not marked(token), "nothing is left", 180)
