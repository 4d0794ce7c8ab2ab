"""The chart grants what the end-to-end tests run with (`tests/kubernetes/rbac.py`), and nothing else; and what it grants the
operator is asked for somewhere.

The other way round, that nothing is asked for without a right, is seen by those tests alone: their API server writes down
whom it has refused what (`tests/kubernetes/audit.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.kubernetes import rbac
from tests.support.chart import of_kind, render

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.slow  # helm is started
Right = tuple[str, str, str]
"""API group, resource, verb."""


_CR = "reprise.dev"
_PODS = "controller/operator/pods"
_STATUS = "controller/operator/status/publisher.py"
_HANDLERS = "controller/operator/handlers.py"
_LEASE = "controller/kubernetes/lease.py"
_INFORMER = "controller/kubernetes/informer.py"
_APPLY = 'api.apply(f"{folder}/{'
CALLS: dict[Right, tuple[str, str]] = {
    (_CR, "streamtopologies", "list"): (_HANDLERS, "kopf.daemon(*topologies"),
    (_CR, "streamtopologies", "watch"): (_HANDLERS, "kopf.on.event(*topologies"),
    (_CR, "streamtopologies", "patch"): (_HANDLERS, "settings.persistence.finalizer = FINALIZER"),
    (_CR, "streamtopologies/status", "patch"): (_STATUS, 'self._path("streamtopologies", self.reference.name)'),
    (_CR, "incidents", "get"): (_STATUS, "found = self.api.find(path)"),
    (_CR, "incidents", "create"): (_STATUS, 'self._create("incidents", '),
    (_CR, "incidents", "delete"): (_STATUS, 'api.delete(self._path("incidents", name))'),
    (_CR, "incidents/status", "patch"): (_STATUS, 'self._write(self._path("incidents", name), '),
    (_CR, "recoveryplans", "get"): (_STATUS, 'self.api.find(self._path("recoveryplans", name))'),
    (_CR, "recoveryplans", "list"): (_STATUS, 'self.api.list(self._folder("recoveryplans")'),
    (_CR, "recoveryplans", "create"): (_STATUS, 'self._create("recoveryplans", '),
    (_CR, "recoveryplans", "delete"): (_STATUS, 'api.delete(self._path("recoveryplans", '),
    (_CR, "recoveryplans/status", "patch"): (_STATUS, 'api.apply(f"{path}/status", body)'),
    ("", "pods", "get"): (f"{_PODS}/removal.py", "self.api.find(self._path(name))"),
    ("", "pods", "list"): (_INFORMER, "self._api.pages(self.path"),
    ("", "pods", "watch"): (_INFORMER, "self._api.watch(self.path"),
    ("", "pods", "create"): (f"{_PODS}/driver.py", "self.api.create(pods, pod)"),
    ("", "pods", "delete"): (f"{_PODS}/executors.py", "api.delete(path, uid=pod.uid, grace_s=0)"),
    ("", "pods/status", "patch"): (f"{_PODS}/executors.py", 'api.patch(f"{path}/status", '),
    ("", "configmaps", "create"): (f"{_PODS}/driver.py", f"{_APPLY}config"),
    ("", "configmaps", "patch"): (f"{_PODS}/driver.py", f"{_APPLY}config"),
    ("networking.k8s.io", "networkpolicies", "create"): (f"{_PODS}/driver.py", f"{_APPLY}body"),
    ("networking.k8s.io", "networkpolicies", "patch"): (f"{_PODS}/driver.py", f"{_APPLY}body"),
    ("", "secrets", "create"): (f"{_PODS}/zk_mounts.py", 'api.create(collection(resource.namespace, "secrets"), body)'),
    ("", "events", "list"): (f"{_PODS}/capacity_forecaster.py", 'collection(self.namespace, "events")'),
    ("", "events", "create"): ("controller/kubernetes/events.py", "api.apply(path, body)"),
    ("", "events", "patch"): ("controller/kubernetes/events.py", "api.apply(path, body)"),
    ("coordination.k8s.io", "leases", "get"): (_LEASE, "self._api.find(self._path)"),
    ("coordination.k8s.io", "leases", "create"): (_LEASE, "self._api.create(self._folder, "),
    ("coordination.k8s.io", "leases", "update"): (_LEASE, "self._api.replace(self._path, "),
    ("", "configmaps", "get"): (
        "controller/operator/loop/runtime.py", "self.api.find(f\"{collection(settings.namespace, 'configmaps')}",
    ),
    ("", "nodes", "list"): ("controller/operator/loop/runtime.py", 'collection("", "nodes")'),
    ("", "nodes", "watch"): ("controller/operator/loop/runtime.py", 'collection("", "nodes")'),
}  # fmt: skip
"""For each right of the operator a place that uses it: file, and what stands there.  A server-side apply is a patch, and
where there is nothing yet a create as well.  kopf lists and watches what has handlers, and patches it for its finalizer."""


def rights(rules: Iterable[Mapping[str, Any]]) -> set[Right]:
    return {
        (g, r, v)
        for rule in rules
        for g in rule["apiGroups"]
        for r in rule["resources"]
        for v in rule["verbs"]
    }


def granted(kind: str, name: str, **values: str) -> set[Right]:
    roles = [role for role in of_kind(render(**values), kind) if role["metadata"]["name"] == name]
    assert roles, f"the chart makes no {kind} {name}"
    return rights(rule for role in roles for rule in role["rules"])


def test_the_operators_rights_are_those_of_the_tests() -> None:
    assert granted("Role", "rec-operator") == rights(rbac.OPERATOR)
    assert granted("Role", "rec-operator-leader") == rights(rbac.OPERATOR_HOME)


def test_the_operator_uses_every_right_that_the_chart_grants() -> None:
    secrets = {"zookeeper__auth__enabled": "true", "zookeeper__auth__secret": "key"}
    given = granted("Role", "rec-operator", **secrets) | granted("Role", "rec-operator-leader")
    given |= granted("ClusterRole", "streams-rec-operator-nodes", rbac__readNodes="true")
    given |= granted("ClusterRole", "streams-rec-operator-capacity", rbac__readCapacity="true")
    assert given == set(CALLS)
    for right, (file, text) in CALLS.items():
        assert text in (ROOT / file).read_text(encoding="utf-8"), f"nothing uses {right} any more"


def test_reading_nodes_is_a_choice_and_nothing_more() -> None:
    found = granted("ClusterRole", "streams-rec-operator-nodes", rbac__readNodes="true")
    assert found == rights(rbac.OPERATOR_CLUSTER)


def test_reading_all_pods_is_a_choice_and_nothing_more() -> None:
    found = granted("ClusterRole", "streams-rec-operator-capacity", rbac__readCapacity="true")
    assert found == rights(rbac.OPERATOR_CAPACITY)
    assert "streams-rec-operator-capacity" not in {
        r["metadata"]["name"] for r in of_kind(render(), "ClusterRole")
    }


def test_the_drivers_rights_are_those_of_the_tests() -> None:
    assert granted("Role", "reprise-driver") == rights(rbac.DRIVER)
