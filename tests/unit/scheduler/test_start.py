"""The first start: when, where, and with how much of the topology."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from reprise.algorithms.positions import Positions
from reprise.scheduler import (
    AddPlan,
    CloseIncident,
    Desired,
    Incident,
    Kind,
    Node,
    Outcome,
    PartitionView,
    Poison,
    Policy,
    Progress,
    QueryView,
    Snapshot,
    TopologyView,
    WriteDesired,
    WriteIncident,
    decide,
)
from reprise.scheduler.incident import EventName, Phase
from reprise.scheduler.model import Leaving, SkipWish
from reprise.scheduler.precomputed import Planner
from reprise.scheduler.situation import Situation
from reprise.scheduler.start import left_open, nodes_awaited, placed
from reprise.scheduler.steps import TakeSkip
from reprise.scheduler.view import look
from reprise.scheduler.wishes import annotated
from tests.support.recovery_simulator import World, diamond


def world(cpu: int = 100, nodes_wanted: int = 4, parallelism: int = 2) -> World:
    return World(diamond(parallelism, cpu), Policy(nodes_wanted=nodes_wanted))


def test_nothing_is_decided_without_a_session_or_a_driver() -> None:
    w = world()
    w.session = False
    assert w.coordinate().outcome is Outcome.UNKNOWN
    w.session = True
    assert w.coordinate().rule == "no-driver"


def test_it_waits_for_the_wanted_nodes_to_be_alive_and_ready() -> None:
    w = world()
    for k in range(3):
        w.add(f"n{k}")
    w.start_driver()
    w.drive()
    assert w.coordinate().reason == "3 of 4 nodes are ready"
    w.add("n4")
    assert w.coordinate().rule == "start-waits"  # alive, and the driver does not know it yet
    w.drive()
    assert w.coordinate().rule == "start"


def test_load_and_operators_are_spread_and_further_nodes_stand_by() -> None:
    w = world(parallelism=4)
    for k in (10, 9, 2, 1, 11):
        w.add(f"n{k}")
    w.start_driver()
    w.run(1.0)
    assert w.desired is not None
    by_node = Counter(w.desired.assignment.values())
    assert set(by_node) == {"n1#1", "n2#1", "n9#1", "n10#1"}  # the first four, as people count
    assert max(by_node.values()) - min(by_node.values()) <= 1
    for operator in ("source", "left", "right", "sink"):
        assert len({w.desired.assignment[f"{operator}.{k}"] for k in range(4)}) == 4
    assert (w.desired.retain, w.desired.punctuate, w.incident) == (False, True, None)


def test_a_start_that_does_not_fit_begins_with_the_most_valuable_and_says_what_is_missing() -> None:
    w = world(cpu=300, nodes_wanted=2)  # 9 partitions of 300, two to a node
    w.add("n1")
    w.add("n2")
    w.start_driver()
    w.run(1.0)
    assert w.incident is not None
    assert w.incident.kind is Kind.START
    assert w.plans[0].trigger == "start"
    assert "needs 2700 milli-CPU; 2 nodes have 1600" in w.plans[0].note
    assert set(w.plans[0].left_out) | set(w.plans[0].plan["queries"]) == {"sink.0", "sink.1", "right.0"}  # type: ignore[call-overload]
    assert w.desired is not None
    assert (w.desired.retain, w.desired.punctuate) == (True, False)
    for k in range(3, 7):
        w.add(f"n{k}")
    w.run(6.0)
    assert w.healthy(), w.log


def finished(w: World) -> None:
    """A node is lost and replaced, and nothing of that is left but the records."""
    closed = len(w.closed)
    assert w.desired is not None
    w.kill(next(iter(w.desired.assignment.values())).partition("#")[0])
    w.run(2.0)
    w.add(f"m{closed}")
    w.run(6.0)
    assert w.healthy() and len(w.closed) == closed + 1, w.log


def test_where_the_desired_state_is_lost_numbers_go_on_and_incidents_close() -> None:
    w = world().started(5)
    finished(w)
    finished(w)
    assert w.driver is not None and w.driver.desired is not None and w.desired is not None
    before, seq = w.driver.desired.generation, w.desired.seq
    w.lose_desired()
    w.run(3.0)
    assert w.healthy(), w.log
    assert w.desired.seq == seq + 2, (
        "what the driver has taken over has a number, and perhaps it has not said so yet"
    )
    assert w.driver.desired.generation == before + 1, "all goes back to the checkpoint"
    finished(w)
    ids = [incident.id for incident in w.closed]
    assert len(set(ids)) == 3 and ids == sorted(ids)


def test_where_the_driver_is_new_as_well_numbers_go_on_after_the_closed_incidents() -> None:
    """As at a second site, where only closed incidents and their plans are put back."""
    w = world().started(5)
    finished(w)
    w.lose_desired()
    w.start_driver()
    w.run(3.0)
    assert w.healthy(), w.log
    assert w.desired is not None and f"inc-{w.desired.seq:06d}" > w.closed[-1].id
    finished(w)
    assert len({incident.id for incident in w.closed}) == 2


def test_an_incident_whose_desired_state_is_lost_is_closed_and_all_begins_again() -> None:
    w = world(cpu=300).started(5)
    w.kill("n1", "n2", "n3")
    w.run(2.0)
    assert w.incident is not None and w.plans
    lost = w.incident.id
    w.lose_desired()
    w.run(1.0)
    assert (w.closed[-1].id, w.closed[-1].phase) == (lost, Phase.CLOSED)
    assert "the desired state is gone" in w.closed[-1].events[-1].detail
    for k in range(6, 10):
        w.add(f"n{k}")
    w.run(6.0)
    assert w.healthy(), w.log


def test_what_is_set_aside_stays_so_where_the_desired_state_is_lost() -> None:
    w = world().started(5)
    w.poison_at["sink.0"] = w.driver.horizon + 1 if w.driver else 0
    w.run(2.0)
    assert w.poison is not None and set(w.poison.partitions) == {"sink.0"}
    w.lose_desired()
    w.run(3.0)
    assert w.healthy(), w.log
    assert w.desired is not None and "sink.0" not in w.desired.assignment and not w.desired.punctuate


def test_it_starts_from_the_newest_checkpoint() -> None:
    w = world()
    w.checkpoints |= {4, 9}
    for k in range(4):
        w.add(f"n{k}")
    w.start_driver()
    w.drive()
    decision = decide(w.snapshot(), w.policy)
    assert decision.desired is not None
    assert (decision.desired.checkpoint, decision.desired.generation, decision.desired.seq) == (9, 1, 1)
    assert w.progress is not None
    line = replace(w.snapshot(), progress=replace(w.progress, checkpoint=9, lines={"sink.0": 7}))
    started = decide(line, w.policy).desired
    assert started is not None and started.restored_from == Positions(9, {"sink.0": 7})


def chain(*cpu: int) -> TopologyView:
    """Partitions of these sizes one after the other, and one query that needs all of them."""
    names = [f"p{k}.0" for k in range(len(cpu))]
    partitions = tuple(
        PartitionView(name, upstream=tuple(names[max(0, k - 1) : k]), cpu_milli=cpu[k])
        for k, name in enumerate(names)
    )
    return TopologyView("chain", partitions, (QueryView(names[-1], 1, frozenset(names)),), True)


def test_where_spreading_strands_room_an_exact_packing_starts_everything() -> None:
    """Of 800 a node: 440 with 330, and 330 with 220 twice. The largest on the emptiest leaves 220 over."""
    w = World(chain(440, 330, 330, 220, 220), Policy(nodes_wanted=2))
    w.add("n1")
    w.add("n2")
    w.start_driver()
    w.drive()
    decision = w.coordinate()
    assert (decision.rule, decision.reason) == ("start", "everything fits, by an exact packing")
    desired = w.desired
    assert desired is not None
    assert (desired.retain, desired.punctuate, desired.plan) == (False, True, None)
    room = Counter[str]()
    for partition in w.topology.partitions:
        room[desired.assignment[partition.id]] += partition.cpu_milli
    assert sorted(room.values()) == [770, 770]
    assert w.incident is None
    assert w.plans == []
    w.run(3.0)
    assert w.healthy(), w.log


def test_a_start_with_a_part_says_what_it_had_and_keeps_the_costs_it_was_planned_with() -> None:
    w = world(cpu=300, nodes_wanted=2)
    w.add("n1")
    w.add("n2")
    w.start_driver()
    w.drive()
    decision = w.coordinate()
    assert decision.rule == "start-partial"
    assert (
        decision.reason
        == "the topology needs 2700 milli-CPU; 2 nodes have 1600 under the cap: 2 partitions start"
    )
    assert w.incident is not None
    assert w.incident.costs == {p.id: 300 for p in w.topology.partitions}
    assert w.incident.plans == (w.plans[0].id,)
    assert w.desired is not None
    assert (w.desired.plan, len(w.desired.assignment)) == (w.plans[0].id, 2)


# -- the rules themselves ----------------------------------------------------------------------------------------------


def situation(*ready: str, **changes: object) -> Situation:
    """A topology with a driver and these nodes, and nothing decided."""
    nodes = tuple(Node(name, 1, 1000) for name in ready)
    progress = Progress("7", nodes=frozenset(n.id for n in nodes))
    snapshot = Snapshot(5.0, diamond(2, 100), nodes=nodes, progress=progress)
    seen = look(replace(snapshot, **changes), Policy(nodes_wanted=2))  # type: ignore[arg-type]
    return Situation(seen, seen.snapshot.incident, Planner())


def test_an_open_incident_without_a_desired_state_is_closed_before_anything_begins() -> None:
    assert left_open(situation("n1")) is None
    incident = Incident("inc-000004", Kind.CORRELATED, Phase.RECOVERING, 1.0, 3, 2, 4, 1.0)
    decision = left_open(situation("n1", incident=incident))
    assert decision is not None
    (step,) = decision.steps
    assert isinstance(step, CloseIncident)
    assert (step.incident.id, step.incident.phase, step.incident.closed_at) == (
        "inc-000004",
        Phase.CLOSED,
        5.0,
    )
    assert step.incident.events[-1].name is EventName.CLOSED
    assert "the desired state is gone from the records" in step.incident.events[-1].detail


def test_a_node_that_is_to_be_emptied_is_not_one_of_those_awaited() -> None:
    assert nodes_awaited(situation("n1", "n2")) is None
    leaving = (Node("n1", 1, 1000), Node("n2", 1, 1000, leaving=Leaving("drained")))
    waits = nodes_awaited(situation("n1", "n2", nodes=leaving))
    assert waits is not None and waits.reason == "1 of 2 nodes are ready"


def first_desired(s: Situation) -> Desired:
    decision = placed(s)
    assert decision is not None
    return next(step.desired for step in decision.steps if isinstance(step, WriteDesired))


def test_the_first_desired_state_goes_on_after_all_that_is_on_record() -> None:
    progress = Progress("7", generation=6, nodes=frozenset({"n1#1", "n2#1"}), checkpoint=40)
    s = situation("n1", "n2", progress=progress, checkpoints=frozenset({30, 40}), closed=12, paused=True)
    found = first_desired(s)
    assert found.seq == s.view.snapshot.last_seq + 1
    assert found.seq > 12, "an incident is named after it"
    assert (found.generation, found.checkpoint, found.driver, found.paused) == (7, 40, "7", True)
    assert set(found.assignment) == {p.id for p in s.view.snapshot.topology.partitions}
    assert first_desired(situation("n1", "n2", progress=replace(progress, generation=-1))).generation == 1


def test_what_raised_is_left_out_and_no_checkpoint_is_asked_for_then() -> None:
    found = first_desired(situation("n1", "n2", poison=Poison("7", {"left.0": "it raised"})))
    assert "left.0" not in found.assignment and "left.1" in found.assignment
    assert not found.punctuate
    assert first_desired(situation("n1", "n2")).punctuate


def test_wishes_of_before_are_void() -> None:
    wishes = {"sink.0": SkipWish("w1"), annotated("sink.1"): SkipWish("w2")}
    decision = placed(situation("n1", "n2", wishes=wishes))
    assert decision is not None
    assert [step.query for step in decision.steps if isinstance(step, TakeSkip)] == ["sink.0"], (
        "an annotation belongs to people"
    )
    found = first_desired(situation("n1", "n2", wishes=wishes))
    assert found.skips == {"sink.0": "w1", annotated("sink.1"): "w2"}
    assert found.anew == {}


def test_a_partial_start_takes_wishes_too_and_opens_an_incident() -> None:
    few = (Node("n1", 1, 300), Node("n2", 1, 300))
    decision = placed(situation("n1", "n2", nodes=few, wishes={"sink.0": SkipWish("w1")}))
    assert decision is not None
    kinds = [type(step) for step in decision.steps]
    assert kinds == [WriteDesired, AddPlan, WriteIncident, TakeSkip]
    desired, plan, incident, _ = decision.steps
    assert (
        isinstance(desired, WriteDesired)
        and isinstance(plan, AddPlan)
        and isinstance(incident, WriteIncident)
    )
    assert desired.desired.plan == plan.plan.id == incident.incident.plans[0]
    assert (desired.desired.retain, desired.desired.punctuate) == (True, False)
    assert incident.incident.considered is not None
    waiting = {p.id for p in diamond(2, 100).partitions} - desired.desired.assignment.keys()
    assert incident.incident.considered.waiting == waiting
