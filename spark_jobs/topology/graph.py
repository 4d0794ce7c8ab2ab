"""A topology expanded to partitions: who reads whom, in what order to think, and which partitions make up
each query.

Placement, failure, checkpointing and recovery all speak of partitions, so the operator graph is expanded
once, here. Invariants: `partitions` is in topological order (feedback edges left aside); an edge appears in
`upstream` of its target exactly when it appears in `downstream` of its origin; `queries[p]` is closed under
upstream, feedback edges included (seed 003, Def. 1).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from spark_jobs.contract import Place
from spark_jobs.topology.resource import Grouping, Mode, OperatorSpec, SourceSpec, StreamTopology


@dataclass(frozen=True, slots=True)
class Upstream:
    """One partition that a partition reads; over a feedback edge it reads the batch before."""

    partition: str
    feedback: bool


@dataclass(frozen=True, slots=True)
class Downstream:
    """One operator that reads a partition's output, and how the rows are spread over `targets`."""

    operator: str
    grouping: Grouping
    targets: tuple[str, ...]
    """Ids of the partitions that this partition's rows can reach, by target index."""
    parallelism: int
    """Partitions of the reading operator."""
    feedback: bool


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition with its edges; `upstream` is in the order of order-preserving processing."""

    place: Place
    is_source: bool
    cpu_cores: float
    """Declared CPU."""
    upstream: tuple[Upstream, ...]
    downstream: tuple[Downstream, ...]

    @property
    def id(self) -> str:
        """`operator.index`."""
        return self.place.partition


@dataclass(frozen=True, slots=True)
class Query:
    """An output partition with everything upstream of it."""

    id: str
    """Id of the output partition."""
    priority: int
    partitions: frozenset[str]


@dataclass(frozen=True, slots=True)
class Topology:
    """The expanded topology."""

    name: str
    partitions: Mapping[str, Partition]
    queries: Mapping[str, Query]
    """By output partition id, in topological order."""

    @property
    def order(self) -> tuple[str, ...]:
        """All partition ids in topological order."""
        return tuple(self.partitions)

    @property
    def outputs(self) -> tuple[str, ...]:
        """Output partition ids in topological order."""
        return tuple(self.queries)

    def upstream_of(self, ids: Iterable[str]) -> frozenset[str]:
        """`ids` with all their transitive upstream partitions, over feedback edges too."""
        return _closure(ids, {p: [u.partition for u in x.upstream] for p, x in self.partitions.items()})

    def downstream_of(self, ids: Iterable[str]) -> frozenset[str]:
        """`ids` with all their transitive downstream partitions, over feedback edges too."""
        return _closure(
            ids, {p: [t for d in x.downstream for t in d.targets] for p, x in self.partitions.items()}
        )

    def queries_of(self, partition: str) -> tuple[str, ...]:
        """Ids of the queries that need a partition."""
        return tuple(q.id for q in self.queries.values() if partition in q.partitions)


def expand(resource: StreamTopology) -> Topology:
    """The partitions, edges and queries of a checked resource (`check.check` holds)."""
    specs = {x.name: x for x in resource.stages}
    readers = _readers(resource)
    partitions: dict[str, Partition] = {}
    for name in _operator_order(resource):
        for index in range(specs[name].parallelism):
            partition = _partition(specs, readers, name, index)
            partitions[partition.id] = partition
    queries = {}
    upstream = {p: [u.partition for u in x.upstream] for p, x in partitions.items()}
    for pid, partition in partitions.items():
        spec = specs[partition.place.operator]
        if isinstance(spec, OperatorSpec) and spec.output is not None:
            queries[pid] = Query(
                pid, spec.output.priority_of(partition.place.index), _closure([pid], upstream)
            )
    return Topology(resource.name, partitions, queries)


def _readers(resource: StreamTopology) -> dict[str, list[tuple[OperatorSpec, Grouping, bool]]]:
    readers: dict[str, list[tuple[OperatorSpec, Grouping, bool]]] = {}
    for operator in resource.operators:
        for spec in operator.inputs:
            readers.setdefault(spec.source, []).append((operator, spec.grouping, spec.feedback))
    return readers


def _partition(
    specs: Mapping[str, SourceSpec | OperatorSpec],
    readers: Mapping[str, list[tuple[OperatorSpec, Grouping, bool]]],
    name: str,
    index: int,
) -> Partition:
    spec = specs[name]
    upstream = []
    for i in spec.inputs if isinstance(spec, OperatorSpec) else ():
        if i.grouping.mode is Mode.FORWARD:
            upstream.append(Upstream(f"{i.source}.{index}", i.feedback))
        else:
            upstream += [Upstream(f"{i.source}.{k}", i.feedback) for k in range(specs[i.source].parallelism)]
    downstream = []
    for reader, grouping, feedback in readers.get(name, []):
        indices = [index] if grouping.mode is Mode.FORWARD else range(reader.parallelism)
        targets = tuple(f"{reader.name}.{k}" for k in indices)
        downstream.append(Downstream(reader.name, grouping, targets, reader.parallelism, feedback))
    place = Place(name, index, spec.parallelism)
    return Partition(place, isinstance(spec, SourceSpec), spec.cpu_cores, tuple(upstream), tuple(downstream))


def _operator_order(resource: StreamTopology) -> list[str]:
    """Names in topological order; among those that are ready, the order of the resource."""
    waiting = {o.name: {i.source for i in o.inputs if not i.feedback} for o in resource.operators}
    order = [s.name for s in resource.sources]
    done = set(order)
    while waiting:
        ready = [name for name, needs in waiting.items() if needs <= done]
        if not ready:
            raise ValueError(f"a cycle without feedback among {sorted(waiting)}")
        order += ready
        done.update(ready)
        for name in ready:
            del waiting[name]
    return order


def _closure(ids: Iterable[str], neighbours: Mapping[str, list[str]]) -> frozenset[str]:
    todo = list(ids)
    found = set(todo)
    while todo:
        for following in neighbours[todo.pop()]:
            if following not in found:
                found.add(following)
                todo.append(following)
    return frozenset(found)
