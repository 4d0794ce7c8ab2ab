"""Code and variables that pods get from their resource alone: a module out of a ConfigMap, and an `env` for each role.

The module is nowhere on this machine but in the ConfigMap.  Its source looks in the driver, and its operator in executors: a
query of the topology shows in each row which version of the code made it, and what the variables were there.
"""

from __future__ import annotations

from typing import Any

from reprise.controller.agent import user_code
from tests.kubernetes.cluster import KubeCluster
from tests.kubernetes.install import NAMESPACE

MODULE, QUERY, VARIABLE, SECRET = "brought_by_config_map", "brought", "WHERE_FROM", "topology-own-code"
_TEXT = """
import os
from pathlib import Path

import pyarrow as pa

from reprise.contract import Operator
from tests.kubernetes.numbers import Numbers

VERSION = (Path(__file__).parent / "version.txt").read_text()


class Source(Numbers):
    def advance(self, place, batch, start):
        if os.environ["WHERE_FROM"] != "driver":
            raise ValueError(f"the driver sees {os.environ['WHERE_FROM']}")
        return super().advance(place, batch, start)


class Tell(Operator):
    def step(self, state, inbox):
        table = inbox.table()
        if table is None:
            return state, None
        told = f"{VERSION} {os.environ['WHERE_FROM']} {os.environ['TOKEN']}"
        return state, table.append_column("told", pa.array([told] * table.num_rows))
"""


def publish(cluster: KubeCluster, version: str) -> dict[str, Any]:
    """A ConfigMap with this version; the field of the resource that names it."""
    files = {f"{MODULE}.py": _TEXT, "version.txt": version}
    name = f"topology-own-code-{version}"
    body = {"metadata": {"name": name}, "immutable": True, "data": files}
    cluster.api.post(f"/api/v1/namespaces/{NAMESPACE}/configmaps", body)
    return {"configMap": name, "sha256": user_code.hash_of({k: text.encode() for k, text in files.items()})}


def give(cluster: KubeCluster, body: dict[str, Any]) -> None:
    """Let a topology of `counted` take its source from the ConfigMap, and have one more query."""
    secret = {"metadata": {"name": SECRET}, "stringData": {"token": "t0k3n"}}
    cluster.api.post(f"/api/v1/namespaces/{NAMESPACE}/secrets", secret)
    spec = body["spec"]
    spec["sources"][0]["class"] = f"{MODULE}:Source"
    told = {
        "name": QUERY,
        "class": f"{MODULE}:Tell",
        "deterministic": True,
        "inputs": [{"from": "in"}],
        "output": {},
    }
    spec["operators"].append(told)
    token = {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": SECRET, "key": "token"}}}
    kubernetes = spec["kubernetes"]
    kubernetes |= {"code": publish(cluster, "one"), "env": [token], "labels": {"team": "own"}}
    for role in ("driver", "executor"):
        kubernetes[role]["env"] = [{"name": VARIABLE, "value": role}]


def told(version: str) -> str:
    """What rows show that this version of the code has made in an executor."""
    return f"{version} executor t0k3n"
