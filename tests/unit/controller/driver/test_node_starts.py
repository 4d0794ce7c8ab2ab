"""What a driver tells of the starts of nodes, and for how long."""

from __future__ import annotations

from reprise.controller.driver import node_starts as module
from reprise.controller.driver.node_starts import NodeStarts
from reprise.scheduler.node_start import StartPhase


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_the_first_time_counts() -> None:
    clock = Clock()
    starts = NodeStarts(clock)
    starts.saw("n1#1", StartPhase.EXECUTOR)
    clock.now = 1001.0
    starts.saw_all("n1#1", {StartPhase.EXECUTOR: 7.0, StartPhase.TASK: 1000.5004})
    assert starts.told()["n1#1"].at == {StartPhase.EXECUTOR: 1000.0, StartPhase.TASK: 1000.5}


def test_work_is_of_interest_where_the_start_was_seen_and_counts_once() -> None:
    clock = Clock()
    starts = NodeStarts(clock)
    starts.saw("n1#1", StartPhase.READY)
    for clock.now in (1002.0, 1003.0):
        starts.working({"n1#1", "old#1"})
    told = starts.told()
    assert told.keys() == {"n1#1"}
    assert told["n1#1"].at[StartPhase.WORK] == 1002.0


def test_a_report_tells_of_the_newest_and_forgets_them_after_a_while() -> None:
    clock = Clock()
    starts = NodeStarts(clock)
    for number in range(module.TOLD + 2):
        starts.saw(f"n{number}#1", StartPhase.EXECUTOR)
    starts.saw("n0#1", StartPhase.READY)
    told = starts.told()
    assert len(told) == module.TOLD
    assert "n0#1" in told and not {"n1#1", "n2#1"} & told.keys()
    clock.now += module.TOLD_S
    starts.saw("late#1", StartPhase.EXECUTOR)
    assert len(starts.told()) == module.TOLD
    clock.now += 0.5
    assert starts.told().keys() == {"late#1"}
