"""Which queries come and go between two topologies of one stream, where everything else of the graph stays.

Invariant: what stays does not see it.  Its operators have the partitions and the inputs, and so the states, that they had,
and nobody who stays reads from what comes or goes.  What comes begins with nothing, behind a batch that is complete.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from reprise.spark_jobs.errors import SpecError, raise_all
from reprise.spark_jobs.topology.resource import InputSpec, StreamTopology

WAY = "take a savepoint, and begin another topology from that (`reprise savepoint`, `reprise run --from-savepoint`)"


@dataclass(frozen=True, slots=True)
class Stage:
    """What partitions there are of a source or an operator, and what they read."""

    parallelism: int
    inputs: tuple[InputSpec, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {"parallelism": self.parallelism, "inputs": [one.to_json() for one in self.inputs]}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Stage:
        """The inverse of `to_json`.  KeyError, TypeError, ValueError: it is none."""
        return Stage(int(data["parallelism"]), tuple(map(InputSpec.from_json, data["inputs"])))


@dataclass(frozen=True, slots=True)
class Graph:
    """The sources and operators of a topology by name, in the order of the resource."""

    sources: Mapping[str, Stage]
    operators: Mapping[str, Stage]


def graph_of(resource: StreamTopology) -> Graph:
    """The graph of a resource."""
    return Graph(
        {source.name: Stage(source.parallelism) for source in resource.sources},
        {operator.name: Stage(operator.parallelism, operator.inputs) for operator in resource.operators},
    )


@dataclass(frozen=True, slots=True)
class GraphChange:
    """Names of operators, in the order of the resources."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.removed)


def graph_change(before: Graph, after: Graph) -> GraphChange:
    """What comes and goes.  SpecError: more than that differs, each with its field."""
    old, new = before.operators, after.operators
    added = tuple(name for name in new if name not in old)
    removed = tuple(name for name in old if name not in new)
    raise_all((*_sources(before, after), *_stay(old, new), *_without_feedback(after, added)))
    return GraphChange(added, removed)


def _sources(before: Graph, after: Graph) -> Iterator[SpecError]:
    for name in sorted(before.sources.keys() ^ after.sources.keys()):
        yield SpecError(
            f"spec.sources[{name}]", f"a source does not come or go while a stream goes on: {WAY}"
        )
    for name in sorted(before.sources.keys() & after.sources.keys()):
        yield from _parallelism("sources", name, before.sources[name], after.sources[name])


def _stay(old: Mapping[str, Stage], new: Mapping[str, Stage]) -> Iterator[SpecError]:
    for name in (name for name in old if name in new):
        yield from _parallelism("operators", name, old[name], new[name])
        if old[name].inputs != new[name].inputs:
            yield SpecError(
                f"spec.operators[{name}].inputs",
                f"change, and the operator stays: its state was made of what it read. Give it another name, or {WAY}",
            )


def _parallelism(part: str, name: str, old: Stage, new: Stage) -> Iterator[SpecError]:
    if old.parallelism != new.parallelism:
        yield SpecError(
            f"spec.{part}[{name}].parallelism",
            f"was {old.parallelism} and is {new.parallelism}: what is known is kept by partition; {WAY}",
        )


def _without_feedback(after: Graph, added: tuple[str, ...]) -> Iterator[SpecError]:
    for name in added:
        if any(one.feedback for one in after.operators[name].inputs):
            yield SpecError(
                f"spec.operators[{name}].inputs",
                f"an operator that comes would need, over a feedback edge, output of a batch that it has not made; {WAY}",
            )


def unable_to_change(resource: StreamTopology) -> Iterator[SpecError]:
    """Why queries cannot come or go in a stream of this kind."""
    if resource.checkpoint.protocol != "coordinated":
        yield SpecError(
            "spec.checkpoint.protocol",
            f"is {resource.checkpoint.protocol!r}: queries come and go at a checkpoint that has all partitions behind one "
            "batch, which only `coordinated` takes",
        )
    if resource.arrival:
        yield SpecError(
            "spec.batch.order",
            "is 'arrival': whether a query that comes applies the same batches after a loss is not shown there; queries "
            "come and go with `aligned`",
        )
