"""When a query is back, when it is down again, and what a record says of it in the end."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reprise.algorithms.failure import Failure
from reprise.scheduler import (
    CloseIncident,
    Desired,
    Incident,
    Kind,
    Node,
    Phase,
    Poison,
    Policy,
    Progress,
    QueryTimeline,
    Snapshot,
    back,
    decide,
)
from reprise.scheduler.back import FLOOR, TOLERANCE, Recovery, limit, recovery_of, spread, summary
from reprise.scheduler.incident import Considered
from reprise.scheduler.model import PartitionView, QueryView, TopologyView
from reprise.scheduler.observe import last_look, observe
from reprise.scheduler.view import look

TOPOLOGY = TopologyView(
    "pair",
    (PartitionView("in.0", cpu_milli=40), PartitionView("out.0", ("in.0",), cpu_milli=40)),
    (QueryView("out.0", 5, frozenset({"in.0", "out.0"})),),
)
NODES = (Node("n1", 1, 100), Node("n2", 1, 100))
PLACES = {"in.0": "n1#1", "out.0": "n2#1"}
POLICY = Policy(nodes_wanted=2, node_cpu_milli=100)
START = 1000.0


def report(horizon: int, position: int) -> Progress:
    return Progress(
        "1",
        1,
        1,
        frozenset({"n1#1", "n2#1"}),
        {"in.0": horizon, "out.0": position},
        horizon=horizon,
        checkpoint=15,
    )


def snapshot(horizon: int, position: int, now: float = START) -> Snapshot:
    return Snapshot(
        now=now,
        topology=TOPOLOGY,
        nodes=NODES,
        progress=report(horizon, position),
        checkpoints=frozenset({15}),
        desired=Desired(1, 1, 15, "1", PLACES),
    )


def incident(steady: int | None = None, horizon: int = 40) -> Incident:
    return Incident(
        id="inc-000001",
        kind=Kind.CORRELATED,
        phase=Phase.RECOVERING,
        opened_at=START,
        checkpoint=15,
        generation=1,
        nodes_before=2,
        settle_until=START,
        queries={"out.0": QueryTimeline(START)},
        steady={} if steady is None else {"out.0": steady},
        horizon=horizon,
    )


def course(found: Incident, *looks: tuple[float, int, int]) -> Incident:
    """After looks of (seconds, horizon, position of the output)."""
    for after, horizon, position in looks:
        found = observe(look(snapshot(horizon, position, START + after), POLICY), found)
    return found


def times(found: Incident) -> QueryTimeline:
    return found.queries["out.0"]


def test_a_rollback_brings_nothing_back_by_itself() -> None:
    """The driver's horizon goes back to the checkpoint with everything else, and comes forward a moment later."""
    failed = replace(snapshot(40, 40), nodes=NODES[:1])
    opened = decide(failed, POLICY).incident
    assert opened is not None
    back_again = replace(opened, phase=Phase.RECOVERING)
    for after in (1.0, 2.0, 3.0, 4.0):
        now = snapshot(15, 15, START + after)
        back_again = observe(look(now, POLICY), back_again)
        assert back_again.phase is Phase.RECOVERING, "nothing is failed, so nothing waits"
    assert back_again.queries["out.0"].restored_at == START + 1.0
    assert back_again.queries["out.0"].caught_up_at is None


def test_a_topology_that_always_runs_seven_batches_behind_is_back_when_it_does_again() -> None:
    found = course(incident(steady=7), (1.0, 50, 20), (5.0, 60, 52), (6.0, 62, 55), (7.0, 64, 57))
    assert times(found).caught_up_at == START + 5.0
    without = course(incident(), (1.0, 50, 20), (5.0, 60, 52), (6.0, 62, 55), (7.0, 64, 57))
    assert times(without).caught_up_at is None


@pytest.mark.parametrize(
    ("steady", "expected"), [(None, FLOOR), (0, FLOOR), (2, 2 + TOLERANCE), (7, 7 + TOLERANCE)]
)
def test_the_limit_is_the_steady_lag_with_a_tolerance_and_never_below_the_floor(
    steady: int | None, expected: int
) -> None:
    assert limit(incident(steady), "out.0") == expected


def test_each_query_has_its_own_limit_and_what_is_no_output_takes_that_of_the_slowest() -> None:
    two = replace(incident(), steady={"quick.0": 3, "slow.0": 9})
    assert [limit(two, p) for p in ("quick.0", "slow.0", "in.0")] == [
        3 + TOLERANCE,
        9 + TOLERANCE,
        9 + TOLERANCE,
    ]


@pytest.mark.parametrize(("position", "expected"), [(53, True), (52, False), (None, False)])
def test_near_is_within_the_own_limit_of_the_newest_batch(position: int | None, expected: bool) -> None:
    """A lag of seven is within the limit and eight is not; what is not at work is not near, wherever it was."""
    found = replace(incident(), steady={"out.0": 6, "other.0": 20})
    progress = replace(report(60, 0), positions={} if position is None else {"out.0": position})
    assert back.near(progress, found, "out.0") is expected


def test_after_a_rollback_the_newest_batch_is_still_that_of_the_moment_of_the_failure() -> None:
    rolled_back, found = report(15, 15), incident(horizon=40)
    assert (back.lag(rolled_back, found, "out.0"), back.behind(rolled_back, found, "out.0")) == (25, 25)
    assert not back.near(rolled_back, found, "out.0")


def test_a_partition_that_is_not_at_work_is_behind_by_all_there_is() -> None:
    assert back.lag(report(40, 40), None, "elsewhere.0") == 40


def test_a_reader_of_an_output_that_is_not_there_misses_what_came_after_the_checkpoint() -> None:
    """A complete checkpoint holds what every output has shown."""
    assert back.behind(report(40, 40), None, "elsewhere.0") == 40 - 15
    found = replace(incident(horizon=40), checkpoint=20)
    assert back.behind(report(50, 50), found, "elsewhere.0") == 50 - 20


def test_a_query_that_is_near_for_a_moment_is_not_back() -> None:
    flicker = [(float(k), 50 + k, 50 + k if k % 2 else 40) for k in range(1, 9)]
    assert times(course(incident(), *flicker)).caught_up_at is None


def test_what_is_due_and_not_released_is_behind_and_no_part_of_a_recovery() -> None:
    """A source is away, or hours are caught up window by window: that is no matter of one query."""
    waits = replace(report(100, 98), due=4000)
    assert (back.lag(waits, None, "out.0"), back.behind(waits, None, "out.0")) == (2, 3902)
    assert (back.behind(report(100, 98), None, "out.0"), waits.newest) == (2, 4000)


def test_a_query_that_stands_still_near_the_newest_batch_is_not_back_unless_it_has_shown_all() -> None:
    assert times(course(incident(), (1.0, 50, 49), (9.0, 50, 49))).caught_up_at is None
    assert times(course(incident(), (1.0, 50, 50), (9.0, 50, 50))).caught_up_at == START + 1.0


def test_a_query_that_was_back_and_falls_behind_for_long_is_down_again_and_that_is_counted() -> None:
    back = course(incident(), (1.0, 50, 50), (4.0, 53, 53))
    assert times(back).caught_up_at == START + 1.0
    hiccup = course(back, (5.0, 60, 53), (6.0, 61, 61))
    assert times(hiccup).caught_up_at == START + 1.0
    down = course(hiccup, (7.0, 70, 61), (9.5, 75, 61))
    assert (times(down).caught_up_at, times(down).relapses, times(down).up_s) == (None, 1, 6.0)
    assert [e.name for e in down.events] == ["queries-restored", "queries-caught-up", "queries-behind"]
    again = course(down, (12.0, 80, 79), (14.0, 82, 82))
    assert times(again).caught_up_at == START + 12.0
    assert recovery_of(times(again), START + 99.0) == Recovery(6.0, True, 1)  # 12 s less the 6 s in between


def test_a_loss_after_the_return_is_a_relapse_too() -> None:
    back = course(incident(), (1.0, 50, 50), (4.0, 53, 53))
    lost = observe(look(replace(snapshot(54, 54, START + 8.0), nodes=NODES[:1]), POLICY), back)
    entry = times(lost)
    assert (entry.losses, entry.relapses, entry.up_s) == (2, 1, 7.0)
    assert (entry.restored_at, entry.caught_up_at) == (None, None)


def test_a_loss_before_the_return_forgets_since_when_the_query_was_near() -> None:
    """It is near again five seconds later: not since then, or it would count as back at once."""
    near = course(incident(), (1.0, 50, 49))
    assert times(near).turning_since == START + 1.0
    lost = observe(look(replace(snapshot(51, 51, START + 2.0), nodes=NODES[:1]), POLICY), near)
    again = course(lost, (6.0, 55, 55))
    assert times(again).caught_up_at is None
    assert times(course(again, (8.5, 58, 58))).caught_up_at == START + 6.0


def test_a_clock_that_goes_back_makes_no_time_negative_and_short_times_are_what_they_are() -> None:
    lost = QueryTimeline(START, START + 1.0, START + 2.0)
    assert back.relapsed(lost, START + 2.25).up_s == 0.25
    assert back.relapsed(lost, START + 1.0).up_s == 0.0
    assert recovery_of(QueryTimeline(START), START + 0.5).seconds == 0.5
    assert recovery_of(QueryTimeline(START), START - 5.0).seconds == 0.0


def test_what_has_held_and_moved_when_the_incident_closes_is_back_and_the_rest_is_not_measured() -> None:
    near = course(incident(), (1.0, 50, 49))
    closing = last_look(look(snapshot(51, 51, START + 1.3), POLICY), near)
    assert times(closing).caught_up_at == START + 1.0
    far = last_look(look(snapshot(51, 20, START + 1.3), POLICY), incident())
    assert times(far).caught_up_at is None
    closed = replace(far, phase=Phase.CLOSED, closed_at=START + 60.0)
    assert summary(closed, START + 900.0) == "0 of 1 back; 1 not measured (at least 60.0 s)"
    assert summary(far, START + 900.0) == "0 of 1 back; 1 still down (at least 900.0 s)"


BAD = {"bad.0": Failure.parse("poison: ValueError")}


def beside_poison(after: float, positions: dict[str, int], **changes: object) -> Snapshot:
    """An incident that waits for its end `after` seconds after `out.0` was restored, with a poisoned partition beside it."""
    poisoned = replace(
        TOPOLOGY,
        partitions=(*TOPOLOGY.partitions, PartitionView("bad.0", ("in.0",))),
        queries=(*TOPOLOGY.queries, QueryView("bad.0", 1, frozenset({"in.0", "bad.0"}))),
    )
    verifying = replace(
        incident(), phase=Phase.VERIFYING, checkpoint=15, queries={"out.0": QueryTimeline(START - 5.0, START)}
    )
    seen = replace(
        snapshot(100, 0, START + after),
        topology=poisoned,
        progress=replace(report(100, 0), positions=positions, failed=BAD),
        incident=verifying,
        poison=Poison("1", BAD),
    )
    return replace(seen, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("after", "position", "closes"),
    [
        (59.0, 95, False),
        (60.0, 40, True),
        (61.0, 95, True),
        (61.0, 39, False),
        (61.0, None, False),  # at its node, and not installed yet
    ],
)
def test_beside_poison_a_query_that_is_only_slow_does_not_keep_the_incident_open(
    after: float, position: int | None, closes: bool
) -> None:
    """Its steady lag is not known, and it is never within the floor; it has passed batch 40, the newest when all began."""
    positions = {"in.0": 100} if position is None else {"in.0": 100, "out.0": position}
    assert (decide(beside_poison(after, positions), POLICY).rule == "closed") is closes


def test_beside_poison_what_has_no_room_keeps_the_incident_open_and_so_does_an_old_report() -> None:
    seen = beside_poison(61.0, {"in.0": 100, "out.0": 95})
    closed = decide(seen, POLICY)
    assert (closed.rule, closed.reason) == ("closed", "all but 1 poisoned partitions are back")
    assert closed.desired is not None and seen.desired is not None and seen.incident is not None
    assert (closed.desired.checkpoint, closed.desired.punctuate) == (15, False)
    nothing = beside_poison(61.0, {"in.0": 0}, incident=replace(seen.incident, horizon=0))
    assert decide(nothing, POLICY).rule != "closed", "it is not installed, though no batch was released yet"
    assert decide(replace(seen, desired=replace(seen.desired, seq=2)), POLICY).rule != "closed"
    idle = replace(seen.topology, partitions=(*seen.topology.partitions, PartitionView("idle.0")))
    planned = Considered(frozenset({"n1#1", "n2#1"}), frozenset({"idle.0"}))
    waits = replace(seen, topology=idle, incident=replace(seen.incident, considered=planned))
    assert decide(waits, POLICY).rule != "closed"


def test_a_summary_leaves_no_query_out() -> None:
    seven = [Recovery(20.7, True), *[Recovery(30.0, True)] * 5, Recovery(51.4, True, 2)]
    others = [Recovery(60.0, False)] * 8
    assert spread([*seven, *others], closed=True) == (
        "7 of 15 back, down for 20.7 to 51.4 s; 8 not measured (at least 60.0 s); 2 relapses"
    )
    assert spread([Recovery(3.0, False)], closed=False) == "0 of 1 back; 1 still down (at least 3.0 s)"
    assert spread([Recovery(3.0, True, 1)], closed=True) == "1 of 1 back, down for 3.0 s; 1 relapse"
    assert str(Recovery(42.3, True, 1)) == "42.3 s, down again once"
    assert str(Recovery(42.3, True, 3)) == "42.3 s, down again 3 times"
    assert str(Recovery(60.0, False)) == "at least 60.0 s"


@pytest.mark.parametrize(("checkpoint", "back_again"), [(58, True), (41, False)])
def test_an_output_has_shown_what_the_checkpoint_covers_that_closes_the_incident(
    checkpoint: int, back_again: bool
) -> None:
    """The stream has ended with batch 58. The checkpoint is on record before the driver's next report, in which the output
    would be there; with one that covers less nobody knows of the last batch."""
    seen = replace(snapshot(58, 31, START + 60.0), checkpoints=frozenset({15, checkpoint}))
    verifying = replace(
        incident(), phase=Phase.VERIFYING, queries={"out.0": QueryTimeline(START, START + 50.0)}
    )
    decision = decide(replace(seen, incident=verifying), POLICY)
    assert decision.rule == "closed"
    closed = next(step.incident for step in decision.steps if isinstance(step, CloseIncident))
    assert times(closed).caught_up_at == (START + 60.0 if back_again else None)
