"""OC, the operator-centric baseline (Su and Zhou, sections 2.2.3 and 7.3).

"A greedy algorithm that always tries to recover the partition with minimum recovery cost in topological
order": of the partitions whose upstream partitions are restored or alive, the cheapest comes next, whether or
not it completes a query, until the cheapest does not fit. It is what systems without plans do and stands here
to be compared with. Departure: on feedback edges no order exists, so edges inside a strongly connected
component are ignored.
"""

from __future__ import annotations

import heapq
from collections import defaultdict

from reprise.algorithms.model import Instance


def restore_in_topological_order(instance: Instance) -> tuple[tuple[str, ...], dict[str, str]]:
    """The restored partitions in order, and their nodes where the instance has nodes (else an empty
    mapping)."""
    cost = {partition.id: partition.cost for partition in instance.partitions}
    component = _components(instance)
    waiting: dict[str, int] = defaultdict(int)
    downstream: dict[str, list[str]] = defaultdict(list)
    for source, target in sorted(set(instance.edges)):
        if component[source] != component[target]:
            waiting[target] += 1
            downstream[source].append(target)
    ready = [(cost[name], name) for name in sorted(cost) if not waiting[name]]
    heapq.heapify(ready)
    room = instance.budget()
    nodes = [(-node.free, node.id) for node in instance.nodes]
    heapq.heapify(nodes)
    restored: list[str] = []
    placement: dict[str, str] = {}
    while ready:
        price, name = heapq.heappop(ready)
        if price > room or (nodes and price > -nodes[0][0]):
            break  # it is the cheapest that is ready, and the others wait for it or cost more
        room -= price
        restored.append(name)
        if nodes:
            free, node = nodes[0]
            heapq.heapreplace(nodes, (free + price, node))
            placement[name] = node
        for target in downstream[name]:
            waiting[target] -= 1
            if not waiting[target]:
                heapq.heappush(ready, (cost[target], target))
    return tuple(restored), placement


def _components(instance: Instance) -> dict[str, int]:
    """Strongly connected component of each partition (Tarjan, without recursion)."""
    graph: dict[str, list[str]] = {partition.id: [] for partition in instance.partitions}
    for source, target in instance.edges:
        graph[source].append(target)
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    found: dict[str, int] = {}
    open_names: list[str] = []
    for root, heads in graph.items():
        if root in index:
            continue
        work = [(root, iter(heads))]
        index[root] = low[root] = len(index)
        open_names.append(root)
        while work:
            name, targets = work[-1]
            for target in targets:
                if target not in index:
                    index[target] = low[target] = len(index)
                    open_names.append(target)
                    work.append((target, iter(graph[target])))
                    break
                if target not in found:
                    low[name] = min(low[name], index[target])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[name])
                if low[name] == index[name]:
                    _close(name, open_names, found)
    return found


def _close(name: str, open_names: list[str], found: dict[str, int]) -> None:
    number = len(found)
    while True:
        member = open_names.pop()
        found[member] = number
        if member == name:
            return
