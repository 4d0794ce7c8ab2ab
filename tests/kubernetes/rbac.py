"""What operator and driver may do: the least with which the end-to-end tests pass.

The chart's templates hold the same rules; `tests/unit/chart/test_rights.py` compares the two, both ways.
"""

from __future__ import annotations

from typing import Any

from tests.kubernetes.audit import Asked

GROUP = "reprise.dev"


def _rule(group: str, resources: list[str], verbs: list[str]) -> dict[str, Any]:
    return {"apiGroups": [group], "resources": resources, "verbs": verbs}


OPERATOR = [
    _rule(GROUP, ["streamtopologies"], ["list", "watch", "patch"]),  # patch: the finalizer
    _rule(GROUP, ["incidents"], ["get", "create", "delete"]),
    # list: what an operator before has proposed
    _rule(GROUP, ["recoveryplans"], ["get", "list", "create", "delete"]),
    _rule(GROUP, ["streamtopologies/status", "incidents/status", "recoveryplans/status"], ["patch"]),
    _rule("", ["pods"], ["get", "list", "watch", "create", "delete"]),
    _rule("", ["pods/status"], ["patch"]),  # phase Failed, so that Spark lets go of a lost executor
    _rule("", ["configmaps"], ["create", "patch"]),  # the driver's; server-side apply
    _rule("networking.k8s.io", ["networkpolicies"], ["create", "patch"]),  # one a topology; server-side apply
    _rule("", ["events"], ["list", "create", "patch"]),  # list: an autoscaler's, on pods that wait
]
"""In each namespace with topologies."""

OPERATOR_HOME = [
    _rule("coordination.k8s.io", ["leases"], ["get", "create", "update"]),
    _rule("", ["configmaps"], ["get"]),  # the switches
]
"""In its own namespace."""

OPERATOR_CAPACITY = [_rule("", ["pods"], ["list", "watch"])]
"""Optional: all pods of the cluster, to know what room machines have."""

OPERATOR_CLUSTER = [_rule("", ["nodes"], ["list", "watch"])]
"""Optional: without it a lost machine is seen by heartbeats alone."""

DRIVER = [_rule("", ["pods"], ["get", "list", "watch", "create", "delete"])]
"""What Spark's scheduler backend asks for.  `delete`: an executor that has failed by itself."""

REFUSED = {Asked("reprise-driver", "", "pods", "deletecollection")}
"""What is asked for and not granted: at its end Spark would delete its executors all at once; they go with the driver's pod,
which owns them, instead."""
