"""What a topology's pods need to prove themselves to ZooKeeper: Secrets as folders, and variables that name them.

The operator reads no Secret and has no right to.  That for TLS it names, and the kubelet mounts it.  That of the topology's
user it makes, out of a key that it has been given as a file: it may create Secrets, not look at them, and not change them.
So a Secret is never brought up to date; another one is made when the key is another, or the object is.  And whether it is
still there is asked by making it: one that somebody has deleted is made again, and one that is there is a conflict.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from reprise.controller.kubernetes.api import Api, collection
from reprise.controller.kubernetes.budget import Urgency
from reprise.controller.kubernetes.errors import ApiError, BudgetError, ConflictError
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
AGAIN_S, SOON_S = 300.0, 10.0
"""Between two attempts to make a Secret that was there, and one that could not be made, or that pods may be waiting for."""


def name(resource: StreamTopology, settings: OperatorSettings, uid: str) -> str:
    """The name of the topology's Secret, which its uid and its user determine; empty without users."""
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


@dataclass(slots=True)
class UserSecret:
    """Keeps the Secret of one topology there."""

    api: Api
    settings: OperatorSettings
    owner: Mapping[str, Any]
    clock: Callable[[], float] = time.monotonic
    _name: str = ""
    """Of the Secret that the rest is about."""
    _refused: str = ""
    _tried: float = field(default=0.0)

    def make(self, resource: StreamTopology, labels: Mapping[str, str], waited_for: bool = False) -> str:
        """Why it cannot be made; empty where it is there, or none is wanted.  `waited_for`: pods have not started, maybe for
        want of it.  Raises UnknownError, and BudgetError where it was not there yet."""
        if (body := secret(resource, self.settings, self.owner, labels)) is None:
            return ""
        known = body["metadata"]["name"] == self._name
        soon = waited_for or bool(self._refused)
        if known and self.clock() - self._tried < (SOON_S if soon else AGAIN_S):
            return self._refused
        was_there = known and not self._refused
        api = self.api.at(Urgency.ROUTINE) if was_there and not waited_for else self.api
        try:
            api.create(collection(resource.namespace, "secrets"), body)
            refused = ""
        except ConflictError:
            refused = ""
        except BudgetError:
            if not was_there:
                raise
            return ""
        except ApiError as error:
            refused = (
                f"the Secret {body['metadata']['name']} with its user of ZooKeeper cannot be made: {error}"
            )
        self._name, self._refused, self._tried = body["metadata"]["name"], refused, self.clock()
        return refused


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
