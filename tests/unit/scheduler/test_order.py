"""Which of the failed queries come first, and what is said of one that no node has room for."""

from __future__ import annotations

import pytest

from reprise.scheduler import PartitionView, Policy, QueryView, TopologyView
from reprise.scheduler.model import Order
from tests.support.recovery_simulator import World


def queries(**sizes: tuple[int, int]) -> TopologyView:
    """One query a partition; `name=(priority, milli-CPU)`."""
    return TopologyView(
        "sizes",
        tuple(PartitionView(f"{name}.0", cpu_milli=cpu) for name, (_, cpu) in sizes.items()),
        tuple(QueryView(f"{n}.0", priority, frozenset({f"{n}.0"})) for n, (priority, _) in sizes.items()),
    )


def after_three_of_four_nodes(order: Order, other: int) -> World:
    """Each query had a node of 800 milli-CPU under the cap; only that of `other` is left."""
    topology = queries(great=(10, 600), small=(7, 300), little=(7, 300), other=(1, other))
    w = World(topology, Policy(nodes_wanted=4, order=order)).started(4)
    assert w.desired is not None
    assert len(set(w.desired.assignment.values())) == 4
    home = w.desired.assignment["other.0"].partition("#")[0]
    w.kill(*(name for name in w.names() if name != home))
    w.run(3.0)
    return w


def back(w: World) -> set[str]:
    assert w.desired is not None
    return set(w.desired.assignment) - {"other.0"}


@pytest.mark.parametrize(
    ("order", "first"), [(Order.VALUE, {"small.0", "little.0"}), (Order.STRICT, {"great.0"})]
)
def test_two_small_ones_are_worth_more_and_the_great_one_is_first_where_that_is_asked_for(
    order: Order, first: set[str]
) -> None:
    assert back(after_three_of_four_nodes(order, other=200)) == first


def test_a_plan_that_lets_the_most_valuable_query_wait_says_so_and_why() -> None:
    note = after_three_of_four_nodes(Order.VALUE, other=200).plans[-1].note
    assert (
        "great.0 (priority 10) waits while 2 queries of lower priority, worth 14 together, come back" in note
    )
    assert "plans maximise the summed priority" in note
    assert "waits" not in after_three_of_four_nodes(Order.STRICT, other=200).plans[-1].note


def test_strict_order_keeps_room_until_the_great_one_fits_and_then_goes_on() -> None:
    w = after_three_of_four_nodes(Order.STRICT, other=250)
    assert back(w) == set()
    assert "great.0 (priority 10), which comes first" in w.plans[-1].left_out["small.0"]
    w.add("n9")
    w.run(3.0)
    assert back(w) >= {"great.0"}
    assert len(back(w)) == 2
    w.add("n10")
    w.run(6.0)
    assert back(w) == {"great.0", "small.0", "little.0"}


def test_a_query_that_no_node_can_ever_hold_does_not_hold_up_the_others() -> None:
    topology = queries(great=(10, 900), small=(7, 300), other=(1, 300))
    w = World(topology, Policy(nodes_wanted=2, order=Order.STRICT)).started(2, checkpoint=False)
    assert back(w) == {"small.0"}
    reason = (
        "partition great.0 needs 900 milli-CPU and a node has at most 800 under the cap: it fits on no node"
    )
    assert w.plans[0].left_out == {"great.0": reason}


def test_room_that_is_enough_in_sum_and_on_no_node_is_said_with_the_node_that_has_most() -> None:
    topology = queries(great=(10, 600), one=(1, 450), two=(1, 430))
    w = World(topology, Policy(nodes_wanted=3, correlated_nodes=1)).started(3)
    assert w.desired is not None
    w.kill(w.desired.assignment["great.0"].partition("#")[0])
    w.run(3.0)
    most = w.desired.assignment["two.0"]
    assert w.plans[-1].left_out == {
        "great.0": "needs 600 more and 720 is free in sum, but not on nodes where its partitions fit: its largest partition "
        f"great.0 needs 600, and the most that one node has left is 370 ({most}); running partitions are not moved, so it "
        "waits for another node"
    }
