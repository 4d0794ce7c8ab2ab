"""What a spec may ask for where this operator works: namespaces, service accounts, Secrets, ConfigMaps, Spark properties.

Whoever may create a StreamTopology makes the operator's account create pods.  Without this list, "may create topologies"
would mean "may use every account and read every Secret of the namespace".  What it cannot do is bind the code of a
topology: its driver may create pods, so a namespace is shared by topologies that trust each other
(docs/security.md).

The operator's own account is refused whatever the list says, and so are topologies beside the operator unless that was
asked for: a driver there could end the operator, or take its account through a pod of its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

from reprise.controller.operator.pods import zk_mounts
from reprise.controller.operator.settings import OperatorSettings
from reprise.spark_jobs.errors import SpecError
from reprise.spark_jobs.topology import StreamTopology

_PROPERTIES = (
    ("spark.authenticate*", "is set by the operator"),
    ("spark.network.crypto*", "is set by the operator"),
    ("spark.kubernetes.authenticate*", "names an account or its credentials; use kubernetes.serviceAccount"),
    ("spark.kubernetes.*.secrets.*", "names a Secret; use kubernetes.secrets"),
    ("spark.kubernetes.*.secretkeyref.*", "names a Secret; use kubernetes.secrets"),
    ("spark.kubernetes.*.volumes.*", "mounts a volume; use kubernetes.volumes"),
    ("spark.kubernetes.*podtemplate*", "describes pods; use kubernetes"),
    ("spark.kubernetes.kerberos*", "names a Secret; use kubernetes.secrets"),
    ("spark.kubernetes.*pullsecrets", "names a Secret; use kubernetes.imagePullSecrets"),
    (
        "spark.kubernetes.executor.container.image",
        "names an image; use kubernetes.image, which driver and executors share",
    ),
    (
        "spark.kubernetes.executor.label.*",
        "names a label of pods; use labels of kubernetes or kubernetes.executor",
    ),
    (
        "spark.kubernetes.executor.annotation.*",
        "names an annotation of pods; use annotations of kubernetes or kubernetes.executor",
    ),
    ("spark.kubernetes.*configmapname", "names a ConfigMap; use kubernetes.code"),
    ("spark.kubernetes.*securitycontext.*", "loosens what holds a pod; see kubernetes.securityContext"),
    (
        "spark.kubernetes.executor.terminationgraceperiodseconds",
        "says when a pod has ended, by which recovery goes; the operator sets it",
    ),
    ("spark.executorenv.*", "names a variable of pods; use env of kubernetes or kubernetes.executor"),
)
"""Ways round the fields below, in small letters; all else that a property says concerns the topology alone."""


def permit(resource: StreamTopology, settings: OperatorSettings) -> None:
    """SpecError with field and reason for what it asks for and may not have."""
    _namespace(resource, settings)
    _account(resource, settings)
    for field, name in _secrets_named(json.loads(resource.document)["spec"]["kubernetes"]):
        _secret(field, name, settings)
    _code(resource, settings)
    _properties(resource)


def _namespace(resource: StreamTopology, settings: OperatorSettings) -> None:
    if resource.namespace == settings.namespace and not settings.own_namespace:
        raise SpecError(
            "metadata.namespace",
            f"{resource.namespace!r} is the operator's own, where the code of a topology could end it or take its rights; "
            "use another namespace, or set watch.allowOwnNamespace in the chart",
        )


def _account(resource: StreamTopology, settings: OperatorSettings) -> None:
    name, field = resource.kubernetes.service_account, "spec.kubernetes.serviceAccount"
    if name is None or name == settings.driver_account:
        return
    if name == settings.own_account and resource.namespace == settings.namespace:
        raise SpecError(field, f"{name!r} is the operator's own account, which no topology may have")
    if not _among(name, settings.accounts):
        raise SpecError(
            field, f"{name!r} is not among the accounts that topologies may have ({_list(settings.accounts)})"
        )


def _secrets_named(kubernetes: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Field and name of each Secret."""
    for part in ("secrets", "imagePullSecrets"):
        for index, name in enumerate(kubernetes.get(part, ())):
            yield f"spec.kubernetes.{part}[{index}]", name
    for index, volume in enumerate(kubernetes.get("volumes", ())):
        if "secret" in volume:
            yield f"spec.kubernetes.volumes[{index}].secret", volume["secret"]
    for part, of in (
        ("", kubernetes),
        (".driver", kubernetes["driver"]),
        (".executor", kubernetes["executor"]),
    ):
        for variable in of.get("env", ()):
            if "valueFrom" in variable:
                field = f"spec.kubernetes{part}.env[{variable['name']}].valueFrom.secretKeyRef.name"
                yield field, variable["valueFrom"]["secretKeyRef"]["name"]


def _secret(field: str, name: str, settings: OperatorSettings) -> None:
    if name in settings.own_secrets:
        raise SpecError(field, f"{name!r} is the control plane's own")
    if name == settings.zk_tls_secret or name.startswith(zk_mounts.PREFIX):
        raise SpecError(field, f"{name!r} is for the way to ZooKeeper alone")
    if not _among(name, settings.secrets):
        allowed = _list(settings.secrets)
        raise SpecError(field, f"{name!r} is not among the Secrets that topologies may have ({allowed})")


def _code(resource: StreamTopology, settings: OperatorSettings) -> None:
    code = resource.kubernetes.code
    if code is not None and not _among(code.config_map, settings.config_maps):
        raise SpecError(
            "spec.kubernetes.code.configMap",
            f"{code.config_map!r} is not among the ConfigMaps that topologies may have ({_list(settings.config_maps)})",
        )


def _properties(resource: StreamTopology) -> None:
    for name in resource.spark.conf:
        for pattern, reason in _PROPERTIES:
            if fnmatchcase(name.lower(), pattern):
                raise SpecError(f"spec.spark.conf[{name}]", reason)


def _among(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _list(patterns: tuple[str, ...]) -> str:
    return ", ".join(patterns) or "none"
