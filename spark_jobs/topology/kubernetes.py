"""The part of a topology that only Kubernetes has a use for: how the pods of its driver and executors look.

One file serves `reprise run` and `kubectl apply`, so both read and check these fields, and the first then leaves them
aside.  What Spark's own `spark.kubernetes.*` properties express better is left to `spark.conf`; here is what must agree
between driver, executors and the operator that repairs them, or what Spark has no property for.

A field that pods have and a topology may not set is refused with the reason (`not_taken`): the first process, who a pod is,
what it may do on its machine and how it ends are what recovery and the boundaries of docs/security.md rest on
(docs/decisions/0048-pods-and-code-of-ones-own.md).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, SerializerFunctionWrapHandler, model_serializer, model_validator
from pydantic_core import PydanticCustomError

from reprise.spark_jobs.topology.affinity import AffinityModel, TopologySpreads
from reprise.spark_jobs.topology.labels import LONGEST_KEY, LabelKey, LabelValue, checked_key
from reprise.spark_jobs.topology.scalars import Bytes, Closed, Cpu, Location, ObjectName, given_twice

AnnotationValue = Annotated[str, Field(max_length=4096)]
FileName = Annotated[str, Field(pattern=r"^[-._a-zA-Z0-9]+$", max_length=253)]

RESERVED_LABELS = ("reprise.dev/", "app.kubernetes.io/", "spark-")
RESERVED_ANNOTATIONS = (
    "reprise.dev/",
    "container.apparmor.security.beta.kubernetes.io/",
    "container.seccomp.security.alpha.kubernetes.io/",
    "seccomp.security.alpha.kubernetes.io/",
    # by these, runtimes that allow it give devices, or rights on the machine
    "cdi.k8s.io/",
    "io.containerd.",
    "io.katacontainers.",
    "io.kubernetes.cri-o.",
)
RESERVED_VARIABLES = (
    r"^(REPRISE_|SPARK_|PYSPARK_|PYTHON|KUBERNETES_|LD_"
    r"|(PATH|HOME|HOSTNAME|POD_IP|JAVA_HOME|_JAVA_OPTIONS|JAVA_TOOL_OPTIONS|JDK_JAVA_OPTIONS|KUBECONFIG|BASH_ENV)$)"
)
RESERVED_PATHS = (
    r"//|/[.][.]?(/|$)|^/(opt/reprise|etc/reprise|etc/reprise-zookeeper|var/data|run|var/run|proc|sys|dev)(/|$)"
    r"|^/(opt|etc|var|tmp|bin|sbin|lib|lib64|usr)?/?$|^/(bin|sbin|lib|lib64|usr)/"
)
"""In words of the expression language of API servers, which are those of Python here."""
LABELS_OF_OTHERS = "is ours or Spark's: by such labels pods are found"
ANNOTATIONS_OF_OTHERS = "is the operator's, or loosens what holds a pod"
VARIABLE_OF_OTHERS = "is for the operator, Spark and the image to set"
PATH_OF_OTHERS = "covers what the image, the operator or Kubernetes has there; use another folder"
KEY_OR_EXISTS = "without `key` the operator must be Exists"
VALUE_OF_EQUAL = "`value` goes with the operator Equal only"
SECONDS_OF_NO_EXECUTE = "`tolerationSeconds` goes with the effect NoExecute only"
ONE_VALUE = "give one of `value` and `valueFrom`"
ONE_VOLUME = "give one of `claim` and `secret`"
_BOUNDARY = (
    "pods keep to Kubernetes' restricted profile: no root, no rights on their machine, nothing of it mounted"
)
_FIRST = "the first process of each container is the image's, which holds the heartbeat; bring code by `code` or `image`"
_ENDS = "when a pod has ended, and how, is what recovery goes by"


def _none_of(prefixes: tuple[str, ...], reason: str, names: Mapping[str, str]) -> dict[str, str]:
    if found := next((name for name in names if name.startswith(prefixes)), None):
        raise ValueError(f"{found!r} {reason}")
    return dict(names)


class Said(Closed):
    """Its document holds what was said of it and no empty lists, so that the driver of an image of before there were such
    fields can read a topology that has none of them."""

    @model_serializer(mode="wrap")
    def _without_nothing(self, written: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in written(self).items() if value not in ([], {})}


class TolerationModel(Closed):
    key: Annotated[str, Field(max_length=LONGEST_KEY)] | None = None
    """Taint key; without one every taint is tolerated, which needs `operator: Exists`."""
    operator: Literal["Equal", "Exists"] = "Equal"
    """Whether the taint's value must be equal to `value`, or only be there."""
    value: LabelValue | None = None
    """Value of the taint, for `Equal`."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """Effect that is tolerated; without one all are."""
    toleration_seconds: Annotated[int, Field(ge=0, le=86_400, strict=True)] | None = None
    """How long a `NoExecute` taint is tolerated; for ever without it."""

    @model_validator(mode="after")
    def _as_pods_take_it(self) -> Self:
        if self.key:
            try:
                checked_key(self.key)
            except ValueError as error:
                raise PydanticCustomError("key", "key: {reason}", {"reason": str(error)}) from None
        if not self.key and self.operator != "Exists":
            raise PydanticCustomError("operator", KEY_OR_EXISTS)
        if self.value and self.operator != "Equal":
            raise PydanticCustomError("value", VALUE_OF_EQUAL)
        if self.toleration_seconds is not None and self.effect != "NoExecute":
            raise PydanticCustomError("toleration_seconds", SECONDS_OF_NO_EXECUTE)
        return self


class VolumeModel(Closed):
    not_taken: ClassVar[Mapping[str, str]] = {
        "hostPath": _BOUNDARY,
        "configMap": "files that code reads change rows, and a ConfigMap can change in place: put them beside the modules, "
        "into `code`",
        "emptyDir": "/tmp is one",
    } | dict.fromkeys(("projected", "csi", "ephemeral", "nfs"), "use a `claim` or a `secret`")

    claim: ObjectName | None = None
    """PersistentVolumeClaim of the topology's namespace; with several nodes it must allow ReadWriteMany."""
    secret: ObjectName | None = None
    """Secret of the topology's namespace instead, whose keys become files that cannot be written."""
    mount_path: Annotated[str, Field(pattern=r"^/[^:]*$", max_length=512)]
    """Where driver and executors see it."""
    read_only: bool = False
    """Mounts it without the right to write."""

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if (self.claim is None) == (self.secret is None):
            raise PydanticCustomError("volume", ONE_VOLUME)
        if re.search(RESERVED_PATHS, self.mount_path):
            raise PydanticCustomError(
                "mount_path", "mountPath: {path}", {"path": f"{self.mount_path!r} {PATH_OF_OTHERS}"}
            )
        return self


class SecretKeyModel(Closed):
    name: ObjectName
    key: FileName
    """Which of its values."""


class ValueFromModel(Closed):
    not_taken: ClassVar[Mapping[str, str]] = {
        "configMapKeyRef": "a ConfigMap can change in place, and with it rows: give the `value`",
        "fieldRef": "what differs from pod to pod must not change rows",
        "resourceFieldRef": "what differs from pod to pod must not change rows",
    }

    secret_key_ref: SecretKeyModel
    """One value of a Secret of the topology's namespace."""


class VariableModel(Closed):
    name: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=128)]
    """Name of the variable."""
    value: Location | None = None
    """Its value. It stands in the topology, where everybody sees it who sees that."""
    value_from: ValueFromModel | None = None
    """Where its value is instead."""

    @model_validator(mode="after")
    def _one_value(self) -> Self:
        if (self.value is None) == (self.value_from is None):
            raise PydanticCustomError("variable", ONE_VALUE)
        if "\0" in (self.value or ""):
            raise PydanticCustomError("value", "value: holds a zero byte, which no variable can")
        if re.search(RESERVED_VARIABLES, self.name):
            raise PydanticCustomError("name", "name: {name}", {"name": f"{self.name!r} {VARIABLE_OF_OTHERS}"})
        return self


class CodeModel(Closed):
    config_map: ObjectName
    """ConfigMap of the topology's namespace with Python modules, and files that they read, one a key. It is on the import
    path of driver and executors."""
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$", max_length=64)]
    """What `sha256sum FILE... | sha256sum` says of its files in order of their names. Pods whose ConfigMap holds something
    else do not start, and another value is a change of code."""


class SecurityContextModel(Said):
    not_taken: ClassVar[Mapping[str, str]] = dict.fromkeys(
        (
            *(
                "privileged",
                "allowPrivilegeEscalation",
                "capabilities",
                "readOnlyRootFilesystem",
                "procMount",
            ),
            *(
                "runAsNonRoot",
                "seccompProfile",
                "appArmorProfile",
                "seLinuxOptions",
                "sysctls",
                "windowsOptions",
            ),
        ),
        _BOUNDARY,
    )

    run_as_user: Annotated[int, Field(ge=1, le=2_147_483_647, strict=True)] | None = None
    """User of all processes, never root; 10001 where it is not given. Java needs its name in /etc/passwd of the image."""
    run_as_group: Annotated[int, Field(ge=0, le=2_147_483_647, strict=True)] | None = None
    """Their group; 10001 where it is not given."""
    fs_group: Annotated[int, Field(ge=1, le=2_147_483_647, strict=True)] | None = None
    """Group that volumes are given to where their kind knows that; 10001 where it is not given."""
    supplemental_groups: list[Annotated[int, Field(ge=1, le=2_147_483_647, strict=True)]] = Field(
        default_factory=list, max_length=16
    )
    """Further groups."""
    fs_group_change_policy: Literal["Always", "OnRootMismatch"] | None = None
    """Whether the files of a volume are given to `fsGroup` each time, or where its folder is not."""


_OF_PODS: Mapping[str, str] = {
    **dict.fromkeys(("hostNetwork", "hostPID", "hostIPC", "hostAliases"), _BOUNDARY),
    **dict.fromkeys(("command", "args"), _FIRST),
    **dict.fromkeys(
        ("containers", "initContainers", "sidecars"),
        "a container that runs on keeps its pod from ending, and one that begins first has the pod's rights without the "
        "image's checks; " + _FIRST,
    ),
    **dict.fromkeys(("restartPolicy", "terminationGracePeriodSeconds", "lifecycle"), _ENDS),
    **dict.fromkeys(
        ("livenessProbe", "readinessProbe", "startupProbe"), "the agent answers for the pod; " + _ENDS
    ),
    "envFrom": "whatever another puts into it becomes a variable of every process; use `secrets`, or `env` with `valueFrom`",
    "resources": "plans rest on them: use `nodes.cpu`, `spark.executorMemory`, `driver` and `executor`",
    "serviceAccountName": "use `serviceAccount`",
    "automountServiceAccountToken": "the driver needs its token, and executors get none",
    "ports": "those of Spark are fixed, as network policies name them",
    "priorityClassName": "use `priorityClass`",
    "runtimeClassName": "is not known here",
    "schedulerName": "is not known here",
    **dict.fromkeys(
        ("template", "podTemplate"), "the fields of a pod that it may say are here by themselves"
    ),
}


class PodModel(Said):
    not_taken: ClassVar[Mapping[str, str]] = _OF_PODS

    labels: Annotated[
        dict[LabelKey, LabelValue],
        AfterValidator(lambda names: _none_of(RESERVED_LABELS, LABELS_OF_OTHERS, names)),
    ] = Field(default_factory=dict, max_length=32)
    """Further labels of these pods. Those of `reprise.dev`, `app.kubernetes.io` and Spark are not for topologies."""
    annotations: Annotated[
        dict[LabelKey, AnnotationValue],
        AfterValidator(lambda names: _none_of(RESERVED_ANNOTATIONS, ANNOTATIONS_OF_OTHERS, names)),
    ] = Field(default_factory=dict, max_length=16)
    """Further annotations of these pods."""
    env: list[VariableModel] = Field(default_factory=list, max_length=32)
    """Variables of these pods' containers, each name once. They count as code: another value takes effect after a drain."""
    node_selector: dict[LabelKey, LabelValue] = Field(default_factory=dict, max_length=16)
    """Labels that a Kubernetes node must have."""
    tolerations: list[TolerationModel] = Field(default_factory=list, max_length=16)
    """Taints that these pods tolerate, e.g. those of spot instances."""

    @model_validator(mode="after")
    def _each_once(self) -> Self:
        if twice := given_twice(variable.name for variable in self.env):
            raise PydanticCustomError("env", "env: {name} is given twice", {"name": repr(twice)})
        return self


class DriverModel(PodModel):
    cpu: Cpu = "1"
    """CPU request of the driver's pod."""
    memory: Bytes = "1536Mi"
    """Memory request and limit of the driver's pod; half of it is the heap."""
    storage: Bytes = "2Gi"
    """Most that the driver's pod may write to the disk of its Kubernetes node; it is ended beyond that."""
    affinity: AffinityModel | None = None
    """Which Kubernetes nodes it goes to."""


class ExecutorModel(PodModel):
    memory: Bytes | None = None
    """Memory request and limit of an executor's pod. By default `spark.executorMemory`, `recovery.bufferMemory`,
    `checkpoint.stateMemory` and 768Mi for Python."""
    storage: Bytes | None = None
    """Most that an executor's pod may write to the disk of its Kubernetes node; it is ended beyond that. By default
    `recovery.bufferDisk`, `checkpoint.localCopies`, `checkpoint.stateDisk` (where `stateMemory` is given) and 2Gi for
    Spark."""
    spread: Literal["required", "preferred", "none"] = "preferred"
    """Whether two executors of the topology may share a Kubernetes node: never, where it cannot be avoided, or freely. One
    with two executors is two of the topology's nodes that fail together."""
    affinity: AffinityModel | None = None
    """Which Kubernetes nodes they go to, in addition to `spread`."""
    topology_spread_constraints: TopologySpreads = Field(default_factory=list, max_length=8)
    """How evenly they are spread over zones, racks or pools; the executors of this topology are counted."""


class KubernetesModel(PodModel):
    image: Annotated[str, Field(min_length=1, max_length=512)] | None = None
    """Image of driver and executors; by default that of the operator. Add own operator classes in one built on it."""
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    """When the image is pulled."""
    image_pull_secrets: list[ObjectName] = Field(default_factory=list, max_length=8)
    """Secrets with which the image is pulled."""
    code: CodeModel | None = None
    """Modules of your own that are not in the image."""
    service_account: ObjectName | None = None
    """Service account of the driver, which asks for executors; by default the one that the chart makes. Executors get no
    token."""
    priority_class: ObjectName | None = None
    """Priority class of driver and executors."""
    security_context: SecurityContextModel = SecurityContextModel()
    """Who the processes of driver and executors are."""
    secrets: list[ObjectName] = Field(default_factory=list, max_length=8)
    """Secrets whose keys become environment variables of driver and executors, e.g. for an object store."""
    volumes: list[VolumeModel] = Field(default_factory=list, max_length=8)
    """Shared directories, e.g. for checkpoints and output, and Secrets as files; each in a place of its own."""
    driver: DriverModel = DriverModel()
    """The driver's pod; what it says of a label, a variable and so on stands above what is said for both."""
    executor: ExecutorModel = ExecutorModel()
    """The pods of the executors, one a node; their CPU is `nodes.cpu`, their number `nodes.count`. What it says of a label,
    a variable and so on stands above what is said for both."""

    @model_validator(mode="after")
    def _places_of_their_own(self) -> Self:
        place = given_twice(volume.mount_path.rstrip("/") for volume in self.volumes)
        if place is not None:
            raise PydanticCustomError("volumes", "volumes: two are mounted at {path}", {"path": repr(place)})
        return self
