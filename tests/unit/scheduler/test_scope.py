"""What goes back to the checkpoint with what failed: nobody, the ancestors, or everything."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprise.algorithms import recovery_line
from reprise.algorithms.positions import Positions
from reprise.scheduler import (
    Kind,
    Node,
    PartitionView,
    Policy,
    Progress,
    Scope,
    Snapshot,
    Strategy,
    TopologyView,
)
from reprise.scheduler.model import Desired
from reprise.scheduler.scope import going_back, some_stay
from reprise.scheduler.view import View, look
from tests.support.diamond_worlds import world
from tests.support.recovery_simulator import World, diamond

HERE, GONE = "n1#1", "n2#1"


def after_a_burst(w: World) -> tuple[dict[str, str], dict[str, int]]:
    """Two of four nodes are lost and a first plan is carried out: where everything was, and how far it was before."""
    assert w.desired is not None and w.driver is not None
    where, positions = dict(w.desired.assignment), dict(w.driver.positions)
    w.kill("n1", "n2")
    until_plans(w, 1)
    return where, positions


def until_plans(w: World, count: int) -> None:
    """So many plans are made, and the driver has taken over the last."""
    for _ in range(30):
        if len(w.plans) < count:
            w.run(0.3)
    assert len(w.plans) >= count, w.log
    w.drive()


def test_nobody_who_lives_goes_back_where_all_output_is_kept() -> None:
    w = world()
    assert w.desired is not None and w.driver is not None
    before = w.desired.generation
    where, positions = after_a_burst(w)
    lives = {p for p, node in where.items() if node in w.nodes}
    assert lives
    assert {p for p in lives if w.driver.positions[p] < positions[p]} == set()
    assert (w.desired.generation, w.desired.lines, w.desired.retain) == (before, {}, True)
    assert not w.plans[0].rollback
    assert w.plans[0].note == f"{len(lives)} at work go on"
    assert {w.driver.desired.origin(p).position for p in w.plans[0].added} == {w.driver.checkpoint}  # type: ignore[union-attr]
    w.run(8.0)
    assert w.healthy(), w.log


def test_where_output_was_dropped_what_failed_takes_its_ancestors_back_and_nobody_else() -> None:
    w = world()
    w.full = w.may_drop = True
    w.run(1.0)
    where, positions = after_a_burst(w)
    assert w.desired is not None and w.driver is not None
    plan, checkpoint = w.plans[0], w.desired.checkpoint
    lives = {p for p, node in where.items() if node in w.nodes}
    back = {p for p in lives if p in w.desired.lines}
    assert back
    assert lives - back
    assert back == going_back_by_the_line(w.topology, set(plan.pending)) & lives
    assert {p for p in lives - back if w.driver.positions[p] < positions[p]} == set()
    assert w.desired.generation == w.desired.lines[min(back)].generation - 1
    assert {w.desired.origin(p).position for p in back} == {checkpoint}
    assert plan.note.endswith(
        f"{len(back)} go back to checkpoint {checkpoint}, as what they have sent is not kept"
    )
    w.full = False
    w.run(10.0)
    assert w.healthy(), w.log
    assert w.desired.next_generation == w.desired.generation + 2


@pytest.mark.parametrize(
    "policy",
    [
        {"scope": Scope.GLOBAL},
        {"strategy": Strategy.OPERATOR_CENTRIC},
        {"strategy": Strategy.BLOCKING},
        {"deterministic": False},
    ],
    ids=str,
)
def test_everything_goes_back_where_the_scope_or_a_baseline_or_an_operator_asks_for_it(
    policy: dict[str, Any],
) -> None:
    w = world(**policy)
    w.kill("n1", "n2")
    w.run(3.0)
    for node in ("n5", "n6"):
        w.add(node)
    w.run(10.0)
    assert w.desired is not None
    assert [plan.rollback for plan in w.plans if plan.added][:1] == [True]
    assert w.desired.generation == 2
    assert w.healthy(), w.log


def test_one_node_is_restored_whole_and_nobody_else_goes_back() -> None:
    w = world()
    assert w.desired is not None and w.driver is not None
    where, positions = dict(w.desired.assignment), dict(w.driver.positions)
    w.kill("n1")
    until_plans(w, 1)
    assert w.incident is not None and w.incident.kind is Kind.BLOCKING
    assert (w.desired.generation, w.desired.retain) == (1, True)
    lives = {p for p, node in where.items() if node in w.nodes}
    assert {p for p in lives if w.driver.positions[p] < positions[p]} == set()
    w.run(6.0)
    assert w.healthy(), w.log
    assert not w.desired.retain


def test_a_host_that_died_on_a_node_that_lives_is_restored_there_at_once() -> None:
    w = world(correlated_nodes=1)
    assert w.driver is not None
    lost = next(p for p in w.driver.positions if p.startswith("left"))
    for k in range(2):
        w.lose_state(lost)
        until_plans(w, k + 1)
        w.run(8.0)
        assert w.healthy(), w.log
    assert not any(plan.rollback for plan in w.plans)


def test_a_survivor_that_gives_its_room_begins_again_and_nobody_else() -> None:
    w = world(cpu=200)
    where, positions = after_a_burst(w)
    assert w.desired is not None and w.driver is not None
    assert "give" in w.plans[0].note
    moved = {p for p, node in where.items() if node in w.nodes and w.desired.assignment.get(p) != node}
    assert moved
    stayed = {p for p, node in where.items() if w.desired.assignment.get(p) == node}
    assert {p for p in stayed if w.driver.positions[p] < positions[p]} == set()
    for node in ("n5", "n6"):
        w.add(node)
    w.run(10.0)
    assert w.healthy(), w.log
    assert not any(plan.rollback for plan in w.plans)


def test_a_driver_that_does_not_say_what_is_kept_is_taken_to_have_nothing() -> None:
    view = seen(diamond(), {"sink.0"}, kept=None)
    assert (
        going_back(view, {"sink.0"}) == going_back_by_the_line(diamond(), {"sink.0"}) & view.survivors.keys()
    )


def test_where_nothing_lives_everything_goes_back() -> None:
    topology = diamond()
    everything = {p.id for p in topology.partitions}
    assert not some_stay(seen(topology, everything, kept=0))
    assert some_stay(seen(topology, everything - {"idle.0"}, kept=0))


# -- against the general line --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stored:
    """A snapshot."""

    position: int
    channels: dict[str, int] = field(default_factory=dict)
    inputs: dict[str, recovery_line.Heard] = field(default_factory=dict)

    @property
    def sent(self) -> int:
        return self.position

    @property
    def first(self) -> int:
        return self.position + 1


def going_back_by_the_line(topology: TopologyView, failed: set[str], kept: bool = False) -> set[str]:
    """What `reprise.algorithms.recovery_line.line` takes back with them when all snapshots are of batch 10."""
    edges = [recovery_line.Edge(u, p.id, 0) for p in topology.partitions for u in p.upstream]
    edges += [recovery_line.Edge(u, p.id, 1) for p in topology.partitions for u in p.feedback]
    sources = frozenset(p.id for p in topology.partitions if not p.upstream and not p.feedback)
    names = [p.id for p in topology.partitions]
    line = recovery_line.line(
        recovery_line.World(
            edges=edges,
            sources=sources,
            snapshots={  # which hold the last output over feedback edges
                p: (Stored(10, {e.target: 10 for e in edges if e.source == p and e.delay}),) for p in names
            },
            positions=dict.fromkeys(names, 25),
            floors={e: e.need(10) if kept else 26 for e in edges},
            ledger_first=1,
            replayable=frozenset(names),
        ),
        failed,
    )
    assert not isinstance(line, recovery_line.Impossible)
    return set(line) - failed


def seen(topology: TopologyView, failed: set[str], kept: int | None) -> View:
    """What the coordinator sees when these are lost with their node, at checkpoint 10."""
    names = [p.id for p in topology.partitions]
    at_work = {p: 25 for p in names if p not in failed}
    desired = Desired(3, 1, 0, "1", {p: GONE if p in failed else HERE for p in names})
    progress = Progress("1", 3, 1, frozenset({HERE}), at_work, checkpoint=10, kept_since=kept)
    snapshot = Snapshot(50.0, topology, nodes=(Node("n1", 1, 1000),), progress=progress, desired=desired)
    return look(snapshot, Policy())


@st.composite
def topologies(draw: st.DrawFn) -> TopologyView:
    count = draw(st.integers(2, 8))
    names = [f"p{k}.0" for k in range(count)]
    partitions = []
    for k, name in enumerate(names):
        upstream = tuple(draw(st.lists(st.sampled_from(names[:k]), unique=True))) if k else ()
        feedback = tuple(draw(st.lists(st.sampled_from(names[k:]), unique=True, max_size=1))) if k else ()
        partitions.append(PartitionView(name, upstream, feedback))
    return TopologyView("random", tuple(partitions), (), True)


@given(topology=topologies(), data=st.data())
def test_it_is_the_greatest_valid_line(topology: TopologyView, data: st.DataObject) -> None:
    names = [p.id for p in topology.partitions]
    failed = set(data.draw(st.lists(st.sampled_from(names), unique=True, min_size=1)))
    kept = data.draw(st.booleans())
    view = seen(topology, failed, kept=10 if kept else 11)
    assert going_back(view, failed) == going_back_by_the_line(topology, failed, kept)


def backed(view: View, partitions: set[str]) -> View:
    progress = view.snapshot.progress
    assert progress is not None
    return replace(
        view, snapshot=replace(view.snapshot, progress=replace(progress, backed=frozenset(partitions)))
    )


def test_nobody_goes_back_for_one_that_is_fed_by_what_was_spared() -> None:
    """Output was dropped, but not what a lost partition would need that is alone on its path (`upstream-backup`)."""
    topology = chain()
    everybody = {p.id for p in topology.partitions}
    for failed in everybody:
        view = seen(topology, {failed}, kept=11)
        assert going_back(backed(view, everybody), {failed}) == set()
        assert going_back(backed(view, everybody - {failed}), {failed}) == going_back(view, {failed})
    two = seen(topology, {"b.0", "c.0"}, kept=11)
    assert going_back(backed(two, everybody), {"b.0", "c.0"}) == going_back(two, {"b.0", "c.0"}) == {"a.0"}
    apart = seen(topology, {"a.0", "c.0"}, kept=11)
    assert going_back(backed(apart, everybody), {"a.0", "c.0"}) == set()
    # `b` goes back for `c`, so it asks `a` for more than was kept for that
    assert going_back(backed(apart, {"a.0"}), {"a.0", "c.0"}) == {"b.0"} == going_back(apart, {"a.0", "c.0"})


def chain() -> TopologyView:
    """A source, and three that read each other in a row."""
    read = {"s.0": (), "a.0": ("s.0",), "b.0": ("a.0",), "c.0": ("b.0",)}
    return TopologyView("chain", tuple(PartitionView(p, u) for p, u in read.items()), (), True)


def test_a_line_goes_back_as_a_whole() -> None:
    view = seen(diamond(), {"sink.0"}, kept=0)
    assert some_stay(view)
    assert not some_stay(replace(view, newest=Positions(10, {"left.0": 8})))


def test_where_a_survivor_stands_before_the_newest_checkpoint_everything_goes_back() -> None:
    view = seen(diamond(), {"source.0"}, kept=10)
    progress = view.snapshot.progress
    assert progress is not None
    assert some_stay(view)
    late = replace(progress, checkpoint=20, positions={**progress.positions, "left.0": 13})
    assert not some_stay(look(replace(view.snapshot, progress=late), Policy()))
    installing = {p: k for p, k in late.positions.items() if p != "left.0"}  # from checkpoint 0
    assert not some_stay(look(replace(view.snapshot, progress=replace(late, positions=installing)), Policy()))


@pytest.mark.parametrize("late", [{"left.0": 0}, {}], ids=["behind", "with-a-gap"])
def test_an_incident_stays_open_until_all_have_passed_its_checkpoint(late: dict[str, int]) -> None:
    w = world()
    after_a_burst(w)
    for _ in range(40):
        if w.incident is not None and w.incident.phase != "verifying":
            w.run(0.3)
    assert w.incident is not None and w.progress is not None and w.desired is not None
    newest = w.desired.checkpoint + 5
    positions = dict.fromkeys(w.progress.positions, newest + 3)
    not_kept = frozenset[str]() if late else frozenset({"sink.0"})
    done = replace(w.progress, seq=w.desired.seq, checkpoint=newest, horizon=newest + 3)
    w.checkpoints.add(newest)
    w.progress = replace(done, positions=positions | late, not_kept=not_kept)
    assert w.look()[1].rule != "closed"
    w.progress = replace(done, positions=positions)
    assert w.look()[1].rule == "closed"


def test_who_is_not_fed_after_all_takes_everything_back_that_it_reads() -> None:
    """`q` takes `a` back to the checkpoint.  So `p` is restored there, and `b` has not kept all since, either."""
    read = {"s.0": (), "a.0": ("s.0",), "b.0": ("s.0",), "p.0": ("a.0", "b.0"), "q.0": ("a.0",)}
    topology = TopologyView("t", tuple(PartitionView(p, u) for p, u in read.items()), (), True)
    view = backed(seen(topology, {"p.0", "q.0"}, kept=11), {"p.0"})
    assert going_back(view, {"p.0", "q.0"}) == {"a.0", "b.0"}
    assert going_back(backed(seen(topology, {"p.0"}, kept=11), {"p.0"}), {"p.0"}) == set()
