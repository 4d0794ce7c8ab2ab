"""Sequences of arrivals: anticipating never loses on known arrivals, and a wrong forecast costs little."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planning_cases import instances

from algorithms import FailedQuery, Instance, PartitionCost
from algorithms.arrivals import Arrival, anticipatory, myopic, replanned, restore_cost
from algorithms.dp import dp
from algorithms.forecast import TraceError, losses, parse_trace, scenarios
from algorithms.problem import Deadline, Problem, StepClock


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
def sequences(draw: st.DrawFn) -> tuple[Instance, list[Arrival]]:
    instance = draw(instances(max_queries=6, max_partitions=8))
    times = draw(st.lists(st.integers(0, 60), max_size=4))
    return instance, [Arrival(float(at), draw(st.integers(0, 12))) for at in times]


@given(case=sequences())
@settings(max_examples=80, deadline=None)
def test_anticipating_known_arrivals_is_never_worse(case: tuple[Instance, list[Arrival]]) -> None:
    instance, arrivals = case
    near = myopic(instance, arrivals, 60.0, best)
    far = anticipatory(instance, arrivals, 60.0, best)
    assert far.area >= near.area


@given(case=sequences(), kind=st.sampled_from(["myopic", "anticipatory", "replanned"]))
@settings(max_examples=80, deadline=None)
def test_schedules_grow_within_the_capacity_there_is(case: tuple[Instance, list[Arrival]], kind: str) -> None:
    instance, arrivals = case
    if kind == "replanned":
        schedule = replanned(instance, arrivals, 60.0, best, lambda now: [arrivals])
    else:
        schedule = {"myopic": myopic, "anticipatory": anticipatory}[kind](instance, arrivals, 60.0, best)
    cost = {p.id: p.cost for p in instance.partitions}
    queries = {q.id: q for q in instance.queries}
    restored: set[str] = set()
    for stage in schedule.stages:
        assert restored <= set(stage.partitions)  # nothing is taken away again
        restored = set(stage.partitions)
        capacity = instance.capacity + sum(a.free for a in arrivals if a.at <= stage.at)
        assert sum(cost[name] for name in restored) <= capacity
        assert all(set(queries[name].partitions) <= restored for name in stage.queries)


def test_the_time_to_restore_can_enter_the_cost() -> None:
    dearer = restore_cost(detour(), {"x": 2.5}, weight=2.0)
    assert {p.id: p.cost for p in dearer.partitions}["x"] == 5 + 5
    assert {p.id: p.cost for p in dearer.partitions}["s"] == 5


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
