"""Random instances for tests and benchmarks; the caller supplies the generator of random numbers.

`topology` follows the query generator of Su and Zhou, section 7.3, which is described by its parameters only:
number and size of queries, distribution of priorities, and how often a partition is shared (at most a given
frequency, or by Zipf's law with exponent s). What it leaves open is chosen here: costs are uniform, and a
topology is drawn partition by partition, first how many queries share it, then which. `sukp` draws from the
family of He et al. (2018).
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from reprise.algorithms.model import FailedQuery, Instance, PartitionCost

MAX_PRIORITY = 10


@dataclass(frozen=True, slots=True)
class Setting:
    """A point of figure 16. `max_share` bounds how many queries share a partition; with `zipf` > 0 the
    frequency f is drawn with weight f**-zipf, else uniformly. `priorities`: uniform in 1..10, or linear in
    the query's workload."""

    name: str
    queries: int = 18
    partitions: int = 100
    max_share: int = 3
    zipf: float = 0.0
    priorities: Literal["uniform", "linear"] = "uniform"
    max_cost: int = 100


def topology(rng: random.Random, setting: Setting, capacity_share: float) -> Instance:
    """An instance whose capacity is `capacity_share` of the cost of all failed partitions (the x-axis of
    figure 16).

    Edges run along each query from its most to its least shared partitions, as from sources to sinks."""
    most = min(setting.max_share, setting.queries)
    frequencies = range(1, most + 1)
    weights = [f**-setting.zipf for f in frequencies]
    members: list[list[int]] = [[] for _ in range(setting.queries)]
    sharing = []
    for k in range(setting.partitions):
        (frequency,) = rng.choices(frequencies, weights)
        sharing.append(frequency)
        for query in rng.sample(range(setting.queries), frequency):
            members[query].append(k)
    for mine in members:  # no query may be empty
        if not mine:
            mine.append(rng.randrange(setting.partitions))
    costs = [rng.randint(1, setting.max_cost) for _ in range(setting.partitions)]
    names = [f"p{k:04}" for k in range(setting.partitions)]
    edges = set()
    for mine in members:
        path = sorted(mine, key=lambda k: (-sharing[k], k))
        edges |= {(names[a], names[b]) for a, b in pairwise(path)}
    priorities = _priorities(rng, setting, [sum(costs[k] for k in mine) for mine in members])
    return Instance(
        capacity=int(capacity_share * sum(costs)),
        partitions=tuple(map(PartitionCost, names, costs)),
        queries=tuple(
            FailedQuery(f"q{q:04}", priorities[q], tuple(names[k] for k in sorted(mine)))
            for q, mine in enumerate(members)
        ),
        edges=tuple(sorted(edges)),
    )


def _priorities(rng: random.Random, setting: Setting, loads: list[int]) -> list[int]:
    if setting.priorities == "uniform":
        return [rng.randint(1, MAX_PRIORITY) for _ in loads]
    low, span = min(loads), max(1, max(loads) - min(loads))
    return [1 + round((MAX_PRIORITY - 1) * (load - low) / span) for load in loads]


def sukp(rng: random.Random, items: int, elements: int, density: float, ratio: float) -> Instance:
    """The family of He et al. (2018): each of `items` needs each of `elements` with probability `density`;
    profits and weights are uniform in 1..500; the capacity is `ratio` of all weights. Published: 0.10 / 0.75
    and 0.15 / 0.85."""
    weights = [rng.randint(1, 500) for _ in range(elements)]
    names = [f"e{k:04}" for k in range(elements)]
    queries = []
    for q in range(items):
        mine = [name for name in names if rng.random() < density] or [rng.choice(names)]
        queries.append(FailedQuery(f"i{q:04}", rng.randint(1, 500), tuple(mine)))
    return Instance(
        capacity=int(ratio * sum(weights)),
        partitions=tuple(map(PartitionCost, names, weights)),
        queries=tuple(queries),
    )
