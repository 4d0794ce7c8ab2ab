"""The objects of a large installation, as an API server and ZooKeeper hold them: machines, topologies, pods, records.

Shape: `per` executors a topology, one a machine, so that `machines = topologies * per`; a hundred partitions a topology, of
twenty queries.  Everything is what the project's own parts would have written: pods from the operator's manifests, records
from the coordinator's encoders; only Spark is not there.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

from reprise.controller.crd.crds import GROUP, VERSION
from reprise.controller.operator.handlers import FINALIZER
from reprise.controller.operator.loop.topology import document_of
from reprise.controller.operator.pods import manifests
from reprise.controller.operator.settings import OperatorSettings
from reprise.spark_jobs.topology import StreamTopology, Topology, expand, from_json
from tools.testbed.rest import MERGE, Rest

NAMESPACE = "load"
THREADS = 8
NODE_CPU_MILLI = 1000
T = TypeVar("T")


@dataclass(slots=True)
class Member:
    """One topology of the fleet."""

    name: str
    uid: str
    resource: StreamTopology
    topology: Topology
    body: dict[str, Any] = field(repr=False)
    pods: dict[str, str] = field(default_factory=dict)
    """Executor pod by machine."""


def folder_of(namespace: str) -> str:
    """Path of the topologies of a namespace."""
    return f"/apis/{GROUP}/{VERSION}/namespaces/{namespace}/streamtopologies"


def topology_body(name: str, nodes: int, namespace: str = NAMESPACE) -> dict[str, Any]:
    """A hundred partitions: 20 sources, 40 parsers, 40 counts, of which each is a query."""
    source = {
        "name": "tweets", "class": "reprise.sources:HashtagSource", "parallelism": 20,
        "resources": {"cpu": "20m"},
        "with": {"rate": 400, "interval": "500ms", "batches": 100000, "tags": 5000, "seed": 7},
    }  # fmt: skip
    parser = {
        "name": "parser", "class": "reprise.operators:FlatMap", "parallelism": 40, "resources": {"cpu": "30m"},
        "with": {"explode": ["hashtags"], "select": ["time", "hashtags AS tag"]},
        "inputs": [{"from": "tweets", "by": ["tweet"]}],
    }  # fmt: skip
    count = {
        "name": "count", "class": "reprise.operators:KeyedCount", "parallelism": 40, "resources": {"cpu": "30m"},
        "with": {"keys": ["tag"]}, "inputs": [{"from": "parser", "forward": True}],
        "output": {"priority": 3, "priorities": {"0": 10, "1": 8}},
    }  # fmt: skip
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "StreamTopology",
        "metadata": {"name": name, "namespace": namespace, "finalizers": [FINALIZER]},
        "spec": {
            "batch": {"interval": "500ms"},
            "sources": [source],
            "operators": [parser, count],
            "nodes": {"count": nodes, "cpu": f"{NODE_CPU_MILLI}m"},
            "checkpoint": {"location": f"/data/{name}/checkpoints"},
            "sink": {"location": f"/data/{name}/sink"},
        },
    }


def machine_body(name: str, ready: bool = True) -> dict[str, Any]:
    """A Node object as a kubelet registers it; `ready` False as the node controller leaves it."""
    capacity = {"cpu": "2", "memory": "8Gi", "pods": "110"}
    state = {"type": "Ready", "status": "True" if ready else "Unknown", "reason": "Load"}
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"capacity": capacity, "allocatable": capacity, "conditions": [state]},
    }


def executor_body(member: Member, pod: str, machine: str) -> dict[str, Any]:
    """As Spark makes it from the operator's template."""
    container = {
        "name": "spark-kubernetes-executor",
        "image": "load",
        "resources": {"requests": {"cpu": f"{NODE_CPU_MILLI}m"}},
    }
    return {
        "metadata": {"name": pod, "labels": manifests.labels(member.name, "executor")},
        "spec": {"nodeName": machine, "restartPolicy": "Never", "containers": [container]},
    }


class Fleet:
    """Creates it all, with `THREADS` connections."""

    def __init__(
        self, rest: Rest, settings: OperatorSettings, topologies: int, per: int, shares: int = 1
    ) -> None:
        """`shares`: namespaces among which the topologies are dealt out in turn."""
        self._rest, self._settings, self._per = rest, settings, per
        self.namespaces = [NAMESPACE, *(f"{NAMESPACE}-{number}" for number in range(2, shares + 1))]
        self.names = [f"t{number:04d}" for number in range(topologies)]
        self.members: dict[str, Member] = {}

    def create(self) -> None:
        for namespace in self.namespaces:
            self._rest.post("/api/v1/namespaces", {"metadata": {"name": namespace}})
            for account in ("default", self._settings.driver_account):
                self._rest.post(
                    f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": account}}
                )
        each(self._machine, (f"m-{name}-{i}" for name in self.names for i in range(self._per)))
        for member in each(self._topology, self.names):
            self.members[member.name] = member
        each(self._driver, self.members.values())
        each(self._executors, self.members.values())

    def _machine(self, name: str) -> None:
        self._rest.post("/api/v1/nodes", machine_body(name))

    def _topology(self, name: str) -> Member:
        namespace = self.namespaces[int(name[1:]) % len(self.namespaces)]
        found = self._rest.post(folder_of(namespace), topology_body(name, self._per, namespace))
        resource = from_json(json.dumps(document_of(found)))
        return Member(name, found["metadata"]["uid"], resource, expand(resource), found)

    def _driver(self, member: Member) -> None:
        belongs = manifests.owner(member.body)
        pod = manifests.driver_pod(member.resource, self._settings, belongs, f"{member.name}-exec")
        pod["spec"]["nodeName"] = f"m-{member.name}-0"
        self._run(member, pod)

    def _executors(self, member: Member) -> None:
        for i in range(self._per):
            self.executor(member, f"{member.name}-exec-{i}", f"m-{member.name}-{i}")

    def executor(self, member: Member, pod: str, machine: str) -> None:
        """A pod that runs."""
        self._run(member, executor_body(member, pod, machine))
        member.pods[machine] = pod

    def add_machine(self, name: str) -> None:
        self._machine(name)

    def not_ready(self, machines: Iterable[str]) -> None:
        """As the node controller does when leases are overdue."""
        each(
            lambda name: self._rest.patch(
                f"/api/v1/nodes/{name}/status",
                {"status": {"conditions": machine_body(name, ready=False)["status"]["conditions"]}},
            ),
            machines,
        )

    def _run(self, member: Member, pod: dict[str, Any]) -> None:
        pods = f"/api/v1/namespaces/{member.resource.namespace}/pods"
        self._rest.post(pods, pod)
        status = {
            "status": {"phase": "Running", "startTime": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
        }
        self._rest.patch(f"{pods}/{pod['metadata']['name']}/status", status, MERGE)


def each(work: Callable[[Any], T], items: Iterable[Any]) -> Iterator[T]:
    """In several threads; in order.  The first error is raised."""
    with ThreadPoolExecutor(THREADS) as pool:
        return iter(list(pool.map(work, items)))
