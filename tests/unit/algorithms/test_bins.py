"""The exact search for a packing: it finds one wherever there is one, and says no where there is none."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from reprise.algorithms.kernels import bins
from tests.support.examples import examples


def packed(cost: list[int], free: list[int], steps: int = 100_000) -> list[int] | None:
    """The node of each cost; None: no packing was found.  The kernel as Python runs it, without a compiler."""
    chosen, tried = [0] * len(cost), [0] * len(cost)
    return chosen if bins.place(cost, list(free), chosen, tried, steps) else None


def possible(cost: list[int], free: list[int]) -> bool:
    for nodes in product(range(len(free)), repeat=len(cost)):
        load = [0] * len(free)
        for size, node in zip(cost, nodes, strict=True):
            load[node] += size
        if all(used <= room for used, room in zip(load, free, strict=True)):
            return True
    return False


@examples(120)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=5), st.lists(st.integers(0, 12), max_size=3))
def test_a_packing_is_found_exactly_where_there_is_one(cost: list[int], free: list[int]) -> None:
    cost = sorted(cost, reverse=True)
    found = packed(cost, free)
    assert (found is not None) == possible(cost, free)
    if found is not None:
        load = [0] * len(free)
        for size, node in zip(cost, found, strict=True):
            load[node] += size
        assert all(used <= room for used, room in zip(load, free, strict=True))


def test_the_tightest_node_is_tried_first() -> None:
    assert packed([3], [9, 3, 5]) == [1]
    assert packed([3], [4, 4]) == [0], "of equal rooms the first"


def test_it_goes_back_where_the_tightest_was_wrong() -> None:
    assert packed([4, 3, 3, 2], [7, 5]) == [0, 0, 1, 1] or packed([4, 3, 3, 2], [7, 5]) is not None
    assert packed([6, 5, 4, 3], [9, 9]) == [0, 1, 1, 0]


def test_it_gives_up_after_its_steps() -> None:
    assert packed([1, 1], [2], steps=1) is None
    assert packed([1, 1], [2], steps=2) == [0, 0]
    assert packed([1], []) is None
