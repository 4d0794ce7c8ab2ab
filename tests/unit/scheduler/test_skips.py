"""Wishes to skip: taken once, for what is not at work, and only where the rest can go on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reprise.scheduler import Decision, Outcome, Phase, Poison, Policy, Scope, Strategy, decide, skips
from reprise.scheduler.model import SkipWish
from reprise.scheduler.steps import TakeSkip, WritePoison
from reprise.scheduler.view import look
from reprise.scheduler.wishes import annotated, pending
from tests.support.diamond_worlds import world
from tests.support.recovery_simulator import World, diamond


def set_aside(w: World, partition: str = "left.1") -> World:
    """Its code has raised some time ago; all else goes on as far as it can."""
    assert w.driver is not None
    w.poison_at[partition] = w.driver.horizon + 2
    for _ in range(6):
        w.drive()
        w.coordinate()
        w.now += 1.0
    assert w.poison is not None and set(w.poison.partitions) == {partition}
    assert w.incident is None
    return w


def wish(w: World, query: str = "sink.0", name: str = "w1") -> Decision:
    w.wishes[query] = SkipWish(name)
    return w.coordinate()


def go_on(w: World, turns: int = 30) -> None:
    for _ in range(turns):
        w.drive()
        w.coordinate()
        w.now += 1.0


def test_what_was_set_aside_is_tried_again_as_one_that_begins_anew() -> None:
    w = set_aside(world())
    decision = wish(w)
    assert decision.rule == "skip-asked"
    assert decision.reason == "sink.0 is to be skipped: left.1 begin anew"
    assert w.desired is not None and w.poison is not None and w.incident is not None
    assert (w.desired.anew, w.desired.skips) == ({"left.1": "w1"}, {"sink.0": "w1"})
    assert "left.1" not in w.desired.assignment
    assert not w.desired.punctuate
    assert w.poison.partitions == {}
    assert w.wishes == {}
    assert w.incident.events[-1].name == "skip-asked"
    go_on(w)
    assert w.skipped == ["left.1"]
    assert w.incident is None
    assert w.desired.anew == {}
    assert w.desired.punctuate
    assert w.poison.partitions == {}, "it has raised again"


def test_a_wish_is_taken_once_whoever_looks() -> None:
    """An annotation stays where it is when it is taken."""
    w = set_aside(world())
    place = annotated("sink.0")
    w.wishes[place] = SkipWish("w1")
    decision = w.coordinate()
    assert decision.rule == "skip-asked"
    assert not any(isinstance(step, TakeSkip) for step in decision.steps)
    go_on(w)
    assert w.skipped == ["left.1"]
    assert sum("skip-asked" in line for line in w.log) == 1
    w.wishes[place] = SkipWish("w2")
    w.drive()
    assert w.coordinate().reason == "nothing of sink.0 is skipped: all of it is at work, or is a source"
    w.drive()
    assert w.coordinate().rule != "skip-asked"


def test_one_that_is_taken_back_before_it_is_taken_is_none() -> None:
    w = set_aside(world())
    w.wishes["sink.0"] = SkipWish("w1")
    _, decision = w.look()
    assert decision.rule == "skip-asked"
    del w.wishes["sink.0"]
    assert any(isinstance(step, TakeSkip) for step in decision.steps), "its znode has to be there"
    assert w.look()[1].rule != "skip-asked"


def test_what_reads_it_and_is_lost_too_begins_anew_with_it() -> None:
    w = world()
    assert w.desired is not None
    sinks = {w.desired.assignment[f"sink.{k}"] for k in range(3)}
    w.kill(*{node.rpartition("#")[0] for node in sinks})
    w.drive()
    view = look(w.snapshot(), w.policy)
    right = next(q for q in w.topology.queries if q.id == "right.0")
    found = skips.would_begin_anew(view, right)
    lost = {p for p in view.failed if not p.startswith("source")}
    assert set(found) <= lost
    if "right.0" in lost:
        assert {p for p in lost if p in ("sink.0", "idle.0")} <= set(found)
    assert not any(p.startswith("source") for p in found)
    assert set(skips.lacking(view, ["right.1"])) == {"sink.1"}


def test_what_is_lost_with_a_node_is_placed_by_the_plan_and_begins_anew() -> None:
    w = world()
    assert w.desired is not None
    node = w.desired.assignment["left.1"]
    w.kill(node.rpartition("#")[0])
    lost = sorted(p for p, n in w.desired.assignment.items() if n == node and not p.startswith("source"))
    w.add("n9")
    w.drive()
    w.coordinate()
    w.drive()
    decision = wish(w)
    while decision.rule != "skip-asked":
        w.now += 0.5
        w.drive()
        decision = w.coordinate()
        if w.incident is None or w.incident.phase is Phase.VERIFYING:
            pytest.skip("it was back before anybody had asked")
    go_on(w)
    assert set(w.skipped) <= set(lost)
    assert w.incident is None


def lost_with_a_node(w: World) -> World:
    """The node of `left.1` is gone, its burst is over, and the first plan waits for whoever carries it out."""
    assert w.desired is not None
    w.kill(w.desired.assignment["left.1"].rpartition("#")[0])
    w.drive()
    assert w.coordinate().rule == "failure-detected"
    for _ in range(3):
        w.now += 1.0
        w.drive()
    decision = w.look()[1]
    assert decision.plan is not None and w.incident is not None and w.incident.phase is Phase.SETTLING
    return w


@pytest.mark.parametrize("strategy", [Strategy.INCREMENTAL, Strategy.BEST_CASE])
def test_what_is_asked_for_while_the_first_plan_waits_is_part_of_it(strategy: Strategy) -> None:
    """A person may take hours to approve it, and would have something restored that is taken back at once."""
    w = lost_with_a_node(world(strategy=strategy))
    before = w.look()[1].desired
    assert before is not None and before.anew == {}
    assert wish(w).rule == "skip-asked"
    assert w.desired is not None and "left.1" in w.desired.anew
    assert w.incident is not None and w.incident.phase is Phase.SETTLING, "its first plan is still to come"
    w.drive()
    decision = w.coordinate()
    assert decision.plan is not None and decision.desired is not None
    assert set(decision.desired.anew) <= decision.plan.added.keys()
    assert (
        "left.1" in decision.plan.note and "begin anew, as somebody has asked to skip" in decision.plan.note
    )
    go_on(w)
    assert "left.1" in w.skipped and w.incident is None


def test_where_everything_goes_back_that_is_planned_before_somebody_may_skip() -> None:
    w = world()
    w.kill("n1", "n2", "n3", "n4")
    for name in ("n5", "n6", "n7", "n8"):
        w.add(name)
    w.drive()
    assert w.coordinate().rule == "failure-detected"
    w.wishes["sink.0"] = SkipWish("w1")
    rules = []
    while "sink.0" in w.wishes:
        w.drive()
        rules.append(w.coordinate().rule)
        w.now += 1.0
    assert any(rule.startswith("plan") for rule in rules[:-1]) and rules[-1] == "skip-asked"


def test_it_waits_until_the_driver_has_taken_over_what_was_decided() -> None:
    w = set_aside(world())
    w.wishes["sink.0"] = SkipWish("w1")
    assert w.progress is not None
    late = replace(w.snapshot(), progress=replace(w.progress, seq=w.progress.seq - 1))
    assert decide(late, w.policy).rule != "skip-asked"


@pytest.mark.parametrize("policy", [{"scope": Scope.GLOBAL}])
def test_where_everything_goes_back_nothing_is_skipped(policy: dict[str, object]) -> None:
    w = set_aside(world(**policy))
    decision = wish(w)
    reason = "everything goes back to the checkpoint, so all of it is restored"
    assert decision.reason == f"nothing of sink.0 is skipped: {reason}"
    assert w.desired is not None and w.desired.anew == {}
    assert w.poison is not None and set(w.poison.partitions) == {"left.1"}


def test_a_query_that_there_is_not_is_taken_and_said() -> None:
    w = world()
    decision = wish(w, "nobody.0")
    assert decision.outcome is Outcome.ACT
    assert decision.reason == "nobody.0 is no query of the topology, and nothing is skipped"
    assert w.wishes == {}


def test_of_what_is_set_aside_only_what_was_asked_for_is_tried_again() -> None:
    w = set_aside(world())
    assert w.poison is not None
    w.poison = Poison(w.poison.driver, {**w.poison.partitions, "right.1": "poison: batch 3"})
    assert w.desired is not None
    left = {p: n for p, n in w.desired.assignment.items() if p != "right.1"}
    w.desired = replace(w.desired, assignment=left)
    decision = wish(w)
    (step,) = [s for s in decision.steps if isinstance(s, WritePoison)]
    assert step.poison.partitions == {"right.1": "poison: batch 3"}


def test_a_new_driver_and_a_rollback_know_of_no_wish_of_before() -> None:
    w = set_aside(world())
    wish(w)
    assert w.desired is not None and w.desired.anew
    assert w.desired.back_to(look(w.snapshot(), w.policy).newest).anew == {}
    w.start_driver()
    w.drive()
    assert w.coordinate().rule == "driver-restarted"
    assert w.desired.anew == {} and w.desired.skips == {"sink.0": "w1"}
    assert w.incident is not None
    said = "the wish to skip is void with a rollback or a new driver: left.1 restored"
    assert said in [event.detail for event in w.incident.events if event.name == "skip-asked"]


@pytest.mark.parametrize(("until", "stays"), [(10_000, True), (0, False)])
def test_what_is_on_record_as_skipped_is_not_said_to_be_restored(until: int, stays: bool) -> None:
    """The driver has decided, and ended before the partition was at work: its successor finds that, and replays the gap."""
    w = set_aside(world())
    wish(w)
    w.start_driver()
    w.drive()
    assert w.progress is not None
    w.progress = replace(w.progress, skipped={"left.1": ((0, 0), (min(until, 1), until))})
    assert w.coordinate().rule == "driver-restarted"
    assert w.incident is not None
    (said,) = {e.detail for e in w.incident.events if e.name == "skip-asked"} - {
        "sink.0 is to be skipped: left.1 begin anew"
    }
    record = "what is on record as skipped stays so, also in the replay: left.1 up to batch 10000; a wish for more is void"
    assert (said == record) == stays and ("restored" in said) != stays


def test_an_old_annotation_is_not_taken_again_after_a_wish_in_a_znode() -> None:
    """What began anew raises again at once: nobody has asked for that."""
    w = set_aside(world())
    w.wishes[annotated("sink.0")] = SkipWish("uid.1")
    go_on(w)
    assert w.skipped == ["left.1"]
    assert w.driver is not None
    w.driver.obeyed.clear()
    w.poison_at["left.1"] = w.driver.horizon + 2
    go_on(w, 6)
    assert wish(w, name="z1").reason == "sink.0 is to be skipped: left.1 begin anew"
    assert w.desired is not None
    assert pending(w.wishes, w.desired.skips) == ()
    go_on(w)
    assert w.skipped == ["left.1"] * 2
    assert sum("skip-asked" in line for line in w.log) == 2


def test_wishes_that_are_older_than_the_topologys_desired_state_are_void() -> None:
    """An annotation stands for months; then the records are lost, and there is room for a part of the queries."""
    w = World(diamond(3, 300), Policy(nodes_wanted=4))
    w.wishes = {q: SkipWish(f"z-{q}") for q in ("sink.0", "idle.0")}
    w.wishes |= {annotated(q.id): SkipWish(f"uid.{q.id}") for q in w.topology.queries}
    old = {place: wish.id for place, wish in w.wishes.items()}
    w.started(4, checkpoint=False)
    assert any("start-partial" in line for line in w.log), "some do not begin"
    go_on(w, 5)
    assert w.desired is not None and (w.desired.skips, w.desired.anew) == (old, {})
    assert not any("skip-asked" in line for line in w.log)
    assert set(w.wishes) == {annotated(q.id) for q in w.topology.queries}, "a znode goes"
    for name in ("n5", "n6", "n7"):
        w.add(name)
    go_on(w)
    assert w.driver is not None and set(w.driver.positions) == {p.id for p in w.topology.partitions}
    assert w.skipped == []


def test_wishes_that_are_older_are_void_where_everything_begins() -> None:
    w = World(diamond(3, 50), Policy(nodes_wanted=4))
    w.wishes = {"sink.0": SkipWish("z"), annotated("sink.0"): SkipWish("uid.1")}
    w.started(4)
    assert w.desired is not None
    assert w.desired.skips == {"sink.0": "z", annotated("sink.0"): "uid.1"}
    assert set(w.wishes) == {annotated("sink.0")}


def test_what_begins_anew_already_is_not_taken_back_for_another_query() -> None:
    """It would begin later, and more rows would be missing; who asks for the same query again means just that."""
    w = set_aside(world())
    wish(w, "sink.0", "w1")
    while w.desired is not None and "left.1" not in w.desired.assignment:
        w.now += 0.5
        w.drive()
        w.coordinate()
    assert w.desired is not None and w.progress is not None
    installing = replace(w.progress, seq=w.desired.seq, generation=w.desired.generation, failed={})
    assert "left.1" not in installing.positions
    before = replace(w.snapshot(), progress=installing)
    other = decide(replace(before, wishes={"sink.1": SkipWish("w2")}), w.policy)
    assert other.reason == "sink.1 is skipped already: what it misses begins anew for another query"
    assert other.desired is not None and other.desired.assignment == w.desired.assignment
    assert (other.desired.anew, other.desired.skips) == ({"left.1": "w1"}, {"sink.0": "w1", "sink.1": "w2"})
    again = decide(replace(before, wishes={"sink.0": SkipWish("w3")}), w.policy)
    assert again.desired is not None and again.desired.anew == {"left.1": "w3"}
    assert "left.1" not in again.desired.assignment
