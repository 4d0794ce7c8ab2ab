"""What the document says of standbys: how many are wanted, there, missing, and in another failure domain."""

from __future__ import annotations

from dataclasses import replace

from reprise.algorithms.failure import Failure, FailureKind
from reprise.controller.status import document
from reprise.controller.status.standbys import is_apart, missing, standbys_view, wanted
from reprise.controller.zookeeper.observation import Observation
from reprise.scheduler import Desired, Node, Progress
from reprise.spark_jobs.topology import Topology, expand, load_text

TOPOLOGY = """
apiVersion: reprise.dev/v1alpha1
kind: StreamTopology
metadata: {name: standby}
spec:
  batch: {interval: 100ms}
  sources:
    - name: tweets
      class: reprise.sources:HashtagSource
      with: {rate: 200, interval: 100ms, batches: 60, tags: 40, seed: 7}
  operators:
    - name: parse
      class: reprise.operators:FlatMap
      with: {explode: [hashtags], select: ["hashtags AS tag"]}
      inputs: [{from: tweets}]
    - name: count
      class: reprise.operators:RunningAggregate
      parallelism: 3
      with: {keys: [tag], aggregate: {total: "count()"}}
      inputs: [{from: parse, by: [tag]}]
      output: {priority: 9}
      availability: active-standby
      standby: {failureDomain: rack}
  checkpoint: {everyBatches: 10}
  nodes: {count: 3, cpu: "1"}
"""
NODES = {
    "n1#1": Node("n1", 1, 1000, labels={"rack": "a"}),
    "n2#1": Node("n2", 1, 1000, labels={"rack": "b"}),
    "n3#1": Node("n3", 1, 1000),
}
PLACED = Desired(
    1, 1, 0, "d", {"count.0": "n1#1", "count.1": "n1#1", "count.2": "n1#1"},
    standbys={"count.0": "n2#1", "count.1": "n1#1", "count.2": "n3#1"},
)  # fmt: skip
REPORT = Progress("d", standbys={"count.0": 7})
SEEN = Observation(5.0, True, nodes=NODES, desired=PLACED, progress=REPORT)


def test_only_partitions_of_operators_that_ask_for_one_are_to_have_one(topology: Topology) -> None:
    assert wanted(topology) == {"count.0", "count.1", "count.2"}
    none = TOPOLOGY.replace("active-standby", "checkpoint").replace(
        "      standby: {failureDomain: rack}\n", ""
    )
    assert wanted(expand(load_text(none))) == frozenset()


def test_one_is_missing_unless_it_could_be_promoted_or_its_partition_raised() -> None:
    to_have = frozenset({"count.0", "count.1", "count.2"})
    raised = replace(REPORT, failed={"count.1": Failure(FailureKind.POISON, "ValueError")})
    assert missing(to_have, None) == to_have
    assert missing(to_have, REPORT) == {"count.1", "count.2"}
    assert missing(to_have, raised) == {"count.2"}


def test_apart_in_the_same_domain_or_nobody_can_say(topology: Topology) -> None:
    assert [is_apart(topology, SEEN, f"count.{k}") for k in range(3)] == [True, False, None]
    assert is_apart(topology, replace(SEEN, nodes={}), "count.0") is None, "its node is gone"
    assert is_apart(topology, replace(SEEN, desired=None), "count.0") is None


def test_the_figures_add_up(topology: Topology) -> None:
    view = standbys_view(topology, SEEN)
    assert view is not None
    assert (view.wanted, view.placed, view.ready, view.missing) == (3, 3, 1, 2)
    assert (view.apart, view.same_domain, view.unknown_domain) == (1, 1, 1)
    none = standbys_view(topology, replace(SEEN, desired=None, progress=None))
    assert none is not None
    assert (none.wanted, none.placed, none.ready, none.missing, none.apart) == (3, 0, 0, 3, 0)


def test_they_are_in_the_document(topology: Topology) -> None:
    found = document(topology, SEEN)
    assert found.standbys == standbys_view(topology, SEEN)
    own = [p for p in found.partitions if p.operator == "count"]
    assert [(p.standby, p.standby_position, p.standby_apart) for p in own] == [
        ("n2#1", 7, True), ("n1#1", None, False), ("n3#1", None, None),
    ]  # fmt: skip
    assert [(o.standbys, o.failure_domain) for o in found.graph.operators if o.name != "parse"] == [
        (False, None), (True, "rack"),
    ]  # fmt: skip
    assert {n.name: dict(n.labels) for n in found.nodes if n.labels} == {
        "n1": {"rack": "a"},
        "n2": {"rack": "b"},
    }
