"""Operators of one topology that come back in different ways, and people who skip queries beside them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from reprise.controller.simulated_world import faults
from reprise.controller.simulated_world.cluster import Cluster
from reprise.controller.simulated_world.faults import KINDS, Fault
from reprise.controller.simulated_world.schedule import Outcome, Schedule, run
from tests.support.seeds import seeds
from tests.unit.controller.simulated_world.test_schedules import fed_again, holds, promotions

pytestmark = pytest.mark.long
MIXED = (
    "active-standby,amnesia,amnesia",
    "amnesia,passive-standby,active-standby",
    "upstream-backup,active-standby,amnesia",
    "active-standby,upstream-backup,passive-standby",
    "passive-standby,active-standby,checkpoint",
    "active-standby,checkpoint,amnesia",
)
"""Of `left`, which `count` reads, which `best` reads."""


def random_losses(seed: int) -> Schedule:
    return replace(Schedule.of(seed).plain(), availability=MIXED[seed % len(MIXED)]).drawn_further()


@seeds([1], range(200, 208), 600)
def test_nothing_breaks_where_operators_have_different_ways(seed: int) -> None:
    holds(random_losses(seed))


@seeds([5], range(230, 238), 600)
def test_nothing_breaks_where_people_skip_queries(seed: int) -> None:
    holds(random_losses(seed).with_wishes())


@pytest.mark.parametrize("seed", [20016, 20044])
def test_a_reader_that_is_back_before_its_input_is_skipped_makes_batches_twice(seed: int) -> None:
    """Those with which it was found: a promoted standby of `count` was at the beginning, and its partition was not."""
    holds(replace(Schedule.of(seed).plain(), availability=MIXED[1]))


def lost(availability: str, *more: Fault) -> Iterator[Outcome]:
    """Each node in its turn is lost, long after the start."""
    for which in range(4):
        yield run(Schedule(3, (Fault(13.0, "node-dies", which, 60.0), *more), availability=availability))


@pytest.mark.wide
def test_each_partition_comes_back_in_its_way() -> None:
    with promotions() as promoted, fed_again() as fed:
        outcomes = [*lost(MIXED[0]), *lost(MIXED[3])]
    assert [o.violation for o in outcomes] == [None] * 8
    assert {p.partition(".")[0] for p in promoted} >= {"left", "best"}
    assert {p.partition(".")[0] for p in fed} == {"count"}
    assert {name.partition("/")[0] for o in outcomes for name in o.marks} == {"count", "best"}


TWICE = "count.0"


def both_copies_die(cluster: Cluster, fault: Fault) -> bool:
    """The machine dies that has one partition, and the machine of its standby."""
    desired = cluster.record("desired")
    assert desired is not None
    names = [str(desired[known][TWICE]).partition("#")[0] for known in ("assignment", "standbys")]  # type: ignore[index]
    machines = sorted(cluster.machines)
    died = [KINDS["node-dies"](cluster, replace(fault, which=machines.index(name))) for name in names]
    return all(died)


@pytest.mark.wide
@pytest.mark.parametrize(
    ("availability", "kinds"),
    [
        ("amnesia,passive-standby,active-standby", ""),
        ("amnesia,active-standby,passive-standby", ""),
        ("checkpoint,passive-standby,checkpoint", "repeatable,by state,repeatable"),
        ("checkpoint,active-standby,checkpoint", "repeatable,by state,repeatable"),
    ],
)
def test_a_partition_that_is_lost_with_its_standby_is_fed_again_by_what_the_coordinator_plans(
    availability: str, kinds: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`count` is a window here: by the number of a batch, as it may lack rows of `left`, or of event time.  Whether one
    began before the newest checkpoint depends on the moment, so one of some has to show it."""
    monkeypatch.setattr(faults, "KINDS", {**KINDS, "both-copies-die": both_copies_die})
    with fed_again() as fed:
        for later in (0.0, 0.5, 1.0, 1.5) if kinds else (0.0,):
            lost = Fault(14.0 + later, "both-copies-die", 0, 60.0)
            holds(Schedule(4, (lost,), availability=availability, kinds=kinds, every=1))
            if TWICE in fed:
                break
    assert TWICE in fed
