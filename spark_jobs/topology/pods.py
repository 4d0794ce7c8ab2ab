"""How the pods of a topology look, as the rest of the program reads it: what is said for both and what is said for driver or
executors alone are one value for each here.  Field meanings are in `kubernetes.KubernetesModel`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Toleration:
    """The field as Kubernetes has it."""

    key: str | None
    operator: str
    value: str | None
    effect: str | None
    toleration_seconds: int | None


@dataclass(frozen=True, slots=True)
class Volume:
    """A claim or a Secret, the other one empty."""

    claim: str
    secret: str
    mount_path: str
    read_only: bool


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable with a value, or with a key of a Secret, whose name is else empty."""

    name: str
    value: str
    secret: str = ""
    key: str = ""


@dataclass(frozen=True, slots=True)
class Code:
    """Modules out of a ConfigMap, and the hash of what must be in it."""

    config_map: str
    sha256: str


@dataclass(frozen=True, slots=True)
class PodSettings:
    """What the driver's pod is told, or those of executors."""

    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    env: tuple[Variable, ...]
    node_selector: Mapping[str, str]
    tolerations: tuple[Toleration, ...]
    affinity: Mapping[str, Any]
    """As Kubernetes has it."""
    spread_constraints: tuple[Mapping[str, Any], ...]
    """As Kubernetes has them, without the pods that are counted."""


@dataclass(frozen=True, slots=True)
class KubernetesSettings:
    """All that only Kubernetes has a use for."""

    image: str | None
    image_pull_policy: str
    image_pull_secrets: tuple[str, ...]
    code: Code | None
    service_account: str | None
    priority_class: str | None
    security: Mapping[str, Any]
    """What the topology says of the pods' users and groups, as Kubernetes has it."""
    secrets: tuple[str, ...]
    volumes: tuple[Volume, ...]
    driver: PodSettings
    executor: PodSettings
    driver_cpu_cores: float
    driver_memory_bytes: int
    executor_memory_bytes: int
    """Of the pod: the JVM's heap is a part of it."""
    driver_storage_bytes: int
    executor_storage_bytes: int
    """Most that a pod may write to its machine's disk."""
    spread: str
