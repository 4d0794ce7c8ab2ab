"""Load that is levelled in the simulated world, by the real coordinator, driver, engine and hosts: exactly-once with a node
that dies, a driver that ends and a coordinator that is killed in the middle of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from reprise.controller.simulated_world import schedule
from reprise.controller.simulated_world.cluster import Cluster
from reprise.controller.simulated_world.faults import Fault
from reprise.scheduler import Decision, overcommit, rebalancing, recovery
from reprise.scheduler.situation import Situation

pytestmark = pytest.mark.wide

BURST = Fault(5.0, "rack-dies", 0, 14.0)
"""Two of four nodes die, and boot again when the incident may be over."""
ROOM = "360m"
"""Of a node, 288 of it under the cap.  Partitions take 60 or 90 milli-CPU, 480 together, so two nodes have room for all
of them however they are put there, and then the fuller one is 66 % full or more, where three are 44 % full on average:
there is load to be levelled whichever nodes die, whatever has run where.  With less room it depends on that, as a query
may have to wait for the nodes that come back."""


def moves_in(kind: str = "", after_s: float = 0.0, rack: int = 0) -> list[str]:
    """Why moves were prepared to level load, in a run in which everything held.  Something happens so long after the first
    one; where it is the death of a node, to that which the partition goes to."""
    seen: list[str] = []
    clusters: list[Cluster] = []
    acted: list[str] = []
    move, happens = rebalancing._next_move, schedule._happens

    def begun(cluster: Cluster, fault: Fault, so_far: list[str]) -> None:
        clusters.append(cluster)
        happens(cluster, fault, so_far)

    def noted(s: Situation, *more: object) -> Decision:
        decision = move(s, *more)  # type: ignore[arg-type]
        desired = decision.desired
        if desired is not None and desired.moving is not None and decision.reason not in seen:
            seen.append(decision.reason)
            (node,) = desired.moving.to.values()
            which = int(node.partition("#")[0].removeprefix("n")) - 1 if kind == "node-dies" else 0
            if len(seen) == 1 and kind:
                fault = Fault(0.0, kind, which, 5.0)
                clusters[0].world.call(after_s, lambda: happens(clusters[0], fault, acted))
        return decision

    found = schedule.Schedule(
        1, (replace(BURST, which=rack),), batches=140, recovery=", rebalance: true", coordinators=2, cpu=ROOM
    )
    assert found.allowed
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rebalancing, "_next_move", noted)
        patch.setattr(schedule, "_happens", begun)
        outcome = schedule.run(found)
    assert outcome.violation is None, f"{outcome.violation}\n" + "\n".join(outcome.told)
    assert acted == ([kind] if kind else [])
    return seen


@pytest.mark.parametrize("rack", [0, 1])
def test_load_is_levelled_after_a_burst_by_few_moves_and_every_byte_is_as_without_it(rack: int) -> None:
    assert 1 <= len(moves_in(rack=rack)) <= 4


@pytest.mark.parametrize("after_s", [0.7, 5.0])
@pytest.mark.parametrize("kind", ["node-dies", "driver-dies", "coordinator-dies"])
def test_a_process_that_ends_while_a_partition_moves(kind: str, after_s: float) -> None:
    """Before its checkpoint is complete, and about when it has gone."""
    assert moves_in(kind, after_s)


def test_plans_go_above_the_cap_and_every_byte_is_as_without_it() -> None:
    """Two nodes of 210 milli-CPU run 480 while the others are away."""
    seen: list[Mapping[str, float]] = []
    real = overcommit.slowdowns

    def noted(*given: object) -> dict[str, float]:
        seen.append(real(*given))  # type: ignore[arg-type]
        return dict(seen[-1])

    more = ", rebalance: true, overcommit: 150"
    found = schedule.Schedule(1, (BURST,), batches=60, recovery=more, cpu="210m")
    assert found.allowed
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recovery, "slowdowns", noted)
        outcome = schedule.run(found)
    assert outcome.violation is None, f"{outcome.violation}\n" + "\n".join(outcome.told)
    assert any(1 < times <= 1.5 for one in seen for times in one.values())


@pytest.mark.parametrize("seed", range(1, 5))
def test_random_faults_where_plans_go_above_the_cap(seed: int) -> None:
    more = ", rebalance: true, overcommit: 150"
    found = replace(schedule.Schedule.of(seed).plain(), recovery=more, cpu="210m")
    assert found.allowed
    outcome = schedule.run(found)
    assert outcome.violation is None, f"{outcome.violation}\n{found}\n" + "\n".join(outcome.told)
