"""The part of a topology that only Kubernetes has a use for: how the pods of its driver and executors look.

One file serves `reprise run` and `kubectl apply`, so both read and check these fields, and the first then leaves them
aside.  What Spark's own `spark.kubernetes.*` properties express better is left to `spark.conf`; here is what must agree
between driver, executors and the operator that repairs them, or what Spark has no property for.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from reprise.spark_jobs.topology.scalars import Bytes, Closed, Cpu, ObjectName

Label = Annotated[str, Field(max_length=63)]


class TolerationModel(Closed):
    key: Annotated[str, Field(max_length=316)] | None = None
    """Taint key; without one every taint is tolerated, which needs `operator: Exists`."""
    operator: Literal["Equal", "Exists"] = "Equal"
    """Whether the taint's value must be equal to `value`, or only be there."""
    value: Label | None = None
    """Value of the taint, for `Equal`."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """Effect that is tolerated; without one all are."""
    toleration_seconds: Annotated[int, Field(ge=0, le=86_400, strict=True)] | None = None
    """How long a `NoExecute` taint is tolerated; for ever without it."""


class VolumeModel(Closed):
    claim: ObjectName
    """PersistentVolumeClaim of the topology's namespace; with several nodes it must allow ReadWriteMany."""
    mount_path: Annotated[str, Field(pattern=r"^/[^:]*$", max_length=512)]
    """Where driver and executors see it."""
    read_only: bool = False
    """Mounts it without the right to write."""


class DriverModel(Closed):
    cpu: Cpu = "1"
    """CPU request of the driver's pod."""
    memory: Bytes = "1536Mi"
    """Memory request and limit of the driver's pod; half of it is the heap."""
    storage: Bytes = "2Gi"
    """Most that the driver's pod may write to its machine's disk; it is ended beyond that."""


class ExecutorModel(Closed):
    memory: Bytes | None = None
    """Memory request and limit of an executor's pod. By default `spark.executorMemory` and `recovery.bufferMemory` and
    768Mi for Python."""
    storage: Bytes | None = None
    """Most that an executor's pod may write to its machine's disk; it is ended beyond that. By default
    `recovery.bufferDisk`, `checkpoint.localCopies` and 2Gi for Spark."""
    spread: Literal["required", "preferred", "none"] = "preferred"
    """Whether two executors of the topology may share a machine: never, where it cannot be avoided, or freely. One
    machine with two executors is two nodes that fail together."""


class KubernetesModel(Closed):
    image: Annotated[str, Field(min_length=1, max_length=512)] | None = None
    """Image of driver and executors; by default that of the operator. Add own operator classes in one built on it."""
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    """When the image is pulled."""
    image_pull_secrets: list[ObjectName] = Field(default_factory=list, max_length=8)
    """Secrets with which the image is pulled."""
    service_account: ObjectName | None = None
    """Service account of the driver, which asks for executors; by default the one that the chart makes. Executors get no
    token."""
    priority_class: ObjectName | None = None
    """Priority class of driver and executors."""
    node_selector: dict[str, Label] = Field(default_factory=dict, max_length=16)
    """Labels that a machine must have."""
    tolerations: list[TolerationModel] = Field(default_factory=list, max_length=16)
    """Taints that driver and executors tolerate, e.g. those of spot machines."""
    secrets: list[ObjectName] = Field(default_factory=list, max_length=8)
    """Secrets whose keys become environment variables of driver and executors, e.g. for an object store."""
    volumes: list[VolumeModel] = Field(default_factory=list, max_length=8)
    """Shared directories, e.g. for checkpoints and output."""
    driver: DriverModel = DriverModel()
    """The driver's pod."""
    executor: ExecutorModel = ExecutorModel()
    """The pods of the executors, one a node; their CPU is `nodes.cpu`, their number `nodes.count`."""
