"""What a topology's pods need to prove themselves to ZooKeeper: Secrets as folders, and variables that name them.

The operator itself reads no Secret and has no right to: it names them, and the kubelet mounts them.
"""

from __future__ import annotations

from typing import Any

from controller.embedded.zk_access import AUTH, TLS
from controller.operator.settings import OperatorSettings

FOLDER = "/etc/reprise-zookeeper"
_READABLE = 0o440
"""To the pod's group alone."""


def _wanted(settings: OperatorSettings) -> dict[str, tuple[str, str]]:
    """(variable, Secret) by the last part of the folder."""
    found = {"tls": (TLS, settings.zk_tls_secret), "auth": (AUTH, settings.zk_auth_secret)}
    return {part: pair for part, pair in found.items() if pair[1]}


def environment(settings: OperatorSettings) -> list[dict[str, Any]]:
    return [{"name": name, "value": f"{FOLDER}/{part}"} for part, (name, _) in _wanted(settings).items()]


def mounts(settings: OperatorSettings) -> list[dict[str, Any]]:
    return [
        {"name": f"zookeeper-{part}", "mountPath": f"{FOLDER}/{part}", "readOnly": True}
        for part in _wanted(settings)
    ]


def volumes(settings: OperatorSettings) -> list[dict[str, Any]]:
    return [
        {"name": f"zookeeper-{part}", "secret": {"secretName": secret, "defaultMode": _READABLE}}
        for part, (_, secret) in _wanted(settings).items()
    ]
