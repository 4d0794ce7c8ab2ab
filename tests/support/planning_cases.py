"""Random instances and the slow, obvious answers that planners are judged by."""

from __future__ import annotations

from itertools import combinations

from hypothesis import strategies as st

from reprise.algorithms import FailedQuery, Instance, NodeCapacity, PartitionCost


@st.composite
def instances(
    draw: st.DrawFn, max_queries: int = 8, max_partitions: int = 10, nodes: bool = False
) -> Instance:
    """Small instances with every kind of sharing: private partitions, shared by all, free of charge, too
    dear."""
    names = [f"p{k}" for k in range(draw(st.integers(1, max_partitions)))]
    costs = draw(st.lists(st.integers(0, 12), min_size=len(names), max_size=len(names)))
    subsets = st.lists(st.sampled_from(names), min_size=1, max_size=5, unique=True)
    members = draw(st.lists(subsets, max_size=max_queries))
    queries = tuple(
        FailedQuery(f"q{i}", draw(st.integers(1, 10)), tuple(chosen)) for i, chosen in enumerate(members)
    )
    free = draw(st.lists(st.integers(0, 15), min_size=1, max_size=4)) if nodes else []
    return Instance(
        capacity=draw(st.integers(0, sum(costs) + 1)),
        partitions=tuple(map(PartitionCost, names, costs)),
        queries=queries,
        nodes=tuple(NodeCapacity(f"n{i}", room) for i, room in enumerate(free)),
    )


def brute_force(instance: Instance) -> int:
    """The optimum of the sum problem by trying every set of queries."""
    cost = {p.id: p.cost for p in instance.partitions}
    best = 0
    for size in range(len(instance.queries) + 1):
        for chosen in combinations(instance.queries, size):
            needed = {name for query in chosen for name in query.partitions}
            if sum(cost[name] for name in needed) <= instance.budget():
                best = max(best, sum(query.priority for query in chosen))
    return best


def share_frequency(instance: Instance) -> int:
    """d of Theorem 5.1: the largest number of queries that share a partition."""
    return max(
        (sum(p.id in query.partitions for query in instance.queries) for p in instance.partitions), default=0
    )
