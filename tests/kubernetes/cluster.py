"""A Kubernetes cluster of local processes for tests: control plane, ZooKeeper, nodes that can be killed and frozen.

Nodes are killed and frozen as a set, as a correlated failure is what the tests are about.  Everything ends with the
process that made it, however that ends (`reprise.controller.local.cluster.process_reaper`).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from reprise.controller.agent import processes
from reprise.controller.agent.java import find_java
from reprise.controller.agent.jvm import Jvm
from reprise.controller.agent.processes import Process
from reprise.controller.local.cluster import addresses, launch
from reprise.controller.local.cluster.class_archive import ensure_archive
from reprise.controller.local.cluster.process_reaper import ProcessReaper
from reprise.controller.local.cluster.zookeeper import ZooKeeperServer
from reprise.controller.zookeeper.client import connected
from reprise.controller.zookeeper.errors import ClientError, NoNodeError
from reprise.controller.zookeeper.paths import NODES
from reprise.controller.zookeeper.session import ZooKeeperSession
from tests.kubernetes.audit import AuditLog
from tools.testbed.control_plane import ControlPlane

REPOSITORY = Path(__file__).parents[2]
ROOT = "/reprise"
"""Of all topologies in ZooKeeper: namespace and name are below it."""
START_S = 300.0
"""A node is ready a second after its start on an idle machine."""
SESSION_S = 20.0
"""Session of executors in ZooKeeper: no busy machine starves an agent for so long."""


@dataclass(slots=True)
class _Node:
    process: subprocess.Popen[bytes]
    arguments: tuple[str, ...]


class KubeCluster:
    """`work_dir` keeps the logs of all parts and pods."""

    def __init__(self, work_dir: Path, *, class_archive: bool = True) -> None:
        self.work_dir, self._class_archive = work_dir.resolve(), class_archive
        self._nodes: dict[str, _Node] = {}

    def start(self) -> None:
        """Control plane and ZooKeeper; no nodes yet.  Leaves nothing if it raises."""
        prefix, self._reaper = ProcessReaper.with_prefix()
        try:
            self._start_parts(f"{prefix}.{addresses.HEAD}")
        except BaseException:
            self.stop()
            raise

    def _start_parts(self, head: str) -> None:
        scratch = self._reaper.scratch
        jvm = Jvm(find_java(scratch / "java"), scratch / "log4j2.properties")
        jvm.write_log_config()
        archive = ensure_archive(jvm, self._reaper, lambda _: None) if self._class_archive else None
        self.jvm = Jvm(jvm.java_home, jvm.log_config, archive=archive)
        self.zookeeper = ZooKeeperServer(
            self.jvm, self._reaper, host=head, log=self.work_dir / "zookeeper.log"
        )
        self.zookeeper.launch()
        folder = self.work_dir / "control-plane"
        self.audit = AuditLog(folder)
        self.control_plane = ControlPlane(self._reaper, folder, head, self.audit.flags())
        self.control_plane.start()
        self.zookeeper.wait_ready()
        self.api = self.control_plane.rest()
        self.images = scratch / "images.json"
        self.images.write_text(json.dumps(self._images()), encoding="utf-8")

    def _images(self) -> dict[str, Any]:
        """The project's image is this environment: the entrypoints are those of the Dockerfile."""
        environment = {
            "PYTHONPATH": str(REPOSITORY),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "JAVA_HOME": str(self.jvm.java_home),
            "PYSPARK_PYTHON": sys.executable,
            "REPRISE_JAVA_OPTIONS": " ".join(self.jvm.flags()),
        }
        reprise = {"entrypoint": [sys.executable, "-m", "reprise.controller.image"], "env": environment}
        return {"reprise": reprise, "busybox": {"entrypoint": [], "cmd": ["sleep", "3600"]}}

    def stop(self) -> None:
        """Kill everything, remove the scratch folder; logs stay in `work_dir`."""
        self._reaper.close()
        for node in self._nodes.values():
            node.process.wait()
        self._nodes.clear()

    def __enter__(self) -> KubeCluster:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # -- nodes -------------------------------------------------------------------------------------------------------

    @property
    def nodes(self) -> tuple[str, ...]:
        """Started and not killed, frozen ones included."""
        return tuple(self._nodes)

    def add_node(
        self, name: str, *, cpu: str = "4", memory: str = "8Gi", labels: Mapping[str, str] | None = None
    ) -> None:
        """Start a node and return at once; `wait_ready` waits."""
        marks = [word for key, value in (labels or {}).items() for word in ("--label", f"{key}={value}")]
        self._start_node(name, ("--cpu", cpu, "--memory", memory, *marks))

    def revive(self, name: str, arguments: tuple[str, ...]) -> None:
        """Start a killed node again under its name."""
        self._start_node(name, arguments)

    def _start_node(self, name: str, arguments: tuple[str, ...]) -> None:
        command = [
            sys.executable, "-m", "tests.kubernetes.kubelet", "--node", name,
            "--kubeconfig", str(self.control_plane.kubeconfig), "--images", str(self.images),
            "--root", str(self.work_dir / "pods"), *arguments,
        ]  # fmt: skip
        environment = self._reaper.environment() | {"PYTHONPATH": str(REPOSITORY)}
        process, _ = launch.spawn(command, environment, self.work_dir / f"kubelet-{name}.log")
        self._nodes[name] = _Node(process, arguments)

    def wait_ready(self, names: Iterable[str], timeout_s: float = START_S) -> None:
        """Until Kubernetes calls all of them Ready."""
        for name in names:
            log = self.work_dir / f"kubelet-{name}.log"
            process = self._nodes[name].process
            launch.wait_until(
                lambda name=name: self.is_ready(name), f"node {name}", timeout_s, process=process, log=log
            )

    def is_ready(self, name: str) -> bool:
        node = self.api.find(f"/api/v1/nodes/{name}")
        conditions = node["status"].get("conditions", []) if node else []
        return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)

    def kill(self, names: Iterable[str]) -> dict[str, tuple[str, ...]]:
        """SIGKILL to the outermost process of each: a power cut; the znodes of their pods go, as when sessions expire.  The
        arguments with which they can be revived."""
        chosen = {name: self._nodes.pop(name) for name in names}
        for node in chosen.values():
            os.kill(node.process.pid, signal.SIGKILL)
        for node in chosen.values():
            node.process.wait()
        self._end_sessions({pod.name for name in chosen for pod in (self.work_dir / "pods" / name).glob("*")})
        return {name: node.arguments for name, node in chosen.items()}

    def _end_sessions(self, pods: set[str]) -> None:
        """Where ZooKeeper does not answer, sessions expire by themselves."""
        if not pods or not self.zookeeper.alive:
            return
        with suppress(ClientError), connected(self.zookeeper.hosts, 10.0) as client:
            for folder in list(_nodes_of_topologies(client)):
                for pod in pods.intersection(client.get_children(folder)):
                    with suppress(NoNodeError):
                        client.delete(f"{folder}/{pod}")

    def freeze(self, names: Iterable[str]) -> None:
        """SIGSTOP to everything on these nodes."""
        inside = [self._nodes[name].process.pid for name in names]
        processes.freeze(lambda: _on_nodes(inside))

    def thaw(self, names: Iterable[str]) -> None:
        inside = [self._nodes[name].process.pid for name in names]
        processes.thaw(lambda: _on_nodes(inside))

    def thaw_pods(self, name: str) -> None:
        """SIGCONT to the pods of a node and not to its kubelet: nobody can end them from outside."""
        outermost = self._nodes[name].process.pid
        processes.thaw(lambda: [p for p in _on_nodes([outermost]) if p.session != outermost])

    def processes_of(self, name: str, pod: str) -> list[Process]:
        """Of one pod on a node, without what runs the pod."""
        mark = f"HOSTNAME={pod}".encode()
        carriers = {p.pid for p in processes.carrying(mark)}
        return [p for p in _on_nodes([self._nodes[name].process.pid]) if p.pid in carriers]


def _nodes_of_topologies(client: ZooKeeperSession) -> Iterator[str]:
    """Folders of the znodes of executors."""
    for namespace in client.get_children(ROOT) if client.exists(ROOT) else ():
        for topology in client.get_children(f"{ROOT}/{namespace}"):
            folder = f"{ROOT}/{namespace}/{topology}/{NODES}"
            if client.exists(folder):
                yield folder


def _on_nodes(outermost: list[int]) -> list[Process]:
    """Everything in the PID namespaces of these nodes' first processes, and those processes."""
    everything = list(processes.living())
    inner = [p.pid for p in everything if p.parent in outermost]
    spaces = {_space(pid) for pid in inner}
    return [p for p in everything if p.pid in outermost or _space(p.pid) in spaces]


def _space(pid: int) -> str:
    try:
        return str(Path(f"/proc/{pid}/ns/pid").readlink())
    except OSError:
        return f"gone {pid}"
