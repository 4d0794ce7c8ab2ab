"""Topologies that count hashtags, for tests of availability in one process and on a real cluster, which slows them down."""

from __future__ import annotations

from typing import Any

WITH_STANDBYS = """
apiVersion: reprise.dev/v1alpha1
kind: StreamTopology
metadata: {name: standby}
spec:
  batch: {interval: 100ms}
  sources:
    - name: tweets
      class: reprise.spark_jobs.sources:HashtagSource
      parallelism: 2
      with: {rate: 200, interval: 100ms, batches: 60, tags: 40, seed: 7}
  operators:
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
  checkpoint: {everyBatches: 10}
  recovery: {bufferMemory: 1Mi}
  nodes: {count: 4}
"""
"""`parse` and `count` have active standbys."""

SKIPPED = """
apiVersion: reprise.dev/v1alpha1
kind: StreamTopology
metadata: {name: skipped}
spec:
  batch: {interval: 100ms}
  sources:
    - name: tweets
      class: reprise.spark_jobs.sources:HashtagSource
      parallelism: 2
      with: {rate: 200, interval: 100ms, batches: 60, tags: 40, seed: 7}
  operators:
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
  checkpoint: {everyBatches: 10}
  recovery: {bufferMemory: 1Mi}
  nodes: {count: 4}
"""
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
