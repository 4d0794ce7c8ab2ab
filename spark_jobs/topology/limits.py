"""How large a topology may be, so that one of them never takes what serves all of them.

An operator expands every topology that it looks after, in one process; records name every partition; a plan asks which
partitions each query needs.  The shape of a resource (200 operators of 1,024 partitions each) allows more than any of these
can bear, so sums are limited as well.  Figures: docs/decisions/0013-record-sizes.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from reprise.spark_jobs.errors import SpecError
from reprise.spark_jobs.topology.resource import Mode, OperatorSpec, SourceSpec, StreamTopology

MAX_PARTITIONS = 10_000
"""Of all sources and operators.  Records of these are a fifth of what ZooKeeper takes at once."""
MAX_EDGES = 10_000_000
"""Pairs of a partition and one that it reads, each of which carries a message a batch."""
MAX_NEEDS = 10_000_000
"""Partitions that the queries need, summed over all queries: what a plan is made from."""


def within_limits(resource: StreamTopology) -> None:
    """SpecError for the first limit that a resource exceeds, with the number.  Inputs that name nobody are passed over."""
    size = sum(stage.parallelism for stage in resource.stages)
    if size > MAX_PARTITIONS:
        largest = max(resource.stages, key=lambda stage: stage.parallelism)
        raise SpecError(
            "spec",
            f"sources and operators have {size:,} partitions together (parallelism), and {MAX_PARTITIONS:,} is the most; "
            f"{largest.name!r} has {largest.parallelism:,}",
        )
    _few_edges(resource)
    _few_needs(resource)


def _few_edges(resource: StreamTopology) -> None:
    width = {stage.name: stage.parallelism for stage in resource.stages}
    edges = {
        (operator.name, index): operator.parallelism
        * (1 if spec.grouping.mode is Mode.FORWARD else width.get(spec.source, 0))
        for operator in resource.operators
        for index, spec in enumerate(operator.inputs)
    }
    if (total := sum(edges.values())) > MAX_EDGES:
        name, index = max(edges, key=lambda place: edges[place])
        raise SpecError(
            f"spec.operators[{name}].inputs[{index}]",
            f"partitions read each other over {total:,} edges, and {MAX_EDGES:,} is the most; this input has "
            f"{edges[name, index]:,} of them: use `forward` or less parallelism",
        )


def _few_needs(resource: StreamTopology) -> None:
    needs = Needs.of_stages(resource.stages)
    sums = {o.name: o.parallelism * needs.count(o.name) for o in resource.operators if o.output is not None}
    if (total := sum(sums.values())) > MAX_NEEDS:
        name = max(sums, key=lambda output: sums[output])
        raise SpecError(
            f"spec.operators[{name}].output",
            f"queries need {total:,} partitions in sum over all queries, and {MAX_NEEDS:,} is the most; those of this "
            f"output need {sums[name]:,} of them: fewer output operators, or less parallelism",
        )


class Needs:
    """What the queries need, by operator: one partition of each that is reached by `forward` edges alone, and all partitions
    of whatever is above that.  Feedback edges count."""

    def __init__(self, inputs: Mapping[str, Sequence[tuple[str, bool]]], width: Mapping[str, int]) -> None:
        """`inputs`: what each operator reads, and whether by `forward`; `width`: partitions of each."""
        self._inputs, self._width = inputs, width

    @classmethod
    def of_stages(cls, stages: Sequence[SourceSpec | OperatorSpec]) -> Needs:
        """The needs that a resource describes."""
        inputs = {
            stage.name: [(spec.source, spec.grouping.mode is Mode.FORWARD) for spec in stage.inputs]
            for stage in stages
            if isinstance(stage, OperatorSpec)
        }
        return cls(inputs, {stage.name: stage.parallelism for stage in stages})

    def of(self, operator: str) -> tuple[frozenset[str], frozenset[str]]:
        """Operators of which a partition of `operator` needs the partition of its own index, and all partitions."""
        own, whole, todo = {operator}, set[str](), [operator]
        while todo:
            for source, forward in self._inputs.get(todo.pop(), ()):
                if not forward:
                    whole.add(source)
                elif source not in own:
                    own.add(source)
                    todo.append(source)
        todo = list(whole)
        while todo:
            new = {source for source, _ in self._inputs.get(todo.pop(), ())} - whole
            whole |= new
            todo += new
        return frozenset(own - whole), frozenset(whole)

    def count(self, operator: str) -> int:
        """Partitions that a query of this operator needs."""
        own, whole = self.of(operator)
        return len(own) + sum(self._width.get(name, 0) for name in whole)
