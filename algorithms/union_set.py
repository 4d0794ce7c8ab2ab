"""A set that shares most of its elements with others.

A thousand queries of ten thousand partitions differ in a few of them each.  As sets of their own they take half a gigabyte.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from typing import Any


class UnionSet(Set[str]):
    """Immutable: the elements of `shared`, and those of `own`, which are not among them.  Equal to any set of the same
    elements; it has no hash."""

    __slots__ = ("own", "shared")

    def __init__(self, shared: frozenset[str], own: Iterable[str] = ()) -> None:
        self.shared = shared
        self.own = frozenset(own) - shared

    @staticmethod
    def parts_of(elements: Set[str]) -> tuple[frozenset[str], Set[str]]:
        """What a set shares with others, and what it has beside that; any other set shares nothing.  Whoever keeps what is
        found of the first by its id keeps it, too, so that no other one gets that."""
        return (elements.shared, elements.own) if isinstance(elements, UnionSet) else (frozenset(), elements)

    def __contains__(self, element: object) -> bool:
        return element in self.own or element in self.shared

    def __iter__(self) -> Iterator[str]:
        yield from self.shared
        yield from self.own

    def __len__(self) -> int:
        return len(self.shared) + len(self.own)

    def __repr__(self) -> str:
        return f"UnionSet({set(self)!r})"

    def __eq__(self, other: object) -> bool:
        if isinstance(other, UnionSet) and self.shared is other.shared:
            return self.own == other.own
        return super().__eq__(other)

    __hash__ = None  # type: ignore[assignment]

    def __le__(self, other: Set[Any]) -> bool:
        return self.own <= other and self.shared <= other

    def isdisjoint(self, other: Iterable[Any]) -> bool:
        known = other if isinstance(other, Set) else frozenset(other)
        return self.own.isdisjoint(known) and self.shared.isdisjoint(known)

    def __and__(self, other: Set[Any]) -> frozenset[str]:
        return (self.shared & other) | (self.own & other)

    __rand__ = __and__

    @classmethod
    def _from_iterable(cls, elements: Iterable[Any]) -> frozenset[Any]:
        """What operations with other sets give."""
        return frozenset(elements)
