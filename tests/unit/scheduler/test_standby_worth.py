"""Which standbys give way first: those with which least priority times recovery time is lost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reprise.algorithms.recovery_time import RestoreWork
from reprise.scheduler import Desired, PartitionStats, Policy, WriteDesired
from reprise.scheduler.standby_worth import most_lost_first
from reprise.scheduler.standbys import beside
from reprise.scheduler.steps import RuleName, act
from reprise.scheduler.view import View, look
from tests.support.recovery_simulator import World, diamond

MIB = 2**20


@pytest.mark.parametrize(
    ("known", "first"),
    [
        ({}, ["sink.1", "sink.0"]),  # by priority alone, where the driver says nothing
        ({"sink.1": (100 * MIB, 0)}, ["sink.0", "sink.1"]),  # 20 s to read at priority 1 against a plan at 2
        ({"sink.1": (0, 2_000_000)}, ["sink.0", "sink.1"]),  # the same in rows to apply again
        ({"sink.1": (100 * MIB, 0), "sink.0": (100 * MIB, 0)}, ["sink.1", "sink.0"]),  # as long: by priority
        ({"sink.1": (1, 0)}, ["sink.1", "sink.0"]),  # hardly longer is not twice as long
    ],
)
def test_the_standby_goes_first_with_which_least_priority_times_recovery_is_lost(
    known: dict[str, tuple[int, int]], first: list[str]
) -> None:
    """Two standbys on one node that a decision fills further: with room for one, and then for none."""
    w = World(
        replace(diamond(2, 100), standbys=frozenset({"sink.0", "sink.1"})), Policy(nodes_wanted=3)
    ).started(3)
    w.run(3)
    assert w.desired is not None
    w.stats = {p: PartitionStats(50.0, size, RestoreWork(rows)) for p, (size, rows) in known.items()}
    at = {p.id: "n1#1" if p.id.startswith("sink") else "n2#1" for p in w.topology.partitions}
    before = replace(w.desired, assignment=at, standbys=dict.fromkeys(("sink.0", "sink.1"), "n3#1"))
    w.desired = before
    view = look(w.snapshot(), w.policy)
    others = [p for p in at if not p.startswith("sink")]
    gone = []
    for extra in (6, 7):  # of 800 under the cap, each takes 100: six leave room for two, seven for one
        filled = {**at, **dict.fromkeys(others[:extra], "n3#1")}
        gone.append(_given_way(view, before.next(assignment=filled, punctuate=False)))
    assert gone == [[], first[:1]]
    assert [p for p in most_lost_first(view) if p in first] == first[::-1]
    view = replace(view, policy=replace(w.policy, cpu_cap=0.7))
    assert sorted(_given_way(view, before.next(assignment=filled, punctuate=False))) == sorted(first)


def _given_way(view: View, after: Desired) -> list[str]:
    decided = beside(view, act(RuleName.PLAN_LOSS, "", WriteDesired(after))).desired
    assert decided is not None
    return [p for p in after.standbys if p not in decided.standbys]
