"""What would be lost with each failure domain as things are placed now, and which nodes are in it."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from reprise.controller.status import document, parse_document, plain
from reprise.controller.status.failure_domains import FailureDomainsView, FailureDomainView, failure_domains
from reprise.controller.zookeeper.observation import Observation
from reprise.scheduler import Desired, Node, Progress
from reprise.spark_jobs.topology import Topology, expand, load_text

ZONE = "topology.kubernetes.io/zone"
TOPOLOGY = """
apiVersion: reprise.dev/v1alpha1
kind: StreamTopology
metadata: {name: zones}
spec:
  batch: {interval: 100ms}
  sources:
    - name: tweets
      class: reprise.sources:HashtagSource
      with: {rate: 200, interval: 100ms, batches: 60, tags: 40, seed: 7}
  operators:
    - name: count
      class: reprise.operators:RunningAggregate
      parallelism: 2
      with: {keys: [tweet], aggregate: {total: "count()"}}
      inputs: [{from: tweets, by: [tweet]}]
      output: {priority: 9, priorities: {"1": 3}}
      availability: active-standby
  nodes: {count: 3, cpu: "1", failureDomain: topology.kubernetes.io/zone}
"""
ZONES = {"n1#1": "a", "n2#1": "b", "n3#1": "b"}
AT = {"tweets.0": "n1#1", "count.0": "n2#1", "count.1": "n3#1"}


def nodes(zones: Mapping[str, str | None]) -> dict[str, Node]:
    return {
        n: Node(n.removesuffix("#1"), 1, 1000, labels={"rack": "r"} if zone is None else {ZONE: zone, "rack": "r"})
        for n, zone in zones.items()
    }  # fmt: skip


def seen(
    zones: Mapping[str, str | None] = ZONES,
    at: Mapping[str, str] = AT,
    standbys: Mapping[str, str] | None = None,
    ready: tuple[str, ...] = (),
) -> Observation:
    desired = Desired(1, 1, 0, "d", at, standbys=standbys or {})
    progress = Progress("d", standbys=dict.fromkeys(ready, 7))
    return Observation(5.0, True, nodes=nodes(zones), desired=desired, progress=progress)


def test_each_domain_takes_the_queries_that_need_a_partition_there(topology: Topology) -> None:
    """All need the source, which is in `a`; both counts are in `b`."""
    found = failure_domains(topology, seen())
    both = FailureDomainView("a", ("n1#1",), 12, 12), FailureDomainView("b", ("n2#1", "n3#1"), 12, 12)
    assert found == FailureDomainsView(ZONE, 12, 12.0, both)
    found = failure_domains(topology, seen(at={**AT, "count.1": "n1#1"}))
    assert found is not None
    assert {i.value: (i.priority, i.lost) for i in found.items} == {"a": (12, 12), "b": (9, 9)}
    assert found.lost == 10.5


def test_what_is_not_placed_cannot_be_lost(topology: Topology) -> None:
    found = failure_domains(topology, seen(at={p: n for p, n in AT.items() if p != "count.0"}))
    assert found is not None
    assert (found.priority, found.lost) == (3, 3)
    gone = failure_domains(topology, seen(zones={n: z for n, z in ZONES.items() if n != "n1#1"}))
    assert gone is not None
    assert (gone.priority, [(i.value, i.lost) for i in gone.items]) == (0, [("b", 0)])


def test_a_domain_without_partitions_counts_on_average(topology: Topology) -> None:
    found = failure_domains(topology, seen(zones={**ZONES, "n4#1": "c"}))
    assert found is not None
    assert [(i.value, i.lost) for i in found.items] == [("a", 12), ("b", 12), ("c", 0)]
    assert found.lost == 8


@pytest.mark.parametrize(
    ("standby", "ready", "lost"),
    [
        ("n1#1", ("count.0",), 3),
        ("n1#1", (), 12),
        ("n3#1", ("count.0",), 12),
        ("n9#1", ("count.0",), 12),
        ("bare#1", ("count.0",), 12),
    ],
    ids=["ready in another domain", "not ready", "in the same domain", "its node is gone", "nobody can say"],
)
def test_what_goes_on_in_another_domain_is_not_lost(
    topology: Topology, standby: str, ready: tuple[str, ...], lost: int
) -> None:
    zones: dict[str, str | None] = {**ZONES, "bare#1": None}
    found = failure_domains(topology, seen(zones, standbys={"count.0": standby}, ready=ready))
    assert found is not None
    assert {i.value: (i.priority, i.lost) for i in found.items}["b"] == (12, lost)


def test_a_node_without_the_label_is_a_domain_of_its_own(topology: Topology) -> None:
    found = failure_domains(topology, seen(zones={"n1#1": None, "n2#1": None, "n3#1": "b"}))
    assert found is not None
    assert [(i.value, i.nodes, i.lost) for i in found.items] == [
        (None, ("n1#1",), 12),
        (None, ("n2#1",), 9),
        ("b", ("n3#1",), 3),
    ]


def test_nothing_is_said_without_a_label_or_without_nodes(topology: Topology) -> None:
    plainly = expand(load_text(TOPOLOGY.replace(f", failureDomain: {ZONE}", "")))
    assert failure_domains(plainly, seen()) is None
    assert failure_domains(topology, seen(zones={})) is None


def test_it_is_in_the_document_with_the_label_of_each_node(topology: Topology) -> None:
    found = document(topology, seen())
    assert found.failure_domains == failure_domains(topology, seen())
    alone = expand(load_text(TOPOLOGY.replace("      availability: active-standby\n", "")))
    assert document(alone, seen()).nodes == found.nodes, "also where no operator has standbys"
    assert {n.id: dict(n.labels) for n in found.nodes} == {n: {ZONE: zone} for n, zone in ZONES.items()}
    assert parse_document(plain(found)) == found
