"""Active standbys: placed where there is room and nothing is lost with their partition, promoted at once, and the first to
give way."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from reprise.scheduler import Decision, InvariantViolation, Outcome, PartitionStats, Policy, WriteDesired
from reprise.scheduler.incident import EventName, Kind
from reprise.scheduler.invariants import check
from reprise.scheduler.steps import RuleName, act
from reprise.scheduler.view import look
from reprise.scheduler.worth import worth_of
from tests.support.diamond_worlds import desired
from tests.support.recovery_simulator import Driver, World, diamond

VALUABLE = frozenset({"left.0", "left.1", "right.0", "sink.0"})
"""What the query of the greatest priority needs, beside its sources."""


def running(nodes: int = 4, cpu: int = 100, wanted: frozenset[str] = VALUABLE, **policy: object) -> World:
    topology = replace(diamond(2, cpu), standbys=wanted)
    return World(topology, Policy(nodes_wanted=nodes, **policy)).started(nodes)  # type: ignore[arg-type]


def node(name: str) -> str:
    return f"{name}#1"


def test_standbys_are_placed_on_other_nodes_when_all_is_well() -> None:
    w = running()
    w.run(3)
    assert desired(w).standbys.keys() == VALUABLE
    assert all(desired(w).assignment[p] != n for p, n in desired(w).standbys.items())
    assert w.incident is None
    seq = desired(w).seq
    w.run(5)
    assert desired(w).seq == seq, "nothing is written again and again"


def test_without_room_the_most_valuable_have_them() -> None:
    everything = frozenset(p.id for p in diamond(2).partitions if p.upstream)
    w = running(nodes=3, cpu=200, wanted=everything)
    w.run(3)
    found = desired(w).standbys
    assert 0 < len(found) < len(everything)
    worth = {q.id: q.priority for q in w.topology.queries}
    need = {
        p: max((worth[q.id] for q in w.topology.queries if p in q.partitions), default=0) for p in everything
    }
    left = everything - found.keys()
    assert min(need[p] for p in found) >= max(need[p] for p in left)
    load: dict[str, int] = {}
    for at in (desired(w).assignment, found):
        for n in at.values():
            load[n] = load.get(n, 0) + 200
    assert max(load.values()) <= 800


@pytest.mark.parametrize("nodes", [1, 2])
def test_what_is_lost_goes_on_where_its_standby_is_at_once(nodes: int) -> None:
    """Before the burst has settled; nobody goes back; a checkpoint closes the incident, and there is a new standby."""
    w = running(settle_s=5.0)
    w.run(3)
    before = desired(w)
    lost = [p for p in before.standbys if before.assignment[p] == node("n2")] or list(before.standbys)[:1]
    gone = before.assignment[lost[0]].partition("#")[0]
    others = [n for n in w.names() if n not in (gone, before.standbys[lost[0]].partition("#")[0])]
    w.kill(gone, *others[: nodes - 1])
    w.run(1.2)
    assert w.incident is not None
    assert w.incident.plans == ()
    assert lost[0] in w.promoted
    assert desired(w).assignment[lost[0]] == before.standbys[lost[0]]
    assert EventName.PROMOTED in [e.name for e in w.incident.events]
    w.add("n5")
    w.add("n6")
    w.run(30)
    assert w.incident is None
    assert desired(w).generation == before.generation
    assert desired(w).standbys.keys() == VALUABLE


def test_where_all_that_is_lost_is_promoted_no_plan_is_made() -> None:
    everything = frozenset(p.id for p in diamond(2).partitions if p.upstream)
    w = running(wanted=everything)
    w.run(3)
    at = desired(w).assignment
    victim = next(n for n in w.nodes if not any(at[s] == n for s in ("source.0", "source.1")))
    w.kill(victim.partition("#")[0])
    w.run(15)
    assert w.plans == []
    assert [e.name for e in w.closed[0].events][-1] == "closed"
    assert not any("false-alarm" in line for line in w.log)
    assert desired(w).standbys.keys() == everything


@pytest.mark.parametrize(("x", "kind"), [(1, Kind.CORRELATED), (2, Kind.BLOCKING)])
def test_nodes_count_against_x_though_all_that_was_lost_is_promoted(x: int, kind: Kind) -> None:
    everything = frozenset(p.id for p in diamond(2).partitions if p.upstream)
    w = running(wanted=everything, correlated_nodes=x)
    w.run(3)
    at = desired(w).assignment
    victim = next(n for n in w.nodes if not any(at[s] == n for s in ("source.0", "source.1")))
    w.kill(victim.partition("#")[0])
    w.run(15)
    assert (w.plans, w.closed[0].kind) == ([], kind)
    assert (EventName.CORRELATED in [e.name for e in w.closed[0].events]) == (kind is Kind.CORRELATED)


def test_with_both_lost_a_plan_restores_it() -> None:
    w = running()
    w.run(3)
    p, n = next(iter(desired(w).standbys.items()))
    w.kill(n.partition("#")[0], desired(w).assignment[p].partition("#")[0])
    w.add("n5")
    w.add("n6")
    w.run(30)
    assert p not in w.promoted
    assert w.plans
    assert w.incident is None


@pytest.mark.parametrize("lost", [["n1"], ["n2"], ["n1", "n2"]], ids="-".join)
def test_standbys_give_way_to_what_a_plan_adds_the_least_valuable_first(lost: list[str]) -> None:
    """Of a node to which a plan adds nothing was taken for which there were room if what is worth less had gone."""
    everything = frozenset(p.id for p in diamond(2).partitions if p.upstream)
    w = running(nodes=4, cpu=170, wanted=everything)
    w.run(3)
    before = dict(desired(w).standbys)
    w.kill(*lost)
    for _ in range(60):
        w.run(0.1)
        if w.plans:
            break
    assert w.incident is not None
    costs = w.incident.costs
    left = dict.fromkeys(desired(w).assignment.values(), 800)
    for at in (desired(w).assignment, desired(w).standbys):
        for p, n in at.items():
            if n in left:
                left[n] -= costs[p]
    added = {n for plan in w.plans for n in plan.added.values()}
    assert added
    assert all(left[n] >= 0 for n in added)
    stay = desired(w).standbys
    taken = {p: n for p, n in before.items() if n in added and p not in stay and p not in w.promoted}
    assert taken
    worth = worth_of(look(w.snapshot(), w.policy))
    for p, n in taken.items():
        less = [q for q, at in stay.items() if at == n and worth[q] < worth[p]]
        assert left[n] + sum(costs[q] for q in less) < costs[p], f"{p} was taken from {n}, and {less} stay"


def test_a_promotion_is_no_load_that_is_added() -> None:
    """What was measured has grown since the standby was placed: it runs there already, so it goes on there."""
    w = running(nodes=4, cpu=260)
    w.run(3)
    p, n = next(iter(desired(w).standbys.items()))
    w.stats = {x.id: PartitionStats(700.0) for x in w.topology.partitions}
    w.kill(desired(w).assignment[p].partition("#")[0])
    w.run(1.5)
    assert desired(w).assignment[p] == n


def test_a_standby_on_a_node_that_leaves_is_placed_elsewhere() -> None:
    w = running()
    w.run(3)
    name = next(iter(desired(w).standbys.values())).partition("#")[0]
    w.empty(name)
    w.run(20)
    assert name not in {n.partition("#")[0] for n in desired(w).standbys.values()}
    assert desired(w).standbys.keys() == VALUABLE
    assert w.incident is None


@pytest.mark.parametrize("later", [0.0, 1.2])
def test_a_standby_on_a_node_that_leaves_is_promoted_and_moved_on(later: float) -> None:
    """Its partition is lost in the same moment as the notice comes, or while an incident is open."""
    w = running(settle_s=5.0)
    w.run(3)
    p, n = next(iter(desired(w).standbys.items()))
    gone = desired(w).assignment[p].partition("#")[0]
    leaving = n.partition("#")[0]
    if later:
        w.kill(next(x for x in w.names() if x not in (gone, leaving)))
        w.run(later)
    n = desired(w).standbys[p]
    w.empty(n.partition("#")[0])
    w.kill(gone)
    w.run(1.5)
    assert desired(w).assignment[p] == n
    w.add("n5")
    w.add("n6")
    w.run(60)
    assert w.incident is None
    assert w.healthy()
    assert n not in (*desired(w).assignment.values(), *desired(w).standbys.values())


def test_a_partition_and_its_standby_on_one_node_is_refused() -> None:
    w = running()
    w.run(3)
    view = look(w.snapshot(), w.policy)
    p = next(iter(desired(w).standbys))
    wrong = desired(w).next(standbys={p: desired(w).assignment[p]})
    with pytest.raises(InvariantViolation, match="both on"):
        check(view, Decision(Outcome.ACT, RuleName.STANDBYS_PLACED, "", (WriteDesired(wrong),)))
    check(view, act(RuleName.STANDBYS_PLACED, "", WriteDesired(desired(w).next(standbys={}))))


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(s, marks=pytest.mark.wide) for s in range(4, 8))])
def test_random_losses_end_well(seed: int) -> None:
    rng = random.Random(seed)
    everything = frozenset(p.id for p in diamond(2).partitions if p.upstream)
    w = running(nodes=4, cpu=rng.choice([100, 170, 260]), wanted=everything)
    for k in range(6):
        w.run(rng.choice([0.3, 1.0, 4.0, 12.0]))
        kind = rng.random()
        if kind < 0.6 and w.names():
            w.kill(*rng.sample(w.names(), min(len(w.names()), rng.choice([1, 1, 2]))))
        elif kind < 0.75:
            w.add(f"m{k}")
        elif kind < 0.85:
            w.start_driver()
        elif kind < 0.93 and w.names():
            w.empty(rng.choice(w.names()))
        else:
            w.lose_state(rng.choice(sorted(everything)))
    for k in range(6):
        w.add(f"z{k}")
    w.run(90)
    assert w.healthy()
    assert all(desired(w).assignment[p] != n for p, n in desired(w).standbys.items())
    assert desired(w).standbys.keys() == everything


def test_a_partition_whose_code_raised_is_not_said_to_lack_room() -> None:
    """It has no standby as none would help; all others have one."""
    w = running()
    w.poison_at = {"left.0": 3}
    w.run(15)
    assert w.poison is not None
    w.kill(next(iter(desired(w).standbys.values())).partition("#")[0])
    w.add("n9")
    w.run(30)
    assert desired(w).standbys.keys() == VALUABLE - {"left.0"}
    said = [line for line in w.log if "standbys are placed" in line]
    assert said
    assert not any("no room" in line for line in said)


@pytest.mark.parametrize("deadline", [None, 12.0])
def test_what_has_a_standby_on_a_node_that_stays_goes_on_there_before_its_own_leaves(
    deadline: float | None,
) -> None:
    """No checkpoint is waited for, nothing is restored, and there is no incident, neither now nor when the node is gone."""
    w = running()
    w.run(3)
    before = desired(w)
    leaves = before.assignment[next(iter(before.standbys))]
    going = {p: n for p, n in before.standbys.items() if before.assignment[p] == leaves}
    name = leaves.partition("#")[0]
    w.empty(name, by=None if deadline is None else w.now + deadline)
    w.run(1.5)
    assert sorted(w.promoted) == sorted(going)
    assert {p: desired(w).assignment[p] for p in going} == going
    first = next(line for line in w.log if "move" in line)
    assert "where their standbys are" in first, "a checkpoint was waited for"
    w.run(10)
    assert leaves not in {*desired(w).assignment.values(), *desired(w).standbys.values()}
    w.kill(name)
    w.run(10)
    assert (desired(w).retain, desired(w).moving) == (False, None)
    assert w.incident is None
    assert not w.closed


def test_beside_poison_what_was_handed_over_is_over_when_it_is_at_work() -> None:
    """Nothing else can move, as no checkpoint can be complete; and output is not kept for ever."""
    w = running()
    w.run(3)
    w.poison_at["sink.1"] = 0
    w.run(30)
    assert w.poison is not None
    before = desired(w)
    leaves = before.assignment[next(iter(before.standbys))]
    going = {p: n for p, n in before.standbys.items() if before.assignment[p] == leaves}
    assert going
    w.empty(leaves.partition("#")[0])
    w.run(20)
    assert {p: desired(w).assignment[p] for p in going} == going
    assert (desired(w).retain, desired(w).moving) == (False, None)


def test_a_standby_on_a_node_that_leaves_too_is_no_place_to_go() -> None:
    w = running()
    w.run(3)
    before = desired(w)
    partition, other = next(iter(before.standbys.items()))
    names = [n.partition("#")[0] for n in (before.assignment[partition], other)]
    w.empty(*names, by=w.now + 30.0)
    for _ in range(20):
        w.run(0.5)
        assert desired(w).assignment[partition] != other
    assert desired(w).assignment[partition].partition("#")[0] not in names


def test_without_kept_output_it_moves_as_one_without_a_standby(monkeypatch: pytest.MonkeyPatch) -> None:
    """Should the standby be gone when the driver comes to it, nobody could send what follows the checkpoint."""
    w = running()
    w.run(3)
    told = Driver.progress
    monkeypatch.setattr(Driver, "progress", lambda driver: replace(told(driver), kept_since=10**6))
    before = desired(w)
    leaves = before.assignment[next(iter(before.standbys))]
    w.empty(leaves.partition("#")[0])
    w.run(3)
    assert not w.promoted
    assert any("move-prepared" in line for line in w.log)
