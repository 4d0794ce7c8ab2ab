"""Tabu search over chosen sets, with the price of every add, drop and swap always at hand.

`add[j]` is what set j would add to the price, `freed[s]` what dropping the set in slot s would free, and
`lost[s, j]` what of that set j would then have to pay itself: swapping slot s for j changes the price by
add[j] + lost[s, j] - freed[s]. A move touches only elements whose number of users becomes or leaves 0 or 1.

Two searches walk on this state. `most_worth` seeks the greatest worth with a price within a capacity,
`least_price` the least price with at least a given worth. Both take the best move even if it loses; a set that
just moved rests for some steps, unless moving it gives a better plan than any before. Sets come in order of
descending worth, so the first partner of a slot that is allowed is its best, and most pairs are never looked
at.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reprise.algorithms.kernels.cover import Cover, Ints, make_cover

SIZE, PRICE, WORTH, RANDOM, STEP, STALLED, BEST, TOP = range(8)
"""Places in `State.now`: sets chosen, price paid, worth had, state of the random numbers; steps of this round,
steps since it last improved, the best worth (or price) of this round and of all rounds."""

NONE = -1
FAR = 1 << 60


class State(NamedTuple):
    """`users[k]` counts the chosen sets that contain element k, and `user_sum[k]` sums their numbers: with one
    user that is its number. `rest[j]` is the step until which set j rests; `kept` the best choice of a round."""

    now: Ints
    users: Ints
    user_sum: Ints
    slot_of: Ints
    slots: Ints
    lost: Ints
    freed: Ints
    add: Ints
    rest: Ints
    kept: npt.NDArray[np.bool_]


def make_state(cover: Cover, seed: int) -> State:
    """Nothing chosen. Rows of `lost` cost memory only once that many sets are chosen."""
    sets, elements = len(cover.worth), len(cover.price)
    now = np.zeros(8, np.int64)
    now[RANDOM] = 1 + seed
    return State(
        now=now,
        users=np.zeros(elements, np.int64),
        user_sum=np.zeros(elements, np.int64),
        slot_of=np.full(sets, NONE, np.int64),
        slots=np.zeros(sets, np.int64),
        lost=np.zeros((sets, sets), np.int64),
        freed=np.zeros(sets, np.int64),
        add=cover.alone(),
        rest=np.zeros(sets, np.int64),
        kept=np.zeros(sets, np.bool_),
    )


def draw(state: State, below: int) -> int:
    """A random number in 0..below-1 (Lehmer's generator; it stays far from the limits of int64)."""
    state.now[RANDOM] = state.now[RANDOM] * 48271 % 2147483647
    return state.now[RANDOM] % below  # type: ignore[no-any-return]


def insert(cover: Cover, state: State, chosen: int) -> None:
    slot = state.now[SIZE]
    state.slots[slot] = chosen
    state.slot_of[chosen] = slot
    state.freed[slot] = 0
    state.lost[slot, :] = 0
    for at in range(cover.row_at[chosen], cover.row_at[chosen + 1]):
        element = cover.row[at]
        price = cover.price[element]
        users = state.users[element]
        if users == 0:
            state.freed[slot] += price
            state.now[PRICE] += price
            for other in cover.column[cover.column_at[element] : cover.column_at[element + 1]]:
                state.add[other] -= price
                state.lost[slot, other] += price
        elif users == 1:  # no longer its owner's alone
            owner = state.slot_of[state.user_sum[element]]
            state.freed[owner] -= price
            for other in cover.column[cover.column_at[element] : cover.column_at[element + 1]]:
                state.lost[owner, other] -= price
        state.users[element] = users + 1
        state.user_sum[element] += chosen
    state.now[SIZE] = slot + 1
    state.now[WORTH] += cover.worth[chosen]


def remove(cover: Cover, state: State, chosen: int) -> None:
    for at in range(cover.row_at[chosen], cover.row_at[chosen + 1]):
        element = cover.row[at]
        price = cover.price[element]
        users = state.users[element] - 1
        state.users[element] = users
        state.user_sum[element] -= chosen
        if users == 0:
            state.now[PRICE] -= price
            for other in cover.column[cover.column_at[element] : cover.column_at[element + 1]]:
                state.add[other] += price
        elif users == 1:
            owner = state.slot_of[state.user_sum[element]]
            state.freed[owner] += price
            for other in cover.column[cover.column_at[element] : cover.column_at[element + 1]]:
                state.lost[owner, other] += price
    slot = state.slot_of[chosen]
    last = state.now[SIZE] - 1
    if slot != last:
        moved = state.slots[last]
        state.slots[slot] = moved
        state.slot_of[moved] = slot
        state.freed[slot] = state.freed[last]
        state.lost[slot, :] = state.lost[last, :]
    state.slot_of[chosen] = NONE
    state.now[SIZE] = last
    state.now[WORTH] -= cover.worth[chosen]


def load(cover: Cover, state: State, wanted: npt.NDArray[np.bool_]) -> None:
    """Make `wanted` the choice, by the fewest moves."""
    for j in range(len(wanted)):
        if state.slot_of[j] >= 0 and not wanted[j]:
            remove(cover, state, j)
    for j in range(len(wanted)):
        if state.slot_of[j] < 0 and wanted[j]:
            insert(cover, state, j)


def begin(state: State) -> None:
    """Start a round from the present choice: nothing rests, and it is the best so far."""
    state.rest[:] = 0
    state.now[STEP] = 0
    state.now[STALLED] = 0
    for j in range(len(state.kept)):
        state.kept[j] = state.slot_of[j] >= 0


def fill(cover: Cover, state: State, capacity: int, noise: int) -> None:
    """Add sets while any fits, the one with most worth for its part of the unpaid elements first (the density
    of Definition 3), each density raised at random by up to `noise` per cent."""
    sets = len(cover.worth)
    weight = np.zeros(sets)
    for element in range(len(cover.price)):
        if state.users[element] == 0:
            _weigh(cover, weight, element, 1)
    while True:
        best, most = NONE, -1.0
        for j in range(sets):
            if state.slot_of[j] < 0 and state.add[j] <= capacity - state.now[PRICE]:
                density = cover.worth[j] / (weight[j] + 1e-9) * (100 + draw(state, noise + 1))
                if density > most:
                    best, most = j, density
        if best < 0:
            return
        for at in range(cover.row_at[best], cover.row_at[best + 1]):
            if state.users[cover.row[at]] == 0:
                _weigh(cover, weight, cover.row[at], -1)
        insert(cover, state, best)


def _weigh(cover: Cover, weight: npt.NDArray[np.float64], element: int, sign: int) -> None:
    sharers = cover.column[cover.column_at[element] : cover.column_at[element + 1]]
    for other in sharers:
        weight[other] += sign * cover.price[element] / len(sharers)


def move(cover: Cover, state: State, out: int, into: int, rests: Ints) -> None:
    """Drop `out`, add `into` (either may be NONE) and let them rest: rests = (least, most + 1) steps for what
    was dropped, then for what was added."""
    if out >= 0:
        remove(cover, state, out)
        state.rest[out] = state.now[STEP] + rests[0] + draw(state, rests[1] - rests[0])
    if into >= 0:
        insert(cover, state, into)
        state.rest[into] = state.now[STEP] + rests[2] + draw(state, rests[3] - rests[2])


def keep(state: State, best: int) -> None:
    """Remember the present choice as the best of the round."""
    state.now[BEST] = best
    state.now[STALLED] = 0
    for j in range(len(state.kept)):
        state.kept[j] = state.slot_of[j] >= 0


def most_worth(
    cover: Cover, state: State, capacity: int, rests: Ints, stall: int, steps: int, work: int
) -> bool:
    """Up to `steps` steps, or about `work` looks at pairs, towards the greatest worth; True when the round is
    over: `stall` steps without anything better, or no move is left."""
    for _ in range(steps):
        if state.now[STALLED] > stall:
            return True
        if work < 0:
            return False
        state.now[STEP] += 1
        state.now[STALLED] += 1
        into = _fitting(cover, state, capacity - state.now[PRICE])
        out = NONE
        work -= len(cover.worth)
        if into < 0:
            out, into, looks = _best_swap(cover, state, capacity - state.now[PRICE])
            work -= looks
            if out < 0:
                return True
        move(cover, state, out, into, rests)
        if state.now[WORTH] > state.now[BEST]:
            keep(state, state.now[WORTH])
            state.now[TOP] = max(state.now[TOP], state.now[BEST])
    return False


def _fitting(cover: Cover, state: State, room: int) -> int:
    """The worthiest set that fits as it is, of equals the cheapest. An add beats every swap for it."""
    best = NONE
    for j in range(len(cover.worth)):
        if best >= 0 and cover.worth[j] < cover.worth[best]:
            break
        if state.slot_of[j] < 0 and state.add[j] <= room and (best < 0 or state.add[j] < state.add[best]):
            awake = state.rest[j] <= state.now[STEP]
            if awake or state.now[WORTH] + cover.worth[j] > state.now[TOP]:
                best = j
    return best


def _best_swap(cover: Cover, state: State, room: int) -> tuple[int, int, int]:
    """(set to drop, set to add or NONE, pairs looked at): most gain of worth, of equals the cheapest."""
    step, least = state.now[STEP], state.now[TOP] - state.now[WORTH]
    out, into, gain, change, looks = NONE, NONE, -FAR, 0, 0
    for slot in range(state.now[SIZE]):
        mine = state.slots[slot]
        worth, freed = cover.worth[mine], state.freed[slot]
        resting = state.rest[mine] > step
        if not resting and (-worth > gain or (-worth == gain and -freed < change)):
            out, into, gain, change = mine, NONE, -worth, -freed
        lost = state.lost[slot]
        for j in range(len(cover.worth)):
            more = cover.worth[j] - worth
            if more < gain:
                break
            looks += 1
            extra = state.add[j] + lost[j] - freed
            if extra > room or state.slot_of[j] >= 0:
                continue
            if more == gain and extra >= change:
                continue
            if (resting or state.rest[j] > step) and more <= least:
                continue
            out, into, gain, change = mine, j, more, extra
    return out, into, looks


def least_price(
    cover: Cover, state: State, need: int, rests: Ints, stall: int, steps: int, work: int
) -> bool:
    """Like `most_worth`, but towards the least price with a worth of at least `need`."""
    for _ in range(steps):
        if state.now[STALLED] > stall:
            return True
        if work < 0:
            return False
        state.now[STEP] += 1
        state.now[STALLED] += 1
        out = _spare(cover, state, state.now[WORTH] - need)
        into = NONE
        work -= len(cover.worth)
        if out < 0:
            out, into, looks = _cheapest_swap(cover, state, state.now[WORTH] - need)
            work -= looks
            if out < 0 and into < 0:
                return True
        move(cover, state, out, into, rests)
        if state.now[WORTH] >= need and state.now[PRICE] < state.now[BEST]:
            keep(state, state.now[PRICE])
            state.now[TOP] = min(state.now[TOP], state.now[BEST])
    return False


def _spare(cover: Cover, state: State, spare: int) -> int:
    """The set that can go as it is and frees most, of equals the one that leaves most worth."""
    best, freed = NONE, np.int64(-1)
    for slot in range(state.now[SIZE]):
        mine = state.slots[slot]
        if cover.worth[mine] > spare or state.freed[slot] < freed:
            continue
        if state.rest[mine] > state.now[STEP] and state.now[PRICE] - state.freed[slot] >= state.now[TOP]:
            continue
        if state.freed[slot] > freed or cover.worth[mine] < cover.worth[best]:
            best, freed = mine, state.freed[slot]
    return best


def _cheapest_swap(cover: Cover, state: State, spare: int) -> tuple[int, int, int]:
    """(set to drop or NONE, set to add, pairs looked at): least change of price, of equals most worth."""
    step, most = state.now[STEP], state.now[TOP] - state.now[PRICE]
    out, into, change, gain, looks = NONE, NONE, FAR, 0, 0
    for slot in range(state.now[SIZE]):
        mine = state.slots[slot]
        worth, freed = cover.worth[mine], state.freed[slot]
        resting = state.rest[mine] > step
        lost = state.lost[slot]
        for j in range(len(cover.worth)):
            more = cover.worth[j] - worth
            if more + spare < 0:
                break
            looks += 1
            extra = state.add[j] + lost[j] - freed
            if extra > change or state.slot_of[j] >= 0:
                continue
            if extra == change and more <= gain:
                continue
            if (resting or state.rest[j] > step) and extra >= most:
                continue
            out, into, change, gain = mine, j, extra, more
    for j in range(len(cover.worth)):
        if state.slot_of[j] < 0 and state.rest[j] <= step and state.add[j] < change:
            out, into, change = NONE, j, state.add[j]
    return out, into, looks


def rehearse(kernels: Mapping[str, Callable[..., object]]) -> None:
    """Call the kernels that Python calls, once, with all types as they will be."""
    cover = make_cover([2, 1], [1, 1], [[0], [0, 1]])
    state, rests = make_state(cover, 0), np.array([1, 2, 1, 2])
    kernels["load"](cover, state, np.array([True, False]))
    kernels["begin"](state)
    kernels["fill"](cover, state, 1, 10)
    kernels["most_worth"](cover, state, 1, rests, 10, 1, 10)
    kernels["least_price"](cover, state, 1, rests, 10, 1, 10)


COMPILED = (
    "draw", "insert", "remove", "load", "begin", "_weigh", "fill", "move", "keep",
    "_fitting", "_best_swap", "most_worth", "_spare", "_cheapest_swap", "least_price",
)  # fmt: skip
"""In the order in which they need each other."""

INLINED = ()
