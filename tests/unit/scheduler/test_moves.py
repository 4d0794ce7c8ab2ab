"""Nodes that are to be emptied: what goes when, what stays, and that a loss in the middle is an ordinary one."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from reprise.scheduler import Decision, InvariantViolation, Outcome, Policy, Scope, WriteDesired, moves
from reprise.scheduler.invariants import check
from reprise.scheduler.model import Moving, Strategy
from reprise.scheduler.moves import room
from reprise.scheduler.steps import RuleName, act
from reprise.scheduler.view import View, look
from tests.support.recovery_simulator import World, diamond


def running(nodes: int = 3, cpu: int = 100, deterministic: bool = True, **policy: object) -> World:
    return World(diamond(2, cpu, deterministic), Policy(nodes_wanted=nodes, **policy)).started(nodes)  # type: ignore[arg-type]


def on(w: World, *names: str) -> list[str]:
    assert w.desired is not None
    return [p for p, n in w.desired.assignment.items() if n.partition("#")[0] in names]


def rules(w: World) -> list[str]:
    return [line.split()[1].rstrip(":") for line in w.log]


@pytest.mark.parametrize("scope", list(Scope))
def test_a_node_is_emptied_without_an_incident_and_nobody_goes_back(scope: Scope) -> None:
    w = running(scope=scope)
    before = w.desired
    assert before is not None
    assert on(w, "n2")
    w.empty("n2")
    w.run(15)
    assert on(w, "n2") == []
    assert w.desired is not None
    assert (w.desired.generation, w.desired.retain, w.desired.moving) == (before.generation, False, None)
    assert not w.closed
    assert w.incident is None
    w.kill("n2")
    w.run(10)
    assert w.incident is None, "nothing was lost with it"
    assert not w.closed


def test_the_least_valuable_goes_first() -> None:
    w = running()
    w.empty("n2")
    gone: list[str] = []
    for _ in range(40):
        there = on(w, "n2")
        w.run(0.3)
        gone += [p for p in there if p not in on(w, "n2")]
    worth = {p.id: 0 for p in w.topology.partitions}
    for query in w.topology.queries:
        worth |= {p: max(worth[p], query.priority) for p in query.partitions}
    values = [worth[p] for p in gone]
    assert len(set(values)) > 1
    assert values == sorted(values)


def test_nothing_new_is_planned_on_it() -> None:
    w = running()
    w.add("n4")
    w.empty("n4")
    w.run(1)
    w.kill("n1")
    w.run(20)
    assert w.closed
    assert on(w, "n4") == []
    assert w.desired is not None
    assert len(w.desired.assignment) == len(w.topology.partitions)


def test_without_room_it_says_what_stays_and_goes_on_when_a_node_comes() -> None:
    w = running(nodes=2, cpu=120)
    w.empty("n2")
    stay = on(w, "n2")
    w.run(10)
    left = on(w, "n2")
    assert left
    assert set(left) <= set(stay)
    decision = w.look()[1]
    assert decision.rule == RuleName.MOVES_WAIT
    found = room(look(w.snapshot(), w.policy))
    assert set(found.staying) == set(left)
    assert found.needed == 120 * len(left)
    assert found.free < 120
    assert f"need {found.needed} milli-CPU" in decision.reason
    assert w.desired is not None
    assert not w.desired.retain, "nothing is kept while nothing can be done"
    w.add("n3")
    w.run(15)
    assert on(w, "n2") == []


def test_where_not_all_fits_the_most_valuable_has_the_room() -> None:
    w = running(nodes=2, cpu=120)
    w.empty("n2")
    found = room(look(w.snapshot(), w.policy))
    top = w.topology.queries[0].partitions
    assert found.placed
    assert any(p not in top for p in found.staying)
    assert all(p in top for p in found.placed)


def test_a_wish_that_is_taken_back_ends_the_move() -> None:
    w = running()
    w.empty("n2")
    while not (w.desired and w.desired.moving):
        w.run(0.3)
    w.keep("n2")
    there = on(w, "n2")
    w.drive()
    w.coordinate()
    assert rules(w)[-1] == RuleName.MOVE_GIVEN_UP
    w.run(5)
    assert on(w, "n2") == there
    assert w.desired is not None
    assert not w.desired.retain


def test_a_target_that_goes_ends_the_move_and_is_an_ordinary_loss_once_it_has_moved() -> None:
    w = running(nodes=4)
    w.empty("n2")
    while "moved" not in rules(w):
        w.run(0.3)
    assert w.desired is not None
    target = next(n for p, n in w.desired.assignment.items() if p in on(w, "n1", "n3", "n4")).partition("#")[
        0
    ]
    w.kill(target)
    w.run(30)
    assert w.closed
    assert w.incident is None
    assert on(w, "n2", target) == []
    assert len(w.desired.assignment) == len(w.topology.partitions)


def test_a_new_driver_in_the_middle_of_a_move() -> None:
    w = running()
    w.empty("n2")
    while not (w.desired and w.desired.moving and w.desired.moving.to):
        w.run(0.3)
    w.start_driver()
    w.run(30)
    assert w.incident is None
    assert on(w, "n2") == []


def test_what_is_not_deterministic_goes_back_as_a_whole_to_the_fresh_checkpoint() -> None:
    w = running(deterministic=False)
    assert w.desired is not None
    before = w.desired.generation
    w.empty("n2")
    w.run(15)
    assert on(w, "n2") == []
    assert w.desired.generation > before
    assert not w.closed
    assert w.incident is None


def test_with_a_deadline_all_goes_at_once_and_what_has_no_place_stays() -> None:
    """Two of four nodes go, and the others have room for a part of what is there."""
    w = running(nodes=4, cpu=250)
    w.empty("n1", "n3", by=w.now + 10)
    w.run(6)
    assert rules(w).count(RuleName.MOVE_PREPARED) == 1
    assert w.desired is not None
    assert on(w, "n1", "n3"), "not everything has room"
    alive = {p for p in w.desired.assignment if p not in on(w, "n1", "n3")}
    top = w.topology.queries[0]
    assert top.partitions <= alive
    looks = w.log[:]
    w.run(2)
    assert w.log == looks, "nothing is planned again for nothing"
    w.kill("n1", "n3")
    w.run(5)
    assert w.incident is not None
    assert top.id not in w.incident.queries or w.incident.queries[top.id].losses == 0


def test_notices_that_come_one_after_the_other_share_a_checkpoint() -> None:
    w = running(nodes=5, cpu=80)
    w.empty("n1", by=w.now + 10)
    w.coordinate()
    assert w.desired is not None
    assert w.desired.moving is not None
    after, first = w.desired.moving.after, set(w.desired.moving.to)
    w.drive()
    w.empty("n3", by=w.now + 10)
    w.coordinate()
    assert w.desired.moving is not None
    assert w.desired.moving.after == after
    assert set(w.desired.moving.to) == {*first, *on(w, "n3")}
    while w.desired.moving and w.desired.moving.to:
        w.run(0.3)
    w.empty("n2", by=w.now + 10)
    w.run(0.6)
    assert w.desired.moving is not None
    assert w.desired.moving.after == after, "also behind the first step"
    w.run(5)
    assert on(w, "n1", "n2", "n3") == []
    assert (w.desired.moving is None or not w.desired.moving.to) and not w.desired.retain


def test_before_the_node_goes_it_moves_from_the_checkpoint_that_there_is() -> None:
    w = running()
    w.empty("n2", by=w.now + 10)
    while not (w.desired and w.desired.moving):
        w.run(0.3)
    assert w.desired.moving.to
    snapshot = w.snapshot()
    assert snapshot.progress is not None
    progress = replace(snapshot.progress, seq=w.desired.seq, checkpoint=w.desired.moving.after - 1)
    progress = replace(progress, kept_since=progress.checkpoint, horizon=progress.horizon + 20)
    w.progress = progress
    early = w.look()[1]
    assert early.rule == RuleName.MOVES_WAIT
    assert early.until > w.now
    w.now = early.until
    assert w.look()[1].rule == RuleName.MOVED
    w.progress = replace(progress, kept_since=progress.checkpoint + 2)
    assert w.look()[1].rule == RuleName.MOVES_WAIT, "what it needs is not kept"


def test_output_that_was_dropped_for_want_of_memory_is_kept_anew() -> None:
    w = running()
    w.empty("n2")
    while not (w.desired and w.desired.moving):
        w.run(0.3)
    w.drive()
    assert w.progress is not None
    newest = w.desired.moving.after + 1
    w.progress = replace(w.progress, checkpoint=newest, kept_since=newest + 1, horizon=newest + 5)
    decision = w.look()[1]
    assert decision.rule == RuleName.MOVE_PREPARED
    assert decision.desired is not None
    assert decision.desired.moving is not None
    assert decision.desired.moving.after == newest + 5


def test_gaps_of_what_was_moved_take_everything_back() -> None:
    w = running()
    w.empty("n2")
    while "moved" not in rules(w):
        w.run(0.3)
    w.drive()
    assert w.progress is not None
    w.progress = replace(w.progress, not_kept=frozenset({"sink.0"}))
    assert w.desired is not None
    decision = w.look()[1]
    assert decision.rule == RuleName.BUFFERS_DROPPED
    assert decision.desired is not None
    assert decision.desired.generation > w.desired.generation


def test_beside_poison_nothing_moves_and_nothing_is_kept() -> None:
    w = running()
    w.poison_at["sink.1"] = 0
    w.run(30)
    assert w.poison is not None
    assert w.incident is None
    w.empty("n2")
    there = on(w, "n2")
    w.run(10)
    assert on(w, "n2") == there
    assert w.look()[1].rule == RuleName.MOVES_WAIT
    assert w.desired is not None
    assert not w.desired.retain


def test_invariants_of_moves() -> None:
    w = running()
    assert w.desired is not None
    mine = on(w, "n2")[0]
    elsewhere = {**w.desired.assignment, mine: "n1#1"}
    decision = act(RuleName.MOVED, "", WriteDesired(w.desired.next(assignment=elsewhere)))
    with pytest.raises(InvariantViolation, match="O1"):
        check(look(w.snapshot(), w.policy), decision)
    w.empty("n2")
    check(look(w.snapshot(), w.policy), decision)
    w.empty("n1")
    with pytest.raises(InvariantViolation, match="emptied"):
        check(look(w.snapshot(), w.policy), decision)
    dropped = {p: n for p, n in w.desired.assignment.items() if p != mine}
    with pytest.raises(InvariantViolation, match="O1"):
        check(
            look(w.snapshot(), w.policy),
            act(RuleName.MOVED, "", WriteDesired(w.desired.next(assignment=dropped))),
        )


def test_a_move_keeps_to_the_cap() -> None:
    w = running(nodes=2, cpu=160)
    w.empty("n2")
    assert w.desired is not None
    everything = dict.fromkeys(w.desired.assignment, "n1#1")
    decision = act(RuleName.MOVED, "", WriteDesired(w.desired.next(assignment=everything)))
    with pytest.raises(InvariantViolation, match="C1"):
        check(look(w.snapshot(), w.policy), decision)


def test_another_decision_gives_a_prepared_move_up() -> None:
    w = running()
    w.empty("n2")
    while not (w.desired and w.desired.moving):
        w.run(0.3)
    assert w.desired.retain
    w.paused = True
    w.coordinate()
    assert rules(w)[-1] == "pause"
    assert (w.desired.moving, w.desired.retain) == (None, False)


def test_a_record_with_nothing_to_move_asks_for_no_checkpoint() -> None:
    w = running()
    assert w.desired is not None
    assert replace(w.desired, moving=Moving({}, 7)).checkpoint_after is None
    assert replace(w.desired, moving=Moving({"a": "n#1"}, 7)).checkpoint_after == 7


@pytest.mark.parametrize("strategy", list(Strategy))
@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(s, marks=pytest.mark.wide) for s in range(2, 6))])
def test_nodes_are_emptied_and_lost_at_random(seed: int, strategy: Strategy) -> None:
    """Wishes, deadlines, losses, drivers and coordinators at random: in the end everything is at work, and on no node
    that is to be emptied.  The simulator checks each step."""
    dice = random.Random(seed)
    w = running(nodes=5, cpu=80, deterministic=dice.random() < 0.7, strategy=strategy)
    w.may_drop = True
    late: tuple[int, Decision] | None = None
    for _ in range(25):
        names = w.names()
        what = dice.randrange(6)
        if what == 0:
            w.empty(dice.choice(names), by=dice.choice([None, w.now + dice.uniform(1, 8)]))
        elif what == 1:
            w.keep(dice.choice(names))
        elif what == 2 and len(names) > 4:
            w.kill(dice.choice(names))
        elif what == 3:
            w.add(f"m{len(w.incarnations)}")
        elif what == 4 and dice.random() < 0.3:
            w.start_driver()
        elif late is not None:
            w.commit(*late)
        w.drive()
        late = w.look()
        w.run(dice.uniform(0.2, 6))
        w.check_flags()
    keep = [node.name for node in w.nodes.values() if node.leaving is None]
    while len(keep) < 5:
        w.add(name := f"z{len(keep)}")
        keep.append(name)
    w.run(150)
    leaving = [node.name for node in w.nodes.values() if node.leaving is not None]
    assert w.incident is None, w.log[-5:]
    assert w.desired is not None
    assert len(w.desired.assignment) == len(w.topology.partitions)
    assert on(w, *leaving) == [], w.log[-5:]
    assert w.look()[1].outcome is Outcome.WAIT


def test_what_a_move_rests_on_is_found_out_once_for_all_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    w = running()
    w.empty("n2")
    view = look(w.snapshot(), w.policy)
    asked = list[View]()
    after = moves.after_the_loss

    def counted(view: View) -> View:
        asked.append(view)
        return after(view)

    monkeypatch.setattr(moves, "after_the_loss", counted)
    may_move = moves.MayMove(view)
    allowed = {(p, n) for p in view.survivors for n in view.usable_ids if may_move(p, n)}
    assert allowed == {(p, n) for p in on(w, "n2") for n in view.open_ids}
    assert len(asked) == 1
