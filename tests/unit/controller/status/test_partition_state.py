"""How partitions and nodes stand, one by one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reprise.algorithms.failure import Failure
from reprise.controller.status.partition_state import (
    NodeState,
    PartitionState,
    node_states,
    partition_state,
)
from reprise.controller.zookeeper.observation import Observation
from reprise.scheduler import Desired, Incident, Kind, Node, Phase, Progress
from reprise.scheduler.model import Leaving

NODES = {f"n{i}#1": Node(f"n{i}", 1, 1000) for i in (1, 2, 3)}
DESIRED = Desired(1, 1, 0, "1", {"a.0": "n1#1", "a.1": "n9#1", "a.2": "n2#1"})
PROGRESS = Progress("1", seq=1, nodes=frozenset({"n1#1", "n2#1"}), horizon=10, positions={"a.0": 10})
SEEN = Observation(0.0, True, NODES, PROGRESS, desired=DESIRED)
INCIDENT = Incident("inc-1", Kind.CORRELATED, Phase.RECOVERING, 0.0, 0, 1, 2, 0.0)


@pytest.mark.parametrize(
    ("partition", "position", "failed", "expected"),
    [
        ("a.0", 10, None, PartitionState.RUNNING),
        ("a.0", 8, None, PartitionState.RUNNING),
        ("a.0", 7, None, PartitionState.CATCHING_UP),
        ("a.0", None, None, PartitionState.RESTORING),
        ("a.0", 10, "node lost", PartitionState.RESTORING),
        ("a.0", None, "poison: ValueError", PartitionState.POISONED),
        ("a.1", 10, None, PartitionState.WAITING),
        ("a.1", None, "poison: ValueError", PartitionState.POISONED),
        ("a.7", None, None, PartitionState.WAITING),
    ],
)
def test_a_partition_in_an_incident(
    partition: str, position: int | None, failed: str | None, expected: PartitionState
) -> None:
    progress = replace(
        PROGRESS,
        positions={} if position is None else {partition: position},
        failed={} if failed is None else {partition: Failure.parse(failed)},
    )
    seen = replace(SEEN, progress=progress, incident=INCIDENT)
    assert partition_state(partition, seen) is expected


def test_outside_of_incidents_lag_is_slowness_and_before_the_start_all_wait() -> None:
    slow = replace(SEEN, progress=replace(PROGRESS, positions={"a.0": 1}))
    assert partition_state("a.0", slow) is PartitionState.RUNNING
    assert partition_state("a.0", Observation(0.0)) is PartitionState.WAITING
    assert partition_state("a.0", replace(SEEN, desired=None)) is PartitionState.WAITING


def test_nodes() -> None:
    assigned = replace(SEEN, desired=replace(DESIRED, assignment={"a.0": "n1#1", "a.1": "n9#1"}))
    assert node_states(["n1#1", "n2#1", "n3#1", "n9#1"], assigned) == {
        "n1#1": NodeState.READY,
        "n2#1": NodeState.STANDBY,
        "n3#1": NodeState.JOINING,
        "n9#1": NodeState.LOST,
    }
    assert node_states(["n1#1"], Observation(0.0, nodes=NODES)) == {"n1#1": NodeState.JOINING}


def test_a_node_is_drained_when_the_driver_has_taken_over_that_nothing_is_there() -> None:
    nodes = {"n1#1": NODES["n1#1"], "n2#1": replace(NODES["n2#1"], leaving=Leaving("reprise drain"))}
    desired = replace(DESIRED, assignment={"a.0": "n1#1"})
    assert SEEN.progress is not None
    for seq, driver, state in (
        (desired.seq, desired.driver, NodeState.DRAINED),
        (desired.seq - 1, desired.driver, NodeState.DRAINING),
        (desired.seq, "another", NodeState.DRAINING),
    ):
        progress = replace(SEEN.progress, seq=seq, driver=driver)
        shown = replace(SEEN, nodes=nodes, desired=desired, progress=progress)
        assert node_states(["n2#1"], shown) == {"n2#1": state}
    assert node_states(["n2#1"], replace(shown, progress=None)) == {"n2#1": NodeState.DRAINING}
