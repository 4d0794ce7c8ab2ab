"""The set-union knapsack problem in the form the algorithms compute on.

Queries and partitions are sorted by id and become indices, so the order of an input never shows in a plan,
and "lowest index" is the one tie-break everywhere. A set of partitions is a Python integer used as a bit
mask.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import compress, count
from math import lcm

from reprise.algorithms.model import MAX_TOTAL, Instance

DENSE_BITS = 3
"""Set bits from which, and an eighth of the length, it is quicker to select from all indices than to seek them."""


@dataclass(frozen=True, slots=True)
class Problem:
    """`masks[q]` has bit k set where query q needs partition k; `sharers[k]` are the queries that need
    partition k. Partitions that no query needs are not in here: no plan for queries restores them."""

    capacity: int
    query_ids: tuple[str, ...]
    priority: tuple[int, ...]
    masks: tuple[int, ...]
    partition_ids: tuple[str, ...]
    cost: tuple[int, ...]
    sharers: tuple[tuple[int, ...], ...] = field(default=())

    def members(self, query: int) -> Iterator[int]:
        return bits(self.masks[query])

    def union(self, queries: Iterable[int]) -> int:
        mask = 0
        for query in queries:
            mask |= self.masks[query]
        return mask

    def cost_of(self, mask: int) -> int:
        return sum(compress(self.cost, flags(mask)))

    def costs_alone(self) -> list[int]:
        """What each query takes with nothing shared; queries with the same partitions are looked at once."""
        known = {mask: self.cost_of(mask) for mask in set(self.masks)}
        return [known[mask] for mask in self.masks]

    def names_in(self, mask: int) -> tuple[str, ...]:
        """The ids of the partitions of a set, in the order of `bits`."""
        return tuple(compress(self.partition_ids, flags(mask)))

    def costs_in(self, mask: int) -> tuple[int, ...]:
        """The cost of each partition of a set, in the order of `bits`."""
        return tuple(compress(self.cost, flags(mask)))

    def value_of(self, queries: Iterable[int]) -> int:
        return sum([self.priority[query] for query in queries])

    def closure(self, mask: int) -> tuple[int, ...]:
        """All queries that are complete once the partitions of `mask` are restored."""
        return tuple(q for q, members in enumerate(self.masks) if members & ~mask == 0)


def compile_problem(instance: Instance) -> Problem:
    """The sum problem of an instance; node limits and edges are dealt with elsewhere."""
    queries = sorted(instance.queries, key=lambda query: query.id)
    cost_by_id = {partition.id: partition.cost for partition in instance.partitions}
    used = sorted(set[str]().union(*(query.partitions for query in queries)))
    index = {name: k for k, name in enumerate(used)}
    return make_problem(
        capacity=instance.budget(),
        query_ids=tuple(query.id for query in queries),
        priority=tuple(query.priority for query in queries),
        masks=tuple([_mask(map(index.__getitem__, query.partitions), len(used)) for query in queries]),
        partition_ids=tuple(used),
        cost=tuple(cost_by_id[name] for name in used),
    )


def make_problem(
    *,
    capacity: int,
    query_ids: tuple[str, ...],
    priority: tuple[int, ...],
    masks: tuple[int, ...],
    partition_ids: tuple[str, ...],
    cost: tuple[int, ...],
) -> Problem:
    """A Problem with its derived fields."""
    return Problem(capacity, query_ids, priority, masks, partition_ids, cost, _sharers(masks, len(cost)))


def _mask(indices: Iterable[int], size: int) -> int:
    """The set of these, which are less than `size`; in one pass, as adding bit by bit copies all of them each time."""
    row = bytearray(size)
    for k in indices:
        row[k] = 1
    return _from_flags(row)


def _from_flags(row: bytes | bytearray) -> int:
    """The inverse of `flags`."""
    return int(row[::-1].translate(_TO_DIGITS) or b"0", 2)


def _sharers(masks: Sequence[int], size: int) -> tuple[tuple[int, ...], ...]:
    """The queries of each partition; partitions that the same ones share have one tuple of them."""
    rows = [flags(mask).ljust(size, b"\0") for mask in masks]
    known: dict[bytes, tuple[int, ...]] = {}
    found = []
    for column in map(bytes, zip(*rows, strict=True)) if rows else [b""] * size:
        if column not in known:
            known[column] = tuple(compress(count(), column))
        found.append(known[column])
    return tuple(found)


def shares(problem: Problem) -> tuple[int, tuple[int, ...]]:
    """(scale, shares): c_k / f_k of Definition 3, the cost of a partition split among the queries that share
    it, as integers times `scale`. f_k needs no update while a plan grows: a query that shares an unrestored
    partition is itself not restored. The scale is the least common multiple of all f_k where sums stay exact
    in a float64, else the largest power of two for which they do; then a share is rounded down by less than
    one."""
    counts = [max(1, len(queries)) for queries in problem.sharers]
    total = sum(problem.cost) or 1
    scale = 1
    for sharing in sorted(set(counts)):
        scale = lcm(scale, sharing)
        if scale * total > MAX_TOTAL:
            scale = 1 << max(0, (MAX_TOTAL // total).bit_length() - 1)
            break
    return scale, tuple(cost * scale // n for cost, n in zip(problem.cost, counts, strict=True))


def bits(mask: int) -> Iterator[int]:
    """Indices of the set bits, lowest first."""
    if mask.bit_count() > DENSE_BITS + (mask.bit_length() >> 3):
        return compress(count(), flags(mask))
    return _few_bits(mask)


def _few_bits(mask: int) -> Iterator[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def flags(mask: int) -> bytes:
    """One byte a bit up to the highest that is set, lowest first: 1 where it is set. What selects by a set takes the
    time of a few of its elements."""
    return bin(mask)[:1:-1].encode().translate(_DIGITS)


_DIGITS = bytes.maketrans(b"01", b"\x00\x01")
_TO_DIGITS = bytes.maketrans(b"\x00\x01", b"01")


class Deadline:
    """A time limit on an injected clock (seconds, monotonic)."""

    __slots__ = ("_clock", "_end", "_start")

    def __init__(self, clock: Callable[[], float], limit: float) -> None:
        self._clock = clock
        self._start = clock()
        self._end = self._start + limit

    def left(self) -> float:
        return max(0.0, self._end - self._clock())

    @property
    def virtual(self) -> bool:
        """Whether looks are counted instead of time, so that waiting costs nothing."""
        return isinstance(self._clock, StepClock)

    def spent(self) -> float:
        return self._clock() - self._start

    def part(self, share: float) -> Deadline:
        """A deadline on the same clock after `share` of what is left."""
        return Deadline(self._clock, self.left() * share)

    def passed(self) -> bool:
        return self._clock() >= self._end


class StepClock:
    """The clock that stands in where none is injected: each look at it takes a fixed step. Plans are then the
    same on every machine and in every run, and a time limit bounds work instead of seconds."""

    __slots__ = ("_now", "_step")

    def __init__(self, step: float = 0.0005) -> None:
        self._now = 0.0
        self._step = step

    def __call__(self) -> float:
        self._now += self._step
        return self._now


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an algorithm found for the sum problem: query indices, a proven upper bound on the value (None:
    none computed), a note on how it went, and the planner that ran where that was not the one asked for.
    `with_less` gives what the same planner would find for less capacity, where that is known without running it."""

    queries: tuple[int, ...]
    bound: int | None = None
    note: str = ""
    algorithm: str = ""
    with_less: Callable[[int], Outcome | None] = field(default=lambda _: None, compare=False)
