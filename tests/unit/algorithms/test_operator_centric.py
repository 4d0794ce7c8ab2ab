"""The operator-centric baseline: the cheapest partition first, in topological order, until one does not fit."""

from __future__ import annotations

import random
from collections.abc import Mapping
from itertools import pairwise

import pytest

from reprise.algorithms import Instance, NodeCapacity, PartitionCost
from reprise.algorithms.operator_centric import restore_in_topological_order


def instance(
    cost: Mapping[str, int], capacity: int, *edges: tuple[str, str], free: Mapping[str, int] | None = None
) -> Instance:
    nodes = tuple(NodeCapacity(n, room) for n, room in (free or {}).items())
    return Instance(capacity, tuple(PartitionCost(p, c) for p, c in cost.items()), (), nodes, edges)


def order(*args: object, **more: object) -> tuple[str, ...]:
    return restore_in_topological_order(instance(*args, **more))[0]  # type: ignore[arg-type]


def test_the_cheapest_that_is_ready_comes_next() -> None:
    cost = {"dear": 5, "cheap": 1, "after": 2}
    assert order(cost, 8, ("cheap", "after")) == ("cheap", "after", "dear")
    assert order(cost, 8, ("dear", "after")) == ("cheap", "dear", "after")


def test_of_equal_ones_the_first_by_name_comes_first() -> None:
    assert order({"b": 1, "a": 1, "c": 1}, 3) == ("a", "b", "c")


def test_it_ends_with_the_first_that_does_not_fit() -> None:
    assert order({"a": 1, "b": 4, "c": 5}, 4) == ("a",), "the dearer ones would not fit either"
    assert order({"a": 1}, 0) == ()
    assert order({}, 9) == ()


def test_an_edge_that_is_named_twice_is_waited_for_once() -> None:
    assert order({"a": 1, "b": 1}, 2, ("a", "b"), ("a", "b")) == ("a", "b")


def test_edges_within_a_cycle_say_nothing_of_the_order() -> None:
    cycle = (("b", "c"), ("c", "b"))
    assert order({"a": 3, "b": 2, "c": 1}, 6, ("a", "b"), *cycle) == ("c", "a", "b")
    assert order({"a": 1}, 1, ("a", "a")) == ("a",)


def test_where_there_are_nodes_each_goes_to_the_one_with_most_room() -> None:
    found = restore_in_topological_order(instance({"a": 2, "b": 3, "c": 4}, 99, free={"n1": 5, "n2": 4}))
    assert found == (("a", "b"), {"a": "n1", "b": "n2"}), "c fits in sum, and on neither node"


def test_without_nodes_nothing_is_placed() -> None:
    assert restore_in_topological_order(instance({"a": 1}, 1)) == (("a",), {})


def test_a_long_chain_needs_no_recursion() -> None:
    names = [f"p{k:05}" for k in range(3_000)]
    edges = list(pairwise(names))
    assert order(dict.fromkeys(names, 1), len(names), *edges) == tuple(names)


@pytest.mark.parametrize("seed", range(20))
def test_nobody_comes_before_whom_it_reads_from_unless_they_are_in_a_cycle(seed: int) -> None:
    rng = random.Random(seed)
    names = [f"p{k}" for k in range(8)]
    edges = [(a, b) for a in names for b in names if rng.random() < 0.15]
    cost = {p: rng.randrange(5) for p in names}
    found = order(cost, rng.randrange(30), *edges)
    reach = {p: {p} for p in names}
    for _ in names:
        for a, b in edges:
            reach[a] |= reach[b]
    for source, target in edges:
        if target in found and source not in reach[target]:
            assert source in found[: found.index(target)]
