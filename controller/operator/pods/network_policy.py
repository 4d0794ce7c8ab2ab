"""Who may reach the pods of one topology, and where these may not go: a NetworkPolicy for each topology.

The operator makes it and not the chart: a policy in a chart can say "pods that have the label of a topology", but not "of
the same topology as this one", and topologies come and go.  Policies add up, so the chart's own one for all topologies
opens nothing between them.  Spark's processes refuse each other's calls without the application's secret as well; a
cluster that enforces no policies has that alone.

Invariant: it is there before the first pod that it is for.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from ipaddress import ip_network
from typing import Any

from reprise.controller.crd.convert import TOPOLOGY_LABEL
from reprise.controller.crd.crds import GROUP
from reprise.controller.operator.settings import OperatorSettings
from reprise.spark_jobs.topology import StreamTopology

API_GROUP = "networking.k8s.io"
PLURAL = "networkpolicies"
MARK = f"{GROUP}/network-policy"
"""Annotation of a driver's pod: the policy that was there before it."""


def name_of(topology: str) -> str:
    return f"{topology}-topology"


def manifest(
    resource: StreamTopology,
    settings: OperatorSettings,
    belongs: Mapping[str, Any],
    labels: Mapping[str, str],
) -> dict[str, Any]:
    """Driver and executors are called by each other alone.  They call whom they like (object stores, brokers), but for
    `denied_egress`, which has the service that gives out a machine's own credentials."""
    own = {"matchLabels": {TOPOLOGY_LABEL: resource.name}}
    return {
        "apiVersion": f"{API_GROUP}/v1",
        "kind": "NetworkPolicy",
        "metadata": {
            "name": name_of(resource.name),
            "namespace": resource.namespace,
            "labels": dict(labels),
            "ownerReferences": [dict(belongs)],
        },
        "spec": {
            "podSelector": own,
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"from": [{"podSelector": own}]}, *_scrapers(settings)],
            "egress": _egress(settings),
        },
    }


def digest(resource: StreamTopology, settings: OperatorSettings) -> str:
    """The digest of what the policy says; empty where the operator makes none."""
    if not settings.network_policies:
        return ""
    spec = manifest(resource, settings, {}, {})["spec"]
    return hashlib.sha256(json.dumps(spec, sort_keys=True).encode()).hexdigest()[:12]


def _scrapers(settings: OperatorSettings) -> list[dict[str, Any]]:
    return [{"ports": [{"port": settings.metrics_port}]}] if settings.open_metrics else []


def _egress(settings: OperatorSettings) -> list[dict[str, Any]]:
    """Addresses, and pods beside them, since in some networks a block of addresses does not stand for the pods in it; and
    the API server's ports wherever they are, which for some is neither."""
    blocks = [
        {"ipBlock": {"cidr": everything, **({"except": denied} if denied else {})}}
        for everything, denied in (("0.0.0.0/0", _denied(settings, 4)), ("::/0", _denied(settings, 6)))
    ]
    ports = [{"port": port} for port in settings.api_ports]
    return [{"to": [*blocks, {"namespaceSelector": {}}]}, *([{"ports": ports}] if ports else [])]


def _denied(settings: OperatorSettings, version: int) -> list[str]:
    return [block for block in settings.denied_egress if ip_network(block).version == version]
