"""Passive standbys cost what they were measured to take until they are promoted; then their partitions need room."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

from reprise.scheduler import PartitionStats, Policy
from reprise.scheduler.model import of_standby
from tests.support.recovery_simulator import World, diamond

EVERYTHING = frozenset(p.id for p in diamond(2).partitions if p.upstream)


def running(nodes: int, cpu: int, measured: float | None, passive: frozenset[str] = EVERYTHING) -> World:
    topology = replace(diamond(2, cpu), standbys=EVERYTHING, passive=passive)
    w = World(topology, Policy(nodes_wanted=nodes))
    if measured is not None:
        w.stats = {of_standby(p): PartitionStats(measured) for p in passive}
    return w.started(nodes)


def load(w: World, at: dict[str, str], cost: float) -> dict[str, float]:
    found: dict[str, float] = {}
    for n in at.values():
        found[n] = found.get(n, 0.0) + cost
    return found


def test_more_of_them_have_room_than_of_active_ones() -> None:
    placed = {}
    for kind, passive in (("active", frozenset[str]()), ("passive", EVERYTHING)):
        w = running(3, 190, 5.0, passive)
        w.run(3)
        assert w.desired is not None
        placed[kind] = len(w.desired.standbys)
        assert all(w.desired.assignment[p] != n for p, n in w.desired.standbys.items())
    assert placed["active"] < placed["passive"] == len(EVERYTHING)


def test_until_one_is_measured_it_costs_what_its_partition_costs() -> None:
    w = running(3, 190, None)
    w.run(3)
    assert w.desired is not None
    unmeasured = len(w.desired.standbys)
    assert unmeasured < len(EVERYTHING)
    w.stats = {of_standby(p): PartitionStats(5.0) for p in EVERYTHING}
    w.run(3)
    assert w.desired is not None
    assert len(w.desired.standbys) == len(EVERYTHING)


def test_one_is_placed_only_where_its_partition_would_have_room() -> None:
    """However little it takes itself: else it could never be promoted."""
    w = running(3, 230, 1.0)  # three on a node leave 110 of 800
    w.run(3)
    assert w.desired is not None
    assert w.desired.standbys == {}


def test_who_finds_no_room_when_promoted_is_left_to_the_plan_and_the_more_valuable_ones_find_it() -> None:
    """Several copies on a node count on the same room; no node has more than its cap."""
    left_to_plans = 0
    for pair in combinations(("n1", "n2", "n3", "n4"), 2):
        w = running(4, 260, 5.0)
        w.run(3)
        assert w.desired is not None
        assert len(w.desired.standbys) == len(EVERYTHING)
        before = w.desired
        gone = {f"{name}#1" for name in pair}
        w.kill(*pair)
        w.run(1.2)
        assert w.desired is not None
        assert (
            max(load(w, {p: n for p, n in w.desired.assignment.items() if n not in gone}, 260).values())
            <= 800
        )
        could = {p for p, n in before.standbys.items() if before.assignment[p] in gone and n not in gone}
        promoted = could & set(w.promoted)
        left_to_plans += len(could - promoted)
        worth = dict.fromkeys(could, 0)
        for q in w.topology.queries:
            worth |= {p: max(worth[p], q.priority) for p in q.partitions & could}
        for p in promoted:
            rivals = [x for x in could - promoted if before.standbys[x] == before.standbys[p]]
            assert worth[p] >= max((worth[x] for x in rivals), default=0)
        w.add("n7")
        w.add("n8")
        w.run(40)
        assert w.incident is None
        assert w.closed
    assert left_to_plans > 0, "there was room for all, so nothing is shown"
