"""Chains of what is restored as capacity arrives: what is restored stays where it is, and every link fits."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from reprise.algorithms import FailedQuery, Instance, PartitionCost
from reprise.algorithms.arrivals.rollouts import Field, Restored
from reprise.algorithms.dp import dp
from reprise.algorithms.problem import Deadline, Problem, StepClock, bits, compile_problem
from tests.support.examples import examples
from tests.support.planning_cases import instances


def best(problem: Problem) -> tuple[int, ...]:
    return dp(problem, Deadline(StepClock(), 1.0)).queries


def field(instance: Instance, horizon: float = 100.0, seconds: float = 0.0) -> Field:
    problem = compile_problem(instance)
    return Field(problem, best, (seconds,) * len(problem.cost), horizon)


TWO = Instance(
    0,
    (PartitionCost("a", 4), PartitionCost("b", 3), PartitionCost("c", 3)),
    (FailedQuery("great", 5, ("a",)), FailedQuery("left", 3, ("b",)), FailedQuery("right", 3, ("c",))),
)


def names(at: Field, link: Restored) -> set[str]:
    return set(at.problem.names_in(link.covered))


def test_each_step_adds_the_best_of_what_is_left() -> None:
    f = field(TWO)
    first = f.step(Restored(), (4, ()))
    assert names(f, first) == {"a"}
    assert names(f, f.step(first, (7, ()))) == {"a", "b"}
    assert f.step(first, (4, ())) == first, "no room, no change"


def test_with_a_goal_only_queries_inside_it_are_restored() -> None:
    f = field(TWO)
    goal = sum(1 << f.problem.partition_ids.index(p) for p in ("b", "c"))
    assert names(f, f.step(Restored(), (4, ()), goal)) == {"b"} or names(
        f, f.step(Restored(), (4, ()), goal)
    ) == {"c"}
    assert f.step(Restored(), (9, ()), 0) == Restored()


def test_what_fits_in_sum_and_on_no_node_waits() -> None:
    f = field(TWO)
    assert names(f, f.step(Restored(), (6, (3, 3)))) == {"b", "c"}
    assert f.step(Restored(), (4, (2, 2))) == Restored()


def test_room_of_a_node_is_taken_by_what_is_there() -> None:
    f = field(TWO)
    first = f.step(Restored(), (4, (4,)))
    assert first.placement == {f.problem.partition_ids.index("a"): 0}
    second = f.step(first, (7, (4, 3)))
    assert set(second.placement.values()) == {0, 1}
    assert second.placement.items() >= first.placement.items(), "nothing that runs is moved"


def test_myopic_takes_the_great_one_first_and_a_rollout_what_is_best_in_the_end() -> None:
    """Four, then six: the great one leaves room for nothing else."""
    f = field(TWO)
    chains = dict(f.rollouts(Restored(), [(4, ()), (6, ())]))
    assert chains.keys() == {"myopic", "towards stage 1"}
    assert names(f, chains["myopic"][-1]) == {"a"}
    assert names(f, chains["towards stage 1"][-1]) == {"b", "c"}
    assert f.rollouts(Restored(), []) == []


def test_a_query_counts_from_when_its_last_partition_is_restored() -> None:
    both = Instance(0, TWO.partitions, (FailedQuery("x", 2, ("a", "b")),))
    f = field(both, horizon=50.0, seconds=3.0)
    a, b = (1 << f.problem.partition_ids.index(p) for p in ("a", "b"))
    links = [Restored(a), Restored(a | b)]
    assert f.area(links, [10.0, 20.0]) == 2 * (50 - 23)
    assert f.area(links, [10.0, 20.0], already=b) == 2 * (50 - 13), "b was there from the first time on"
    assert f.area(links, [60.0, 70.0]) == 0, "nothing counts behind the horizon"
    assert f.area([Restored(a)], [10.0]) == 0


@examples(60)
@given(instances(max_queries=6), st.lists(st.integers(0, 40), min_size=1, max_size=4))
def test_every_chain_grows_and_every_link_fits(instance: Instance, sizes: list[int]) -> None:
    f = field(instance)
    capacities = [(size, ()) for size in sorted(sizes)]
    for name, chain in f.rollouts(Restored(), capacities):
        assert len(chain) == len(capacities), name
        before = 0
        for link, (total, _) in zip(chain, capacities, strict=True):
            assert not before & ~link.covered, "what is restored stays"
            assert f.problem.cost_of(link.covered) <= total or link.covered == before
            assert all(0 <= k < len(f.problem.cost) for k in bits(link.covered))
            before = link.covered
