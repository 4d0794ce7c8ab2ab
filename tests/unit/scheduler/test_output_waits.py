"""Partitions of which a replay may differ, whose output waits for their standbys: they go on there, or all goes back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reprise.algorithms.failure import Failure, FailureKind
from reprise.scheduler import PartitionView, Policy, QueryView, TopologyView, decide
from reprise.scheduler.model import SkipWish, Snapshot
from reprise.scheduler.standbys import promotable
from reprise.scheduler.steps import RuleName
from reprise.scheduler.view import look
from tests.support.recovery_simulator import Driver, World, diamond

WAITS = frozenset({"left.0", "left.1"})


def running(nodes: int = 4, waits: frozenset[str] = WAITS, correlated: int = 2) -> World:
    topology = replace(diamond(2, 100, deterministic=False), standbys=WAITS, passive=WAITS)
    policy = Policy(nodes_wanted=nodes, correlated_nodes=correlated)
    w = World(topology, policy, output_waits=waits).started(nodes)
    w.run(3)
    return w


def place(w: World, partition: str) -> str:
    assert w.desired is not None
    return w.desired.assignment[partition].partition("#")[0]


def standby(w: World, partition: str) -> str:
    assert w.desired is not None
    return w.desired.standbys[partition].partition("#")[0]


def generation(w: World) -> int:
    assert w.desired is not None
    return w.desired.generation


def without_these(w: World) -> str:
    """A node on which none of them is."""
    taken = {place(w, p) for p in WAITS}
    return next(n for n in sorted(w.names()) if n not in taken)


def test_one_that_is_lost_goes_on_where_its_standby_is_and_nobody_goes_back() -> None:
    w = running()
    before, there = generation(w), standby(w, "left.0")
    w.kill(place(w, "left.0"))
    w.run(20)
    assert "left.0" in w.promoted
    assert place(w, "left.0") == there
    assert generation(w) == before
    w.add("n5")
    w.run(30)
    assert w.incident is None
    assert w.desired is not None
    assert w.desired.standbys.keys() == WAITS


def test_others_that_are_lost_come_back_and_nobody_goes_back() -> None:
    w = running()
    before = generation(w)
    w.kill(without_these(w))
    w.run(30)
    assert w.plans
    assert generation(w) == before


def test_where_both_are_lost_everything_goes_back() -> None:
    w = running()
    before, others = generation(w), without_these(w)
    gone = {place(w, "left.0"), standby(w, "left.0")}
    w.kill(*gone)
    w.run(30)
    assert generation(w) > before, others


@pytest.mark.parametrize("correlated", [2, 9])
def test_a_second_loss_before_the_driver_has_heard_of_the_plan_for_the_first_takes_nobody_back(
    correlated: int,
) -> None:
    """Its standby is ready: that it goes on there can be decided when the driver has taken over the last decision."""
    w = running(correlated=correlated)
    before, first = generation(w), without_these(w)
    second = next(p for p in sorted(WAITS) if standby(w, p) != first)
    w.kill(first)
    while not w.plans:
        w.run(0.3)
    w.kill(place(w, second))
    for _ in range(40):
        w.now += 0.3
        w.coordinate()
    assert generation(w) == before
    assert w.look()[1].rule == RuleName.STANDBYS_AWAITED
    w.run(30)
    assert second in w.promoted
    assert generation(w) == before
    w.add("n5")
    w.add("n6")
    w.run(60)
    assert w.incident is None
    assert generation(w) == before


def test_a_second_loss_in_the_burst_waits_for_the_driver_though_it_takes_longer_than_the_burst() -> None:
    """It has not taken over the decision that opened the incident: a plan made without it would take everything back."""
    w = running()
    before, first = generation(w), without_these(w)
    second = next(p for p in sorted(WAITS) if standby(w, p) != first)
    w.kill(first)
    while w.incident is None:
        w.now += 0.3
        w.coordinate()
    w.kill(place(w, second))
    for _ in range(60):
        w.now += 0.3
        w.coordinate()
    assert not w.plans, "the driver was not waited for"
    assert generation(w) == before
    w.run(30)
    assert second in w.promoted
    assert generation(w) == before


ACTIVE = frozenset({"right.0"})


def beside_them(w: World) -> None:
    """Another operator has an active standby: that is refused, and may be in a topology that was taken before."""
    w.topology = replace(w.topology, standbys=WAITS | ACTIVE)


def test_none_that_is_active_is_placed_beside_them() -> None:
    w = running()
    beside_them(w)
    w.add("n5")
    w.run(10)
    assert w.desired is not None
    assert w.desired.standbys.keys() == WAITS


def test_none_that_is_active_is_promoted_beside_them() -> None:
    """It was placed by another coordinator, or before the driver had said which operators are deterministic."""
    w = running()
    beside_them(w)
    seen = w.snapshot()
    desired, progress = seen.desired, seen.progress
    assert desired is not None and progress is not None
    at = desired.assignment["right.0"]
    other = next(n for n in sorted(progress.nodes) if n not in (at, desired.assignment["left.0"]))
    newest = progress.positions["right.0"]
    there = replace(desired, standbys={**desired.standbys, "right.0": other})
    told = replace(
        progress,
        standbys={**progress.standbys, "right.0": newest},
        failed={"right.0": Failure(FailureKind.NODE_LOST)},
        positions={p: k for p, k in progress.positions.items() if p != "right.0"},
    )
    found = decide(replace(seen, desired=there, progress=told), w.policy)
    assert found.rule != RuleName.PROMOTED
    view = look(replace(seen, desired=there, progress=told), w.policy)
    assert "right.0" in view.failed
    assert promotable(view, there, told, None) == {}
    alike = replace(seen.topology, deterministic=True)
    view = look(replace(seen, topology=alike, desired=there, progress=told), w.policy)
    assert promotable(view, there, told, None) == {"right.0": other}


def test_where_output_waits_for_nobody_everything_goes_back_and_none_is_placed() -> None:
    w = running(waits=frozenset())
    assert w.desired is not None
    assert w.desired.standbys == {}
    before = generation(w)
    w.kill(without_these(w))
    w.run(30)
    assert generation(w) > before


def test_who_gives_up_its_place_takes_everything_back() -> None:
    """A plan lets another query run where it was; it will begin anew, and its readers have what it gave."""
    alone = frozenset({"left.0"})
    topology = replace(diamond(2, 250, deterministic=False), standbys=alone, passive=alone)
    w = World(topology, Policy(nodes_wanted=4), output_waits=alone).started(4)
    w.run(3)
    before = generation(w)
    w.kill(*(n for n in w.names() if n != place(w, "left.0")))
    w.run(8)
    assert w.desired is not None
    assert "left.0" not in w.desired.assignment
    assert w.desired.assignment, "something runs there"
    assert generation(w) > before


def test_who_gives_up_its_place_and_needs_what_is_not_kept_takes_everything_back() -> None:
    """It reads one of which a replay may differ, and nodes have kept no output: that would make it again by itself."""
    sizes = {"source.0": 50, "source.1": 50, "told.0": 300, "lost.0": 500, "both.0": 300, "one.0": 50}
    sizes |= {"other.0": 300, "here.0": 300, "there.0": 400}
    reads = {"told": "source.0", "lost": "source.1", "one": "told.0", "other": "source.1"}
    reads |= {"both": "told.0 lost.0", "here": "source.0", "there": "source.1"}
    parts = [
        PartitionView(p, tuple(reads.get(p[:-2], "").split()), cpu_milli=cpu) for p, cpu in sizes.items()
    ]
    needs = {"one.0": "source.0 told.0", "both.0": "source.0 source.1 told.0 lost.0", "other.0": "source.1"}
    needs |= {"here.0": "source.0", "there.0": "source.1"}
    queries = [QueryView(q, 5, frozenset({q, *others.split()})) for q, others in needs.items()]
    waits = frozenset({"told.0"})
    topology = TopologyView(
        "evicts", tuple(parts), tuple(queries), deterministic=False, standbys=waits, passive=waits
    )
    w = World(topology, Policy(nodes_wanted=3, correlated_nodes=1), output_waits=waits).started(3)
    at = dict.fromkeys(("source.0", "told.0", "one.0", "here.0"), "n1#1")
    at |= dict.fromkeys(("source.1", "both.0", "there.0"), "n2#1") | dict.fromkeys(
        ("lost.0", "other.0"), "n3#1"
    )
    w.kill("n3")
    seen = w.snapshot()
    assert seen.desired is not None and seen.progress is not None
    progress = replace(
        seen.progress, nodes=seen.progress.nodes - {"n3#1"}, kept_since=seen.progress.checkpoint + 1
    )
    desired = replace(seen.desired, assignment=at, standbys={})
    seen = replace(seen, desired=desired, progress=progress)
    opened = decide(seen, w.policy)
    assert opened.incident is not None and opened.desired is not None
    told = replace(progress, seq=opened.desired.seq)
    seen = replace(seen, desired=opened.desired, incident=opened.incident, progress=told)
    plan = decide(replace(seen, now=opened.incident.settle_until + 1), w.policy).desired
    assert plan is not None
    assert plan.assignment["other.0"] == "n2#1" and "both.0" not in plan.assignment
    assert plan.assignment["told.0"] == "n1#1"
    assert plan.generation > desired.generation
    assert {plan.origin(p) for p in sizes} == {plan.origin("told.0")}, "it went back alone"


def test_where_one_would_go_back_with_what_it_feeds_everything_does() -> None:
    """Nodes have kept no output: what is lost needs what its upstreams make again, and one of these would make another."""
    w = running()
    w.full = w.may_drop = True
    w.run(5)
    assert w.desired is not None
    at = w.desired.assignment
    gone = next(n for n in sorted(w.names()) if any(at[p] == f"{n}#1" for p in ("sink.0", "sink.1")))
    waits = {p for p in WAITS if at[p] == f"{gone}#1"}
    before = generation(w)
    w.kill(gone)
    w.run(30)
    assert waits <= set(w.promoted)
    assert generation(w) > before


def test_until_a_driver_has_drained_what_it_says_of_replays_counts() -> None:
    """The topology names code already by which one of two is deterministic; the other code runs, and has given output."""
    w = running()
    first = frozenset({"left.0"})
    w.topology = replace(w.topology, standbys=first, passive=first)
    w.run(3)
    assert w.desired is not None
    assert w.desired.standbys.keys() == first
    before = generation(w)
    assert place(w, "left.1") != place(w, "left.0")
    w.kill(place(w, "left.1"))
    w.run(30)
    assert generation(w) > before


def test_nothing_is_skipped() -> None:
    """The driver would refuse it.  What is lost is not taken from its place for that: it comes back at its standby."""
    w = running()
    before = generation(w)
    w.kill(place(w, "left.0"))
    w.wishes["sink.0"] = SkipWish("w1")
    w.run(20)
    said = "nothing of sink.0 is skipped: an operator is not deterministic, so all of it is restored"
    assert any(said in line for line in w.log)
    assert generation(w) == before
    assert "left.0" in w.promoted
    assert w.skipped == []


def test_before_a_node_goes_what_it_has_goes_on_at_standbys_and_nobody_goes_back() -> None:
    """The others on that node are moved by a checkpoint, as they make the same again."""
    w = running()
    before, node, there = generation(w), place(w, "left.0"), standby(w, "left.0")
    w.empty(node)
    w.run(60)
    assert w.promoted == ["left.0"]
    assert place(w, "left.0") == there
    assert w.desired is not None
    assert f"{node}#1" not in {*w.desired.assignment.values(), *w.desired.standbys.values()}
    assert generation(w) == before
    assert w.incident is None and not w.closed[1:]
    assert w.desired.standbys.keys() == WAITS


def with_notice(together: bool, ready: frozenset[str]) -> tuple[World, Snapshot]:
    """The node of one of them is to be emptied.  `together`: the other one is there, too; `ready`: standbys that are."""
    w = running()
    w.empty(place(w, "left.0"))
    seen = w.snapshot()
    desired, progress = seen.desired, seen.progress
    assert desired is not None and progress is not None
    at = dict(desired.assignment)
    if together:
        at["left.1"] = at["left.0"]
    homes = {at[p] for p in WAITS}
    standbys = dict.fromkeys(WAITS, next(n for n in sorted(progress.nodes) if n not in homes))
    told = {p: k for p, k in progress.standbys.items() if p in ready}
    return w, replace(
        seen,
        desired=replace(desired, assignment=at, standbys=standbys),
        progress=replace(progress, standbys=told),
    )


def handed_over(seen: Snapshot, policy: Policy) -> set[str]:
    """What goes on at its standby by the next decision."""
    before, after = seen.desired, decide(seen, policy).desired
    assert before is not None
    if after is None or after.moving is None or after.moving.to:
        return set()
    return {p for p, n in after.assignment.items() if n != before.assignment[p]}


@pytest.mark.parametrize(
    ("together", "ready", "goes"),
    [
        (False, WAITS, {"left.0"}),
        (False, frozenset({"left.0"}), {"left.0"}),
        (False, frozenset({"left.1"}), set()),
        (True, WAITS, WAITS),
        (True, frozenset({"left.0"}), set()),  # the other takes everything back
    ],
)
def test_all_of_them_on_a_node_go_on_at_their_standbys_before_it_goes_or_none(
    together: bool, ready: frozenset[str], goes: set[str]
) -> None:
    w, seen = with_notice(together, ready)
    assert handed_over(seen, w.policy) == goes
    view = look(seen, w.policy)
    assert not view.failed and view.acked


def test_one_that_cannot_go_on_at_its_standby_before_its_node_goes_takes_everything_back_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    w = running()
    before, node = generation(w), place(w, "left.0")
    assert w.driver is not None
    monkeypatch.setattr(Driver, "_follow", lambda *_: None)
    w.driver.standbys.clear()
    w.empty(node)
    w.run(60)
    assert w.promoted == []
    assert w.desired is not None
    assert f"{node}#1" not in w.desired.assignment.values()
    assert generation(w) == before + 1


def test_where_what_may_differ_does_not_wait_a_notice_takes_everything_back() -> None:
    w = running(waits=frozenset())
    before = generation(w)
    w.empty(place(w, "left.0"))
    w.run(60)
    assert w.promoted == []
    assert generation(w) == before + 1


def test_in_an_incident_they_go_on_at_their_standbys_before_their_node_goes() -> None:
    w = running(nodes=5)
    before, lost = generation(w), without_these(w)
    there = next(p for p in sorted(WAITS) if standby(w, p) != lost)
    node = place(w, there)
    w.kill(lost)
    while w.incident is None:
        w.run(0.3, 0.1)
    w.empty(node, by=w.now + 12.0)
    w.run(3)
    assert there in w.promoted
    w.kill(node)
    w.run(30)
    assert w.promoted.count(there) == 1
    assert generation(w) == before
