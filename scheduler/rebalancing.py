"""Load is levelled after an incident, and when nodes come: few partitions go from full nodes to empty ones.

A plan puts what failed where room is, and leaves the rest where it is.  So after an incident some nodes may be full while
those that came last are empty, and the next loss of a full one takes more with it.  This uses planned moves
(`reprise.scheduler.moves`), one partition at a time, each from a checkpoint that is asked for, those first that the least
valuable queries need.  `reprise.algorithms.rebalancing` says which.

It must never swing.  It rests on measured load, which changes by every move.  So it does not follow load: it begins when an
incident has closed or other nodes are there, `rebalance_after_s` later, where the fullest node is more than `BEGINS` above
the mean, or above the cap; and ends within `ROUNDS` plans, each of which is carried out once.  Then nothing is moved
before another incident or node.

Where an operator is not deterministic every move would take everything back, so nothing is levelled.

Invariant: all of this follows from the desired state, as with other moves; anything else that is to be done comes first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from reprise.algorithms.rebalancing import WHOLE, Machine, Piece, Spread, rebalance, spread_of
from reprise.scheduler.costs import normal_costs, over_the_cap
from reprise.scheduler.model import Moving, Node, Rebalancing
from reprise.scheduler.moves import considered, said_of, settled
from reprise.scheduler.overcommit import demand
from reprise.scheduler.situation import Situation
from reprise.scheduler.steps import Decision, RuleName, WriteDesired, act, wait
from reprise.scheduler.view import View
from reprise.scheduler.worth import worth_of

BEGINS = WHOLE // 5
"""The fullest node is to be so much above the mean, as a share of a node, that moves are worth what they disturb."""
TOLERANCE = WHOLE // 10
"""Above the mean, after them."""
LEAST_GAIN = WHOLE // 20
"""What the fullest node is to be relieved of, at least, where the tolerance cannot be reached."""
ROUNDS = 2
"""Plans for one incident, or one set of nodes: the second one is for what has been measured since, or was given up."""


def rebalanced(s: Situation) -> Decision | None:
    """The next step of levelling load, while nothing else is to be done."""
    view, desired = s.view, s.desired
    now = desired.rebalancing
    if desired.moving is not None or not _may_begin(view):
        return None
    if not view.policy.rebalance:
        off = WriteDesired(desired.next(rebalancing=None))
        return None if now is None else act(RuleName.REBALANCED, "load is not levelled any more", off)
    if now is not None and now.over and now.nodes == view.open_ids:
        return None
    if why := cannot(view):
        return wait(RuleName.REBALANCE_WAITS, why)
    if now is None or now.nodes != view.open_ids:
        due = Rebalancing(view.open_ids, s.now + view.policy.rebalance_after_s, ROUNDS)
        reason = f"load is looked at in {view.policy.rebalance_after_s:g} s"
        return act(RuleName.REBALANCE_DUE, reason, WriteDesired(desired.next(rebalancing=due)))
    return _next_move(s, now) if now.to else _planned(s, now)


def _may_begin(view: View) -> bool:
    """Whether there is anything to be levelled, now or later."""
    progress = view.snapshot.progress
    if progress is None or progress.ended or progress.done or progress.drained is not None:
        return False
    return not view.leaving and len(view.open_nodes) > 1


def cannot(view: View) -> str:
    """Why nothing can be levelled now; empty where it can."""
    progress, topology, desired = view.snapshot.progress, view.snapshot.topology, view.snapshot.desired
    if not topology.deterministic or (progress is not None and not progress.deterministic):
        return (
            "load is not levelled: an operator is not deterministic, so each move would take everything back"
        )
    if view.poison:
        return "load is not levelled: partitions are set aside, and no checkpoint is complete without them"
    if view.snapshot.paused or (desired is not None and desired.paused):
        return "load is levelled when the topology goes on: a move needs a checkpoint"
    return "" if view.acked and settled(view) else "not everything is at work yet"


def spread(view: View, costs: Mapping[str, int]) -> Spread:
    """How full the nodes are that load may be levelled over."""
    return spread_of(*_machines_and_pieces(view, costs))


def wanted(view: View, begins: int = BEGINS) -> tuple[tuple[str, str], ...]:
    """The moves that would level the load, in their order: (partition, node).  Empty where no node is more than `begins`
    above the mean, nor above its cap, or where they would not help enough."""
    machines, pieces = _machines_and_pieces(view, normal_costs(view))
    now, room = spread_of(machines, pieces), {m.id: m.room for m in machines}
    above = any(load > room[node] for node, load in now.load.items())
    if now.greatest - now.mean <= begins and not above:
        return ()
    moves, then = rebalance(machines, pieces, TOLERANCE), now
    for move in moves:
        then = then.after(*move)
    helps = then.greatest <= now.mean + TOLERANCE or now.greatest - then.greatest >= LEAST_GAIN
    return tuple((piece.id, node) for piece, node in moves) if helps else ()


def _machines_and_pieces(view: View, costs: Mapping[str, int]) -> tuple[list[Machine], list[Piece]]:
    worth, policy = worth_of(view), view.policy
    machines = [Machine(n.id, max(1, n.cpu_milli), policy.cap_of(n.cpu_milli)) for n in _over(view)]
    return machines, [Piece(p, costs[p], n, worth[p]) for p, n in view.survivors.items()]


def _over(view: View) -> list[Node]:
    """Nodes with partitions, and empty ones up to the number that the topology is to have: those beyond it stand by."""
    hosting = frozenset(view.survivors.values())
    used = [node for node in view.open_nodes if node.id in hosting]
    empty = [node for node in view.open_nodes if node.id not in hosting]
    return [*used, *empty[: max(0, view.policy.nodes_wanted - len(used))]]


def _planned(s: Situation, now: Rebalancing) -> Decision:
    """A round, when things have been calm: moves, of which the first is prepared with it; or the end."""
    if s.now < now.at:
        return wait(RuleName.REBALANCE_WAITS, f"load is looked at in {now.at - s.now:.1f} s", now.at)
    # what has begun goes on to the tolerance, as the first round may have been given up half-way
    begins = BEGINS if now.rounds == ROUNDS else TOLERANCE
    to = dict(wanted(s.view, begins)) if now.rounds else {}
    fullness = said_of_spread(s.view)
    if not to:
        after = s.desired.next(
            rebalancing=replace(now, rounds=0, to={}), demand=demand(s.view, normal_costs(s.view))
        )
        return act(RuleName.REBALANCED, f"{fullness}; nothing is moved", WriteDesired(after))
    return _next_move(s, replace(now, rounds=now.rounds - 1, to=to), f"{fullness}; {_many(len(to))}: ")


def _next_move(s: Situation, now: Rebalancing, why: str = "") -> Decision:
    """Asks for the checkpoint from which the next partition goes on elsewhere: the least valuable one for which there is
    room now.  What has none by what has been measured since is not moved in this round."""
    view, desired, costs, worth = s.view, s.desired, normal_costs(s.view), worth_of(s.view)
    progress = view.snapshot.progress
    assert progress is not None
    # when this was the last one, what it takes on its new node has to be measured first
    left, load = replace(now, at=s.now + view.policy.rebalance_after_s), spread(view, costs)
    for partition, node in sorted(now.to.items(), key=lambda move: (worth.get(move[0], 0), move[0])):
        if not _helps(view, costs, load, partition, node):
            continue
        rest = {p: n for p, n in now.to.items() if p != partition}
        to = {partition: node}
        moving = Moving(to, progress.horizon, considered=considered(view), rebalances=True)
        after = desired.next(moving=moving, retain=True, rebalancing=replace(left, to=rest)).covered_by(
            view.newest
        )
        reason = f"{why}{said_of(view, to)} ({partition}), after a checkpoint, to level the load"
        return act(RuleName.MOVE_PREPARED, reason, WriteDesired(after))
    reason = f"{why}what was still to be moved has no room any more, or would not help"
    return act(RuleName.REBALANCED, reason, WriteDesired(desired.next(rebalancing=replace(left, to={}))))


def _helps(view: View, costs: Mapping[str, int], load: Spread, partition: str, node: str) -> bool:
    """Whether a move is still possible, and makes no node as full as the fullest is."""
    at = view.survivors.get(partition)
    if at is None or at == node or not {at, node} <= load.machines.keys():
        return False
    if next(over_the_cap(view, costs, {**view.survivors, partition: node}), ""):
        return False
    return load.share(node, costs[partition]) < load.greatest


def said_of_spread(view: View) -> str:
    """How full the nodes are, in words."""
    load = spread(view, normal_costs(view))
    fullest = max(load.machines, key=lambda n: (load.share(n), n))
    return f"{fullest} is {load.share(fullest) * 100 // WHOLE} % full, and nodes are {load.mean * 100 // WHOLE} % on average"


def _many(moves: int) -> str:
    return "1 partition is to move" if moves == 1 else f"{moves} partitions are to move, one after the other"
