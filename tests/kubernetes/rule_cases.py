"""What an API server must refuse, and what it must take: one table for the rules of the three kinds.

Each case changes a good object; where `old` is given it is an update of that one.  Most mistakes in a topology are refused
by `reprise validate` too; `also_offline` says which.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from reprise.algorithms.model import CODES
from reprise.controller.crd.base import TopologyReference
from reprise.controller.crd.convert import incident_object, incident_status, plan_object
from reprise.scheduler.incident import (
    Candidate,
    Event,
    Incident,
    Kind,
    LostNode,
    Phase,
    PlanRecord,
    QueryTimeline,
    Trigger,
)

Object = dict[str, Any]
Change = Callable[[Object], None]
NAMESPACE = "streams"

_KEYED = {"name": "count", "class": "reprise.spark_jobs.operators:KeyedCount", "parallelism": 3, "with": {"keys": ["tag"]},
          "inputs": [{"from": "parser", "by": ["tag"]}], "output": {"priority": 3, "priorities": {"1": 7}}}  # fmt: skip
_PARSER = {"name": "parser", "class": "reprise.spark_jobs.operators:FlatMap", "parallelism": 2,
           "with": {"explode": ["hashtags"], "select": ["hashtags AS tag"]},
           "inputs": [{"from": "tweets", "forward": True}]}  # fmt: skip
_TWEETS = {
    "name": "tweets",
    "class": "reprise.spark_jobs.sources:HashtagSource",
    "parallelism": 2,
    "with": {"rate": 10},
}
TOPOLOGY: Object = {
    "apiVersion": "reprise.dev/v1alpha1",
    "kind": "StreamTopology",
    "metadata": {"name": "good", "namespace": NAMESPACE},
    "spec": {
        "sources": [_TWEETS],
        "operators": [_PARSER, _KEYED],
        "checkpoint": {"everyBatches": 10, "location": "/data/good"},
        "nodes": {"count": 3, "cpu": "200m"},
        "kubernetes": {"tolerations": [{"key": "spot", "operator": "Exists", "effect": "NoExecute"}]},
    },
}
REFERENCE = TopologyReference(name="good", uid="0b5f")
INCIDENT_RECORD = Incident(
    "inc-000007", Kind.CORRELATED, Phase.RECOVERING, 1_760_000_000.5, 40, 2, 4, 1_760_000_001.5,
    lost=(LostNode("a#1", 1_760_000_000.5),), plans=("inc-000007-p1",), queries={"count.0": QueryTimeline(1.0, 2.0)},
    events=(Event.of(1_760_000_000.5, "opened", "x" * 900),),
)  # fmt: skip
PLAN_RECORD = PlanRecord(
    "inc-000007-p1", "inc-000007", 1_760_000_002.0, Trigger.FIRST, True, 40, 2, {"b#1": 90},
    (Candidate("count.0", 3, 60),),
    {"algorithm": "dp", "value": 3, "bound": 3, "optimal": True, "cost": 60, "why": "small",
     "chosen": [{"query": "count.0", "priority": 3, "cost": 60, "cost_alone": 60, "restores": ["count.0"]}],
     "excluded": [{"query": "count.1", "code": next(iter(CODES)), "missing_capacity": 30}]},
    {"count.0": "b#1"}, 0.001, {"count.1": "needs 30 more"},
)  # fmt: skip
INCIDENT = incident_object(INCIDENT_RECORD, REFERENCE, NAMESPACE)
INCIDENT_STATUS = incident_status(INCIDENT_RECORD, "good", PLAN_RECORD, {"count.1": 7})
PLAN = plan_object(PLAN_RECORD, REFERENCE, NAMESPACE, {"count.1": 7})


_TERM = {"matchExpressions": [{"key": "pool", "operator": "NotIn", "values": ["slow"]}]}
_POD = {
    "labels": {"team": "a", "example.com/team": "b"},
    "annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"},
    "env": [
        {"name": "LEVEL", "value": "3"},
        {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "topology-a", "key": "token"}}},
    ],
    "nodeSelector": {"pool": "a"},
    "tolerations": [{"key": "spot", "operator": "Exists"}],
}
_AFFINITY = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [_TERM]},
        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 5, "preference": _TERM}],
    }
}
PODS: Object = {
    **_POD,
    "code": {"configMap": "topology-code", "sha256": "0" * 64},
    "securityContext": {"runAsUser": 7, "fsGroup": 8, "fsGroupChangePolicy": "OnRootMismatch"},
    "volumes": [
        {"claim": "data", "mountPath": "/data"},
        {"secret": "topology-tls", "mountPath": "/etc/kafka"},
    ],
    "driver": {**_POD, "affinity": _AFFINITY},
    "executor": {**_POD, "affinity": _AFFINITY, "topologySpreadConstraints": [{"topologyKey": "zone"}]},
}
"""All that a topology may say of its pods."""


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    new: Object
    refused: str
    """Part of the message; empty when it must be taken."""
    old: Object | None = None
    also_offline: bool = True


def changed(base: Object, *changes: Change) -> Object:
    """A copy of an object with changes."""
    found = copy.deepcopy(base)
    for change in changes:
        change(found)
    return found


def at(path: str, value: Any) -> Change:
    """Sets a field, `operators.1.parallelism` for instance, below spec; a leading dot is the whole object."""

    def change(found: Object) -> None:
        *parents, last = path.removeprefix(".").split(".")
        target: Any = found if path.startswith(".") else found["spec"]
        for step in parents:
            target = target[int(step)] if isinstance(target, list) else target.setdefault(step, {})
        target[int(last) if isinstance(target, list) else last] = value

    return change


def without(path: str) -> Change:
    """Removes a field below spec."""

    def change(found: Object) -> None:
        *parents, last = path.split(".")
        target: Any = found["spec"]
        for step in parents:
            target = target[int(step)] if isinstance(target, list) else target[step]
        del target[int(last) if isinstance(target, list) else last]

    return change


def _bad(name: str, refused: str, *changes: Change, offline: bool = True) -> Case:
    return Case(name, changed(TOPOLOGY, *changes), refused, also_offline=offline)


STARTED = at(".status", {"startedAt": "2026-01-01T00:00:00.000000Z"})
RUNNING = changed(TOPOLOGY, STARTED)


def _update(name: str, refused: str, *changes: Change, old: Object = RUNNING) -> Case:
    return Case(name, changed(old, *changes), refused, old, also_offline=False)


COUNT, PARSE = "operators.1", "operators.0"
MISTAKES = [
    _bad("name-twice", "same name", at(f"{COUNT}.name", "tweets")),
    _bad("input-of-nobody", "not there", at(f"{COUNT}.inputs.0.from", "parsr")),
    _bad("no-output", "no operator has an `output`", without(f"{COUNT}.output")),
    _bad("forward-of-unequal", "same parallelism", at("sources.0.parallelism", 3)),
    _bad("all-feedback", "all feedback", at(f"{PARSE}.inputs.0.feedback", True)),
    _bad("no-grouping", "how rows reach them", without(f"{COUNT}.inputs.0.by")),
    _bad("no-such-partition", "partition that is not there", at(f"{COUNT}.output.priorities", {"3": 7})),
    _bad("two-groupings", "only one of `by`", at(f"{COUNT}.inputs.0.broadcast", True)),
    _bad("two-rhythms", "only one of `interval`", at("checkpoint.interval", "5s")),
    _bad(
        "too-many-partitions",
        "more than 10000 partitions",
        at(
            "operators",
            [
                *(
                    {
                        **_KEYED,
                        "name": f"count-{k}",
                        "parallelism": 1024,
                        "inputs": [{"from": "tweets", "by": ["tweet"]}],
                    }
                    for k in range(10)
                )
            ],
        ),
    ),
    _bad(
        "active-beside-what-a-replay-may-change",
        "says `deterministic: false`",
        at(f"{COUNT}.availability", "active-standby"),
        at(f"{PARSE}.deterministic", False),
        at(f"{PARSE}.availability", "passive-standby"),
    ),
    _bad(
        "active-and-a-replay-may-change-it",
        "says `deterministic: false`",
        at(f"{COUNT}.availability", "active-standby"),
        at(f"{COUNT}.deterministic", False),
    ),
    _bad("no-priority", "less than or equal to 10", at(f"{COUNT}.output.priority", 11)),
    _bad("no-duration", "should match", at("batch", {"interval": "5"})),
    _bad("no-time", "more than 0", at("batch", {"interval": "0ms"})),
    _bad("no-cpu", "should match", at("nodes.cpu", "0m")),
    _bad("password-in-location", "holds credentials", at("checkpoint.location", "ftp://me:pw@store/x")),
    _bad("password-in-standby", "holds credentials", at("checkpoint.standby", ["https://store/x?Sig=abc"])),
    _bad("password-in-sink", "holds credentials", at("sink", {"location": "sftp://me:pw@store/x"})),
    _bad("float-cpu", "", at("nodes.cpu", 0.5)),
    _bad("no-class", "should match", at(f"{COUNT}.class", "KeyedCount")),
    _bad(
        "subscribed-twice", "Duplicate value", at(f"{COUNT}.inputs", [{"from": "parser", "by": ["tag"]}] * 2)
    ),
    _bad(
        "toleration-of-nothing",
        "must be Exists",
        at("kubernetes.tolerations", [{"value": "x"}]),
    ),
    _bad(
        "seconds-of-another-effect",
        "the effect NoExecute only",
        at("kubernetes.tolerations", [{"key": "a", "operator": "Exists", "tolerationSeconds": 3}]),
    ),
    _bad("label-of-ours", "pods are found", at("kubernetes.labels", {"reprise.dev/role": "x"})),
    _bad("label-of-spark", "pods are found", at("kubernetes.executor", {"labels": {"spark-role": "x"}})),
    _bad(
        "annotation-of-ours",
        "the operator's",
        at("kubernetes.driver", {"annotations": {"reprise.dev/a": "x"}}),
    ),
    _bad(
        "annotation-of-a-runtime",
        "loosens what holds a pod",
        at("kubernetes.executor", {"annotations": {"io.kubernetes.cri-o.Devices": "/dev/sda"}}),
    ),
    _bad(
        "variable-of-ours",
        "and the image to set",
        at("kubernetes.env", [{"name": "PYTHONPATH", "value": "x"}]),
    ),
    _bad(
        "options-of-every-java",
        "and the image to set",
        at("kubernetes.driver", {"env": [{"name": "JAVA_TOOL_OPTIONS", "value": "-Dspark.a=b"}]}),
    ),
    _bad("variable-twice", "Duplicate value", at("kubernetes.env", [{"name": "A", "value": "x"}] * 2)),
    _bad(
        "two-values",
        "one of `value` and `valueFrom`",
        at(
            "kubernetes.executor",
            {"env": [{"name": "A", "value": "x", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]},
        ),
    ),
    _bad("no-value", "one of `value` and `valueFrom`", at("kubernetes.driver", {"env": [{"name": "A"}]})),
    _bad(
        "two-volumes-in-one",
        "one of `claim` and `secret`",
        at("kubernetes.volumes", [{"claim": "a", "secret": "b", "mountPath": "/a"}]),
    ),
    _bad("volume-of-nothing", "one of `claim` and `secret`", at("kubernetes.volumes", [{"mountPath": "/a"}])),
    _bad(
        "volume-over-the-image",
        "use another folder",
        at("kubernetes.volumes", [{"claim": "a", "mountPath": "/opt/reprise/lib"}]),
    ),
    _bad(
        "volume-over-it-by-a-detour",
        "use another folder",
        at("kubernetes.volumes", [{"claim": "a", "mountPath": "/data/../opt/reprise"}]),
    ),
    _bad("root", "greater than or equal to 1", at("kubernetes.securityContext", {"runAsUser": 0})),
    _bad("no-hash", "should match", at("kubernetes.code", {"configMap": "topology-code", "sha256": "1"})),
    _bad("long-name", "", at(".metadata.name", "x" * 41)),
]
GOOD = [
    Case("as-it-is", TOPOLOGY, ""),
    _bad("integer-cpu", "", at("nodes.cpu", 2)),
    _bad("small-cpu", "", at("nodes.cpu", "0.25")),
    _bad("days", "", at("recovery", {"window": "1d12h"})),
    _bad("own-pods", "", at("kubernetes", PODS)),
    _bad("active", "", at(f"{COUNT}.availability", "active-standby"), at(f"{PARSE}.deterministic", True)),
    _bad(
        "passive-beside-what-a-replay-may-change",
        "",
        at(f"{COUNT}.availability", "passive-standby"),
        at(f"{PARSE}.availability", "passive-standby"),
        at(f"{PARSE}.deterministic", False),
    ),
    _bad("free-parameters", "", at(f"{PARSE}.with.where", "hashtags IS NOT NULL")),
]
TRANSITIONS = [
    _update("parallelism-while-running", "parallelism of an operator that stays", at(f"{COUNT}.parallelism", 4)),
    _update("operator-gone-and-another-reads-elsewhere", "inputs of an operator that stays", at("operators", [
        {**_KEYED, "inputs": [{"from": "tweets", "by": ["tag"]}]}])),
    _update("query-that-comes-while-running", "", at("operators", [_PARSER, _KEYED, {**_KEYED, "name": "again"}])),
    _update("query-that-goes-while-running", "", at("operators", [{**_PARSER, "output": {"priority": 1}}])),
    _update("input-while-running", "inputs of an operator that stays",
            at(f"{COUNT}.inputs", [{"from": "parser", "broadcast": True}])),
    _update("source-while-running", "parallelism of sources are immutable", at("sources.0.parallelism", 3),
            at(f"{PARSE}.inputs", [{"from": "tweets", "by": ["tweet"]}])),
    _update("location-while-running", "checkpoint.location is immutable", at("checkpoint.location", "/else")),
    _update("no-location-while-running", "checkpoint.location is immutable", without("checkpoint.location")),
    _update("priority-while-running", "", at(f"{COUNT}.output", {"priority": 9})),
    _update("pause-while-running", "", at("paused", True)),
    _update("nodes-while-running", "", at("nodes.count", 9)),
    _update("class-while-running", "", at(f"{COUNT}.with", {"keys": ["tag", "time"]})),
    _update("parallelism-before-start", "", at(f"{COUNT}.parallelism", 4), old=TOPOLOGY),
]  # fmt: skip
DONE = at(".status", {"state": "Done"})
RECORDS = [
    Case("incident", INCIDENT, ""),
    Case("plan", PLAN, ""),
    Case("incident-rewritten", changed(INCIDENT, at("nodesBefore", 9)), "immutable", INCIDENT),
    Case("plan-rewritten", changed(PLAN, at("value", 9)), "immutable", PLAN),
    Case(
        "plan-done-stays",
        changed(PLAN, at(".status", {"state": "Executing"})),
        "stays so",
        changed(PLAN, DONE),
    ),
    Case("plan-executed", changed(PLAN, DONE), "", changed(PLAN, at(".status", {"state": "Executing"}))),
]
