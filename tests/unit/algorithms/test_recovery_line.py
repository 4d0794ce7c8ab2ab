"""Recovery lines: judged by trying every choice of snapshots, by CheckMate's own algorithm, and by cases worked by hand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprise.algorithms.errors import InstanceError
from reprise.algorithms.recovery_line import Cause, Edge, Heard, Impossible, World, line
from tests.support.examples import examples

NEVER = 10**9


@dataclass(frozen=True)
class Point:
    """A snapshot, as far as a line depends on it."""

    position: int
    channels: Mapping[str, int] = field(default_factory=dict)
    sent: int = -1
    first: int = -1
    inputs: Mapping[str, Heard] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.sent < 0:
            object.__setattr__(self, "sent", self.position)
        if self.first < 0:
            object.__setattr__(self, "first", self.position + 1)


def points(*positions: int) -> tuple[Point, ...]:
    return tuple(Point(position) for position in positions)


# -- the definition, word by word --------------------------------------------------------------------------------------


def valid(world: World[Point], failed: frozenset[str], chosen: Mapping[str, Point]) -> bool:
    if not failed <= set(chosen):
        return False
    for edge in world.edges:
        u, p, d = edge.source, edge.target, edge.delay
        if p in chosen:
            need = max(1, chosen[p].position + 1 - d)
            if u in world.sources:
                had_from = world.ledger_first
            elif u in chosen:
                had_from = min(chosen[u].channels.get(p, NEVER), chosen[u].first)
            else:
                had_from = world.floors.get(edge, NEVER)
            if had_from > need:
                return False
        elif u in chosen:
            need = max(1, world.positions[p] + 1 - d)
            again = min(chosen[u].channels.get(p, NEVER), chosen[u].first)
            if (world.ledger_first if u in world.sources else again) > need:
                return False
        if u in chosen and u not in world.replayable:
            taken = (chosen[p].sent if p in chosen else world.positions[p]) - d
            if taken > chosen[u].sent:
                return False
    return True


def all_lines(world: World[Point], failed: frozenset[str]) -> Iterator[dict[str, Point]]:
    names = sorted(world.snapshots)
    choices = [(() if p in failed else (None,)) + world.snapshots[p] for p in names]
    for choice in product(*choices):
        chosen = {p: s for p, s in zip(names, choice, strict=True) if s is not None}
        if valid(world, failed, chosen):
            yield chosen


def not_above(world: World[Point], low: Mapping[str, Point], high: Mapping[str, Point]) -> bool:
    """Whether `high` takes no partition further back than `low`; to stay is best."""
    return all(
        p in low and world.snapshots[p].index(low[p]) <= world.snapshots[p].index(high[p]) for p in high
    )


@st.composite
def worlds(draw: st.DrawFn) -> World[Point]:
    names = [f"p{k}" for k in range(draw(st.integers(2, 5)))]
    edges = [
        Edge(u, names[k])
        for k in range(1, len(names))
        for u in draw(st.lists(st.sampled_from(names[:k]), min_size=1, max_size=2, unique=True))
    ]
    if len(names) > 2:
        pairs = [Edge(names[j], names[i], 1) for j in range(1, len(names)) for i in range(1, j + 1)]
        edges += draw(st.lists(st.sampled_from(pairs), max_size=2, unique=True))
    positions = {p: draw(st.integers(4, 12)) for p in names}
    snapshots, floors = {}, {}
    for p in names:
        taken = draw(st.lists(st.integers(1, positions[p]), max_size=3, unique=True))
        snapshots[p] = tuple(draw(_snapshots(sorted(taken), [e.target for e in edges if e.source == p])))
    for edge in edges:
        if draw(st.integers(0, 3)):
            floors[edge] = draw(st.integers(1, 13))
    return World(
        edges,
        frozenset(names[:1]),
        snapshots,
        positions,
        floors,
        draw(st.sampled_from([1, 1, 1, 2, 4, 8])),
        frozenset(p for p in names if draw(st.booleans())),
    )


@st.composite
def _snapshots(draw: st.DrawFn, positions: list[int], targets: list[str]) -> list[Point]:
    """With logs or without, and some of a kind that has effects of later batches than its position."""
    found, least, ahead = [], 0, draw(st.sampled_from([0, 0, 0, 3]))
    for position in [0, *positions]:
        least = max(least, position + draw(st.integers(0, ahead)) if position else 0)
        channels = {t: draw(st.integers(1, position + 1)) for t in targets if draw(st.booleans())}
        found.append(
            Point(position, channels, sent=least, first=draw(st.integers(max(1, least - 1), least + 1)))
        )
    return found


def greatest_of_all_valid(world: World[Point], data: st.DataObject) -> None:
    """`line` against all choices of snapshots, for a drawn set of failed partitions."""
    failed = data.draw(st.sets(st.sampled_from(sorted(world.snapshots)), min_size=1).map(frozenset))
    found, lines = line(world, failed), list(all_lines(world, failed))
    if isinstance(found, Impossible):
        assert not lines
        assert found.edge in world.edges
    else:
        assert valid(world, failed, found)
        assert all(not_above(world, other, found) for other in lines)


test_it_is_the_greatest_of_all_valid_lines = examples(150)(given(worlds(), st.data())(greatest_of_all_valid))
test_it_is_the_greatest_of_all_valid_lines_in_many_worlds = pytest.mark.wide(
    examples(2000)(given(worlds(), st.data())(greatest_of_all_valid))
)


# -- CheckMate's own algorithm, word by word ---------------------------------------------------------------------------


def rollback_propagation(world: World[Point]) -> dict[str, Point]:
    """Algorithm 1 on the checkpoint graph of section III-B; a node is (operator, index of its checkpoint)."""
    nodes = [(p, k) for p, known in world.snapshots.items() for k in range(len(known))]
    after: dict[tuple[str, int], set[tuple[str, int]]] = {n: set() for n in nodes}
    for p, known in world.snapshots.items():
        for k in range(len(known) - 1):
            after[p, k].add((p, k + 1))
    for edge in world.edges:
        for x, sent in enumerate(world.snapshots[edge.source]):
            for y, received in enumerate(world.snapshots[edge.target]):
                if edge.source != edge.target and received.position - edge.delay > sent.position:
                    after[edge.source, x].add((edge.target, y))

    def reachable(start: tuple[str, int]) -> set[tuple[str, int]]:
        seen: set[tuple[str, int]] = set()
        todo = list(after[start])
        while todo:
            if (node := todo.pop()) not in seen:
                seen.add(node)
                todo += after[node]
        return seen

    root = {p: len(known) - 1 for p, known in world.snapshots.items()}
    while marked := {p for p, k in root.items() for other in root.items() if (p, k) in reachable(other)}:
        for p in marked:
            root[p] -= 1
    return {p: world.snapshots[p][k] for p, k in root.items()}


@examples(300)
@given(worlds())
def test_with_durable_logs_and_everybody_failed_it_is_rollback_propagation(world: World[Point]) -> None:
    logged = {
        p: tuple(Point(s.position, {e.target: 1 for e in world.edges if e.source == p}) for s in known)
        for p, known in world.snapshots.items()
    }
    edges = [e for e in world.edges if e.source != e.target]
    everything = World(edges, world.sources, logged, {}, {}, 1, frozenset())
    assert line(everything, set(logged)) == rollback_propagation(everything)


# -- cases worked by hand ----------------------------------------------------------------------------------------------


def world_of(edges: list[Edge], snapshots: dict[str, tuple[Point, ...]], **more: object) -> World[Point]:
    """All sources are called `source`; everybody is at batch 30 and nothing is held back."""
    known = {"source": points(0), **snapshots}
    base = World(edges, frozenset({"source"}), known, dict.fromkeys(known, 30), {}, 1, frozenset())
    return replace(base, **more)  # type: ignore[arg-type]


def logged(targets: list[str], *positions: int) -> tuple[Point, ...]:
    return tuple(Point(position, dict.fromkeys(targets, 1)) for position in positions)


def test_a_global_checkpoint_is_the_line_of_a_total_failure() -> None:
    edges = [Edge("source", "a"), Edge("a", "b"), Edge("b", "sink"), Edge("b", "a", 1)]
    snapshots = {p: points(0, 10, 20) for p in ("a", "b", "sink")}
    snapshots["b"] = tuple(
        Point(k, {"a": max(1, k)}) for k in (0, 10, 20)
    )  # the last output over its feedback edge
    world = world_of(edges, {**snapshots, "source": points(0, 10, 20)})
    found = line(world, world.snapshots)
    assert not isinstance(found, Impossible)
    assert {p: s.position for p, s in found.items()} == dict.fromkeys(world.snapshots, 20)


def domino(replayable: frozenset[str]) -> World[Point]:
    """A cycle of two whose snapshots are out of phase; every output is logged."""
    edges = [Edge("source", "i"), Edge("i", "j"), Edge("j", "i", 1)]
    snapshots = {"i": logged(["j"], 0, 10, 20, 30), "j": logged(["i"], 0, 5, 15, 25)}
    return world_of(edges, snapshots, replayable=replayable | {"source"})


def test_a_cycle_out_of_phase_falls_like_dominoes_where_a_replay_may_differ() -> None:
    found = line(domino(frozenset()), {"i", "j"})
    assert not isinstance(found, Impossible)
    assert {p: s.position for p, s in found.items()} == {"i": 0, "j": 0}


def test_the_same_cycle_keeps_its_newest_snapshots_where_a_replay_gives_the_same() -> None:
    found = line(domino(frozenset({"i", "j"})), {"i", "j"})
    assert not isinstance(found, Impossible)
    assert {p: s.position for p, s in found.items()} == {"i": 30, "j": 25}


def test_only_the_failed_one_goes_back_in_a_replayable_cycle_whose_outputs_are_held() -> None:
    world = replace(domino(frozenset({"i", "j"})), floors={Edge("i", "j"): 26})
    found = line(world, {"j"})
    assert not isinstance(found, Impossible)
    assert {p: s.position for p, s in found.items()} == {"j": 25}


@pytest.mark.parametrize(("floor", "expected"), [(11, {"b": 10}), (12, {"a": 10, "b": 10})])
def test_a_sender_goes_back_when_it_no_longer_holds_what_is_needed(
    floor: int, expected: dict[str, int]
) -> None:
    edges = [Edge("source", "a"), Edge("a", "b"), Edge("b", "sink")]
    snapshots = {"a": points(0, 10, 20), "b": points(0, 10), "sink": points(0)}
    world = world_of(
        edges, snapshots, floors={Edge("a", "b"): floor}, replayable=frozenset({"a", "b", "source"})
    )
    found = line(world, {"b"})
    assert not isinstance(found, Impossible)
    assert {p: s.position for p, s in found.items()} == expected


def test_output_stored_with_a_snapshot_lets_its_sender_keep_it() -> None:
    edges = [Edge("source", "a"), Edge("a", "b")]
    snapshots = {"a": (Point(0), Point(20, {"b": 11})), "b": points(0, 10)}
    found = line(world_of(edges, snapshots, replayable=frozenset({"a", "source"})), {"a", "b"})
    assert not isinstance(found, Impossible)
    assert {p: s.position for p, s in found.items()} == {"a": 20, "b": 10}


def test_a_feedback_reader_at_the_start_needs_the_first_batch_and_no_earlier_one() -> None:
    assert [Edge("a", "b", 1).need(k) for k in (0, 1, 2)] == [1, 1, 2]
    assert [Edge("a", "b").need(k) for k in (0, 1, 2)] == [1, 2, 3]


def test_a_trimmed_ledger_a_missing_snapshot_and_an_orphan_are_named_with_their_edge() -> None:
    read, kept = Edge("source", "a"), Edge("a", "b")
    snapshots = {"a": points(4), "b": points(2)}
    assert line(world_of([read], {"a": points(4)}, ledger_first=6), {"a"}) == Impossible(
        read, Cause.LEDGER, 5
    )
    assert line(world_of([kept], snapshots), {"b"}) == Impossible(kept, Cause.MISSING, 3)
    assert line(world_of([kept], {"a": points(4), "b": points(6)}), {"a"}) == Impossible(
        kept, Cause.ORPHAN, 4
    )


def test_what_is_not_a_world_is_refused_by_name() -> None:
    with pytest.raises(InstanceError, match=r"snapshots\[a\]"):
        world_of([], {"a": points(10, 5)})
    with pytest.raises(InstanceError, match=r"snapshots\[gone\]"):
        line(world_of([], {}), {"gone"})
    with pytest.raises(InstanceError, match=r"positions\[b\]"):
        line(world_of([Edge("a", "b")], {"a": points(0), "b": points(0)}, positions={}), {"a"})


def test_a_long_chain_takes_one_step_a_partition() -> None:
    names = [f"p{k:04}" for k in range(2000)]
    edges = [Edge(a, b) for a, b in pairwise(names)]
    world = World(edges, frozenset(names[:1]), {p: points(0, 10) for p in names}, {}, {}, 1, frozenset())
    found = line(replace(world, positions=dict.fromkeys(names, 20)), {names[-1]})
    assert not isinstance(found, Impossible)
    assert {s.position for s in found.values()} == {10}
    assert len(found) == len(names) - 1


# -- CheckMate, figure 2 -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("captured", [False, True], ids=["not captured", "captured"])
@pytest.mark.parametrize(
    ("m2", "whole"),
    [
        ("sent and received before", "always"),
        ("received before alone", "never"),
        ("sent before alone", "captured"),
    ],
    ids=["2a", "2b", "2c and 2d"],
)
def test_figure_2_says_which_lines_are_whole(m2: str, whole: str, captured: bool) -> None:
    """Checkpoints of three operators, the newest that there are; m1 goes from O1 to O2 in batch 1 and m2 from O2 to O3 in
    batch 2."""
    last = {"sent and received before": (2, 2), "received before alone": (1, 2), "sent before alone": (2, 1)}[
        m2
    ]
    of = {"O1": 2, "O2": last[0], "O3": last[1]}
    below = {"O1": {"O2": 1}, "O2": {"O3": 1}, "O3": {}}
    snapshots = {p: (Point(k, below[p] if captured else {}),) for p, k in of.items()}
    edges = [Edge("O1", "O2"), Edge("O2", "O3")]
    world = World(edges, frozenset(), snapshots, {}, {}, 1, frozenset())
    if of["O2"] < of["O1"] and not captured:  # m1 of batch 2 is in flight as well, where nothing is captured
        world = replace(world, edges=edges[1:])
    chosen = {p: known[0] for p, known in snapshots.items()}
    expected = whole == "always" or (whole == "captured" and captured)
    assert valid(world, frozenset(of), chosen) is expected
    assert isinstance(line(world, set(of)), Impossible) is not expected


# -- CheckMate, figure 5 -----------------------------------------------------------------------------------------------


def figure_5() -> World[Point]:
    """A cycle of three operators whose replays may differ; C<i,k> is checkpoint k of operator i, as the batch after which it
    was taken, and every message is logged.  Batches stand where the figure has its messages: what O1 makes of a batch
    reaches O2 in that batch, what O2 makes reaches O3, and what O3 makes reaches O1 in the next one."""
    edges = [Edge("O1", "O2"), Edge("O2", "O3"), Edge("O3", "O1", 1)]
    snapshots = {"O1": logged(["O2"], 1, 3, 6), "O2": logged(["O3"], 1, 3, 4), "O3": logged(["O1"], 1, 4)}
    return World(edges, frozenset(), snapshots, {}, {}, 1, frozenset())


MESSAGES = {
    # the sender's checkpoint after which it is sent, and the receiver's before which it is received
    "m1": (("O1", 1), ("O2", 2)),
    "m2": (("O2", 1), ("O3", 2)),
    "m3": (("O3", 1), ("O1", 2)),
    "m4": (("O1", 2), ("O2", 3)),
    "m5": (("O2", 2), ("O3", 2)),
    "m6": (("O3", 2), ("O1", 3)),
}


def orphan(world: World[Point], name: str) -> bool:
    """Whether the message is one where both checkpoints are in a line (Definition 4)."""
    (sender, x), (receiver, y) = MESSAGES[name]
    edge = next(e for e in world.edges if (e.source, e.target) == (sender, receiver))
    sent, received = world.snapshots[sender][x - 1].position, world.snapshots[receiver][y - 1].position
    return received - edge.delay > sent


@pytest.mark.parametrize(
    ("line_of", "because"),
    [((3, 3, 2), "m6"), ((2, 3, 2), "m4"), ((2, 2, 2), "m5"), ((2, 2, 1), "m3"), ((1, 2, 1), "m1")],
)
def test_figure_5_each_line_is_invalid_for_its_message(line_of: tuple[int, ...], because: str) -> None:
    world = figure_5()
    assert all(orphan(world, name) for name in MESSAGES)
    (sender, x), (receiver, y) = MESSAGES[because]
    number = dict(zip(("O1", "O2", "O3"), line_of, strict=True))
    assert (number[sender], number[receiver]) == (x, y)
    assert not valid(world, frozenset(number), {p: world.snapshots[p][k - 1] for p, k in number.items()})


def test_figure_5_falls_like_dominoes_to_the_first_checkpoints() -> None:
    world = figure_5()
    first = {p: known[0] for p, known in world.snapshots.items()}
    assert line(world, set(world.snapshots)) == first
    assert valid(world, frozenset(first), first)


def test_figure_5_keeps_its_newest_checkpoints_where_a_replay_gives_the_same() -> None:
    """Every message is logged, and a receiver skips what it has."""
    world = replace(figure_5(), replayable=frozenset({"O1", "O2", "O3"}))
    assert line(world, set(world.snapshots)) == {p: known[-1] for p, known in world.snapshots.items()}


# -- receivers that stay -----------------------------------------------------------------------------------------------


def test_a_sender_goes_back_behind_what_a_receiver_that_stays_has_still_to_get() -> None:
    """Its buffer is lost with it: from 20 on it does not make again what the receiver at 15 waits for."""
    edges, steady = [Edge("a", "b")], frozenset({"a", "b"})
    snapshots = {"a": points(10, 20), "b": points(0)}
    world = World(edges, frozenset(), snapshots, {"b": 15}, {}, 1, steady)
    assert line(world, {"a"}) == {"a": Point(10)}
    assert line(replace(world, positions={"b": 20}), {"a"}) == {"a": Point(20)}
    snapshots = {**snapshots, "a": (Point(10), Point(20, {"b": 16}))}
    assert line(replace(world, snapshots=snapshots), {"a"}) == {"a": Point(20, {"b": 16})}
    assert line(replace(world, snapshots={**snapshots, "a": points(20)}), {"a"}) == Impossible(
        edges[0], Cause.MISSING, 16
    )


def test_who_is_absent_asks_for_nothing_and_gives_nothing() -> None:
    edges = [Edge("a", "b"), Edge("b", "c")]
    snapshots = {p: points(0, 10) for p in "abc"}
    world = World(edges, frozenset(), snapshots, {"a": 30}, {}, 1, frozenset("abc"))
    assert line(world, {"c"}) == {"b": Point(10), "c": Point(10), "a": Point(10)}
    assert line(replace(world, absent=frozenset("b")), {"c"}) == {"c": Point(10)}


def test_a_reader_takes_an_older_snapshot_where_its_lost_sender_has_stored_what_follows() -> None:
    """Its newest is damaged.  A sender that has stored itself twice since that was covered has nothing for the older."""
    edge, reader = Edge("u", "p"), points(60, 70)
    first = Point(60, {"p": 61})

    def sender(*since: int) -> tuple[Point, ...]:
        return (
            first,
            *(Point(at, {"p": least}) for at, least in zip((90, 100), since, strict=True)),
        )

    def found(*since: int) -> list[int]:
        snapshots = {"u": sender(*since), "p": reader}
        world = World([edge], frozenset(), snapshots, {}, {}, 0, frozenset({"u", "p"}))
        chosen = line(world, {"u", "p"})
        assert not isinstance(chosen, Impossible)
        return [chosen["p"].position, chosen["u"].position]

    assert found(71, 81) == [70, 90], "one interval"
    assert found(81, 81) == [70, 60]


def test_inputs_that_are_further_than_a_position_count_by_their_messages() -> None:
    """In the order of arrival: what was taken early must be in its sender's snapshot, and what follows the marker of
    the position must be there."""
    edges = [Edge("u", "p")]

    def world(sent: int, first_held: int) -> World[Point]:
        u = (Point(0), Point(10, {"p": first_held}, sent=sent, first=sent + 1))
        p = (Point(0), Point(8, sent=9, first=10, inputs={"u": Heard(marker=12, taken=15)}))
        return World(edges, frozenset(), {"u": u, "p": p}, {}, {}, 1, frozenset())

    found = line(world(15, 13), {"u", "p"})
    assert not isinstance(found, Impossible) and (found["u"].position, found["p"].position) == (10, 8)
    orphan = line(world(14, 1), {"u", "p"})
    assert not isinstance(orphan, Impossible) and (orphan["u"].position, orphan["p"].position) == (10, 0)
    missing = line(world(15, 14), {"u", "p"})
    assert not isinstance(missing, Impossible) and (missing["u"].position, missing["p"].position) == (0, 0)
