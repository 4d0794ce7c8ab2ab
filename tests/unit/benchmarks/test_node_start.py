"""What the benchmark of node starts makes of them."""

from __future__ import annotations

from benchmarks.node_start import NODES, TOPOLOGY, PhaseTimes, phases, schedule
from reprise.controller.local.faults.faults import parse_faults
from reprise.controller.local.run.config import load


def test_phases_in_their_order_with_what_each_adds() -> None:
    starts = [
        {"heartbeat": 2.0, "agent": 0.5, "ready": 6.0},
        {"heartbeat": 3.0, "agent": 0.5, "ready": 5.0},
        {"agent": 0.8},
    ]
    assert phases(starts) == [
        PhaseTimes("agent", 3, 0.5, 0.5, 0.8, 0.5),
        PhaseTimes("heartbeat", 2, 2.5, 2.0, 3.0, 2.0),
        PhaseTimes("ready", 2, 5.5, 5.0, 6.0, 3.0),
    ]
    assert phases([{"agent": 1.0}, {"ready": 2.0}])[1].step_s is None
    assert phases([]) == []


def test_each_loss_waits_for_the_end_of_the_incident_before() -> None:
    faults = parse_faults(schedule(3), "schedule", NODES)
    assert [fault.describe() for fault in faults] == ["kill @count", "add 1"] * 3
    assert [fault.trigger.describe() for fault in faults if fault.action == "kill"] == [
        "2 s after checkpoint 1 of the run",
        "2 s after closed 1 of the run",
        "2 s after closed 2 of the run",
    ]


def test_a_lost_partition_fits_on_no_node_that_is_left() -> None:
    resource = load(TOPOLOGY)
    room = resource.recovery.cpu_cap * resource.nodes.cpu_cores
    parts = [*resource.sources, *resource.operators]
    assert len(parts) == resource.nodes.count == NODES
    assert all(part.cpu_cores <= room < 2 * part.cpu_cores for part in parts)
