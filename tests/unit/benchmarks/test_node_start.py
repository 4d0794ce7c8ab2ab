"""What the benchmark of node starts makes of them."""

from __future__ import annotations

from benchmarks.node_start import PhaseTimes, last_work, phases


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


def test_the_last_node_of_a_loss_counts_and_a_loss_with_an_unknown_one_does_not() -> None:
    losses = [[{"work": 4.0}, {"work": 6.5}], [{"work": 3.0}, {"ready": 2.0}], []]
    assert last_work(losses) == [6.5]
