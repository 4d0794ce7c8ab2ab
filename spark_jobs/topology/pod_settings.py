"""Reads the wire form of `spec.kubernetes`: what is said for both kinds of pods, and for one of them on top.

Of maps and of variables each name counts once, and what is said for one kind stands above what is said for both.
Tolerations only allow more, so both lists count.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from reprise.spark_jobs.topology import pods
from reprise.spark_jobs.topology.kubernetes import DriverModel, ExecutorModel, PodModel, VariableModel
from reprise.spark_jobs.topology.quantity import parse_bytes, parse_cpu
from reprise.spark_jobs.topology.schema import SpecModel

EXECUTOR_OVERHEAD = 768 << 20
"""Bytes of an executor's pod beyond heap and buffers: Python worker, partition host, JVM."""
EXECUTOR_DISK = 2 << 30
"""Bytes that it may write beyond spilled buffers and copies of states: Spark's shuffle, logs."""


STATE_DISK = "8Gi"


def state_disk(spec: SpecModel) -> int:
    """Bytes that a node may write of states which exceed their memory; 0: there is no limit of memory."""
    return (
        0 if spec.checkpoint.state_memory is None else parse_bytes(spec.checkpoint.state_disk or STATE_DISK)
    )


def other_disk(spec: SpecModel) -> int:
    """Bytes that an executor may write beside copies of states."""
    return parse_bytes(spec.recovery.buffer_disk) + state_disk(spec) + EXECUTOR_DISK


def kubernetes_settings(spec: SpecModel) -> pods.KubernetesSettings:
    """The values with all defaults applied."""
    x = spec.kubernetes
    parts = parse_bytes(spec.spark.executor_memory) + parse_bytes(spec.recovery.buffer_memory)
    parts += parse_bytes(spec.checkpoint.state_memory) if spec.checkpoint.state_memory is not None else 0
    memory = x.executor.memory
    return pods.KubernetesSettings(
        image=x.image,
        image_pull_policy=x.image_pull_policy,
        image_pull_secrets=tuple(x.image_pull_secrets),
        code=None if x.code is None else pods.Code(x.code.config_map, x.code.sha256),
        service_account=x.service_account,
        priority_class=x.priority_class,
        security=_as_kubernetes(x.security_context),
        secrets=tuple(x.secrets),
        volumes=tuple(
            pods.Volume(v.claim or "", v.secret or "", v.mount_path, v.read_only or v.secret is not None)
            for v in x.volumes
        ),
        driver=_pod(x, x.driver),
        executor=_pod(x, x.executor),
        driver_cpu_cores=parse_cpu(x.driver.cpu),
        driver_memory_bytes=parse_bytes(x.driver.memory),
        executor_memory_bytes=parts + EXECUTOR_OVERHEAD if memory is None else parse_bytes(memory),
        driver_storage_bytes=parse_bytes(x.driver.storage),
        executor_storage_bytes=(
            other_disk(spec) + parse_bytes(spec.checkpoint.local_copies)
            if x.executor.storage is None
            else parse_bytes(x.executor.storage)
        ),
        spread=x.executor.spread,
    )


def _pod(both: PodModel, one: DriverModel | ExecutorModel) -> pods.PodSettings:
    variables = {v.name: _variable(v) for v in (*both.env, *one.env)}
    constraints = one.topology_spread_constraints if isinstance(one, ExecutorModel) else ()
    return pods.PodSettings(
        labels={**both.labels, **one.labels},
        annotations={**both.annotations, **one.annotations},
        env=tuple(variables.values()),
        node_selector={**both.node_selector, **one.node_selector},
        tolerations=tuple(pods.Toleration(**t.model_dump()) for t in (*both.tolerations, *one.tolerations)),
        affinity={} if one.affinity is None else _as_kubernetes(one.affinity),
        spread_constraints=tuple(map(_as_kubernetes, constraints)),
    )


def _variable(x: VariableModel) -> pods.Variable:
    if x.value_from is None:
        return pods.Variable(x.name, x.value or "")
    reference = x.value_from.secret_key_ref
    return pods.Variable(x.name, "", reference.name, reference.key)


def _as_kubernetes(model: BaseModel) -> dict[str, Any]:
    """What was said, in Kubernetes' own words."""
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)
