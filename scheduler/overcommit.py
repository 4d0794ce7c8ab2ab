"""Plans that go above the cap of nodes, at a slowdown that is said: more queries come back, those there are slower.

A cap below 1 keeps room for bursts, and for what a node does beside its partitions.  After a large loss that room may be
worth more to queries that would wait.  `recovery.overcommit` says how much of a node's CPU a plan of an incident may fill
where with the cap a query would be left out: 1.5 lets three partitions run where two would, and each batch of them takes up
to 1.5 times as long as it should.  So what is on such a node falls behind, until nodes come and it is moved to them
(`reprise.scheduler.rebalancing`).

How much slower follows from measured load, as costs do (`reprise.scheduler.costs`).  A node that is full shows no more than
what it has, so what partitions took before is kept as long as they are on one (`Desired.demand`): the next plan
must not take them for small.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeVar

from reprise.scheduler.costs import free_on
from reprise.scheduler.incident import some
from reprise.scheduler.view import View

Plan = TypeVar("Plan")


def overfilled(view: View) -> View:
    """The same with as much room as plans may fill where the cap leaves a query out; only to be planned with."""
    policy = view.policy
    return replace(view, policy=replace(policy, cpu_cap=max(policy.cpu_cap, policy.overcommit)))


def if_better(
    view: View,
    plan: Callable[[View], Plan],
    lacks: Callable[[Plan], bool],
    better: Callable[[Plan, Plan], bool],
) -> Plan:
    """A plan under the cap; where that `lacks` something, the one above it, if it is `better`."""
    usual = plan(view)
    if not view.policy.overcommit or not lacks(usual):
        return usual
    fuller = plan(overfilled(view))
    return fuller if better(fuller, usual) else usual


def above_the_cap(view: View, costs: Mapping[str, int], assignment: Mapping[str, str]) -> dict[str, int]:
    """Milli-CPU that usable nodes would run, of those for which it is more than their cap."""
    load = dict.fromkeys((node.id for node in view.usable), 0)
    for partition, node in assignment.items():
        if node in load:
            load[node] += costs.get(partition, 1)
    cap = free_on(view.usable, view.policy, costs, {})
    return {node: used for node, used in load.items() if used > cap[node]}


def slowdowns(view: View, costs: Mapping[str, int], assignment: Mapping[str, str]) -> dict[str, float]:
    """How many times as long as it should what runs on a node takes, for each node above its cap; 1 where its CPU
    is enough."""
    full = above_the_cap(view, costs, assignment)
    return {node: slowdown(used, view.alive[node].cpu_milli) for node, used in full.items()}


def slowdown(used: int, cpu_milli: int) -> float:
    """How many times as long as it should a batch takes on a node that is to run `used` of `cpu_milli`."""
    return max(1.0, round(used / max(1, cpu_milli), 2))


def said_of_slowdowns(found: Mapping[str, float]) -> str:
    """Those nodes, in words; empty where there are none."""
    if not found:
        return ""
    parts = [
        f"{node} about {times:g} times as slow" if times > 1 else f"{node} within its CPU"
        for node, times in sorted(found.items())
    ]
    return f"above the cap, as `recovery.overcommit` allows: {some(parts)}"


def demand(view: View, costs: Mapping[str, int]) -> dict[str, int]:
    """What partitions take that are on nodes above their cap: measured now it would be less than they need."""
    if not view.policy.overcommit:
        return {}
    full = above_the_cap(view, costs, view.survivors)
    return {p: costs[p] for p, node in view.survivors.items() if node in full}
