"""What the operator applies for a topology: a ConfigMap and the driver's pod, and the template of its executors' pods.

Pure: the same topology and settings give the same manifests, and `revision` names what a running driver was started
from.  The pods keep to Kubernetes' restricted profile: no root, read-only root file system, no capabilities; what
they write goes to volumes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from reprise.algorithms.cpu import milli_cpu
from reprise.controller import logs
from reprise.controller.agent import driver_files
from reprise.controller.agent.spark_secret import AUTHENTICATION
from reprise.controller.crd.convert import TOPOLOGY_LABEL
from reprise.controller.crd.crds import GROUP
from reprise.controller.kubernetes.pods import ROLE_LABEL
from reprise.controller.operator.pods import network_policy, pod_template, zk_mounts
from reprise.controller.operator.settings import OperatorSettings
from reprise.controller.zookeeper.paths import root_of
from reprise.spark_jobs.state.revision import revision_of
from reprise.spark_jobs.topology import StreamTopology
from reprise.spark_jobs.topology.change_table import Effect, row_of
from reprise.spark_jobs.topology.changes import revision_of_settings, settings_of, without_settings
from reprise.spark_jobs.topology.pods import PodSettings

REVISION = f"{GROUP}/revision"
OUTPUT = f"{GROUP}/output-revision"
"""Of the code and parameters alone that determine output: another one needs a drain."""
DRIVER_SETTINGS = f"{GROUP}/driver-settings"
"""Of what a driver itself follows: one of before it could follow others in place is replaced when they change."""
PREFIX = f"{GROUP}/executor-prefix"
DRIVER_PORT, BLOCK_PORT = 7078, 7079
"""Fixed, so that a NetworkPolicy can name them; every pod has an address of its own."""
_CONFIG, _SCRATCH, _TMP = "/etc/reprise", "/var/data/reprise", "/tmp"
_LOCAL = "/var/data/spark"
"""Spark's own, in the driver; it makes a volume of that path in its executors too, so it is none that they have."""
_SPARK_VOLUME = "spark.kubernetes.executor.volumes.emptyDir.spark-local-dir-1"
"""Spark takes a volume of such a name for its own files instead of making one without a limit."""
_DISK_REQUEST = 1 << 30
"""Bytes of disk that a pod asks for when it is placed: what it uses while nothing has failed, and more."""
_ALIVE_S = 30
"""A touch of the agent's file older than this means that it is stuck; it touches several times a second."""
_GRACE_S = 10
_CONTAINER_SECURITY = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "runAsNonRoot": True,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


def driver_name(topology: str) -> str:
    """One name, so that the API server itself refuses a second driver."""
    return f"{topology}-driver"


def labels(topology: str, role: str) -> dict[str, str]:
    return {
        "app.kubernetes.io/name": "reprise",
        "app.kubernetes.io/component": role,
        "app.kubernetes.io/managed-by": "reprise-operator",
        TOPOLOGY_LABEL: topology,
        ROLE_LABEL: role,
    }


def owner(topology: Mapping[str, Any]) -> dict[str, Any]:
    """The reference by which Kubernetes removes what belongs to a StreamTopology object."""
    meta = topology["metadata"]
    reference = {
        "apiVersion": topology["apiVersion"],
        "kind": topology["kind"],
        "name": meta["name"],
        "uid": meta["uid"],
    }
    return {**reference, "controller": True}


def config_map(
    resource: StreamTopology, settings: OperatorSettings, belongs: Mapping[str, Any]
) -> dict[str, Any]:
    """What the driver reads: the topology and the template of executor pods."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _meta(driver_name(resource.name), resource, "driver", belongs),
        "data": _files(resource, settings, belongs["uid"]),
    }


def _files(resource: StreamTopology, settings: OperatorSettings, uid: str) -> dict[str, str]:
    template = json.dumps(executor_template(resource, settings, uid), sort_keys=True)
    return {"topology.json": resource.document, "executor.json": template}


def revision(resource: StreamTopology, settings: OperatorSettings) -> str:
    """Changes when a running driver would have to be started anew: not by what takes effect in place, nor by what is not
    used here."""
    spec = without_settings(resource)
    spec["recovery"].pop("driverGrace", None)
    rest = [executor_template(resource, settings), settings.image, settings.zk, settings.driver_account]
    return hashlib.sha256(json.dumps([spec, rest], sort_keys=True).encode()).hexdigest()[:12]


def driver_settings(resource: StreamTopology) -> str:
    """The settings that a driver itself follows, and not the coordinator alone."""
    settings = settings_of(resource)
    own = {p: v for p, v in settings.items() if "[" not in p and row_of(p).effect is Effect.CHECKPOINT}
    return revision_of_settings(own)


def output_revision(resource: StreamTopology, settings: OperatorSettings) -> str:
    """The revision as the driver computes it."""
    return revision_of(resource, resource.kubernetes.image or settings.image)


def driver_pod(
    resource: StreamTopology, settings: OperatorSettings, belongs: Mapping[str, Any], prefix: str
) -> dict[str, Any]:
    """`prefix`: of the executors' names, different for each driver, as a pod that was given up keeps its name for
    ever."""
    name, kubernetes = driver_name(resource.name), resource.kubernetes
    meta = _meta(name, resource, "driver", belongs)
    meta["labels"] = pod_template.names(kubernetes.driver.labels, meta["labels"])
    meta["annotations"] = {
        REVISION: revision(resource, settings),
        OUTPUT: output_revision(resource, settings),
        DRIVER_SETTINGS: driver_settings(resource),
        PREFIX: prefix,
    }
    if policy := network_policy.digest(resource, settings):
        meta["annotations"][network_policy.MARK] = policy
    meta["annotations"] = pod_template.names(kubernetes.driver.annotations, meta["annotations"])
    memory, disk = kubernetes.driver_memory_bytes, _disk(kubernetes.driver_storage_bytes)
    container = {
        "name": "driver",
        "terminationMessagePolicy": "FallbackToLogsOnError",  # a driver that refuses to start says why
        "image": kubernetes.image or settings.image,
        "imagePullPolicy": kubernetes.image_pull_policy,
        "args": _driver_arguments(resource, settings, prefix, heap_mb=memory // 2 // 2**20),
        "env": pod_template.environment(
            kubernetes.driver,
            [
                {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
                {"name": "SPARK_LOCAL_IP", "value": "$(POD_IP)"},
                {"name": "SPARK_LOCAL_DIRS", "value": _LOCAL},
                driver_files.variable(_files(resource, settings, belongs["uid"])),
                *_log_format(settings),
                *zk_mounts.environment(settings),
            ],
            resource,
        ),
        "envFrom": _secrets(resource),
        "resources": {
            "requests": {"cpu": _cpu(kubernetes.driver_cpu_cores), "memory": str(memory)} | disk["requests"],
            "limits": {"memory": str(memory)} | disk["limits"],
        },
        "securityContext": _CONTAINER_SECURITY,
        "volumeMounts": [
            {"name": "config", "mountPath": _CONFIG, "readOnly": True},
            {"name": "local", "mountPath": _LOCAL},
            *_mounts(resource, settings),
        ],
    }
    if settings.metrics_port:
        container["ports"] = [{"name": "metrics", "containerPort": settings.metrics_port}]
    disk_bytes = kubernetes.driver_storage_bytes
    spec = _pod_spec(resource, kubernetes.driver, settings, disk_bytes, belongs["uid"]) | {
        "restartPolicy": "Never",
        "serviceAccountName": kubernetes.service_account or settings.driver_account,
        "containers": [container],
        "affinity": dict(kubernetes.driver.affinity),
    }
    local = {"name": "local", "emptyDir": {"sizeLimit": str(kubernetes.driver_storage_bytes)}}
    own = [{"name": "config", "configMap": {"name": name}}, local]
    spec["volumes"] = [*own, *spec["volumes"]]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def executor_template(resource: StreamTopology, settings: OperatorSettings, uid: str = "") -> dict[str, Any]:
    """Spark adds names, addresses, resources and its own variables.  `uid`: of the StreamTopology object."""
    kubernetes = resource.kubernetes
    alive = f"test $(( $(date +%s) - $(stat -c %Y {_SCRATCH}/alive) )) -lt {_ALIVE_S}"
    container = {
        "name": "executor",
        "env": pod_template.environment(
            kubernetes.executor,
            [
                {"name": "REPRISE_ZK", "value": settings.zk},
                {"name": "REPRISE_ROOT", "value": root_of(resource.namespace, resource.name)},
                {"name": "REPRISE_CPU_MILLI", "value": str(milli_cpu(resource.nodes.cpu_cores))},
                {"name": "REPRISE_SESSION_TIMEOUT_MS", "value": str(round(settings.session_s * 1000))},
                {"name": "REPRISE_SCRATCH", "value": _SCRATCH},
                *(
                    [{"name": "REPRISE_GRACE_S", "value": str(settings.notice_s)}]
                    if settings.notice_s
                    else []
                ),
                *_log_format(settings),
                *zk_mounts.environment(settings),
            ],
            resource,
        ),
        "envFrom": _secrets(resource),
        "resources": _disk(kubernetes.executor_storage_bytes),  # Spark adds CPU and memory
        "securityContext": _CONTAINER_SECURITY,
        "volumeMounts": _mounts(resource, settings),
        # asks for the agent's own progress, and for nothing that another program would have to give
        "livenessProbe": {
            "exec": {"command": ["sh", "-c", alive]},
            "initialDelaySeconds": _ALIVE_S,
            "periodSeconds": 10,
            "timeoutSeconds": 5,
        },
    }
    disk_bytes = kubernetes.executor_storage_bytes
    spec = _pod_spec(resource, kubernetes.executor, settings, disk_bytes, uid) | {
        "automountServiceAccountToken": False,
        "affinity": pod_template.executor_affinity(resource),
        "containers": [container],
    }
    if constraints := pod_template.spread_constraints(resource):
        spec["topologySpreadConstraints"] = constraints
    if settings.notice_s:
        spec["terminationGracePeriodSeconds"] = settings.notice_s + _GRACE_S
    ours = labels(resource.name, "executor")
    meta: dict[str, Any] = {"labels": pod_template.names(kubernetes.executor.labels, ours)}
    if kubernetes.executor.annotations:
        meta["annotations"] = dict(kubernetes.executor.annotations)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def _log_format(settings: OperatorSettings) -> list[dict[str, str]]:
    """Text is what they do anyway."""
    return [] if settings.log_format == "text" else [{"name": logs.VARIABLE, "value": settings.log_format}]


def _driver_arguments(
    resource: StreamTopology, settings: OperatorSettings, prefix: str, heap_mb: int
) -> list[str]:
    root = root_of(resource.namespace, resource.name)
    base = f"/var/lib/reprise/{resource.namespace}/{resource.name}"
    conf = spark_conf(resource, settings, prefix)
    return [
        "driver", f"--zk={settings.zk}", f"--root={root}", f"--topology={_CONFIG}/topology.json",
        "--master=k8s://https://$(KUBERNETES_SERVICE_HOST):$(KUBERNETES_SERVICE_PORT)",
        f"--sink={resource.sink_location or base + '/sink'}",
        f"--checkpoints={resource.checkpoint.location or base + '/checkpoints'}",
        "--driver-host=$(POD_IP)", f"--image={resource.kubernetes.image or settings.image}", f"--heap={heap_mb}m",
        *([f"--metrics-port={settings.metrics_port}", "--metrics-host=$(POD_IP)"] if settings.metrics_port else []),
        *(f"--conf={key}={value}" for key, value in sorted(conf.items())),
    ]  # fmt: skip


def spark_conf(resource: StreamTopology, settings: OperatorSettings, prefix: str) -> dict[str, str]:
    """What makes Spark run one executor a node as pods; laid over the topology's own properties."""
    kubernetes, heap = resource.kubernetes, resource.spark.executor_memory_bytes
    overhead = max(384, (kubernetes.executor_memory_bytes - heap) // 2**20)
    selector = {
        f"spark.kubernetes.executor.node.selector.{k}": v
        for k, v in kubernetes.executor.node_selector.items()
    }
    return (
        selector
        | {
            "spark.kubernetes.namespace": resource.namespace,
            "spark.kubernetes.driver.pod.name": driver_name(resource.name),
            "spark.kubernetes.container.image": kubernetes.image or settings.image,
            "spark.kubernetes.container.image.pullPolicy": kubernetes.image_pull_policy,
            "spark.kubernetes.executor.podNamePrefix": prefix,
            "spark.kubernetes.executor.podTemplateFile": f"{_CONFIG}/executor.json",
            "spark.kubernetes.executor.podTemplateContainerName": "executor",
            "spark.kubernetes.executor.request.cores": _cpu(resource.nodes.cpu_cores),
            "spark.executor.instances": str(resource.nodes.count),
            "spark.executor.memoryOverhead": f"{overhead}m",
            # a burst is replaced in one go
            "spark.kubernetes.allocation.batch.size": "50",
            # once Spark's watch has ended, only its polls show pods, one in 30 s; a pod that it has created and that none
            # of three has shown is deleted and replaced after this, and not after 600 s
            "spark.kubernetes.allocation.executor.timeout": "100s",
            # the driver reports at once and the coordinator waits for nodes: Spark has nothing to wait for
            "spark.scheduler.minRegisteredResourcesRatio": "0.0",
            # losing executors is what this is about; Spark would end the application after a few
            "spark.executor.maxNumFailures": "1000000000",
            # what it needs no rights for: the agent reads no such map, there is no such volume or service
            "spark.kubernetes.executor.disableConfigMap": "true",
            "spark.kubernetes.driver.ownPersistentVolumeClaim": "false",
            "spark.kubernetes.driver.reusePersistentVolumeClaim": "false",
            "spark.kubernetes.driver.service.deleteOnTermination": "false",
            "spark.driver.port": str(DRIVER_PORT),
            "spark.blockManager.port": str(BLOCK_PORT),
            f"{_SPARK_VOLUME}.mount.path": _LOCAL,
            f"{_SPARK_VOLUME}.options.sizeLimit": str(kubernetes.executor_storage_bytes),
        }
        | AUTHENTICATION
    )  # Spark makes a secret for each application, and gives it to its executors


def _disk(limit: int) -> dict[str, dict[str, str]]:
    """A pod that writes more than its limit is ended, and not its machine."""
    name = "ephemeral-storage"
    return {"requests": {name: str(min(limit, _DISK_REQUEST))}, "limits": {name: str(limit)}}


def _pod_spec(
    resource: StreamTopology, pod: PodSettings, settings: OperatorSettings, disk: int, uid: str
) -> dict[str, Any]:
    """`disk`: most bytes that the pod may write to volumes of its own."""
    kubernetes = resource.kubernetes
    spec: dict[str, Any] = {
        "securityContext": pod_template.security(resource),
        "terminationGracePeriodSeconds": _GRACE_S,
        "nodeSelector": dict(pod.node_selector),
        "tolerations": pod_template.tolerations(pod, settings.machine_lost_s),
        "imagePullSecrets": [{"name": name} for name in kubernetes.image_pull_secrets],
        "volumes": [
            {"name": "scratch", "emptyDir": {"sizeLimit": str(disk)}},
            {"name": "tmp", "emptyDir": {"sizeLimit": str(disk)}},
            *pod_template.volumes(resource),
            *zk_mounts.volumes(resource, settings, uid),
        ],
    }
    if kubernetes.priority_class is not None:
        spec["priorityClassName"] = kubernetes.priority_class
    return spec


def _mounts(resource: StreamTopology, settings: OperatorSettings) -> list[dict[str, Any]]:
    return [
        {"name": "scratch", "mountPath": _SCRATCH},
        {"name": "tmp", "mountPath": _TMP},
        *pod_template.mounts(resource),
        *zk_mounts.mounts(settings),
    ]


def _secrets(resource: StreamTopology) -> list[dict[str, Any]]:
    return [{"secretRef": {"name": name}} for name in resource.kubernetes.secrets]


def _cpu(cores: float) -> str:
    return f"{max(1, round(cores * 1000))}m"


def _meta(name: str, resource: StreamTopology, role: str, belongs: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": name,
        "namespace": resource.namespace,
        "labels": labels(resource.name, role),
        "ownerReferences": [dict(belongs)],
    }
