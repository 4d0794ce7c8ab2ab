"""A topology expanded to partitions: who reads whom, in what order to think, and which partitions make up
each query.

Placement, failure, checkpointing and recovery all speak of partitions, so the operator graph is expanded once, here. Ten
thousand partitions may have ten million edges between them, but operators have dozens of groupings: partitions that read
the same ones share one tuple of them, and queries that need the same partitions beside their own share one set
(`UnionSet`), so that memory and time follow the partitions and not the edges.

Invariants: `partitions` is in topological order (feedback edges left aside); an edge appears in `upstream` of its target
exactly when it appears in `downstream` of its origin; `queries[p]` is closed under upstream, feedback edges included
(Su and Zhou, Def. 1).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain

from reprise.algorithms import UnionSet
from reprise.algorithms.cpu import milli_cpu
from reprise.spark_jobs.contract import Place
from reprise.spark_jobs.topology.limits import Needs, within_limits
from reprise.spark_jobs.topology.promise import Promise
from reprise.spark_jobs.topology.resource import Grouping, Mode, OperatorSpec, SourceSpec, StreamTopology


@dataclass(frozen=True, slots=True)
class Upstream:
    """One partition that a partition reads; over a feedback edge it reads the batch before."""

    partition: str
    feedback: bool
    cyclic: bool = False
    """Whether it reads, directly or not, what its reader makes: the operators of both are in one cycle."""


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

    @property
    def cpu_milli(self) -> int:
        """Declared CPU as plans count it."""
        return milli_cpu(self.cpu_cores)

    @property
    def late(self) -> int:
        """Batches by which some reader is behind it when both are at one position: 1 where a feedback edge begins."""
        return int(any(down.feedback for down in self.downstream))


@dataclass(frozen=True, slots=True)
class Query:
    """An output partition with everything upstream of it."""

    id: str
    """Id of the output partition."""
    priority: int
    partitions: UnionSet
    objective_s: float | None = None
    """In how long it is to be back after the loss of a node."""


@dataclass(frozen=True, slots=True)
class Topology:
    """The expanded topology."""

    name: str
    partitions: Mapping[str, Partition]
    queries: Mapping[str, Query]
    """By output partition id, in topological order."""
    node_cpu_milli: int
    """CPU that a node of this topology has."""
    cpu_cap: float
    """Share of a node's CPU that plans may fill."""
    standbys: Mapping[str, str | None] = field(default_factory=dict)
    """Operators whose partitions are to have standbys, with the label of nodes that is their failure domain; None: none is
    named."""
    objectives: Mapping[str, float] = field(default_factory=dict)
    """Partition -> the shortest objective of the queries that need it, seconds, of those that have one."""
    promises: Mapping[str, Promise] = field(default_factory=dict)
    """What is promised of the outputs of an operator; filled in by those who show it."""
    batch_interval_s: float = 0.0
    """Seconds between batches; 0: each is due as soon as the ones before allow it."""
    failure_domain: str | None = None
    """The label of nodes that `nodes.failureDomain` names."""
    passive_every: Mapping[str, int] = field(default_factory=dict)
    """Those of `standbys` whose standbys are passive, with the batches between what each is sent."""

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
        return frozenset(_closure(ids, self.partitions))

    def downstream_of(self, ids: Iterable[str]) -> frozenset[str]:
        """`ids` with all their transitive downstream partitions, over feedback edges too."""
        found, todo, seen = set(ids), list(ids), set[int]()
        while todo:
            for reader in self.partitions[todo.pop()].downstream:
                if id(reader.targets) not in seen:
                    seen.add(id(reader.targets))
                    todo += [target for target in reader.targets if target not in found]
                    found.update(reader.targets)
        return frozenset(found)


def expand(resource: StreamTopology) -> Topology:
    """The partitions, edges and queries of a checked resource (`check.check` holds).  SpecError where it is too large."""
    within_limits(resource)
    specs = {x.name: x for x in resource.stages}
    readers, cycles = _readers(resource), _cycles(resource)
    partitions: dict[str, Partition] = {}
    for name in stage_order(resource):
        for partition in _partitions(specs, readers, cycles, name):
            partitions[partition.id] = partition
    members = _Members(resource)
    queries = {}
    for pid, partition in partitions.items():
        spec = specs[partition.place.operator]
        if isinstance(spec, OperatorSpec) and spec.output is not None:
            queries[pid] = Query(
                pid,
                spec.output.priority_of(partition.place.index),
                members.of(partition.place),
                spec.output.objective_s,
            )
    node_cpu_milli, cpu_cap = milli_cpu(resource.nodes.cpu_cores), resource.recovery.cpu_cap
    standbys = {o.name: resource.standby_domain(o) for o in resource.operators if o.has_standby}
    objectives = _objectives(queries.values())
    return Topology(
        resource.name, partitions, queries, node_cpu_milli, cpu_cap, standbys, objectives,
        batch_interval_s=resource.batch_interval_s, failure_domain=resource.nodes.failure_domain,
        passive_every=resource.passive_every,
    )  # fmt: skip


def _objectives(queries: Iterable[Query]) -> dict[str, float]:
    found: dict[str, float] = {}
    shared: dict[int, tuple[frozenset[str], float]] = {}
    for query in queries:
        if (objective := query.objective_s) is not None:
            common = query.partitions.shared
            shared[id(common)] = common, min(objective, shared.get(id(common), (common, objective))[1])
            for partition in query.partitions.own:
                found[partition] = min(objective, found.get(partition, objective))
    for common, objective in shared.values():
        for partition in common:
            found[partition] = min(objective, found.get(partition, objective))
    return found


def _readers(resource: StreamTopology) -> dict[str, list[tuple[OperatorSpec, Grouping, bool]]]:
    readers: dict[str, list[tuple[OperatorSpec, Grouping, bool]]] = {}
    for operator in resource.operators:
        for spec in operator.inputs:
            readers.setdefault(spec.source, []).append((operator, spec.grouping, spec.feedback))
    return readers


def _cycles(resource: StreamTopology) -> dict[str, int]:
    """Operators in cycles -> the number of the strongly connected component that each is in.  Every cycle has a feedback
    edge, so components are looked for around the readers of these alone; such a reader is in one, if only in its own."""
    read = {o.name: [i.source for i in o.inputs] for o in resource.operators}
    readers: dict[str, list[str]] = {}
    for name, sources in read.items():
        for source in sources:
            readers.setdefault(source, []).append(name)
    found: dict[str, int] = {}
    for operator in resource.operators:
        if operator.name not in found and any(i.feedback for i in operator.inputs):
            both = _reached(operator.name, read) & _reached(operator.name, readers)
            found.update(dict.fromkeys(both, len(found)))
    return found


def _reached(start: str, edges: Mapping[str, list[str]]) -> set[str]:
    """`start`, and all that is reached from there."""
    found, todo = {start}, [start]
    while todo:
        new = set(edges.get(todo.pop(), ())) - found
        found |= new
        todo += new
    return found


def _partitions(
    specs: Mapping[str, SourceSpec | OperatorSpec],
    readers: Mapping[str, list[tuple[OperatorSpec, Grouping, bool]]],
    cycles: Mapping[str, int],
    name: str,
) -> Iterator[Partition]:
    """The partitions of one operator; what is the same for all of them is one object."""
    spec = specs[name]
    inputs = spec.inputs if isinstance(spec, OperatorSpec) else ()
    cyclic = [name in cycles and cycles.get(i.source) == cycles[name] for i in inputs]
    read = [
        tuple(Upstream(f"{i.source}.{k}", i.feedback, one) for k in range(specs[i.source].parallelism))
        for i, one in zip(inputs, cyclic, strict=True)
    ]
    forward = [i.grouping.mode is Mode.FORWARD for i in inputs]
    everything = tuple(chain.from_iterable(read))
    reached = [
        tuple(f"{reader.name}.{k}" for k in range(reader.parallelism))
        for reader, _, _ in readers.get(name, [])
    ]
    shared = [
        _downstream(entry, targets) for entry, targets in zip(readers.get(name, []), reached, strict=True)
    ]
    alone = [grouping.mode is Mode.FORWARD for _, grouping, _ in readers.get(name, [])]
    for index in range(spec.parallelism):
        upstream = everything
        if any(forward):
            own = [(whole[index],) if one else whole for whole, one in zip(read, forward, strict=True)]
            upstream = tuple(chain.from_iterable(own))
        downstream = tuple(
            replace(entry, targets=(targets[index],)) if one else entry
            for entry, targets, one in zip(shared, reached, alone, strict=True)
        )
        place = Place(name, index, spec.parallelism)
        yield Partition(place, isinstance(spec, SourceSpec), spec.cpu_cores, upstream, downstream)


def _downstream(reader: tuple[OperatorSpec, Grouping, bool], targets: tuple[str, ...]) -> Downstream:
    operator, grouping, feedback = reader
    return Downstream(operator.name, grouping, targets, operator.parallelism, feedback)


class _Members:
    """The partitions of each query."""

    def __init__(self, resource: StreamTopology) -> None:
        self._needs = Needs.of_stages(resource.stages)
        self._width = {stage.name: stage.parallelism for stage in resource.stages}
        self._known: dict[frozenset[str], frozenset[str]] = {}
        """All partitions of sets of operators."""

    def of(self, output: Place) -> UnionSet:
        """The partition with all that is upstream of it, over feedback edges too."""
        own, whole = self._needs.of(output.operator)
        if whole not in self._known:
            self._known[whole] = frozenset(f"{name}.{k}" for name in whole for k in range(self._width[name]))
        return UnionSet(self._known[whole], (f"{name}.{output.index}" for name in own))


def stage_order(resource: StreamTopology) -> list[str]:
    """Names of sources and operators in topological order; among those that are ready, the order of the resource."""
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


def _closure(ids: Iterable[str], partitions: Mapping[str, Partition]) -> set[str]:
    """`ids` with all that is upstream of them; partitions that read the same ones are followed once."""
    found, todo, seen = set(ids), list(ids), set[int]()
    while todo:
        upstream = partitions[todo.pop()].upstream
        if id(upstream) not in seen:
            seen.add(id(upstream))
            new = [u.partition for u in upstream if u.partition not in found]
            found.update(new)
            todo += new
    return found
