"""The first start: when, where, and with how much of the topology."""

from __future__ import annotations

from collections import Counter

from reprise.scheduler import Kind, Outcome, Policy, decide
from tests.support.recovery_simulator import World, diamond


def world(cpu: int = 100, nodes_wanted: int = 4, parallelism: int = 2) -> World:
    return World(diamond(parallelism, cpu), Policy(nodes_wanted=nodes_wanted))


def test_nothing_is_decided_without_a_session_or_a_driver() -> None:
    w = world()
    w.session = False
    assert w.coordinate().outcome is Outcome.UNKNOWN
    w.session = True
    assert w.coordinate().rule == "no-driver"


def test_it_waits_for_the_wanted_nodes_to_be_alive_and_ready() -> None:
    w = world()
    for k in range(3):
        w.add(f"n{k}")
    w.start_driver()
    w.drive()
    assert w.coordinate().reason == "3 of 4 nodes are ready"
    w.add("n4")
    assert w.coordinate().rule == "start-waits"  # alive, and the driver does not know it yet
    w.drive()
    assert w.coordinate().rule == "start"


def test_load_and_operators_are_spread_and_further_nodes_stand_by() -> None:
    w = world(parallelism=4)
    for k in (10, 9, 2, 1, 11):
        w.add(f"n{k}")
    w.start_driver()
    w.run(1.0)
    assert w.desired is not None
    by_node = Counter(w.desired.assignment.values())
    assert set(by_node) == {"n1#1", "n2#1", "n9#1", "n10#1"}  # the first four, as people count
    assert max(by_node.values()) - min(by_node.values()) <= 1
    for operator in ("source", "left", "right", "sink"):
        assert len({w.desired.assignment[f"{operator}.{k}"] for k in range(4)}) == 4
    assert (w.desired.retain, w.desired.punctuate, w.incident) == (False, True, None)


def test_a_start_that_does_not_fit_begins_with_the_most_valuable_and_says_what_is_missing() -> None:
    w = world(cpu=300, nodes_wanted=2)  # 9 partitions of 300, two to a node
    w.add("n1")
    w.add("n2")
    w.start_driver()
    w.run(1.0)
    assert w.incident is not None
    assert w.incident.kind is Kind.START
    assert w.plans[0].trigger == "start"
    assert "needs 2700 milli-CPU; 2 nodes have 1600" in w.plans[0].note
    assert set(w.plans[0].left_out) | set(w.plans[0].plan["queries"]) == {"sink.0", "sink.1", "right.0"}  # type: ignore[call-overload]
    assert w.desired is not None
    assert (w.desired.retain, w.desired.punctuate) == (True, False)
    for k in range(3, 7):
        w.add(f"n{k}")
    w.run(6.0)
    assert w.healthy(), w.log


def test_it_starts_from_the_newest_checkpoint() -> None:
    w = world()
    w.checkpoints |= {4, 9}
    for k in range(4):
        w.add(f"n{k}")
    w.start_driver()
    w.drive()
    decision = decide(w.snapshot(), w.policy)
    assert decision.desired is not None
    assert (decision.desired.checkpoint, decision.desired.generation, decision.desired.seq) == (9, 1, 1)
