"""A node has notice while something else has failed: what has a standby goes on there before it is lost, in each phase."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from reprise.scheduler import Decision, Node, Policy
from reprise.scheduler.incident import EventName, Incident, Phase
from reprise.scheduler.steps import RuleName
from tests.support.diamond_worlds import desired
from tests.support.recovery_simulator import Driver, World, diamond

ONE = "left.0"
LARGE = 750
"""Milli-CPU of a partition that has room on no node but its own."""
PHASES = (Phase.SETTLING, Phase.WAITING, Phase.RECOVERING, Phase.VERIFYING)


def running(
    wanted: frozenset[str], nodes: int = 5, large: str = "", passive: bool = False, **policy: object
) -> World:
    """`large`: a partition that has room on an empty node alone."""
    plain = diamond(2)
    parts = tuple(replace(p, cpu_milli=LARGE) if p.id == large else p for p in plain.partitions)
    topology = replace(plain, partitions=parts, standbys=wanted, passive=wanted if passive else frozenset())
    w = World(topology, Policy(nodes_wanted=nodes, settle_s=4.0, **policy)).started(nodes)  # type: ignore[arg-type]
    w.run(3)
    return w


def incident(w: World) -> Incident:
    """The one that is open, or the last one that was."""
    return w.incident or w.closed[-1]


def named(node: str) -> str:
    return node.partition("#")[0]


def on(w: World, name: str) -> set[str]:
    return {p for p, n in desired(w).assignment.items() if named(n) == name}


def until(w: World, holds: Callable[[], bool]) -> None:
    for _ in range(300):
        if holds():
            return
        w.run(0.1, 0.1)
    raise AssertionError(f"it never holds: {w.log}")


def in_phase(phase: Phase, passive: bool = False) -> tuple[World, str, str]:
    """An incident in this phase, the node that was lost, and that of a partition with a standby on a third one.  In
    `waiting` what failed has no room, and stays so."""
    large = "source.1" if phase is Phase.WAITING else ""
    w = running(frozenset({ONE}), large=large, passive=passive)
    home, there = named(desired(w).assignment[ONE]), named(desired(w).standbys[ONE])
    lost = next(n for n in map(named, desired(w).assignment.values()) if n not in (home, there))
    lost = named(desired(w).assignment[large]) if large else lost
    w.kill(lost)
    until(w, lambda: w.incident is not None and w.incident.phase is phase)
    taken_over(w)
    assert not w.promoted
    return w, lost, home


def taken_over(w: World) -> None:
    """The driver has done what is desired, and no batch more: a checkpoint that is wanted is not complete."""
    assert w.driver is not None
    w.driver.want(w.desired, w)
    w.progress = w.driver.progress()


def notice(w: World, *names: str, deadline: float | None = 12.0) -> Decision:
    """These nodes are to be emptied; what the coordinator decides next, which the driver takes over."""
    w.empty(*names, by=None if deadline is None else w.now + deadline)
    decision = w.coordinate()
    taken_over(w)
    return decision


@pytest.mark.parametrize("passive", [False, True], ids=["active", "passive"])
@pytest.mark.parametrize("deadline", [None, 12.0])
@pytest.mark.parametrize("phase", PHASES)
def test_what_has_a_standby_goes_on_there_before_it_is_lost(
    phase: Phase, deadline: float | None, passive: bool
) -> None:
    """Nothing goes back; what else is on the node is lost with it."""
    w, lost, home = in_phase(phase, passive)
    before, there = desired(w), desired(w).standbys[ONE]
    decision = notice(w, home, deadline=deadline)
    assert decision.rule is RuleName.MOVED
    assert decision.reason == f"1 partition of {home}#1 to {there}, where their standbys are"
    assert w.incident is not None
    assert w.incident.phase is (phase if phase is Phase.SETTLING else Phase.RECOVERING)
    assert desired(w).retain
    w.kill(home)
    w.run(2)
    assert w.promoted == [ONE], "once, and not again by the loss"
    assert desired(w).assignment[ONE] == there
    (said,) = [e.detail for e in incident(w).events if e.name is EventName.PROMOTED]
    assert said.startswith(f"before their nodes go: {ONE} to {there} at batch ")
    w.add("m1")
    w.add("m2")
    w.run(60)
    assert w.incident is None
    assert w.healthy()
    assert (desired(w).generation, desired(w).retain) == (before.generation, False)
    assert {named(entry.node) for entry in w.closed[0].lost} == {lost, home}


@pytest.mark.parametrize("phase", [p for p in PHASES if p is not Phase.WAITING])
def test_a_node_that_has_handed_over_everything_is_not_lost_with_the_others(phase: Phase) -> None:
    """It counts neither as a node of the incident nor against X, no query is lost by its end, and no plan follows."""
    wanted = frozenset(p.id for p in diamond(2).partitions if p.upstream)
    w = running(wanted, 6, correlated_nodes=2)
    sources = {named(desired(w).assignment[p]) for p in ("source.0", "source.1")}
    lost = sorted(sources)[0]
    w.kill(lost)
    until(w, lambda: w.incident is not None and w.incident.phase is phase)
    while phase is Phase.SETTLING and w.coordinate().rule is RuleName.PROMOTED:
        taken_over(w)
    taken_over(w)
    names = {named(n) for n in desired(w).assignment.values()} - sources
    home = next(n for n in sorted(names) if on(w, n) <= desired(w).standbys.keys())
    losses = {q: t.losses for q, t in incident(w).queries.items()}
    assert notice(w, home).rule is RuleName.MOVED
    assert not on(w, home)
    w.kill(home)
    w.run(60)
    assert w.incident is None
    (closed,) = w.closed
    assert [named(entry.node) for entry in closed.lost] == [lost]
    assert {q: t.losses for q, t in closed.queries.items()} == losses
    assert len(w.plans) == 1
    assert EventName.CORRELATED not in [e.name for e in closed.events]


def test_what_was_a_false_alarm_is_no_incident_and_the_notice_is_used_afterwards() -> None:
    w, lost, home = in_phase(Phase.SETTLING)
    w.nodes[f"{lost}#1"] = Node(lost, 1, 1000)
    assert w.driver is not None
    for partition in on(w, lost):
        w.driver._install(partition, w.driver.checkpoint)
    w.drive()
    assert notice(w, home).rule is RuleName.FALSE_ALARM
    w.run(1.5)
    assert w.promoted == [ONE]
    assert w.incident is None


def test_a_standby_on_a_node_that_goes_too_is_no_place_to_go() -> None:
    w, _, home = in_phase(Phase.WAITING)
    notice(w, home, named(desired(w).standbys[ONE]))
    w.run(3)
    assert not w.promoted


def test_a_partition_that_is_being_restored_is_not_handed_over() -> None:
    """A driver that says of no position of it has nothing to hand over."""
    w, _, home = in_phase(Phase.WAITING)
    assert w.progress is not None
    w.progress = replace(w.progress, positions={p: n for p, n in w.progress.positions.items() if p != ONE})
    assert notice(w, home).rule is not RuleName.MOVED


def test_where_output_was_not_kept_it_stays_until_it_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Should the standby be gone when the driver comes to it, nobody could send what follows the checkpoint."""
    w, _, home = in_phase(Phase.WAITING)
    told = Driver.progress
    monkeypatch.setattr(Driver, "progress", lambda driver: replace(told(driver), kept_since=10**6))
    w.drive()
    notice(w, home)
    w.run(3)
    assert not w.promoted


def test_before_the_driver_has_taken_over_the_last_step_nothing_is_handed_over() -> None:
    w, _, home = in_phase(Phase.WAITING)
    assert w.progress is not None
    w.progress = replace(w.progress, seq=desired(w).seq - 1)
    assert notice(w, home).rule is not RuleName.MOVED
    assert notice(w, home).rule is RuleName.MOVED


@pytest.mark.parametrize(("cost", "promoted"), [(790, []), (100, [ONE])])
def test_a_passive_standby_becomes_its_partition_where_that_has_room(cost: int, promoted: list[str]) -> None:
    """By the costs of the incident: those that were measured when it was opened."""
    w, _, home = in_phase(Phase.WAITING, passive=True)
    assert w.incident is not None
    w.incident = replace(w.incident, costs={**w.incident.costs, ONE: cost})
    notice(w, home)
    assert w.promoted == promoted
