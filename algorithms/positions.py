"""The position of each partition in a checkpoint or in what is restored from it: a value that all layers share.

A global checkpoint has one position for all.  In any other line a few partitions differ from the rest, so the value is one
position and those that differ from it: records and commands do not grow with the number of partitions.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class Origin(NamedTuple):
    """The place from which a partition goes on."""

    generation: int
    """Another one than before takes the partition back although it is at work."""
    position: int
    """Batch of the snapshot that it is restored from; 0 is its initial state.  A new position in the same generation changes
    nothing for a partition at work: it would be restored from there if it were lost."""


@dataclass(frozen=True, slots=True)
class Positions:
    """Partition -> batch.  `everybody`: of all partitions but those in `others`."""

    everybody: int = 0
    others: Mapping[str, int] = field(default_factory=dict)

    def of(self, partition: str) -> int:
        """The position of one partition."""
        return self.others.get(partition, self.everybody)

    def least(self, partitions: Collection[str]) -> int:
        """The least position among some partitions; there must be at least one."""
        return min(map(self.of, partitions)) if self.others else self.everybody

    @property
    def distinct(self) -> frozenset[int]:
        """Each position that some partition has."""
        return frozenset({self.everybody, *self.others.values()})

    @property
    def oldest(self) -> int:
        """The least position of all."""
        return min(self.distinct)

    @property
    def newest(self) -> int:
        """The greatest position of all."""
        return max(self.distinct)

    def origins(self, generation: int) -> dict[str, Origin]:
        """Where those that differ from everybody go on from, in that generation: the `lines` of a record."""
        return {partition: Origin(generation, position) for partition, position in self.others.items()}

    def beyond(self, other: Positions) -> bool:
        """Whether every partition is further here than in `other`."""
        named = self.others.keys() | other.others.keys()
        return self.everybody > other.everybody and all(self.of(p) > other.of(p) for p in named)


class Line:
    """What a record with `generation`, `checkpoint` and `lines` says of each partition: where it goes on from."""

    __slots__ = ()
    generation: int
    checkpoint: int
    """The position of all partitions but those in `lines`."""
    lines: Mapping[str, Origin]

    def origin(self, partition: str) -> Origin:
        """Say from where a partition goes on."""
        return self.lines.get(partition) or Origin(self.generation, self.checkpoint)

    @property
    def restored_from(self) -> Positions:
        """The position in the origin of each partition."""
        others = {p: o.position for p, o in self.lines.items() if o.position != self.checkpoint}
        return Positions(self.checkpoint, others)
