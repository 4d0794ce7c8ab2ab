"""How many seconds each partition may take to be read and replayed, so that the objectives of queries are held.

All partitions of a node are lost together, and one process restores them where there is room on one other node.  So what an
objective leaves beyond what every recovery takes is the node's.  Partitions about which nothing can be done (sources, states
that are stored whole, those without an objective) take what they take.  Of the others each is given what it takes at
best, as far as there is enough, and an equal part of the rest.

Invariant: on each node all of these together are no more than the objective of any of them leaves, while that is enough.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import floor
from typing import TYPE_CHECKING

from reprise.algorithms.recovery_time import Overhead, RestoreWork

if TYPE_CHECKING:
    from reprise.spark_jobs.engine.engine import Engine

STEP_S = 0.1
"""What hosts are told changes in steps of this."""


def seconds_within(engine: Engine) -> dict[str, float]:
    """The seconds of each partition with an objective that is stored slot by slot."""
    objectives = engine.topology.objectives
    if not objectives:
        return {}
    times, snapshots = engine.figures.times, engine.lines.snapshots
    logged = {p for p, known in snapshots.items() if p in objectives and known and known[-1].sent is not None}
    return shares(
        {p: engine.desired.assignment[p] for p in engine.positions},
        times.works(),
        engine.state_bytes,
        {p: objectives[p] for p in logged},
        Overhead.of(times.overhead()).seconds,
    )


def shares(
    assignment: Mapping[str, str],
    works: Mapping[str, RestoreWork],
    state_bytes: Mapping[str, int],
    objectives: Mapping[str, float],
    overhead_s: float,
) -> dict[str, float]:
    """`objectives`: seconds, of those that can do something about it."""
    spent: dict[str, float] = {}
    bound: dict[str, list[str]] = {}
    for partition, node in assignment.items():
        work = works.get(partition)
        if partition in objectives:
            bound.setdefault(node, []).append(partition)
        elif work is not None:
            seconds = work.load_s(state_bytes.get(partition, 0)) + work.replay_s
            spent[node] = spent.get(node, 0.0) + seconds
    found = {}
    for node, members in bound.items():
        left = min(objectives[p] for p in members) - overhead_s - spent.get(node, 0.0)
        found.update(_divided(max(0.0, left), {p: _least(works.get(p)) for p in members}))
    return found


def _least(work: RestoreWork | None) -> float:
    return work.aim.least_s if work is not None and work.aim is not None else 0.0


def _divided(seconds: float, least: Mapping[str, float]) -> dict[str, float]:
    """`least`: what each takes at best."""
    needed = sum(least.values())
    rest, scale = max(0.0, seconds - needed) / len(least), min(1.0, seconds / needed) if needed else 1.0
    return {p: round(floor((scale * own + rest) / STEP_S) * STEP_S, 1) for p, own in least.items()}
