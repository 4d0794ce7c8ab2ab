"""Placing partitions on nodes: by hand where the rule of Su and Zhou strands room, by properties elsewhere."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from reprise.algorithms import FailedQuery, Instance, NodeCapacity, PartitionCost, compiled, fit, solve
from reprise.algorithms.fit import within_reach
from reprise.algorithms.packing import most_free, pack
from reprise.algorithms.problem import Problem, bits, compile_problem
from tests.support.examples import examples
from tests.support.planning_cases import instances


def packable(costs: list[int], free: list[int]) -> bool:
    for nodes in product(range(len(free)), repeat=len(costs)):
        room = list(free)
        for cost, node in zip(costs, nodes, strict=True):
            room[node] -= cost
        if min(room) >= 0:
            return True
    return False


@given(
    costs=st.lists(st.integers(0, 9), max_size=6),
    free=st.lists(st.integers(0, 14), min_size=1, max_size=3),
)
@examples(300)
def test_pack_finds_a_placement_whenever_there_is_one(costs: list[int], free: list[int]) -> None:
    placement = pack(list(enumerate(costs)), free)
    assert (placement is not None) == packable(costs, free)
    if placement is not None:
        assert sorted(placement) == list(range(len(costs)))
        for node, room in enumerate(free):
            assert sum(costs[k] for k, n in placement.items() if n == node) <= room


def test_the_papers_rule_puts_the_largest_on_the_emptiest_node() -> None:
    assert most_free([(0, 4), (1, 3), (2, 2)], [5, 6]) == {0: 1, 1: 0, 2: 0}


def test_where_spreading_strands_room_another_packing_is_found() -> None:
    costs = [(0, 3), (1, 3), (2, 2), (3, 2), (4, 2)]
    assert most_free(costs, [6, 6]) is None  # 3 | 3, then 2 | 2, then no 2
    assert pack(costs, [6, 6]) is not None


def nodes_instance(*free: int) -> Instance:
    """Two pieces of 3 for the valuable query; one of 2 each for two cheap ones."""
    return Instance(
        100,
        tuple(PartitionCost(name, cost) for name, cost in [("a1", 3), ("a2", 3), ("b", 2), ("c", 2)]),
        (
            FailedQuery("A", 9, ("a1", "a2")),
            FailedQuery("B", 4, ("b",)),
            FailedQuery("C", 4, ("c",)),
        ),
        nodes=tuple(NodeCapacity(f"n{i}", room) for i, room in enumerate(free)),
    )


def test_room_in_sum_is_not_room_and_the_loss_is_told() -> None:
    plan = solve(nodes_instance(2, 2, 2), "best-density")
    assert set(plan.queries) == {"B", "C"}
    assert plan.packing_loss == 1  # 9 for A alone would fit in the sum of 6
    assert not plan.optimal


def test_with_exact_planners_the_loss_is_proven() -> None:
    plan = solve(nodes_instance(2, 2, 2), "auto", time_limit=5.0)
    assert plan.value == 8
    assert plan.optimal  # nothing better exists on these nodes, though the sum allows 9
    (left_out,) = plan.excluded
    assert left_out.query == "A"
    assert left_out.code in ("packing", "outbid")
    assert plan.placement is not None
    assert set(plan.placement.values()) <= {"n0", "n1", "n2"}


@st.composite
def tight(draw: st.DrawFn) -> Instance:
    free = draw(st.lists(st.integers(1, 8), min_size=1, max_size=3))
    costs = draw(st.lists(st.integers(1, 6), min_size=1, max_size=5))
    names = [f"p{k}" for k in range(len(costs))]
    members = draw(
        st.lists(st.lists(st.sampled_from(names), min_size=1, max_size=3, unique=True), max_size=5)
    )
    queries = tuple(
        FailedQuery(f"q{i}", draw(st.integers(1, 10)), tuple(mine)) for i, mine in enumerate(members)
    )
    nodes = tuple(NodeCapacity(f"n{i}", room) for i, room in enumerate(free))
    return Instance(sum(free), tuple(map(PartitionCost, names, costs)), queries, nodes)


@given(
    costs=st.lists(st.integers(1, 20), max_size=14), free=st.lists(st.integers(0, 40), min_size=1, max_size=6)
)
@examples(200)
def test_the_search_answers_the_same_with_and_without_a_compiler(costs: list[int], free: list[int]) -> None:
    assert compiled.load()
    fast = pack(list(enumerate(costs)), free)
    kernel, compiled.place.compiled = compiled.place.compiled, None
    try:
        assert pack(list(enumerate(costs)), free) == fast
    finally:
        compiled.place.compiled = kernel


@given(instance=tight())
@examples(100)
def test_capacity_that_no_partition_can_fill_does_not_count(instance: Instance) -> None:
    problem = compile_problem(instance)
    free = tuple(node.free for node in instance.nodes)
    reached = [
        max(
            total for chosen in product((0, 1), repeat=len(problem.cost))
            if (total := sum(c for c, taken in zip(problem.cost, chosen, strict=True) if taken)) <= room
        )
        for room in free
    ]  # fmt: skip
    assert within_reach(problem, free).capacity == min(problem.capacity, sum(reached))


def filled_one_by_one(problem: Problem, free: tuple[int, ...]) -> tuple[int, ...]:
    """Each query in its turn, beside what lies or with all packed anew; nothing is passed over."""
    kept: list[int] = []
    covered, placement = 0, dict[int, int]()
    for query in fit._by_density(problem):
        fresh = list(bits(problem.masks[query] & ~covered))
        if problem.cost_of(covered | problem.masks[query]) > problem.capacity:
            continue
        room = list(free)
        for k, node in placement.items():
            room[node] -= problem.cost[k]
        beside = most_free([(k, problem.cost[k]) for k in fresh], room)
        wanted = [(k, problem.cost[k]) for k in bits(covered | problem.masks[query])]
        found = {**placement, **beside} if beside is not None else pack(wanted, free, search=False)
        if found is not None:
            kept, covered, placement = [*kept, query], covered | problem.masks[query], found
    return tuple(sorted(kept))


@given(instance=tight() | instances(nodes=True))
@examples(300)
def test_what_is_passed_over_would_not_have_packed(instance: Instance) -> None:
    problem = compile_problem(instance)
    free = tuple(node.free for node in instance.nodes)
    tight_problem = within_reach(problem, free)
    filled, _ = fit._fill(tight_problem, fit._by_density(problem), ((), {}), free)
    assert filled == filled_one_by_one(problem, free)


@given(mask=st.integers(0, 2**60))
def test_bits_are_those_that_are_set(mask: int) -> None:
    for some in (mask, mask & mask >> 7, mask & -mask):
        assert list(bits(some)) == [k for k in range(61) if some >> k & 1]


@given(instance=tight())
@examples(60)
def test_auto_reaches_the_optimum_of_the_problem_with_nodes(instance: Instance) -> None:
    cost = {p.id: p.cost for p in instance.partitions}
    free = [node.free for node in instance.nodes]
    best = 0
    for chosen in product((False, True), repeat=len(instance.queries)):
        mine = [query for query, taken in zip(instance.queries, chosen, strict=True) if taken]
        needed = sorted({name for query in mine for name in query.partitions})
        if packable([cost[name] for name in needed], free):
            best = max(best, sum(query.priority for query in mine))
    plan = solve(instance, "auto", time_limit=10.0)
    assert plan.value == best
    assert plan.bound >= best
