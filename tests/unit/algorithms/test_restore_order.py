"""The order in which states are fetched, against all orders."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence

import pytest

from reprise.algorithms import restore_order
from reprise.algorithms.restore_order import by_value

Needs = Mapping[str, frozenset[str]]


def lost(order: Sequence[str], size: Mapping[str, int], needs: Needs, priority: Mapping[str, int]) -> int:
    """Priority times bytes until each query is whole, summed up."""
    done, at = 0, {}
    for partition in order:
        done += size[partition]
        at[partition] = done
    return sum(priority[q] * max((at[p] for p in parts if p in at), default=0) for q, parts in needs.items())


def ordered(ranks: Mapping[str, float]) -> list[str]:
    return sorted(ranks, key=lambda p: -ranks[p])


def instance(rng: random.Random, shared: bool) -> tuple[dict[str, int], Needs, dict[str, int]]:
    size = {f"p{k}": rng.randint(1, 40) for k in range(rng.randint(2, 6))}
    left = list(size)
    rng.shuffle(left)
    needs: dict[str, frozenset[str]] = {}
    for k in range(rng.randint(1, 4)):
        count = rng.randint(1, 3)
        if shared:
            needs[f"q{k}"] = frozenset(rng.sample(list(size), min(count, len(size)))) | {"at work"}
        elif left:
            needs[f"q{k}"] = frozenset(left[:count])
            left = left[count:]
    return size, needs, {q: rng.randint(1, 10) for q in needs}


def best(size: Mapping[str, int], needs: Needs, priority: Mapping[str, int]) -> int:
    return min(lost(order, size, needs, priority) for order in itertools.permutations(size))


@pytest.mark.parametrize("seed", range(60))
def test_it_is_the_best_order_where_queries_share_nothing(seed: int) -> None:
    size, needs, priority = instance(random.Random(seed), shared=False)
    found = lost(ordered(by_value(size, needs, priority)), size, needs, priority)
    assert found == best(size, needs, priority)


def test_with_shared_partitions_it_is_near_the_best_and_far_from_any_order() -> None:
    """How near is a matter of these 200 instances; in the order of names, as they came before, half as much again is
    lost."""
    greedy, by_name = [], []
    for seed in range(200):
        size, needs, priority = instance(random.Random(seed), shared=True)
        least = best(size, needs, priority)
        greedy.append(lost(ordered(by_value(size, needs, priority)), size, needs, priority) / least)
        by_name.append(lost(sorted(size), size, needs, priority) / least)
    assert max(greedy) < 1.3
    assert sum(greedy) / len(greedy) < 1.02
    assert sum(by_name) / len(by_name) > 1.5


def test_what_no_query_needs_comes_last_and_a_state_without_bytes_is_no_division_by_zero() -> None:
    ranks = by_value({"a": 0, "b": 10, "c": 10}, {"q": {"a", "b"}}, {"q": 1})
    assert ranks["c"] == 0.0 < ranks["a"] == ranks["b"]


def test_ranks_do_not_rise_when_what_is_left_of_a_query_is_cheap() -> None:
    """The shared partition comes with the dense query, and what the other lacks then is denser than that was."""
    ranks = by_value(
        {"shared": 100, "rest": 1}, {"q1": {"shared"}, "q2": {"shared", "rest"}}, {"q1": 5, "q2": 1}
    )
    assert ranks["shared"] >= ranks["rest"] > 0.0


def test_too_many_pairs_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restore_order, "MOST_WORK", 3)
    assert by_value({"a": 1, "b": 2}, {"q": {"a"}, "r": {"b"}}, {"q": 1, "r": 9}) == {"a": 0.0, "b": 0.0}
