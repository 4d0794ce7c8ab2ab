"""What a driver's pod reads is what the pod was made with.

Problem: the topology and the template of its executors' pods are in a ConfigMap of one name; image, variables and the hash
of the code are in the driver's pod.  A kubelet may give a new pod the ConfigMap as it was before, and an operator that was
deposed may write it late.  Such a driver would run one spec and have its executors made from another: rows of two versions
of the code.

Invariant: a driver reads what was written for its pod, or it ends before it has done anything, and another pod is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from reprise.controller.agent.user_code import files_in, hash_of
from reprise.controller.errors import StartError

SHA256 = "REPRISE_CONFIG_SHA256"


def variable(files: Mapping[str, str]) -> dict[str, str]:
    """What the container of a driver that is to read these files is told."""
    return {"name": SHA256, "value": hash_of({name: text.encode() for name, text in files.items()})}


def check(environment: Mapping[str, str], folder: Path) -> None:
    """StartError where the files are not those that the pod was made with; a driver that was told none has no such pod."""
    if (wanted := environment.get(SHA256)) is None:
        return
    if hash_of(files_in(folder)) != wanted:
        raise StartError("the driver's ConfigMap is of another spec than its pod; another pod is made")
