"""Load that is levelled by few moves: against all answers for small sizes, and what holds of every answer."""

from __future__ import annotations

import random
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprise.algorithms.rebalancing import WHOLE, Machine, Move, Piece, Spread, in_order, rebalance, spread_of

TENTH = WHOLE // 10


def machines(*names: str, size: int = 1000, room: int = 800) -> list[Machine]:
    return [Machine(name, size, room) for name in names]


def pieces(cost: int, where: str, worth: int = 0) -> list[Piece]:
    """Pieces of one cost on the machines that the letters name."""
    return [Piece(f"p{k}", cost, name, worth + k) for k, name in enumerate(where)]


def ends(ms: list[Machine], ps: list[Piece], moves: tuple[Move, ...]) -> Spread:
    now = spread_of(ms, ps)
    for piece, machine in moves:
        assert now.takes(piece, machine), "beyond its room"
        now = now.after(piece, machine)
    return now


def test_two_full_machines_and_two_empty_ones() -> None:
    ms, ps = machines("a", "b", "c", "d"), pieces(100, "aaaabbbb")
    moves = rebalance(ms, ps, TENTH)
    assert len(moves) == 2, "300, 300, 100, 100: the mean is 200, and 300 is within the tolerance"
    assert ends(ms, ps, moves).greatest == 3 * TENTH
    assert [p.worth for p, _ in moves] == [0, 4], "the least valuable of each"


def test_what_is_level_stays() -> None:
    assert rebalance(machines("a", "b"), pieces(300, "ab"), TENTH) == ()
    assert rebalance(machines("a", "b"), [Piece("p", 700, "a")], TENTH) == (), (
        "one piece only changes its place"
    )
    assert rebalance([], [], TENTH) == ()


def test_the_most_valuable_goes_last() -> None:
    ms = machines("a", "b")
    ps = [Piece("x", 250, "a", 9), Piece("y", 250, "a", 3), Piece("z", 250, "a", 5)]
    tight = rebalance(ms, ps, 13 * WHOLE // 100)
    assert [p.id for p, _ in tight] == ["y"]
    ms.append(Machine("c", 1000, 800))
    both = rebalance(ms, ps, 1000)
    assert [p.id for p, _ in both] == ["y", "z"], "and x, worth most, not at all"


def test_a_machine_gets_no_more_than_it_has_room_for() -> None:
    ms = [Machine("a", 1000, 800), Machine("b", 1000, 150)]
    assert [p.id for p, _ in rebalance(ms, pieces(200, "aaaa"), TENTH)] == []
    ms = [Machine("a", 1000, 800), Machine("b", 1000, 250)]
    assert len(rebalance(ms, pieces(200, "aaaa"), TENTH)) == 1, "not level, and less than before"


def test_machines_of_unlike_size_are_equally_full() -> None:
    ms = [Machine("a", 1000, 800), Machine("b", 4000, 3200)]
    moves = rebalance(ms, pieces(100, "aaaaa"), TENTH // 2)
    assert len(moves) == 4, "of the mean of a tenth 100 of 1,000 stay, and 400 of 4,000 go"


def test_an_order_in_which_one_makes_room_for_another() -> None:
    start = spread_of(machines("a", "b", "c", room=400), [Piece("x", 300, "a", 1), Piece("y", 300, "b", 2)])
    moves = ((Piece("x", 300, "a", 1), "b"), (Piece("y", 300, "b", 2), "c"))
    ordered = in_order(start, moves)
    assert ordered is not None
    assert [p.id for p, _ in ordered] == ["y", "x"], "y is worth more, and has to go first"
    assert in_order(start, moves[:1]) is None


@st.composite
def small(draw: st.DrawFn) -> tuple[list[Machine], list[Piece]]:
    names = "abc"[: draw(st.integers(2, 3))]
    ms = [Machine(n, draw(st.sampled_from([500, 1000])), draw(st.integers(300, 900))) for n in names]
    count = draw(st.integers(1, 5))
    ps = [
        Piece(f"p{k}", draw(st.integers(1, 300)), draw(st.sampled_from(names)), draw(st.integers(0, 3)))
        for k in range(count)
    ]
    return ms, ps


def _brute(ms: list[Machine], ps: list[Piece], most: int) -> list[tuple[Move, ...]]:
    """All sets of moves that bring every machine to `most`, in an order that keeps to the room."""
    found = []
    for goals in product([m.id for m in ms], repeat=len(ps)):
        moves = tuple((p, m) for p, m in zip(ps, goals, strict=True) if m != p.machine)
        ordered = in_order(spread_of(ms, ps), moves)
        if ordered is not None and ends(ms, ps, ordered).greatest <= most:
            found.append(ordered)
    return found


@given(small(), st.sampled_from([0, WHOLE // 20, WHOLE // 5]))
def test_small_ones_are_levelled_by_the_fewest_moves_that_there_are(
    case: tuple[list[Machine], list[Piece]], tolerance: int
) -> None:
    ms, ps = case
    start = spread_of(ms, ps)
    most = start.mean + tolerance
    moves = rebalance(ms, ps, tolerance)
    all_ways = _brute(ms, ps, most)
    end = ends(ms, ps, moves)
    if start.greatest <= most:
        assert moves == ()
    elif all_ways:
        assert end.greatest <= most
        assert len(moves) == min(map(len, all_ways))

        def disturbs(way: tuple[Move, ...]) -> list[int]:
            return sorted((p.worth for p, _ in way), reverse=True)

        assert disturbs(moves) == min(disturbs(w) for w in all_ways if len(w) == len(moves))
    else:
        assert not moves or end.greatest < start.greatest


@given(st.integers(0, 10**6), st.integers(2, 9), st.integers(0, 80))
def test_of_every_answer(seed: int, nodes: int, count: int) -> None:
    rng = random.Random(seed)
    ms = [Machine(f"m{k}", rng.choice([1000, 2000]), 800) for k in range(nodes)]
    ps = [
        Piece(f"p{k}", rng.randint(1, 150), f"m{rng.randrange(max(1, nodes // 2))}", rng.randint(0, 9))
        for k in range(count)
    ]
    start = spread_of(ms, ps)
    moves = rebalance(ms, ps, TENTH)
    end = ends(ms, ps, moves)  # in order, within the room of each
    assert len({p.id for p, _ in moves}) == len(moves), "a piece moves once"
    if moves:
        assert end.greatest < start.greatest
        assert rebalance(ms, ps, TENTH) == moves, "the same again"
    if moves and end.greatest <= start.mean + TENTH:
        where = {p.id: m for p, m in moves}
        settled = [Piece(p.id, p.cost, where.get(p.id, p.machine), p.worth) for p in ps]
        assert rebalance(ms, settled, TENTH) == (), "and what is level stays so"


@pytest.mark.parametrize("nodes", [10, 100])
def test_many_are_levelled_without_trying_all(nodes: int) -> None:
    ms = [Machine(f"m{k}", 1000, 800) for k in range(nodes)]
    ps = [Piece(f"p{k}", 70, f"m{k % (nodes // 2)}", k) for k in range(nodes * 5)]
    moves = rebalance(ms, ps, TENTH)
    end = ends(ms, ps, moves)
    assert end.greatest <= end.mean + TENTH
    assert len(moves) <= nodes * 5 // 2
