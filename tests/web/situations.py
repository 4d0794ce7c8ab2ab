"""Moments in which a page of this kind goes wrong: long names, many partitions, nothing at all, a lost controller."""

from __future__ import annotations

import json
from dataclasses import replace

import yaml

from reprise.algorithms.failure import Failure, FailureKind
from reprise.controller.zookeeper.observation import Observation
from reprise.scheduler.model import PartitionStats, SkipWish
from reprise.scheduler.node_start import NodeStart, StartPhase
from reprise.spark_jobs.topology import StreamTopology, expand, from_json, load_text
from tests.web import moments

MARK_US = 86_400_000_000 * 20_000 + 43_200_000_000 + 7_000_000
"""A watermark, of noon and seven seconds by UTC."""
NAMES = (
    "ingest-clickstream-events-from-the-european-edge-locations",
    "deduplicatebysessionidentifierwithinfifteenminutes",
    "enrich-with-customer-master-data-and-consent",
    "fraud-score-of-payments-by-card-merchant-and-country-per-minute",
    "top-merchants-by-revenue-for-the-executive-dashboard-of-emea",
)
_OPERATOR = """
    - {{name: "{name}", class: "reprise.spark_jobs.operators:KeyedCount", parallelism: {parallelism},
       with: {{keys: [tweet]}}, resources: {{cpu: 60m}}, inputs: [{{from: "{origin}", by: [tweet]}}]{output}}}"""


def long_names() -> StreamTopology:
    """A chain of five operators whose names people have really chosen, with two outputs."""
    source, *operators = NAMES
    text = f"""
apiVersion: reprise.dev/v1alpha1
kind: StreamTopology
metadata: {{name: clickstream-attribution-and-fraud-europe}}
spec:
  sources:
    - {{name: "{source}", class: "reprise.spark_jobs.sources:HashtagSource", parallelism: 1, resources: {{cpu: 60m}},
       with: {{rate: 10, interval: 1s, tags: 10}}}}
  operators:"""
    origin = source
    for name in operators:
        output = f", output: {{priority: {5 + len(name) % 5}}}" if name in operators[-2:] else ""
        text += _OPERATOR.format(name=name, parallelism=2, origin=origin, output=output)
        origin = name if name not in operators[-2:] else origin
    return load_text(text + "\n  nodes: {count: 9, cpu: 100m}\n")


def long_incident() -> tuple[StreamTopology, Observation]:
    """Most nodes of it are lost, one has come, and the records of loads say what partitions apply."""
    life = moments.Life(long_names())
    life.kill(*(f"n{number}" for number in range(4, 10)))
    life.add("n11")
    return life.resource, with_numbers(life.resource, life.seen())


def with_numbers(resource: StreamTopology, seen: Observation) -> Observation:
    """What measured loads, a failed partition and a node's start add, which the simulated driver says nothing of."""
    assert seen.progress is not None and seen.incident is not None
    stats = {
        p: PartitionStats(
            55.0, 3_400_000, input_rows_s=1234.5, watermark=None if k % 3 else MARK_US, input_ended=k % 3 == 1
        )
        for k, p in enumerate(seen.progress.positions)
    }
    lost = next(p for p in expand(resource).order if p not in seen.progress.positions)
    failed = {**seen.progress.failed, lost: Failure(FailureKind.NODE_LOST)}
    arrived = max(node.id for node in seen.nodes.values() if node.name in ("n11", "n12"))
    asked = seen.incident.opened_at + 1.0
    took = {
        StartPhase.REQUESTED: 0.0, StartPhase.AGENT: 0.6, StartPhase.HEARTBEAT: 0.7,
        StartPhase.EXECUTOR: 2.6, StartPhase.TASK: 4.4, StartPhase.HOST: 4.7, StartPhase.READY: 4.9, StartPhase.PLANNED: 5.0,
        StartPhase.WORK: 5.8,
    }  # fmt: skip
    start = NodeStart({phase: asked + seconds for phase, seconds in took.items()})
    return replace(
        seen,
        stats=stats,
        progress=replace(seen.progress, failed=failed),
        incident=replace(seen.incident, starts={arrived: start}),
    )


def hundred_partitions() -> tuple[StreamTopology, Observation]:
    """101 partitions, of which some are gone."""
    life = moments.wide(50).kill("n2", "n3", "n4").add("n11")
    assert len(life.world.topology.partitions) == 101
    return life.resource, with_numbers(life.resource, life.seen())


def skipped() -> tuple[StreamTopology, Observation]:
    """Two queries that are back have gaps, one of them also by an incident that is closed, and somebody wants to skip two
    that are not back: of one wish nobody has taken notice yet."""
    life = moments.topology2().kill("n3", "n4", "n5", "n6")
    resource, seen = moments.of(life)
    assert seen.incident is not None and seen.desired is not None and seen.progress is not None
    down = [p for p in life.world.topology.partitions if p.id not in seen.progress.positions and p.upstream]
    times = seen.incident.queries
    queries = sorted(q for q, time in times.items() if time.caught_up_at is not None)
    taken, asked = sorted(q for q, time in times.items() if time.caught_up_at is None)[:2]
    now = replace(
        seen.incident,
        skipped={down[0].id: ((31, 42),)},
        marked={queries[0]: ((31, 44), (50, 50)), queries[1]: ((33, 33),)},
    )
    before = replace(
        seen.incident,
        id="inc-000000",
        closed_at=seen.incident.opened_at - 60.0,
        marked={queries[0]: ((7, 9),)},
    )
    desired = replace(seen.desired, skips={taken: "one"}, anew={down[0].id: "one", down[1].id: "one"})
    return resource, replace(
        seen,
        incident=now,
        closed={**seen.closed, before.id: before},
        desired=desired,
        wishes={asked: SkipWish("two")},
    )


_PROMISES = """
apiVersion: reprise.dev/v1alpha1
kind: StreamTopology
metadata: {{name: promises}}
spec:
  sources:
    - {{name: tweets, class: "reprise.sources:HashtagSource", with: {{rate: 10, interval: 1s, tags: 10}},
       resources: {{cpu: 20m}}}}
  operators:
    - {{name: even, class: "reprise.operators:Filter", with: {{where: "tweet % 2 = 0"}}, resources: {{cpu: 20m}},
       inputs: [{{from: tweets}}], output: {{}}}}
    - {{name: other, class: "{kind}", resources: {{cpu: 20m}}, inputs: [{{from: tweets}}], output: {{}}{more}}}
    - {{name: behind, class: "reprise.operators:Sink", resources: {{cpu: 20m}}, inputs: [{{from: other}}], output: {{}}}}
  nodes: {{count: 2, cpu: 200m}}
"""
PROMISES = {
    "amnesia": ("reprise.operators:Union", ", availability: amnesia"),
    "arbitrary": ("reprise.operators:Union", ", deterministic: false"),
    "own": ("shop.payments:Own", ""),
}
"""What the second of three outputs, which the third one reads, is: its class, and more of its spec."""


def promises(case: str) -> tuple[StreamTopology, Observation]:
    """A topology with three outputs, of which one has nothing to do with the others."""
    kind, more = PROMISES[case]
    # as the controller reads it, which has no code of topologies
    resource = from_json(json.dumps(yaml.safe_load(_PROMISES.format(kind=kind, more=more))))
    life = moments.Life(resource)
    return life.resource, life.seen()
