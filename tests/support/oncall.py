"""A topology with a burst and two arrivals, as the coordinator's own rules play it: for tests of what people are shown."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from reprise.controller.topology_view import policy_of, view_of, with_promises
from reprise.controller.zookeeper.observation import Observation, snapshot_of
from reprise.scheduler import Desired, Node, Progress
from reprise.scheduler.simulation.run import Change, Durations, SimulationResult, run_simulation
from reprise.spark_jobs.topology import StreamTopology, load_text

TEXT = """
apiVersion: reprise.dev/v1alpha1
kind: StreamTopology
metadata: {name: oncall}
spec:
  sources:
    - name: tweets
      class: "reprise.spark_jobs.sources:HashtagSource"
      with: {rate: 10, interval: 500ms, batches: 4, tags: 10}
      resources: {cpu: 40m}
  operators:
    - name: count
      class: reprise.spark_jobs.operators:KeyedCount
      parallelism: 4
      with: {keys: [tweet]}
      resources: {cpu: 40m}
      inputs: [{from: tweets, by: [tweet]}]
      output: {priority: 1, priorities: {"1": 2, "2": 3, "3": 4}}
  nodes: {count: 3, cpu: 100m}
"""
START = 1_000_000.0
PLACES = {"tweets.0": "n1#1", "count.0": "n1#1", "count.1": "n2#1", "count.2": "n2#1", "count.3": "n3#1"}
BURST = Change(0.0, lose=("n2", "n3"))
ARRIVALS = (Change(30.0, arrive=1), Change(60.0, arrive=1))
TIMES = Durations(restore_s=4.0, catch_up_s=2.0)


@cache
def resource() -> StreamTopology:
    return load_text(TEXT)


TOPOLOGY = with_promises(resource())


def steady() -> Observation:
    """Everything at work on three nodes."""
    nodes = {f"n{i}#1": Node(f"n{i}", 1, 100) for i in (1, 2, 3)}
    positions = dict.fromkeys(PLACES, 20)
    progress = Progress("1", 1, 1, frozenset(nodes), positions, horizon=20, checkpoint=15)
    return Observation(
        START, True, nodes, progress, desired=Desired(1, 1, 0, "1", PLACES), checkpoints=frozenset({15})
    )


def played(changes: Sequence[Change] = (BURST, *ARRIVALS)) -> SimulationResult:
    """The burst and what follows."""
    snapshot = snapshot_of(view_of(resource()), steady())
    return run_simulation(snapshot, policy_of(resource(), 1.0, 30.0), changes, TIMES)


def after_the_burst() -> Observation:
    """A minute and a half after the burst: one node has come, two queries wait or are back."""
    return played_until((BURST, ARRIVALS[0]))


def played_until(changes: Sequence[Change]) -> Observation:
    """What an observer sees when nothing more happens after `changes`."""
    found = played(changes)
    last = found.last
    assert last is not None
    return Observation(
        START + 40.0,
        True,
        {node.id: node for node in last.nodes},
        last.progress,
        desired=last.desired,
        incident=last.incident,
        closed={incident.id: incident for incident in found.closed},
        plans={plan.id: plan for plan in found.plans},
        checkpoints=last.checkpoints,
    )
