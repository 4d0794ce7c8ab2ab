"""What a topology's pods need to prove themselves to ZooKeeper: Secrets as folders, and variables that name them.

The operator reads no Secret and has no right to.  That for TLS it names, and the kubelet mounts it.  That of the topology's
user it makes, out of a key that it has been given as a file: it may create Secrets, not look at them, and not change them.
So a Secret is never brought up to date; another one is made when the key is another, or the object is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from reprise.controller.operator.settings import OperatorSettings
from reprise.controller.zookeeper.access import AUTH, TLS, topology_files
from reprise.controller.zookeeper.paths import root_of
from reprise.spark_jobs.topology import StreamTopology

FOLDER = "/etc/reprise-zookeeper"
PREFIX = "reprise-zookeeper-"
"""Of the names of these Secrets, which no topology may name."""
_READABLE = 0o440
"""To the pod's group alone."""
_MARK = 10
"""Digits of the hash in a name."""


def name(resource: StreamTopology, settings: OperatorSettings, uid: str) -> str:
    """Of the topology's Secret, which its uid and its user determine; empty without users."""
    if settings.zk_keys is None:
        return ""
    user = settings.zk_keys.topology(root_of(resource.namespace, resource.name))
    mark = hashlib.sha256(f"{uid} {user.id} {settings.zk_keys.control_plane.id}".encode()).hexdigest()[:_MARK]
    return f"{PREFIX}{resource.name}-{mark}"


def secret(
    resource: StreamTopology, settings: OperatorSettings, owner: Mapping[str, Any], labels: Mapping[str, str]
) -> dict[str, Any] | None:
    """The topology's Secret; it goes with the object.  None without users."""
    if settings.zk_keys is None:
        return None
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": name(resource, settings, owner["uid"]),
            "namespace": resource.namespace,
            "labels": dict(labels),
            "ownerReferences": [dict(owner)],
        },
        "type": "Opaque",
        "immutable": True,
        "stringData": topology_files(settings.zk_keys, root_of(resource.namespace, resource.name)),
    }


def environment(settings: OperatorSettings) -> list[dict[str, Any]]:
    return [{"name": variable, "value": f"{FOLDER}/{part}"} for part, variable in _wanted(settings).items()]


def mounts(settings: OperatorSettings) -> list[dict[str, Any]]:
    return [
        {"name": f"zookeeper-{part}", "mountPath": f"{FOLDER}/{part}", "readOnly": True}
        for part in _wanted(settings)
    ]


def volumes(resource: StreamTopology, settings: OperatorSettings, uid: str) -> list[dict[str, Any]]:
    names = {"tls": settings.zk_tls_secret, "auth": name(resource, settings, uid)}
    return [
        {"name": f"zookeeper-{part}", "secret": {"secretName": names[part], "defaultMode": _READABLE}}
        for part in _wanted(settings)
    ]


def _wanted(settings: OperatorSettings) -> dict[str, str]:
    """Variable by the last part of the folder."""
    found = {"tls": TLS} if settings.zk_tls_secret else {}
    return found | ({"auth": AUTH} if settings.zk_keys is not None else {})
