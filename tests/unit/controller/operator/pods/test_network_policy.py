"""Each topology's own network policy: there before its pods, open to them alone, closed to the metadata service."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from reprise.controller.kubernetes.events import Events
from reprise.controller.kubernetes.pods import KubernetesNode, PodView, pod_view
from reprise.controller.operator.pods import manifests, network_policy
from reprise.controller.operator.pods.driver import DriverKeeper
from reprise.controller.operator.settings import OperatorSettings
from reprise.spark_jobs.topology import StreamTopology, from_json
from tests.support.fake_api import FakeApi

EXAMPLE = Path(__file__).parents[5] / "examples" / "minimal.yaml"
OFF = OperatorSettings(namespace="ops", identity="op", zk="zk:2181", image="reprise:1")
ON = replace(OFF, network_policies=True)
OWNER = {"apiVersion": "reprise.dev/v1alpha1", "kind": "StreamTopology", "name": "minimal", "uid": "u"}
PATH = "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies/minimal-topology"
WELL = {"m1": KubernetesNode("m1", True, True)}


def topology() -> StreamTopology:
    return from_json(json.dumps(yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))))


def keeper(api: FakeApi, settings: OperatorSettings) -> DriverKeeper:
    events = Events(api, "default", OWNER)  # type: ignore[arg-type]
    return DriverKeeper(api, settings, OWNER, events)  # type: ignore[arg-type]


def running(settings: OperatorSettings) -> PodView:
    made = manifests.driver_pod(topology(), settings, OWNER, "minimal-abc")
    made["spec"]["nodeName"] = "m1"
    return pod_view(made | {"status": {"phase": "Running"}})


def applied(api: FakeApi) -> list[dict[str, Any]]:
    return [body for verb, path, body in api.calls if (verb, path) == ("apply", PATH)]


def test_pods_of_a_topology_are_reached_by_its_own_pods_alone() -> None:
    spec = network_policy.manifest(topology(), ON, OWNER, {})["spec"]
    own = {"matchLabels": {"reprise.dev/topology": "minimal"}}
    assert spec["podSelector"] == own
    assert spec["ingress"] == [{"from": [{"podSelector": own}]}]
    for role in ("driver", "executor"):
        assert own["matchLabels"].items() <= manifests.labels("minimal", role).items()


def test_the_metadata_service_is_closed_unless_that_is_not_wanted() -> None:
    def denied(settings: OperatorSettings) -> list[list[str]]:
        (peers, _) = network_policy.manifest(topology(), settings, OWNER, {})["spec"]["egress"]
        return [p["ipBlock"].get("except", []) for p in peers["to"] if "ipBlock" in p]

    assert denied(ON) == [["169.254.169.254/32"], ["fd00:ec2::254/128"]]
    assert denied(replace(ON, denied_egress=())) == [[], []]
    ports = network_policy.manifest(topology(), ON, OWNER, {})["spec"]["egress"][1]
    assert ports == {"ports": [{"port": 443}, {"port": 6443}]}


def test_it_is_made_before_the_driver_and_once() -> None:
    api = FakeApi()
    one = keeper(api, ON)
    one.look(topology(), None, WELL, recovering=False)
    writes = [path for verb, path, _ in api.calls if "events" not in path]
    assert writes.index(PATH) < next(i for i, path in enumerate(writes) if "/pods" in path)
    assert applied(api)[0]["metadata"]["ownerReferences"] == [OWNER]
    one.look(topology(), running(ON), WELL, recovering=False)
    assert len(applied(api)) == 1


def test_a_driver_of_an_older_operator_gets_one_and_another_operator_writes_nothing_anew() -> None:
    """An upgrade in the middle of an incident must not cut new executors off from a driver that stays."""
    api = FakeApi()
    one = keeper(api, ON)
    for _ in range(3):
        one.look(topology(), running(OFF), WELL, recovering=True)
    assert len(applied(api)) == 1
    api = FakeApi()
    keeper(api, ON).look(topology(), running(ON), WELL, recovering=False)
    assert api.calls == []


def test_none_is_made_where_the_chart_does_not_ask_for_it() -> None:
    api = FakeApi()
    keeper(api, OFF).look(topology(), None, WELL, recovering=False)
    assert not applied(api)
    assert network_policy.MARK not in running(OFF).annotations
