"""What a topology says of its pods, laid under what recovery and the boundaries of docs/security.md rest on.

Which names a topology may use is checked when its spec is read; here the operator's own stand above them all the same, so
that no list of names has to be complete for a pod to be who it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reprise.controller.agent import user_code
from reprise.controller.crd.convert import TOPOLOGY_LABEL
from reprise.controller.kubernetes.pods import LOST_TAINTS, ROLE_LABEL
from reprise.spark_jobs.topology import StreamTopology
from reprise.spark_jobs.topology.pods import PodSettings, Toleration, Variable

USER = 10001
"""Of the image."""
_READABLE, _READABLE_TO_ALL = 0o440, 0o444
_ANTI, _REQUIRED, _PREFERRED = (
    "podAntiAffinity",
    "requiredDuringSchedulingIgnoredDuringExecution",
    "preferredDuringSchedulingIgnoredDuringExecution",
)


def names(said: Mapping[str, str], ours: Mapping[str, str]) -> dict[str, str]:
    """Labels or annotations."""
    return {**said, **ours}


def environment(
    pod: PodSettings, ours: Sequence[Mapping[str, Any]], resource: StreamTopology
) -> list[dict[str, Any]]:
    """Variables, each once: of two with one name Kubernetes takes the later one."""
    code = resource.kubernetes.code
    of_code = [] if code is None else user_code.variables(code.sha256)
    taken = {str(entry["name"]) for entry in (*ours, *of_code)}
    said = [_variable(variable) for variable in pod.env if variable.name not in taken]
    return [*said, *map(dict, ours), *of_code]


def _variable(variable: Variable) -> dict[str, Any]:
    if not variable.secret:
        return {"name": variable.name, "value": variable.value.replace("$", "$$")}  # nothing is expanded
    reference = {"name": variable.secret, "key": variable.key}
    return {"name": variable.name, "valueFrom": {"secretKeyRef": reference}}


def volumes(resource: StreamTopology) -> list[dict[str, Any]]:
    """Claims, Secrets and code; all of the topology's namespace."""
    kubernetes = resource.kubernetes
    found: list[dict[str, Any]] = []
    for index, volume in enumerate(kubernetes.volumes):
        if volume.secret:
            secret = {"secretName": volume.secret, "defaultMode": _READABLE}
            found.append({"name": f"secret-{index}", "secret": secret})
        else:
            claim = {"claimName": volume.claim, "readOnly": volume.read_only}
            found.append({"name": f"claim-{index}", "persistentVolumeClaim": claim})
    if kubernetes.code is not None:
        code = {"name": kubernetes.code.config_map, "defaultMode": _READABLE_TO_ALL}
        found.append({"name": "code", "configMap": code})
    return found


def mounts(resource: StreamTopology) -> list[dict[str, Any]]:
    """Where they are seen."""
    found = [
        {
            "name": f"{'secret' if volume.secret else 'claim'}-{index}",
            "mountPath": volume.mount_path,
            "readOnly": volume.read_only,
        }
        for index, volume in enumerate(resource.kubernetes.volumes)
    ]
    if resource.kubernetes.code is not None:
        found.append({"name": "code", "mountPath": user_code.MOUNTED, "readOnly": True})
    return found


def needs(resource: StreamTopology, image: str) -> str:
    """What must be there before the containers of a pod start; `image`: where the topology names none."""
    kubernetes = resource.kubernetes
    of_variables = (v.secret for pod in (kubernetes.driver, kubernetes.executor) for v in pod.env)
    of_volumes = (volume.secret for volume in kubernetes.volumes)
    found = [f"the image {kubernetes.image or image}"]
    if kubernetes.code is not None:
        found.append(f"the ConfigMap {kubernetes.code.config_map}")
    named = dict.fromkeys(name for name in (*kubernetes.secrets, *of_variables, *of_volumes) if name)
    found += [f"the Secret {name}" for name in named]
    found += [f"the claim {volume.claim}" for volume in kubernetes.volumes if volume.claim]
    return ", ".join(found)


def security(resource: StreamTopology) -> dict[str, Any]:
    """A topology says who the pod's processes are, never that they are root."""
    return {
        "runAsUser": USER,
        "runAsGroup": USER,
        "fsGroup": USER,
        **resource.kubernetes.security,
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def tolerations(pod: PodSettings, machine_lost_s: int) -> list[dict[str, Any]]:
    """Those of the topology, and for a machine that is lost a short one: Kubernetes would add 300 s to a pod that says
    nothing, and for so long nobody would end a driver on a machine that is gone.  A topology that names such a taint has
    its way; one that tolerates everything means those of its machines' pools, and the shortest time counts."""
    found = [_toleration(t) for t in pod.tolerations]
    named = {t.get("key") for t in found if t.get("effect", "NoExecute") == "NoExecute"}
    for taint in LOST_TAINTS:
        if taint not in named:
            found.append(
                {
                    "key": taint,
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": machine_lost_s,
                }
            )
    return found


def _toleration(t: Toleration) -> dict[str, Any]:
    found = {"key": t.key, "operator": t.operator, "value": t.value, "effect": t.effect,
             "tolerationSeconds": t.toleration_seconds}  # fmt: skip
    return {key: value for key, value in found.items() if value is not None}


def executor_affinity(resource: StreamTopology) -> dict[str, Any]:
    """What the topology says, and besides: two executors on one machine are two nodes that fail together."""
    said = dict(resource.kubernetes.executor.affinity)
    term = {"labelSelector": _executors(resource), "topologyKey": "kubernetes.io/hostname"}
    rules: dict[str, tuple[str, dict[str, Any]]] = {
        "required": (_REQUIRED, term),
        "preferred": (_PREFERRED, {"weight": 100, "podAffinityTerm": term}),
    }
    if (rule := rules.get(resource.kubernetes.spread)) is not None:
        kind, ours = rule
        away = dict(said.get(_ANTI) or {})
        said[_ANTI] = {**away, kind: [*away.get(kind, []), ours]}
    return said


def spread_constraints(resource: StreamTopology) -> list[dict[str, Any]]:
    """Over executors of this topology, whatever else has its labels."""
    said = resource.kubernetes.executor.spread_constraints
    return [{**constraint, "labelSelector": _executors(resource)} for constraint in said]


def _executors(resource: StreamTopology) -> dict[str, Any]:
    return {"matchLabels": {TOPOLOGY_LABEL: resource.name, ROLE_LABEL: "executor"}}
