"""Standbys and failure domains in the world: racks die as a whole, and a placement that is wrong is found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprise.controller.simulated_world.placements import (
    near_although_there_is_room,
    near_with_room_elsewhere,
)
from reprise.controller.simulated_world.schedule import RACKS, Schedule, run
from reprise.scheduler import Policy, standby_places
from reprise.scheduler.model import Desired, Node, PartitionView, Progress, QueryView, Snapshot, TopologyView
from reprise.scheduler.standby_placement import placement
from reprise.scheduler.steps import RuleName, WriteDesired, act
from reprise.scheduler.view import look
from tests.support.seeds import seeds
from tests.unit.controller.simulated_world.test_schedules import holds

RACK, POLICY = "rack", Policy(cpu_cap=1.0)
NAMES = ("n1", "n2", "n3", "n4")


def node(name: str, cpu_milli: int, rack: str | None) -> Node:
    return Node(name, 1, cpu_milli, labels={} if rack is None else {RACK: rack})


def snapshot(
    racks: Mapping[str, str | None],
    cpu: Mapping[str, int],
    at: Mapping[str, str],
    costs: Mapping[str, int],
    passive: frozenset[str] = frozenset(),
    sources: bool = False,
) -> Snapshot:
    """Partitions that are queries of their own; each is to have a standby in another rack.  `sources`: each needs a source
    on its node, too, which has no standby, so that its rack takes it in any case."""
    nodes = tuple(node(n, cpu[n] + sources, r) for n, r in racks.items())
    source_at = {f"s.{n}": n for n in racks} if sources else {}
    partitions = tuple(PartitionView(p, cpu_milli=costs.get(p, 1)) for p in [*at, *source_at])
    needs = {p: {p, f"s.{n}"} if sources else {p} for p, n in at.items()}
    queries = tuple(QueryView(p, k + 1, frozenset(needs[p])) for k, p in enumerate(at))
    topology = TopologyView(
        "t", partitions, queries, True, frozenset(at), passive, dict.fromkeys(at, RACK)
    )  # fmt: skip
    desired = Desired(1, 1, 0, "1", {p: f"{n}#1" for p, n in {**at, **source_at}.items()})
    progress = Progress("1", 1, 1, frozenset(n.id for n in nodes), dict.fromkeys(desired.assignment, 5))
    return Snapshot(10.0, topology, True, nodes, progress, desired=desired)


def found_in(
    one: Snapshot, standbys: Mapping[str, str], rule: RuleName = RuleName.STANDBYS_PLACED
) -> list[str]:
    """What is wrong with standbys that are placed there."""
    assert one.desired is not None
    after = one.desired.next(standbys={p: f"{n}#1" for p, n in standbys.items()})
    return list(near_although_there_is_room(one, POLICY, act(rule, "", WriteDesired(after))))


def test_a_standby_in_the_rack_of_its_partition_is_found_where_another_rack_has_room() -> None:
    racks: dict[str, str | None] = {"n1": "a", "n2": "a", "n3": "b", "n4": None}
    cpu = {"n1": 200, "n2": 200, "n3": 100, "n4": 900}
    one = snapshot(racks, cpu, {"p.0": "n1"}, {"p.0": 100})
    assert found_in(one, {"p.0": "n2"}) == [
        "p.0 and its standby are both in rack=a, and n3#1 has room for 100"
    ]
    assert found_in(one, {"p.0": "n3"}) == []
    assert found_in(one, {"p.0": "n4"}) == [], "nobody can say where that is"
    assert found_in(one, {"p.0": "n2"}, RuleName.PROMOTED) == [], "what is promoted is placed anew later"
    full = snapshot(racks, {**cpu, "n3": 99}, {"p.0": "n1"}, {"p.0": 100})
    assert found_in(full, {"p.0": "n2"}) == []
    two = snapshot(racks, cpu, {"p.0": "n1", "p.1": "n2"}, {"p.0": 100, "p.1": 100})
    assert found_in(two, {"p.0": "n2", "p.1": "n3"}) == [], "one of them has the room"


@st.composite
def cases(draw: st.DrawFn) -> Snapshot:
    """Partitions that cost more and less, of which some have passive standbys."""
    racks = {n: draw(st.sampled_from(["a", "b", "c", None])) for n in NAMES}
    at = {f"p.{i}": draw(st.sampled_from(NAMES)) for i in range(draw(st.integers(1, 6)))}
    costs = {p: draw(st.integers(1, 5)) * 10 for p in at}
    used = {n: sum(costs[p] for p, where in at.items() if where == n) for n in NAMES}
    cpu = {n: used[n] + draw(st.integers(0, 10)) * 10 for n in NAMES}
    passive = frozenset(p for p in at if draw(st.booleans()))
    one = snapshot(racks, cpu, at, costs, passive, sources=draw(st.booleans()))
    there: dict[str, str] = {}
    for p, own in at.items():
        n = draw(st.sampled_from([None, *NAMES]))
        if n not in (None, own) and used[n] + costs[p] <= cpu[n]:
            there[p], used[n] = n, used[n] + costs[p]
    return with_standbys(one, there)


def with_standbys(one: Snapshot, standbys: Mapping[str, str]) -> Snapshot:
    assert one.desired is not None
    return replace(one, desired=one.desired.next(standbys={p: f"{n}#1" for p, n in standbys.items()}))


def placed(one: Snapshot) -> Mapping[str, str]:
    """The standbys that are placed then."""
    assert one.desired is not None
    view = look(one, POLICY)
    after = one.desired.next(standbys=placement(view, one.desired))
    assert list(near_with_room_elsewhere(view, after)) == []
    return {p: n.partition("#")[0] for p, n in after.standbys.items()}


@given(cases())
def test_no_placement_leaves_one_near_where_there_is_room(one: Snapshot) -> None:
    """Whatever they cost, and wherever some are already, as where nodes came since; and what is placed stays."""
    found = placed(one)
    assert placed(with_standbys(one, found)) == found


def test_who_was_refused_room_is_asked_again_when_another_leaves_some() -> None:
    """`p.0` comes first and finds no room for 100; then `p.1` goes from n2 to n5, and leaves 110 there."""
    racks: dict[str, str | None] = {"n1": "a", "n2": "a", "n3": "c", "n4": "c", "n5": "b"}
    cpu = {"n1": 50, "n2": 110, "n3": 100, "n4": 100, "n5": 50}
    one = snapshot(racks, cpu, {"p.1": "n1", "p.0": "n3"}, {"p.1": 50, "p.0": 100}, sources=True)
    assert placed(with_standbys(one, {"p.0": "n4", "p.1": "n2"})) == {"p.0": "n2", "p.1": "n5"}


STANDBYS = ("active-standby", "passive-standby", "active-standby,passive-standby,active-standby")


@seeds([1], range(260, 264), 300)
def test_nothing_breaks_where_racks_are_failure_domains_and_one_dies(seed: int) -> None:
    availability = STANDBYS[seed % len(STANDBYS)]
    holds(replace(Schedule.of(seed).plain(), availability=availability).by_rack())


def test_the_world_finds_a_coordinator_that_places_standbys_near_their_partitions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    schedule = Schedule(3, (), batches=6, availability="active-standby", cpu="600m", racks=2)
    assert run(schedule).violation is None
    monkeypatch.setattr(standby_places.Places, "seek", lambda *_, **__: False)
    near_first = lambda places, p, node: (int(places._is_apart(p, node)), -places.room[node])  # noqa: E731
    monkeypatch.setattr(standby_places.Places, "_rank", near_first)
    violation = run(schedule).violation
    assert violation is not None
    assert violation.invariant == "apart"


def test_seeds_draw_racks_as_failure_domains_and_lose_one() -> None:
    drawn = [Schedule.of(seed) for seed in range(200)]
    by_rack = [schedule for schedule in drawn if schedule.racks]
    assert {schedule.racks for schedule in by_rack} == set(RACKS)
    assert all(any(fault.kind == "rack-dies" for fault in schedule.faults) for schedule in by_rack)
    assert all(
        (schedule.resource.nodes.failure_domain is not None) == bool(schedule.racks)
        for schedule in drawn[:40]
    )
    with_standbys = [schedule for schedule in drawn if "standby" in schedule.availability]
    assert 0.3 < sum(bool(schedule.racks) for schedule in with_standbys) / len(with_standbys) < 0.7
    assert 0.1 < len(by_rack) / len(drawn) < 0.5
