"""The budget of a recovery follows from the records of its run, and what takes more than three times as long is named."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reprise.algorithms.recovery_time import RestoreWork
from reprise.controller.coordinator.coordinator import TICK_S
from reprise.controller.status.query_state import RunState
from reprise.controller.zookeeper.observation import Observation
from reprise.scheduler import Desired, PartitionStats, Progress
from reprise.scheduler.incident import (
    Event,
    EventName,
    Incident,
    Kind,
    LostNode,
    Phase,
    PlanRecord,
    QueryTimeline,
    Trigger,
)
from reprise.scheduler.node_start import NodeStart, StartPhase
from tests.support.recovery_budget import FACTOR, LOOKS, Circumstances, Watch, assert_in_time, recoveries

DIED, OPENED, PLANNED, BACK = 100.0, 103.0, 104.5, 107.0
PLANNING = 0.2 + LOOKS * TICK_S
INSTALL_S = 1.5


def plan(number: int, at: float, *, node: str = "n1#1", left_out: tuple[str, ...] = ()) -> PlanRecord:
    return PlanRecord(
        id=f"inc-1-p{number}", incident="inc-1", time=at, trigger=Trigger.FIRST, rollback=False, checkpoint=6,
        generation=2, free={}, candidates=(), plan={}, added={"count.1": node, "clean.1": node}, seconds=0.2,
        left_out=dict.fromkeys(left_out, "no room"),
    )  # fmt: skip


def incident(
    kind: Kind = Kind.CORRELATED, back: float | None = BACK, plans: int = 1, **more: object
) -> Incident:
    return replace(
        Incident(
            "inc-1", kind, Phase.CLOSED, OPENED, 6, 2, 3, settle_until=OPENED + 1.0,
            lost=(LostNode("n2#1", OPENED),), plans=tuple(f"inc-1-p{k + 1}" for k in range(plans)),
            queries={"count.1": QueryTimeline(OPENED, back)}, events=(Event(OPENED, EventName.OPENED),), closed_at=120.0,
        ),
        **more,  # type: ignore[arg-type]
    )  # fmt: skip


def seen(found: Incident, *plans: PlanRecord) -> Observation:
    """With 3 s of sessions, 1.5 s for an installation, a state of 1 s and rows of 0.5 s."""
    work = PartitionStats(1.0, 2000, RestoreWork(50, 100.0, 2000.0))
    return Observation(
        130.0, True, closed={found.id: found}, plans={one.id: one for one in plans or (plan(1, PLANNED),)},
        stats={"count.1": work, "clean.1": PartitionStats(1.0, 0, RestoreWork(0))},
        progress=Progress("d", positions={"count.1": 9, "clean.1": 9}, overhead={"detection": 3.0, "install": INSTALL_S}),
    )  # fmt: skip


KILLED = Circumstances(deaths=[DIED])


def test_the_budget_is_the_sum_of_what_was_recorded_of_each_part() -> None:
    (found,) = assert_in_time(seen(incident()), KILLED)
    assert found.parts == {
        "detection": 3.0, "settling": 1.0, "planning": PLANNING, "installing": INSTALL_S, "loading": 1.0,
        "replaying": 0.5,
    }  # fmt: skip
    assert (found.took_s, found.budget_s) == (BACK - DIED, pytest.approx(7.0 + PLANNING))


def test_a_recovery_that_is_late_is_named_with_its_parts() -> None:
    budget_s = 7.0 + PLANNING
    assert_in_time(seen(incident(back=DIED + FACTOR * budget_s - 0.01)), KILLED)
    with pytest.raises(
        AssertionError, match=r"1 of 1 recoveries are late: inc-1: count\.1 took 39\."
    ) as late:
        assert_in_time(seen(incident(back=DIED + FACTOR * budget_s + 0.01)), KILLED)
    assert "detection 3.00, settling 1.00, planning 0.80, installing 1.50, loading 1.00" in str(late.value)


def test_what_waits_for_a_node_is_judged_from_when_it_could_be_used() -> None:
    """The first plan had no room for it, and a node came half a minute later."""
    ready = 135.0
    start = NodeStart({StartPhase.REQUESTED: 110.0, StartPhase.READY: ready})
    late = incident(back=ready + 3.0, plans=2, starts={"n9#1": start})
    plans = plan(1, PLANNED, left_out=("count.1",)), plan(2, ready + 0.5, node="n9#1")
    (found,) = assert_in_time(seen(late, *plans), KILLED)
    assert found.took_s == pytest.approx(3.0)
    assert found.parts["settling"] == 0.0
    idle = plan(1, PLANNED, left_out=("count.1",)), plan(2, ready + 30.0, node="n9#1")
    with pytest.raises(AssertionError, match="recoveries are late"):
        assert_in_time(
            seen(replace(late, queries={"count.1": QueryTimeline(OPENED, ready + 31.0)}), *idle), KILLED
        )


def test_the_time_without_a_coordinator_is_not_in_it() -> None:
    around = Circumstances(deaths=[DIED], whole=[160.0])
    (found,) = assert_in_time(seen(incident(back=163.0), plan(1, 161.0)), around)
    assert found.took_s == pytest.approx(3.0)
    with pytest.raises(AssertionError, match="recoveries are late"):
        assert_in_time(seen(incident(back=163.0), plan(1, 161.0)), KILLED)


def test_a_new_driver_is_judged_from_when_it_has_its_nodes_if_that_was_watched() -> None:
    events = Event(OPENED, EventName.OPENED), Event(OPENED + 5, EventName.DRIVER_STARTED)
    restarted = incident(Kind.DRIVER, back=128.0, events=events)
    looked = seen(restarted, plan(1, 126.0))
    assert recoveries(looked, Circumstances()) == []
    (found,) = assert_in_time(looked, Circumstances(usable={"n1#1": [10.0, 125.0]}))
    assert found.took_s == pytest.approx(3.0)


def test_a_first_start_and_what_never_came_back_are_not_judged() -> None:
    assert recoveries(seen(incident(Kind.START)), KILLED) == []
    assert recoveries(seen(incident(back=None)), KILLED) == []


def test_a_watch_tells_since_when_all_decide_and_when_nodes_were_usable() -> None:
    shown: list[RunState] = []
    watch = Watch(lambda state, _: shown.append(state))
    report = Progress("d1", nodes=frozenset({"n1#1"}))
    there = Observation(1.0, True, led=True, progress=report, desired=Desired(1, 1, 0, "d1"))
    for look in (
        there, replace(there, time=2.0, connected=False), replace(there, time=3.0, led=False),
        replace(there, time=4.0), replace(there, time=5.0, progress=replace(report, driver="d2")),
        replace(there, time=6.0, progress=replace(report, driver="d2"), desired=Desired(2, 1, 0, "d2")),
    ):  # fmt: skip
        watch(RunState(look, ()), [])
    actions = [
        {"time": 1.5, "action": "kill", "nodes": ["n2"]}, {"time": 1.6, "action": "kill", "nodes": []},
        {"time": 1.7, "action": "crash", "target": "driver"},
    ]  # fmt: skip
    found = watch.circumstances(actions)
    assert (found.deaths, found.whole, found.usable) == ([1.5], [4.0], {"n1#1": [1.0, 6.0]})
    assert watch.seen is not None and watch.seen.time == 6.0
    assert len(shown) == 6
