"""Which partitions of a query are down.

A thousand queries of ten thousand partitions differ in a few of them each, so what they share is looked at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Set

from reprise.algorithms import UnionSet


class Missing:
    """Finds in sets of partitions those that are `down`, in topological order; `order`: the place of each partition in
    it."""

    def __init__(self, order: Mapping[str, int], down: Set[str]) -> None:
        self._order, self._down = order, down
        self._shared: dict[int, tuple[frozenset[str], tuple[str, ...]]] = {}

    def __call__(self, partitions: Set[str]) -> tuple[str, ...]:
        """All of them."""
        shared, own = self._parts(partitions)
        if not shared or not own or self._order[shared[-1]] < self._order[own[0]]:
            return (*shared, *own)
        return self._ordered((*shared, *own))

    def count(self, partitions: Set[str]) -> int:
        """How many there are."""
        shared, own = self._parts(partitions)
        return len(shared) + len(own)

    def first(self, partitions: Set[str], most: int) -> tuple[str, ...]:
        """No more than the first so many."""
        shared, own = self._parts(partitions)
        return self._ordered((*shared[:most], *own[:most]))[:most]

    def _parts(self, partitions: Set[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        shared, own = UnionSet.parts_of(partitions)
        if id(shared) not in self._shared:
            self._shared[id(shared)] = shared, self._ordered(shared & self._down)
        return self._shared[id(shared)][1], self._ordered(own & self._down)

    def _ordered(self, partitions: Set[str] | tuple[str, ...]) -> tuple[str, ...]:
        return tuple(sorted(partitions, key=self._order.__getitem__))
