"""Topologies of any size with names as people give them, recoveries of them without a driver, and what these weigh."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from reprise.scheduler import Decision, Node, PlanRecord, Policy, Progress, Snapshot, TopologyView, decide
from reprise.spark_jobs.topology import StreamTopology, load_text

NAMES = (
    "enriched-orders", "orders-by-region", "session-windows", "totals-by-day", "joined-payments", "deduplicated",
    "top-products", "features", "fraud-scores", "currency-rates", "stock-levels", "late-arrivals",
)  # fmt: skip
HORIZON, CHECKPOINT = 500, 490


class Sizes:
    """A transaction that is never sent: what it would write."""

    def __init__(self, client: Any = None) -> None:
        self.writes: list[tuple[str, bytes]] = []
        self._client = client

    @property
    def bytes(self) -> int:
        return sum(len(path) + len(data) for path, data in self.writes)

    def create(self, path: str, data: bytes = b"") -> None:
        self.writes.append((path, data))

    def set_data(self, path: str, data: bytes, _version: int) -> None:
        self.create(path, data)

    def check(self, path: str, _version: int) -> None:
        self.create(path)

    delete = check

    def commit(self) -> list[None]:
        self._client.call()
        return [None for _ in self.writes]


def resource(stages: int, parallelism: int, nodes: int, outputs: int) -> StreamTopology:
    """A source and `stages` operators, each of which reads all partitions of the one before."""
    lines, last = [], "orders"
    for k in range(stages - 1):
        name = NAMES[k % len(NAMES)] + (f"-{k // len(NAMES)}" if k >= len(NAMES) else "")
        lines.append(_operator(name, parallelism, last))
        last = name
    lines.append(_operator("published", outputs, last)[:-1] + ", output: {priority: 3}}")
    text = "\n".join(lines)
    return load_text(f"""
apiVersion: reprise.dev/v1alpha1
kind: StreamTopology
metadata: {{name: big}}
spec:
  batch: {{interval: 1s}}
  sources:
    - {{name: orders, class: "reprise.spark_jobs.sources:HashtagSource", parallelism: {parallelism},
       with: {{rate: 400, interval: 1s, tags: 200, seed: 7}}}}
  operators:
{text}
  nodes: {{count: {nodes}, cpu: 8}}
""")


def _operator(name: str, parallelism: int, last: str) -> str:
    what = f"class: 'reprise.spark_jobs.operators:KeyedCount', parallelism: {parallelism}, with: {{keys: [tweet]}}"
    return f"    - {{name: {name}, {what}, inputs: [{{from: {last}, by: [tweet]}}]}}"


def node_names(count: int) -> list[str]:
    return [f"orders-a1b2c3-exec-{i}" for i in range(1, count + 1)]


def running(view: TopologyView, policy: Policy) -> Snapshot:
    """Everything is at work, by the first driver."""
    nodes = tuple(Node(name, 1, policy.node_cpu_milli) for name in node_names(policy.nodes_wanted))
    progress = Progress("1", nodes=frozenset(node.id for node in nodes))
    snapshot = Snapshot(1_760_000_000.0, view, nodes=nodes, progress=progress)
    started = decide(snapshot, policy)
    assert started.desired is not None, started
    assert len(started.desired.assignment) == len(view.partitions)
    return replace(snapshot, desired=started.desired, progress=at_work(progress, started))


def at_work(progress: Progress, decision: Decision) -> Progress:
    """What a driver says that has carried out a decision."""
    desired = decision.desired
    assert desired is not None
    return replace(
        progress,
        seq=desired.seq,
        generation=desired.generation,
        positions=dict.fromkeys(desired.assignment, HORIZON),
        horizon=HORIZON,
        checkpoint=CHECKPOINT,
    )


def driver_restarted(view: TopologyView, policy: Policy) -> tuple[Decision, PlanRecord]:
    """The decision with the plan that brings everything back after the driver has started anew."""
    snapshot = running(view, policy)
    assert snapshot.progress is not None
    snapshot = replace(snapshot, progress=replace(snapshot.progress, driver="2", positions={}, seq=0))
    for _ in range(10):
        decision = decide(snapshot, policy)
        if decision.plan is not None:
            return decision, decision.plan
        desired, incident = decision.desired or snapshot.desired, decision.incident or snapshot.incident
        snapshot = replace(snapshot, now=snapshot.now + 1.0, desired=desired, incident=incident)
    raise AssertionError(f"no plan: {decision}")
