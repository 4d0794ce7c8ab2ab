"""What a planner is asked and what it answers: values only.

A failed query is worth its priority once *all* of its failed partitions are restored, and partitions are
shared, so the choice is a set-union knapsack problem (Su and Zhou, Definition 2; He et al. 2018): query = item,
partition = element, free capacity = budget. Everything is an integer: costs and capacities are milli-CPU when
they come from the scheduler, and decimals of a file times `Instance.scale`; sums and comparisons are exact,
so a plan never depends on rounding.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

DEFAULT_PRIORITY = 1
"""Priority of a query that states none (Su and Zhou, section 2.3)."""

MAX_TOTAL = 2**50
"""Largest sum of costs or capacities. Below 2**53 a float64 holds every integer exactly, so numpy and the
solver may carry these numbers as floats without losing a unit; the rest is head-room for one addition of two
such sums."""


@dataclass(frozen=True, slots=True)
class NodeCapacity:
    """A node that can take partitions and the capacity it has left below its cap."""

    id: str
    free: int


@dataclass(frozen=True, slots=True)
class PartitionCost:
    """A failed partition and what it takes from a node that hosts it."""

    id: str
    cost: int


@dataclass(frozen=True, slots=True)
class FailedQuery:
    """A query that is down. `partitions` are its failed ones only: what still runs costs nothing."""

    id: str
    priority: int
    partitions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Instance:
    """One planning question. `capacity` bounds the sum of the costs; where `nodes` are given the plan must
    also fit node by node. `edges` (upstream, downstream) order partitions for the operator-centric baseline
    only. `scale` is the factor by which decimals were multiplied: real cost = cost / scale."""

    capacity: int
    partitions: tuple[PartitionCost, ...]
    queries: tuple[FailedQuery, ...]
    nodes: tuple[NodeCapacity, ...] = ()
    edges: tuple[tuple[str, str], ...] = ()
    scale: int = 1

    def budget(self) -> int:
        """What may be spent in sum: the capacity, or less when the nodes together have less."""
        if not self.nodes:
            return self.capacity
        return min(self.capacity, sum(node.free for node in self.nodes))


@dataclass(frozen=True, slots=True)
class Choice:
    """A query that the plan brings back, in the order in which to restore: `cost` is what it adds to those
    before it, `cost_alone` what it would take with nothing shared."""

    query: str
    priority: int
    cost: int
    cost_alone: int
    restores: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Exclusion:
    """Why a query is left out.

    `missing` are its partitions that the plan does not restore; `missing_capacity` is how much more capacity
    it takes to add it to the plan as it stands (0: the sum suffices and the nodes do not); `competes_with`
    are chosen queries that would have to make way; `enters_at` is the smallest capacity at which it comes in,
    exact where `entry_exact`, else the capacity at which it fits beside all that is chosen now. `code` is one
    of CODES.
    """

    query: str
    reason: str
    missing: tuple[str, ...] = ()
    missing_capacity: int = 0
    competes_with: tuple[str, ...] = ()
    enters_at: int = 0
    entry_exact: bool = False
    code: str = "outbid"


CODES = {
    "too-large": "alone it needs more than the whole free capacity",
    "outbid": "others bring more priority for the capacity it would take",
    "packing": "the capacity suffices in sum, but no node has room for the pieces",
    "not-completed": "a planner that works partition by partition did not complete it",
    "not-found": "it fits beside the plan; the planner that ran did not look at it",
    "order": "a query of higher priority comes first, and there is no room for that one yet",
}


@dataclass(frozen=True, slots=True)
class Plan:
    """The answer: what to restore now, where, and what that brings back.

    `value` is the summed priority of `queries`, `cost` the summed cost of `partitions`, `bound` an upper
    bound on the value of any plan and `optimal` whether `value` is proven to reach the optimum.
    `packing_loss` is what the node-by-node limits cost against the best plan found for the sum. `why` says
    which algorithm ran and why.
    """

    algorithm: str
    value: int
    cost: int
    queries: tuple[str, ...]
    partitions: tuple[str, ...]
    placement: Mapping[str, str] | None
    bound: int
    optimal: bool
    seconds: float
    excluded: tuple[Exclusion, ...]
    chosen: tuple[Choice, ...] = ()
    why: str = ""
    packing_loss: int = 0
    scale: int = field(default=1)

    @property
    def gap(self) -> float:
        """How far the value may be from the optimum, as a share of the bound; 0 when proven."""
        return 0.0 if self.optimal or self.bound <= 0 else (self.bound - self.value) / self.bound
