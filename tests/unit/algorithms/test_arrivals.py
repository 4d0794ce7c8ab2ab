"""Sequences of arrivals: anticipating never loses on known arrivals, and a wrong forecast costs little."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprise.algorithms import FailedQuery, Instance, InstanceError, NodeCapacity, PartitionCost
from reprise.algorithms.arrivals.arrivals import Arrival, Schedule, anticipatory, myopic, replanned
from reprise.algorithms.arrivals.forecast import TraceError, losses, parse_trace, scenarios
from reprise.algorithms.dp import dp
from reprise.algorithms.problem import Deadline, Problem, StepClock
from tests.support.examples import examples
from tests.support.planning_cases import instances


def best(problem: Problem) -> tuple[int, ...]:
    return dp(problem, Deadline(StepClock(), 1.0)).queries


def detour() -> Instance:
    """Now 5 is free, later 10. Myopic takes X (4 for 5) and then has no room for the pair Y, Z (9 each,
    sharing s) of cost 10; whoever waits gets 18."""
    return Instance(
        5,
        tuple(PartitionCost(n, c) for n, c in [("x", 5), ("s", 5), ("y", 2), ("z", 3)]),
        (FailedQuery("X", 4, ("x",)), FailedQuery("Y", 9, ("s", "y")), FailedQuery("Z", 9, ("s", "z"))),
    )


ARRIVALS = [Arrival(10.0, 5)]


def test_myopic_takes_the_detour_and_anticipating_waits() -> None:
    near = myopic(detour(), ARRIVALS, 100.0, best)
    far = anticipatory(detour(), ARRIVALS, 100.0, best)
    assert near.area == 4 * 100.0  # X, then 5 more do not pay for Y or Z
    assert far.area == 18 * 90.0
    assert far.stages[0].queries == ()


def test_with_a_short_horizon_waiting_does_not_pay() -> None:
    assert anticipatory(detour(), ARRIVALS, 11.0, best).kind == "myopic"


def test_replanning_trusts_a_forecast_only_for_one_step() -> None:
    told = replanned(detour(), ARRIVALS, 100.0, best, lambda now: [ARRIVALS] if now < 10 else [])
    assert told.area == 18 * 90.0
    unwarned = replanned(detour(), ARRIVALS, 100.0, best, lambda now: [])
    assert unwarned.area == myopic(detour(), ARRIVALS, 100.0, best).area


@st.composite
def sequences(draw: st.DrawFn, nodes: bool = False) -> tuple[Instance, list[Arrival]]:
    instance = draw(instances(max_queries=6, max_partitions=8, nodes=nodes))
    times = draw(st.lists(st.integers(0, 60), max_size=4))
    return instance, [Arrival(float(at), draw(st.integers(0, 12))) for at in times]


@given(case=sequences())
@examples(80)
def test_anticipating_known_arrivals_is_never_worse(case: tuple[Instance, list[Arrival]]) -> None:
    instance, arrivals = case
    near = myopic(instance, arrivals, 60.0, best)
    far = anticipatory(instance, arrivals, 60.0, best)
    assert far.area >= near.area


KINDS: dict[str, Callable[[Instance, list[Arrival]], Schedule]] = {
    "myopic": lambda instance, arrivals: myopic(instance, arrivals, 60.0, best),
    "anticipatory": lambda instance, arrivals: anticipatory(instance, arrivals, 60.0, best),
    "replanned": lambda instance, arrivals: replanned(instance, arrivals, 60.0, best, lambda now: [arrivals]),
}


@given(case=sequences(), kind=st.sampled_from(sorted(KINDS)))
@examples(80)
def test_schedules_grow_within_the_capacity_there_is(case: tuple[Instance, list[Arrival]], kind: str) -> None:
    instance, arrivals = case
    schedule = KINDS[kind](instance, arrivals)
    cost = {p.id: p.cost for p in instance.partitions}
    queries = {q.id: q for q in instance.queries}
    restored: set[str] = set()
    for stage in schedule.stages:
        assert restored <= set(stage.partitions)  # nothing is taken away again
        restored = set(stage.partitions)
        capacity = instance.capacity + sum(a.free for a in arrivals if a.at <= stage.at)
        assert sum(cost[name] for name in restored) <= capacity
        assert all(set(queries[name].partitions) <= restored for name in stage.queries)


def test_a_query_counts_only_once_it_is_restored() -> None:
    near = myopic(detour(), ARRIVALS, 100.0, best, {"x": 30.0})
    assert near.area == 4 * 70.0
    far = anticipatory(detour(), ARRIVALS, 100.0, best, {"s": 20.0, "y": 5.0})
    assert far.area == 18 * 70.0  # s is the last of Y and of Z


def test_what_takes_too_long_to_restore_makes_way() -> None:
    """X and Y cost the same and X is worth more, but not for the second that is left of it."""
    instance = Instance(
        5,
        (PartitionCost("x", 5), PartitionCost("y", 5)),
        (FailedQuery("X", 5, ("x",)), FailedQuery("Y", 4, ("y",))),
    )
    late = [Arrival(50.0, 5)]
    slow = {"x": 40.0}
    assert myopic(instance, late, 100.0, best, slow).area == 5 * 60.0 + 4 * 50.0
    assert anticipatory(instance, late, 100.0, best, slow).area >= 5 * 60.0 + 4 * 50.0


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), float("inf")])
def test_seconds_that_are_no_time_are_refused(seconds: float) -> None:
    with pytest.raises(InstanceError, match=r"seconds\['x'\]"):
        myopic(detour(), ARRIVALS, 100.0, best, {"x": seconds})


def test_each_arrival_is_a_node_of_its_own() -> None:
    """A partition of 6 fits into 4 + 4 in sum and on neither."""
    instance = Instance(4, (PartitionCost("p", 6),), (FailedQuery("Q", 1, ("p",)),))
    assert myopic(instance, [Arrival(1.0, 4)], 10.0, best).area == 9.0
    on_nodes = replace(instance, nodes=(NodeCapacity("n", 4),))
    assert myopic(on_nodes, [Arrival(1.0, 4)], 10.0, best).area == 0.0
    schedule = anticipatory(on_nodes, [Arrival(1.0, 4), Arrival(2.0, 6)], 10.0, best)
    assert (schedule.area, schedule.stages[-1].placement) == (8.0, {"p": "arrival 2"})


@given(case=sequences(nodes=True), kind=st.sampled_from(sorted(KINDS)))
@examples(80)
def test_every_stage_is_a_packing_and_nothing_moves(case: tuple[Instance, list[Arrival]], kind: str) -> None:
    instance, arrivals = case
    schedule = KINDS[kind](instance, arrivals)
    cost = {p.id: p.cost for p in instance.partitions}
    comers = sorted((a for a in arrivals if a.at < 60.0), key=lambda a: a.at)
    before: dict[str, str] = {}
    for stage in schedule.stages:
        assert set(stage.placement) == set(stage.partitions)
        assert before.items() <= stage.placement.items()
        before = dict(stage.placement)
        room = {node.id: node.free for node in instance.nodes}
        room |= {f"arrival {i}": a.free for i, a in enumerate(comers, 1) if a.at <= stage.at}
        for partition, node in stage.placement.items():
            room[node] -= cost[partition]
        assert min(room.values()) >= 0


@given(case=sequences(nodes=True), delays=st.lists(st.integers(0, 40), min_size=8, max_size=8))
@examples(80)
def test_anticipating_is_never_worse_on_nodes_and_with_restore_times(
    case: tuple[Instance, list[Arrival]], delays: list[int]
) -> None:
    instance, arrivals = case
    seconds = {p.id: float(delay) for p, delay in zip(instance.partitions, delays, strict=False)}
    near = myopic(instance, arrivals, 60.0, best, seconds)
    assert anticipatory(instance, arrivals, 60.0, best, seconds).area >= near.area


TRACE = """0,add,n1
0,add,n2
0,add,n3
60000,remove,n1
60000,remove,n2
90000,add,n4
150000,add,n5
200000,remove,n3
"""


def test_a_trace_gives_losses_with_the_delays_of_replacements() -> None:
    (loss,) = losses(parse_trace(TRACE))
    assert (loss.at, loss.nodes, loss.delays) == (60.0, 2, (30.0, 90.0))
    assert scenarios([loss], lost=2, free=7) == ((Arrival(30.0, 7), Arrival(90.0, 7)),)
    assert scenarios([loss], lost=2, free=7, since=30.0) == ((Arrival(90.0, 7),),)


@pytest.mark.parametrize("line", ["1,add", "x,add,n", "1,grow,n"])
def test_a_line_that_is_no_event_is_named(line: str) -> None:
    with pytest.raises(TraceError, match="line 2"):
        parse_trace("0,add,n1\n" + line)
