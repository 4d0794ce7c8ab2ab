"""Operators in cycles that have standbys, or are fed again: `count` and `best` read each other, and `best` reads itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product

import pytest

from reprise.controller.simulated_world import faults, kinds
from reprise.controller.simulated_world.cluster import Cluster
from reprise.controller.simulated_world.faults import KINDS, Fault
from reprise.controller.simulated_world.schedule import Schedule
from reprise.controller.simulated_world.topology import topology
from reprise.spark_jobs.operators.local import run_local
from tests.support.seeds import seeds
from tests.unit.controller.simulated_world.test_schedules import fed_again, holds, promotions

pytestmark = pytest.mark.long
MODES = (
    "active-standby,active-standby,active-standby",
    "passive-standby,passive-standby,passive-standby",
    "upstream-backup",
    "passive-standby,active-standby,passive-standby",
    "checkpoint,passive-standby,active-standby",
    "upstream-backup,active-standby,checkpoint",
    "active-standby,upstream-backup,passive-standby",
    "checkpoint,upstream-backup,upstream-backup",
)
"""Of `left`, which `count` reads, and of the two in the cycle; with upstream backup `best` does not read itself."""


def in_a_cycle(seed: int) -> Schedule:
    made = replace(Schedule.of(seed).plain(), availability=MODES[seed % len(MODES)], feedback=True)
    return made.drawn_further()


@seeds([0, 1, 2], range(300, 305), 800)
def test_nothing_breaks(seed: int) -> None:
    holds(in_a_cycle(seed))


def test_random_seeds_draw_them() -> None:
    drawn = [s for s in map(Schedule.of, range(200)) if s.availability != "checkpoint"]
    ways = {s.availability.split(",")[-1] for s in drawn if s.feedback}
    assert ways >= {"active-standby", "passive-standby", "upstream-backup"}
    assert all(s.allowed for s in drawn)
    assert any(not s.feedback for s in drawn)


def at_node_of(partition: str, kind: str = "node-dies") -> Callable[[Cluster, Fault], bool]:
    """A kind of fault of the machine that has one partition, whichever that is: three of the four machines have all of
    them."""

    def acts(cluster: Cluster, fault: Fault) -> bool:
        desired = cluster.record("desired")
        assert desired is not None
        node = str(desired["assignment"][partition]).partition("#")[0]  # type: ignore[index]
        return KINDS[kind](cluster, replace(fault, which=sorted(cluster.machines).index(node)))

    return acts


@pytest.mark.wide
@pytest.mark.parametrize("mode", MODES[:2])
@pytest.mark.parametrize("partition", ["best.0", "count.0"])
def test_a_standby_is_promoted_by_the_coordinator(
    mode: str, partition: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(faults, "KINDS", {**KINDS, "its-node-dies": at_node_of(partition)})
    with promotions() as seen:
        holds(Schedule(3, (Fault(14.0, "its-node-dies", 1, 60.0),), availability=mode, feedback=True))
    assert partition in seen


@pytest.mark.wide
@pytest.mark.parametrize("partition", ["best.0", "count.0"])
def test_a_partition_is_fed_again_by_what_the_coordinator_plans(
    partition: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(faults, "KINDS", {**KINDS, "its-node-dies": at_node_of(partition)})
    with fed_again() as fed:
        holds(Schedule(3, (Fault(14.0, "its-node-dies", 1, 60.0),), availability=MODES[7], feedback=True))
    assert partition in fed


@pytest.mark.parametrize(("count", "best"), list(product(kinds.CLASSES, repeat=2)))
def test_rows_in_cycles_do_not_double(count: str, best: str) -> None:
    resource = topology(availability=MODES[1], feedback=True, kinds=f"repeatable,{count},{best}")
    assert resource.operator("count").inputs[1].feedback
    for rows in run_local(resource, batches=12):
        assert sum(table.num_rows for table in rows.values() if table is not None) < 200
