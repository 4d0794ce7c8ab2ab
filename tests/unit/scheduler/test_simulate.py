"""What would happen: the coordinator's rules carried on from a snapshot, in virtual time and without a trace."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace

import pytest

from reprise.scheduler import Desired, Node, Policy, Progress, Scope, Snapshot, Strategy
from reprise.scheduler.model import PartitionView, QueryView, TopologyView
from reprise.scheduler.simulation.run import Change, Durations, NothingRuns, _World, run_simulation

TOPOLOGY = TopologyView(
    "pair",
    (
        PartitionView("in.0", cpu_milli=40),
        *(PartitionView(f"out.{i}", ("in.0",), cpu_milli=40) for i in range(4)),
    ),
    tuple(QueryView(f"out.{i}", i + 1, frozenset({"in.0", f"out.{i}"})) for i in range(4)),
)
NODES = tuple(Node(f"n{i}", 1, 100) for i in (1, 2, 3))
PLACES = {"in.0": "n1#1", "out.0": "n1#1", "out.1": "n2#1", "out.2": "n2#1", "out.3": "n3#1"}
POLICY = Policy(nodes_wanted=3, node_cpu_milli=100)
RUNNING = Snapshot(
    now=1000.0,
    topology=TOPOLOGY,
    nodes=NODES,
    progress=Progress(
        "1", 1, 1, frozenset(PLACES.values()), dict.fromkeys(PLACES, 20), horizon=20, checkpoint=15
    ),
    checkpoints=frozenset({10, 15}),
    desired=Desired(1, 1, 0, "1", PLACES),
)
BURST = Change(0.0, lose=("n2", "n3"))


def test_without_a_change_nothing_happens() -> None:
    found = run_simulation(RUNNING, POLICY, ())
    assert (found.events, found.plans) == ((), ())
    assert found.available == {"out.0", "out.1", "out.2", "out.3"}


def test_a_burst_leaves_what_fits_and_says_why_the_rest_waits() -> None:
    found = run_simulation(RUNNING, POLICY, [BURST])
    assert [plan.trigger for plan in found.plans] == ["first"]
    assert found.placed[found.plans[0].id] == {"out.0"}
    assert found.available == {"out.0"}
    assert set(found.waiting) == {"out.1", "out.2", "out.3"}
    assert all("needs" in reason for reason in found.waiting.values())


def test_arrivals_bring_queries_back_the_most_valuable_first() -> None:
    found = run_simulation(RUNNING, POLICY, [BURST, Change(30.0, arrive=1), Change(60.0, arrive=1)])
    back = [(round(h.at), h.queries) for h in found.events if h.what == "queries-back"]
    assert [queries for at, queries in back if at >= 30] == [("out.2", "out.3"), ("out.1",)]
    assert [plan.trigger for plan in found.plans] == ["first", "arrival", "arrival"]
    assert not found.waiting
    assert found.events[-1].what == "closed"


def test_restoring_takes_the_time_that_is_given() -> None:
    slow = run_simulation(
        RUNNING, POLICY, [BURST, Change(30.0, arrive=2)], Durations(restore_s=7.0, catch_up_s=5.0)
    )
    last = [h for h in slow.events if h.what == "queries-back"][-1]
    assert 42.0 <= last.at < 43.0


def test_the_strategy_decides() -> None:
    blocking = replace(POLICY, strategy=Strategy.BLOCKING)
    found = run_simulation(RUNNING, blocking, [BURST, Change(30.0, arrive=1), Change(60.0, arrive=1)])
    back = [h for h in found.events if h.what == "queries-back"]
    assert [len(h.queries) for h in back] == [4]
    assert back[0].at > 60.0


def test_one_node_is_recovered_whole_or_not_at_all() -> None:
    found = run_simulation(RUNNING, POLICY, [Change(0.0, lose=("n2",))])
    assert found.plans[0].trigger == "blocking"
    assert not found.plans[0].added
    assert found.available == {"out.0", "out.3"}


def test_it_goes_on_from_the_middle_of_an_incident() -> None:
    """What is result from the state that a first look leads to is the rest of what it foresaw."""
    failed = replace(RUNNING, nodes=NODES[:1])
    found = run_simulation(failed, POLICY, [Change(30.0, arrive=2)])
    assert [plan.trigger for plan in found.plans] == ["first", "arrival"]
    assert not found.waiting


def test_the_snapshot_is_left_as_it_was() -> None:
    before = deepcopy(RUNNING)
    run_simulation(RUNNING, POLICY, [BURST, Change(30.0, arrive=2)])
    assert before == RUNNING


def test_a_node_that_is_not_there_cannot_be_lost() -> None:
    with pytest.raises(LookupError, match="no node 'n9' is alive; there are n1, n2, n3"):
        run_simulation(RUNNING, POLICY, [Change(0.0, lose=("n9",))])


@pytest.mark.parametrize("change", [{"desired": None}, {"progress": None}, {"session": False}])
def test_what_does_not_run_cannot_be_carried_on(change: dict[str, object]) -> None:
    with pytest.raises(NothingRuns):
        run_simulation(replace(RUNNING, **change), POLICY, [BURST])  # type: ignore[arg-type]


def test_each_partition_has_its_own_time_to_catch_up() -> None:
    """What is restored late is not back when those that were restored before it are."""
    slow = run_simulation(
        RUNNING,
        replace(POLICY, scope=Scope.GLOBAL),
        [BURST, Change(30.0, arrive=2)],
        Durations(restore_s=4.0, catch_up_s=90.0),
    )
    back = {query: h.at for h in slow.events if h.what == "queries-back" for query in h.queries}
    assert 90.0 <= back["out.0"] < 95.0  # a survivor, behind since the rollback
    assert all(124.0 <= back[f"out.{i}"] < 126.0 for i in (1, 2, 3))


def test_a_partition_whose_input_is_not_there_stays_where_it_is() -> None:
    assert RUNNING.progress is not None
    alone = replace(RUNNING.progress, positions={"out.0": 0, "out.1": 3})
    world = _World(replace(RUNNING, progress=alone), POLICY, Durations())
    world._caught_up()
    assert world.snapshot.progress is not None
    assert world.snapshot.progress.positions == {"out.0": 0, "out.1": 3}


def test_standbys_are_promoted_without_a_delay_and_nothing_is_restored() -> None:
    """`out.1` and `out.2` go on where their standbys were; the same loss without standbys waits for a plan."""
    wanted = frozenset({"out.1", "out.2"})
    nodes = tuple(replace(node, cpu_milli=300) for node in NODES)
    with_standbys = replace(RUNNING, topology=replace(TOPOLOGY, standbys=wanted), nodes=nodes)
    slow = Durations(restore_s=7.0, catch_up_s=0.5)
    placed = run_simulation(with_standbys, POLICY, (), slow).last
    assert placed is not None and placed.desired is not None
    assert placed.desired.standbys.keys() == wanted
    found = run_simulation(placed, POLICY, [Change(0.0, lose=("n2",))], slow)
    assert found.plans == ()
    assert next(h for h in found.events if h.what == "queries-back").at < 2.0
    assert found.events[-1].what in ("closed", "standbys-placed")
    without = run_simulation(replace(RUNNING, nodes=nodes), POLICY, [Change(0.0, lose=("n2",))], slow)
    assert next(h for h in without.events if h.what == "queries-back").at > 7.0
