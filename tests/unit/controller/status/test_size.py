"""What the status document weighs: it grows with partitions and queries, and not with how many of them need each other.

The bounds are those of docs/status-document.md.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import pytest

from reprise.controller.analysis.explain import explain
from reprise.controller.analysis.postmortem.story import instance_of
from reprise.controller.status import StatusDocument, document, parse_document, plain
from reprise.controller.status.partitions import LOST
from reprise.controller.topology_view import policy_of, view_of
from reprise.controller.zookeeper.observation import Observation
from reprise.scheduler import Kind, PlanRecord
from reprise.spark_jobs.topology import StreamTopology, Topology, expand, load_text
from tests.support import recorded_sizes

A_PARTITION, A_QUERY, A_MISSING = 510, 440, 800
PLACED, LEFT_OUT, CHOSEN = 60, 900, 80
REST = 5_000
"""Bytes of all that there is once."""


def bound(partitions: int, queries: int, plan: PlanRecord, shown: int) -> int:
    """`shown`: how often the plan is in the document."""
    chosen = len(plan.plan["queries"]) if isinstance(plan.plan["queries"], list) else 0
    of_plan = PLACED * 2 * len(plan.added) + LEFT_OUT * len(plan.left_out) + CHOSEN * chosen
    return REST + A_PARTITION * partitions + (A_QUERY + A_MISSING) * queries + shown * of_plan


def driver_lost(spec: StreamTopology) -> tuple[Topology, Observation, PlanRecord]:
    """Everything is failed, and a plan has placed all of it."""
    view, policy = view_of(spec), policy_of(spec, 1.0, 30.0)
    before = recorded_sizes.running(view, policy)
    decision, plan = recorded_sizes.driver_restarted(view, policy)
    assert before.progress is not None and decision.incident is not None
    seen = Observation(
        before.now + 5,
        True,
        {node.id: node for node in before.nodes},
        replace(before.progress, driver="2", positions={}, seq=0),
        desired=before.desired,
        incident=decision.incident,
        plans={plan.id: plan},
    )
    return expand(spec), seen, plan


def nothing_fits(seen: Observation, plan: PlanRecord, topology: Topology) -> Observation:
    excluded = [
        {"query": q, "reason": "r" * 60, "code": "outbid", "missing": [], "missing_capacity": 40, "enters_at": 90,
         "competes_with": [], "entry_exact": True}
        for q in topology.queries
    ]  # fmt: skip
    answer = {**plan.plan, "queries": [], "chosen": [], "placement": {}, "excluded": excluded}
    left_out = dict.fromkeys(topology.queries, "r" * 60)
    return replace(seen, plans={plan.id: replace(plan, added={}, left_out=left_out, plan=answer)})


def size_of(found: StatusDocument) -> int:
    return len(json.dumps(plain(found), separators=(",", ":")))


@pytest.mark.parametrize(
    ("parallelism", "nodes", "outputs"),
    [
        (100, 20, 100),
        pytest.param(300, 60, 300, marks=pytest.mark.wide),
        pytest.param(1000, 200, 1000, marks=pytest.mark.wide),
    ],
)
def test_the_document_is_within_its_bound(parallelism: int, nodes: int, outputs: int) -> None:
    topology, seen, plan = driver_lost(recorded_sizes.resource(9, parallelism, nodes, outputs))
    partitions, queries = len(topology.partitions), len(topology.queries)
    for name, now in (("all placed", seen), ("nothing fits", nothing_fits(seen, plan, topology))):
        found = document(topology, now)
        assert size_of(found) < bound(partitions, queries, now.plans[plan.id], 2), name
        assert all(query.missing_total > len(query.missing) for query in found.queries.items)


def test_the_question_of_a_plan_has_no_edges_but_for_who_reads_them() -> None:
    topology, seen, plan = driver_lost(recorded_sizes.resource(9, 20, 4, 20))
    assert seen.incident is not None
    without = instance_of(plan, seen.incident, topology, "here")
    every = instance_of(plan, seen.incident, topology, "here", edges=True)
    assert without.edges == () and len(every.edges) == 9 * 20 * 20
    assert replace(every, edges=()) == without
    assert {q.id: set(q.partitions) for q in without.queries} == {
        q.id: set(q.partitions) for q in topology.queries.values()
    }


MIXED = """
apiVersion: reprise.dev/v1alpha1
kind: StreamTopology
metadata: {name: mixed}
spec:
  sources:
    - {name: a, class: "reprise.spark_jobs.sources:HashtagSource", parallelism: 3, with: {rate: 9, interval: 1s, tags: 3}}
    - {name: b, class: "reprise.spark_jobs.sources:HashtagSource", parallelism: 2, with: {rate: 9, interval: 1s, tags: 3}}
  operators:
    - {name: keyed, class: "reprise.spark_jobs.operators:KeyedCount", parallelism: 3, with: {keys: [tweet]},
       inputs: [{from: a, forward: true}, {from: b, by: [tweet]}]}
    - {name: back, class: "reprise.spark_jobs.operators:KeyedCount", parallelism: 3, with: {keys: [tweet]},
       inputs: [{from: keyed, forward: true}, {from: back, forward: true, feedback: true}]}
    - {name: out, class: "reprise.spark_jobs.operators:KeyedCount", parallelism: 3, with: {keys: [tweet]},
       inputs: [{from: back, forward: true}], output: {priority: 2}}
    - {name: all, class: "reprise.spark_jobs.operators:KeyedCount", parallelism: 1, with: {keys: [tweet]},
       inputs: [{from: keyed, by: [tweet]}], output: {priority: 1}}
"""


def test_what_is_counted_and_said_is_what_the_partitions_say() -> None:
    """Reckoned by operators; here by following every edge."""
    topology, seen, _ = driver_lost(load_text(MIXED))
    assert seen.incident is not None and seen.incident.kind is Kind.DRIVER
    found = document(topology, seen)
    needed = Counter(p for query in topology.queries.values() for p in query.partitions)
    assert {p.id: p.needed_by for p in found.partitions} == dict(needed)
    down = {p.id for p in found.partitions if p.state in LOST}
    for query in found.queries.items:
        members = topology.queries[query.id].partitions
        assert query.missing == tuple(p for p in topology.order if p in members and p in down)
        assert [m.partition for m in explain(found, query.id).missing] == list(query.missing)
    assert parse_document(json.loads(json.dumps(plain(found)))) == found


@pytest.mark.parametrize("lost", [["a.1"], ["b.0"], ["a.0", "b.0", "b.1", "keyed.2"]])
def test_what_starves_names_what_it_needs_however_far_upstream(lost: list[str]) -> None:
    topology, seen, _ = driver_lost(load_text(MIXED))
    assert seen.progress is not None
    positions = {p: 1 for p in topology.order if p not in lost}
    seen = replace(seen, progress=replace(seen.progress, positions=positions, horizon=500))
    for partition in document(topology, seen).partitions:
        missing = sorted(topology.upstream_of([partition.id]) & set(lost))
        if partition.state == "starved":
            more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
            assert partition.reason == f"needs the output of {', '.join(missing[:3])}{more}"
        elif partition.state == "catching-up":
            assert not missing
    assert "starved" in {p.state for p in document(topology, seen).partitions}
