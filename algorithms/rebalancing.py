"""Which pieces of load go to which other machines so that none is much fuller than the mean: load rebalancing by few moves.

Each move disturbs the queries that need the piece, so of two ways the one with fewer moves is better, then the one whose
most valuable piece is worth less.  To find the least number is NP-hard (Aggarwal, Motwani and Zhu, "The Load Rebalancing
Problem", SPAA 2003): a greedy answer is looked for first, and where few pieces and machines are concerned all answers with
fewer moves are tried, so there it is the least number.

Invariants of an answer: carried out in its order, no machine that gets something is ever beyond its room; a piece moves at
most once; and the greatest share of a machine that is in use is less afterwards than before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest
from itertools import combinations, product
from math import comb

MOST_TRIED = 5_000
"""Answers that are compared at most, for each number of moves."""

FEW = 64
GOALS = 8
"""Of more than `FEW` machines the `GOALS` least full ones alone are looked at for each move."""

WHOLE = 1_000_000
"""The share of a machine that is in use where all of it is; shares are whole millionths, so that equal ones are equal."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What carries load; all in milli-CPU."""

    id: str
    size: int
    """What the machine has; at least 1."""
    room: int
    """What it may carry at most."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Load that can be moved as a whole."""

    id: str
    cost: int
    machine: str
    worth: int = 0
    """How much is lost while it moves."""


@dataclass(frozen=True, slots=True)
class Spread:
    """How full machines are while pieces are moved."""

    machines: Mapping[str, Machine]
    load: Mapping[str, int] = field(default_factory=dict)
    """Of all pieces, by machine."""

    def share(self, machine: str, more: int = 0) -> int:
        """How much of a machine is in use, millionths; or would be with `more` milli-CPU."""
        return -(-(self.load[machine] + more) * WHOLE // self.machines[machine].size)

    @property
    def greatest(self) -> int:
        return max((self.share(m) for m in self.machines), default=0)

    @property
    def mean(self) -> int:
        """The share of each machine if the load could be spread like water."""
        size = sum(m.size for m in self.machines.values())
        return -(-sum(self.load.values()) * WHOLE // max(1, size))

    def takes(self, piece: Piece, machine: str) -> bool:
        """Whether a piece may go to a machine now."""
        fits = self.load[machine] + piece.cost <= self.machines[machine].room
        return fits and machine != piece.machine

    def after(self, piece: Piece, machine: str) -> Spread:
        moved = {
            **self.load,
            piece.machine: self.load[piece.machine] - piece.cost,
            machine: self.load[machine] + piece.cost,
        }
        return Spread(self.machines, moved)


Move = tuple[Piece, str]


def spread_of(machines: Sequence[Machine], pieces: Sequence[Piece]) -> Spread:
    """How full the machines are.  A piece on none of them counts nowhere."""
    load = {machine.id: 0 for machine in machines}
    for piece in pieces:
        if piece.machine in load:
            load[piece.machine] += piece.cost
    return Spread({machine.id: machine for machine in machines}, load)


def rebalance(machines: Sequence[Machine], pieces: Sequence[Piece], tolerance: int) -> tuple[Move, ...]:
    """Moves after which no machine is fuller than the mean and `tolerance` (millionths), in the order in which they are
    carried out: the least valuable first, as far as there is room.  Where that cannot be reached, moves that lower the
    greatest share."""
    start = spread_of(machines, pieces)
    movable = [p for p in pieces if p.machine in start.machines and p.cost > 0]
    most = start.mean + tolerance
    if start.greatest <= most:
        return ()
    found = _greedy(start, movable, most)
    reaches = _end(start, found).greatest <= most
    fewer = _fewest(start, movable, most, len(found) - 1 if reaches else None)
    best = fewer or found
    ordered = in_order(start, best)
    assert ordered is not None
    return ordered if _end(start, ordered).greatest < start.greatest else ()


def in_order(start: Spread, moves: Sequence[Move]) -> tuple[Move, ...] | None:
    """The moves in an order in which each finds room, the least valuable first; None where there is none that this finds."""
    left, done, now = sorted(moves, key=lambda m: (m[0].worth, m[0].id)), list[Move](), start
    while left:
        one = next((m for m in left if now.takes(*m)), None)
        if one is None:
            return None
        left.remove(one)
        done.append(one)
        now = now.after(*one)
    return tuple(done)


def _end(start: Spread, moves: Sequence[Move]) -> Spread:
    for piece, machine in moves:
        start = start.after(piece, machine)
    return start


def _greedy(now: Spread, pieces: Sequence[Piece], most: int) -> tuple[Move, ...]:
    """One piece after the other goes away from the fullest machine of which some can go: the largest one that another
    machine takes without getting too full, else the one that lowers the fuller of both most."""
    found: list[Move] = []
    on: dict[str, list[Piece]] = {machine: [] for machine in now.machines}
    for piece in pieces:
        on[piece.machine].append(piece)
    while too_full := [m for m in now.machines if now.share(m) > most]:
        goals = _emptiest(now)
        in_turn = sorted(too_full, key=lambda m: (-now.share(m), m))
        one = next((m for name in in_turn if (m := _one_move(now, on[name], name, goals, most))), None)
        if one is None:
            break
        on[one[0].machine].remove(one[0])
        found.append(one)
        now = now.after(*one)
    return tuple(found)


def _emptiest(now: Spread) -> list[str]:
    """The machines that pieces may go to: all of few, and of many those that are least full."""
    machines = list(now.machines)
    if len(machines) <= FEW:
        return machines
    return nsmallest(GOALS, machines, key=lambda m: (now.share(m), m))


def _one_move(
    now: Spread, pieces: Sequence[Piece], fullest: str, goals: Sequence[str], most: int
) -> Move | None:
    """The best single move of a piece away from its machine; None where each would leave the other one as full as this
    one is."""
    found: list[tuple[tuple[object, ...], Move]] = []
    before = now.share(fullest)
    for piece in pieces:
        for machine in goals:
            if not now.takes(piece, machine):
                continue
            there = now.share(machine, piece.cost)
            fuller = max(now.share(fullest, -piece.cost), there)
            if fuller >= before:
                continue
            too_full = there > most
            rank = (too_full, fuller if too_full else -piece.cost, piece.worth, fuller, piece.id, machine)
            found.append((rank, (piece, machine)))
    return min(found)[1] if found else None


def _fewest(
    start: Spread, pieces: Sequence[Piece], most: int, at_most: int | None
) -> tuple[Move, ...] | None:
    """The answer with fewest moves, `at_most` so many (None: any number), if it can be looked for in reasonable time; of
    several the one that disturbs least, then the most level one.  With so many moves as a greedy answer has the same is
    looked for, as it may disturb less."""
    ways = max(0, len(start.machines) - 1)
    upto = len(pieces) if at_most is None else at_most + 1
    for count in range(1, upto + 1):
        if comb(len(pieces), count) * ways**count > MOST_TRIED:
            return None
        found = [(rank, moves) for moves in _of(count, start, pieces) if (rank := _rank(start, moves, most))]
        for _, moves in sorted(found, key=lambda x: x[0]):
            if (ordered := in_order(start, moves)) is not None:
                return ordered
    return None


def _of(count: int, start: Spread, pieces: Sequence[Piece]) -> Iterator[tuple[Move, ...]]:
    for chosen in combinations(pieces, count):
        goals = [[m for m in start.machines if m != p.machine] for p in chosen]
        for machines in product(*goals):
            yield tuple(zip(chosen, machines, strict=True))


def _rank(start: Spread, moves: tuple[Move, ...], most: int) -> tuple[object, ...] | None:
    """How much an answer disturbs, the less the better; None of one that leaves a machine too full."""
    more = dict.fromkeys(start.machines, 0)
    for piece, machine in moves:
        more[piece.machine] -= piece.cost
        more[machine] += piece.cost
    greatest = max(start.share(m, change) for m, change in more.items())
    if greatest > most:
        return None
    worth = sorted((p.worth for p, _ in moves), reverse=True)
    return (worth, greatest, [(p.id, m) for p, m in moves])
