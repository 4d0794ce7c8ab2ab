"""Topologies that count hashtags, for tests of availability in one process and on a real cluster, which slows them down."""

from __future__ import annotations

from typing import Any


def counting(name: str, operators: str, rate: int = 200, tags: int = 40, memory: str = "1Mi") -> str:
    """60 batches of hashtags from two partitions, and what operators make of them."""
    return f"""
apiVersion: reprise.dev/v1alpha1
kind: StreamTopology
metadata: {{name: {name}}}
spec:
  batch: {{interval: 100ms}}
  sources:
    - name: tweets
      class: reprise.spark_jobs.sources:HashtagSource
      parallelism: 2
      with: {{rate: {rate}, interval: 100ms, batches: 60, tags: {tags}, seed: 7}}
  operators:
{operators.strip(chr(10))}
  checkpoint: {{everyBatches: 10}}
  recovery: {{bufferMemory: {memory}}}
  nodes: {{count: 4}}
"""


WITH_STANDBYS = counting(
    "standby",
    """
    - name: parse
      class: reprise.spark_jobs.operators:FlatMap
      parallelism: 2
      with: {explode: [hashtags], select: ["hashtags AS tag"]}
      inputs: [{from: tweets, forward: true}]
      availability: active-standby
    - name: count
      class: reprise.spark_jobs.operators:RunningAggregate
      parallelism: 2
      with: {keys: [tag], aggregate: {"n": "count()"}}
      inputs: [{from: parse, by: [tag]}]
      output: {priority: 3}
      availability: active-standby
    - name: best
      class: reprise.spark_jobs.operators:TopK
      with: {by: "n", k: 5, keys: [tag], scope: batch}
      inputs: [{from: count}]
      output: {priority: 9}
""",
)
"""`parse` and `count` have active standbys."""

SKIPPED = counting(
    "skipped",
    """
    - name: parse
      class: reprise.spark_jobs.operators:FlatMap
      parallelism: 2
      with: {explode: [hashtags], select: ["hashtags AS tag"]}
      inputs: [{from: tweets, forward: true}]
    - name: window
      class: reprise.spark_jobs.operators:RunningAggregate
      parallelism: 3
      with: {keys: [tag], aggregate: {"n": "count()"}, size: 700ms, interval: 100ms}
      inputs: [{from: parse, by: [tag]}]
      output: {priority: 3}
    - name: best
      class: reprise.spark_jobs.operators:TopK
      with: {by: "n", k: 5, keys: [tag], scope: batch}
      inputs: [{from: window}]
      output: {priority: 9}
    - name: all
      class: reprise.spark_jobs.operators:Sink
      inputs: [{from: parse}]
      output: {priority: 1}
""",
)
"""Every operator may be skipped, or be fed again by what it reads; tests say which are."""


def at_pace(interval: str, rate: int, batches: int, every: int) -> dict[str, Any]:
    """Changes that give one of them batches of `interval`, with `rate` rows a second, a checkpoint each `every` of `batches`
    batches, and nodes on which there is room for what another one had."""
    return {
        "batch.interval": interval,
        "sources[tweets].with.interval": interval,
        "sources[tweets].with.rate": rate,
        "sources[tweets].with.batches": batches,
        "checkpoint.everyBatches": every,
        "recovery.bufferMemory": "16Mi",
        "nodes.cpu": "600m",
    }
