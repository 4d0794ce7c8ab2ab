"""When faults are due: time, batch, milestones and other faults; each once."""

from __future__ import annotations

from typing import Any

from reprise.controller.local.faults.faults import MILESTONES, parse_faults
from reprise.controller.local.faults.schedule import Moment, Schedule


def _schedule(*items: dict[str, Any]) -> Schedule:
    return Schedule(parse_faults(list(items), "F.yaml", 4))


def _moment(now: float, horizon: int = 0, elapsed: float | None = None, **milestones: int) -> Moment:
    return Moment(now, elapsed, horizon, dict.fromkeys(MILESTONES, 0) | milestones)


def _actions(schedule: Schedule, moment: Moment) -> list[str]:
    return [fault.describe() for fault in schedule.due(moment)]


def test_time_counts_from_the_start_of_the_stream() -> None:
    schedule = _schedule({"at": "20s", "add": 1})
    assert _actions(schedule, _moment(1000.0)) == []
    assert _actions(schedule, _moment(1019.0, elapsed=19.0)) == []
    assert _actions(schedule, _moment(1020.0, elapsed=20.0)) == ["add 1"]
    assert _actions(schedule, _moment(1021.0, elapsed=21.0)) == []


def test_a_batch_is_reached_even_if_it_was_jumped_over() -> None:
    schedule = _schedule({"batch": 40, "kill": ["n1"]})
    assert _actions(schedule, _moment(0.0, 39)) == []
    assert _actions(schedule, _moment(1.0, 55)) == ["kill n1"]


def test_one_fault_follows_another_by_name_or_index() -> None:
    schedule = _schedule(
        {"batch": 5, "kill": ["n1"], "name": "burst"},
        {"after": "burst", "delay": "3s", "add": 1},
        {"after": 1, "add": 2},
    )
    assert _actions(schedule, _moment(99.0, 4)) == []
    assert _actions(schedule, _moment(100.0, 5)) == ["kill n1"]
    assert _actions(schedule, _moment(102.9, 9)) == []
    # the one that follows at once is due in the same look
    assert _actions(schedule, _moment(103.0, 9)) == ["add 1", "add 2"]


def test_a_late_look_does_not_shift_what_follows_a_time() -> None:
    schedule = _schedule({"at": "10s", "delay": "5s", "add": 1})
    assert _actions(schedule, _moment(1014.0, elapsed=14.0)) == []
    assert _actions(schedule, _moment(1015.0, elapsed=15.0)) == ["add 1"]


def test_milestones_are_counted() -> None:
    schedule = _schedule({"on": "plan", "count": 2, "crash": "driver"}, {"on": "closed", "add": 1})
    assert _actions(schedule, _moment(0.0, plan=1)) == []
    assert _actions(schedule, _moment(1.0, plan=2)) == ["crash driver"]
    assert [fault.describe() for fault in schedule.unfired] == ["add 1"]
    assert _actions(schedule, _moment(2.0, plan=3, closed=1)) == ["add 1"]
    assert schedule.unfired == []
