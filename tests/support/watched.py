"""A topology that is watched: `hot` and `cold` read one parser, and each of their partitions is a query."""

from __future__ import annotations

_TEXT = """
apiVersion: reprise.dev/v1alpha1
kind: StreamTopology
metadata: {name: watched, namespace: streams}
spec:
  batch: {interval: 500ms}
  sources:
    - {name: tweets, class: "reprise.spark_jobs.sources:HashtagSource", resources: {cpu: SMALL},
       with: {rate: 200, interval: 500ms, batches: 100000, tags: 1000}}
  operators:
    - {name: parser, class: "reprise.spark_jobs.operators:FlatMap", resources: {cpu: SMALL}, inputs: [{from: tweets}],
       with: {explode: [hashtags], select: [time, hashtags AS tag]}}
    - {name: hot, class: "reprise.spark_jobs.operators:KeyedCount", parallelism: 2, resources: {cpu: LARGE},
        with: {keys: [tag]},
       inputs: [{from: parser, by: [tag]}], output: {priority: 9}}
    - {name: cold, class: "reprise.spark_jobs.operators:KeyedCount", parallelism: 2, resources: {cpu: LARGE},
        with: {keys: [tag]},
       inputs: [{from: parser, by: [tag]}], output: {priority: 2}}
  checkpoint: {everyBatches: 6}
  recovery: {bufferMemory: 64Ki, bufferDisk: 64Ki}
  nodes: {count: 4, cpu: NODE}
"""


def watched(small: str, large: str, node: str) -> str:
    """CPU of source and parser, of each partition of `hot` and `cold`, and of a node."""
    return _TEXT.replace("SMALL", small).replace("LARGE", large).replace("NODE", node)
