"""Planned moves: a node that is to be emptied gives its partitions to others while it lives, and nothing is lost with it.

A move is a recovery without a failure.  First a checkpoint is asked for, and from then on outputs are kept (`Moving.to`).
When it is complete the partitions go on from it elsewhere: their upstreams send again what is behind it, and their readers
skip what they have seen.  Nobody else goes back.  Until then everything runs as before, so a move can be given up at any
moment; afterwards a loss is an ordinary one.  Where the output of one that moves could differ from what was seen, as an
operator is not deterministic, everything goes back to that checkpoint, which is some batches old.

What has a standby on a node that stays goes on there before anything else: nothing is read, no checkpoint is waited for, and
its readers skip what they have seen.  Should the standby be gone when the driver comes to it, the partition goes on from the
newest checkpoint, as output behind that is kept.  One whose output waits for its standby gives nothing twice there, as
nothing has left that the standby does not have; should the standby be gone, it stays lost until everything goes back, as
after a loss.  That alone is done in an incident, too (`standbys.handed_over`).

Without a deadline the others go by the value of what needs them, the least valuable first: who is worth most is disturbed
last.  With a deadline all that the planner would bring back after the loss goes from one checkpoint, the most valuable
first.  What has no place stays, and is an ordinary loss.

Invariant: all of this follows from the desired state and from `Node.leaving`; a coordinator that dies in the middle is
missed by nobody.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf

from reprise.scheduler.costs import free_capacity, free_on, normal_costs, over_the_cap
from reprise.scheduler.domains import regarding
from reprise.scheduler.eviction import blocked, plan_first
from reprise.scheduler.model import Desired, Leaving, Moving
from reprise.scheduler.placement import fill
from reprise.scheduler.planning import plan_recovery
from reprise.scheduler.scope import behind_newest
from reprise.scheduler.situation import Situation
from reprise.scheduler.steps import Decision, RuleName, WriteDesired, act, wait
from reprise.scheduler.view import View
from reprise.scheduler.worth import by_worth, worth_of

SWITCH_S = 3.0
"""So long before a node goes its partitions move from the checkpoint that there is: a driver's report and orders take about
a second each, and after the loss they would go on from the same one, later."""


@dataclass(frozen=True, slots=True)
class Room:
    """What of the nodes that are to be emptied finds a place on the others, and what does not."""

    placed: Mapping[str, str]
    """Partition -> node; the most valuable first."""
    staying: tuple[str, ...]
    needed: int
    """Milli-CPU of those that stay."""
    free: int
    """Milli-CPU that the others have left beside what is placed, in pieces that are too small."""

    def __str__(self) -> str:
        named = ", ".join(self.staying[:5]) + (", ..." if len(self.staying) > 5 else "")
        one = len(self.staying) == 1
        what = "1 partition stays" if one else f"{len(self.staying)} partitions stay"
        return (
            f"{what} for want of room ({named}): {'it needs' if one else 'they need'} {self.needed} milli-CPU, and "
            f"{self.free} are left on the other nodes"
        )


def emptied(s: Situation) -> Decision | None:
    """The next step of emptying nodes, while nothing is failed."""
    view, moving = s.view, s.desired.moving
    if moving is None and not _on_leaving(view):
        return None
    if not view.acked:
        return wait(RuleName.MOVES_WAIT, "the driver has not taken over the last step yet")
    if moving is not None and moving.to:
        return _switched(s, moving)
    if not settled(view):
        return wait(RuleName.MOVES_WAIT, "not everything is at work yet")
    return _handed_over(s) or _prepared(s)


def room(view: View) -> Room:
    """Room for what is on nodes that are to be emptied."""
    costs, worth = normal_costs(view), worth_of(view)
    going = sorted(_on_leaving(view), key=lambda p: (-worth[p], -costs[p], p))
    held = {p: n for p, n in view.survivors.items() if n not in view.leaving}
    placed = fill(going, costs, free_capacity(view, costs, held))
    staying = tuple(p for p in going if p not in placed)
    left = sum(free_capacity(view, costs, {**held, **placed}).values())
    return Room(placed, staying, sum(costs[p] for p in staying), left)


def _anew(s: Situation, moving: Moving) -> Decision | None:
    """What is decided instead where a move that was prepared is not what is wanted any more.  Notices come one after the
    other: what they add goes from the same checkpoint."""
    view, desired = s.view, s.desired
    if moving.considered != considered(view) and not moving.begun:
        to, _ = _next(s)
        if to and to != moving.to:
            anew = replace(moving, to=to, considered=considered(view), rebalances=False)
            reason = f"{said_of(view, to)}, after that checkpoint, as other nodes are there or leave"
            return act(RuleName.MOVE_PREPARED, reason, WriteDesired(desired.next(moving=anew, retain=True)))
    whole = {**desired.assignment, **moving.to}
    why = _void(view, moving) or next(over_the_cap(view, normal_costs(view), whole), "")
    return act(RuleName.MOVE_GIVEN_UP, why, WriteDesired(desired.next())) if why else None


def with_room(
    view: View, desired: Desired, to: Mapping[str, str], costs: Mapping[str, int]
) -> dict[str, str]:
    """Promotions but those of passive standbys for whose partitions there is no room, the least valuable.  An active one
    runs where it is already."""
    passive = view.snapshot.topology.passive
    stays = {p: n for p, n in desired.assignment.items() if p not in to}
    room = free_on(view.usable, view.policy, costs, stays)
    for partition, node in to.items():
        if partition not in passive:
            room[node] -= costs[partition]
    found = {p for p in to if p not in passive}
    for partition in by_worth(view):
        if partition in passive and partition in to and room[to[partition]] >= costs[partition]:
            room[to[partition]] -= costs[partition]
            found.add(partition)
    return {p: n for p, n in to.items() if p in found}


def after_the_loss(view: View) -> View:
    """How things would stand if the nodes with a deadline were gone."""
    doomed = {p for p, n in view.survivors.items() if _deadline(view, n) is not None}
    if not doomed:
        return view
    return replace(
        view,
        usable=view.open_nodes,
        survivors={p: n for p, n in view.survivors.items() if p not in doomed},
        failed={p.id: "its node goes" for p in view.snapshot.topology.partitions if p.id in doomed},
    )


@dataclass(frozen=True)
class MayMove:
    """Whether a running partition may go to a node: one that has to leave, to a node that stays; one that could not run
    after the loss, to any; one that goes to level load, where that was decided.  What that rests on is found out once for
    all partitions of a view."""

    view: View

    def __call__(self, partition: str, node: str) -> bool:
        goes = self.view.survivors.get(partition) in self._leaving or self._rebalanced.get(partition) == node
        return (node in self._open and goes) or (node in self._usable and partition in self._stuck)

    @cached_property
    def _rebalanced(self) -> Mapping[str, str]:
        desired = self.view.snapshot.desired
        moving = desired.moving if desired is not None else None
        return moving.to if moving is not None and moving.rebalances else {}

    @cached_property
    def _leaving(self) -> Mapping[str, Leaving]:
        return self.view.leaving

    @cached_property
    def _open(self) -> frozenset[str]:
        return self.view.open_ids

    @cached_property
    def _usable(self) -> frozenset[str]:
        return self.view.usable_ids

    @cached_property
    def _stuck(self) -> frozenset[str]:
        lost = after_the_loss(self.view)
        return frozenset() if lost is self.view else frozenset(blocked(lost))


def to_standbys(s: Situation, costs: Mapping[str, int]) -> dict[str, str]:
    """Partitions at work that have to leave and could go on where their standbys are, on nodes that stay -> that node: what
    would follow the newest checkpoint is kept for each, should its standby be gone when the driver comes to it.

    Of a node with one whose output waits for its standby, and that cannot go on there, none does: that one takes
    everything back, whether it is moved or lost."""
    view, desired, progress = s.view, s.desired, s.view.snapshot.progress
    if progress is None or not desired.standbys or not view.goes_on_at_standbys or not _kept(view):
        return {}
    leaving, open_ids = _on_leaving(view), view.open_ids
    ready = progress.standbys.keys() & desired.standbys.keys() & view.at_work
    able = {p: desired.standbys[p] for p in leaving if p in ready and view.may_be_promoted(p)}
    found = with_room(view, desired, {p: n for p, n in able.items() if n in open_ids}, costs)
    stuck = {view.survivors[p] for p in leaving if p in view.output_waits and p not in found}
    return {p: n for p, n in found.items() if view.survivors[p] not in stuck}


def _handed_over(s: Situation) -> Decision | None:
    """Partitions that have to leave and have a standby on a node that stays go on there."""
    view, desired, progress = s.view, s.desired, s.view.snapshot.progress
    assert progress is not None
    to = to_standbys(s, normal_costs(view))
    if not to:
        return None
    after = desired.next(
        assignment={**desired.assignment, **to},
        standbys={p: n for p, n in desired.standbys.items() if p not in to},
        moving=Moving(after=progress.horizon),
        retain=True,
    ).covered_by(view.newest)
    return act(RuleName.MOVED, f"{said_of(view, to)}, where their standbys are", WriteDesired(after))


def _prepared(s: Situation) -> Decision | None:
    """Ask for a checkpoint for what goes next, and keep outputs from now on; end what is over."""
    view, desired = s.view, s.desired
    progress = view.snapshot.progress
    assert progress is not None
    to, reason = _next(s)
    if to and view.poison:
        # no checkpoint can be complete, and output would be kept for ever
        why = "partitions are set aside, and no checkpoint is complete without them"
        if desired.moving is not None and desired.retain:  # what went to standbys is at work there
            return act(RuleName.MOVE_GIVEN_UP, why, WriteDesired(desired.next()))
        return wait(RuleName.MOVES_WAIT, why)
    if to:
        before = desired.moving
        # before a deadline the checkpoint of the step before will do, as output is kept since
        again = before is not None and desired.retain and _urgent(view)
        moving = Moving(
            to, before.after if before and again else progress.horizon, considered=considered(view)
        )
        after = desired.next(moving=moving, retain=True).covered_by(view.newest)
        return act(RuleName.MOVE_PREPARED, f"{said_of(view, to)}, after a checkpoint", WriteDesired(after))
    done = Moving(considered=considered(view)) if _urgent(view) else None
    if desired.moving != done or desired.retain:
        reason = reason or "everything that was to be moved is at work elsewhere"
        return act(RuleName.MOVES_OVER, reason, WriteDesired(desired.next(moving=done, retain=False)))
    return wait(RuleName.MOVES_WAIT, reason) if reason else None


def _switched(s: Situation, moving: Moving) -> Decision:
    """The partitions go on elsewhere, as soon as there is a checkpoint from which they have little to do again."""
    view, desired, progress = s.view, s.desired, s.view.snapshot.progress
    assert progress is not None
    if (other := _anew(s, moving)) is not None:
        return other
    if not moving.to.keys() <= view.at_work:
        return wait(RuleName.MOVES_WAIT, "not everything is at work yet")
    newest, alike = view.newest, _replays_alike(view, moving)
    fresh = newest.everybody > moving.after or newest.everybody >= progress.horizon
    switch_at = min((x.by for x in view.leaving.values() if x.by is not None), default=inf) - SWITCH_S
    if not fresh and s.now < switch_at:
        until = 0.0 if switch_at == inf else switch_at
        said = "the topology is paused" if desired.paused else f"a checkpoint behind batch {moving.after}"
        return wait(RuleName.MOVES_WAIT, f"{said} is waited for", until)
    if alike and not _kept(view):
        return _not_kept(s, moving, fresh)
    now = _first_of(view, moving, s.now >= switch_at) if alike else moving.to
    rest = {p: n for p, n in moving.to.items() if p not in now}
    assignment = {**desired.assignment, **now}
    after = desired.next(assignment=assignment, moving=replace(moving, to=rest, begun=True), retain=True)
    after = after.covered_by(newest) if alike else after.back_to(newest)
    said = f"{said_of(view, now)}, from checkpoint {newest.everybody}"
    if not alike:
        said += ", and everything goes back to it, as an operator is not deterministic"
    return act(RuleName.MOVED, said, WriteDesired(after))


def _replays_alike(view: View, moving: Moving) -> bool:
    """Whether those that move make again what they had made, and are sent again what they had been sent."""
    return view.replays_alike and view.output_waits.isdisjoint(moving.to)


def _kept(view: View) -> bool:
    """Whether who goes on from the newest checkpoint can be sent all that follows it."""
    progress, newest = view.snapshot.progress, view.newest
    since = progress.kept_since if progress is not None else None
    kept = since is not None and since <= newest.everybody and not newest.others
    return kept or view.by_driver  # it takes back with them who has not kept enough


def _not_kept(s: Situation, moving: Moving, fresh: bool) -> Decision:
    """No memory was left to keep what those that move would be sent again."""
    desired, progress = s.desired, s.view.snapshot.progress
    assert progress is not None
    if not fresh:
        return wait(RuleName.MOVES_WAIT, "output behind the newest checkpoint is not kept")
    if moving.rebalances:
        why = "no memory is left to keep output, and nobody has to leave"
        return act(RuleName.MOVE_GIVEN_UP, why, WriteDesired(desired.next()))
    again = replace(moving, after=progress.horizon, begun=False)
    after = desired.next(moving=again, retain=True).covered_by(s.view.newest)
    return act(RuleName.MOVE_PREPARED, "no memory was left to keep output; once more", WriteDesired(after))


def _first_of(view: View, moving: Moving, hurry: bool) -> Mapping[str, str]:
    """The most valuable have a step of their own where there is a deadline and time for two, and all others follow as soon
    as the driver has taken that.  What gives its room to them goes with them."""
    if not _urgent(view) or moving.begun or hurry:
        return moving.to
    worth = worth_of(view)
    most = max(worth[p] for p in moving.to)
    return {p: n for p, n in moving.to.items() if worth[p] == most or n not in view.open_ids}


def _next(s: Situation) -> tuple[Mapping[str, str], str]:
    """What is moved next, or why nothing more is."""
    view = s.view
    if not _on_leaving(view):
        return {}, ""
    if _urgent(view):
        moving = s.desired.moving
        if moving is not None and moving.considered == considered(view):
            return {}, str(room(view))
        return _brought_to_safety(s), str(room(view))
    found, worth = room(view), worth_of(view)
    least = min((worth[p] for p in found.placed), default=0)
    to = {p: n for p, n in found.placed.items() if worth[p] == least}
    rest = {p: n for p, n in {**view.survivors, **found.placed}.items() if p not in to}
    return regarding(view, normal_costs(view), rest, to), str(found) if found.staying else ""


def _brought_to_safety(s: Situation) -> Mapping[str, str]:
    """What a plan would restore of the partitions on nodes with a deadline, if these were gone already.  Survivors that give
    their room, as what they read is lost, go in exchange to the nodes that will be gone: there they run until then."""
    view, worth, costs = s.view, worth_of(s.view), normal_costs(s.view)
    nodes, lost = len(set(s.desired.assignment.values())), after_the_loss(view)
    placed = plan_first(lost, costs, s.planner, nodes)
    evicted = [p for p in lost.survivors if p not in placed.held and p not in placed.planned.added]
    moved = {p: n for p, n in placed.planned.added.items() if view.survivors.get(p) != n}
    stay = {p: n for p, n in view.survivors.items() if p not in moved and p not in evicted}
    doomed = [node for node in view.usable if _deadline(view, node.id) is not None]
    exchanged = fill(evicted, costs, free_on(doomed, view.policy, costs, stay))
    if len(exchanged) < len(evicted):  # then what is free beside everybody
        beside = plan_recovery(lost, costs, lost.survivors, lost.failed, s.planner)
        moved, exchanged = dict(beside.added), {}
    order = {p.id: k for k, p in enumerate(view.snapshot.topology.partitions)}
    to = {**moved, **exchanged}
    return {p: to[p] for p in sorted(to, key=lambda p: (-worth[p], order[p]))}


def _on_leaving(view: View) -> list[str]:
    leaving = view.leaving
    return [p for p, n in view.survivors.items() if n in leaving] if leaving else []


def _deadline(view: View, node: str) -> float | None:
    leaving = view.leaving.get(node)
    return None if leaving is None else leaving.by


def _urgent(view: View) -> bool:
    """Whether a node with partitions has a deadline."""
    return any(_deadline(view, n) is not None for n in view.survivors.values())


def considered(view: View) -> frozenset[str]:
    return frozenset({*view.open_ids, *(f"{node} leaves" for node in view.leaving)})


def settled(view: View) -> bool:
    """Whether everything is at work and no older than the newest checkpoint."""
    wanted = {p.id for p in view.snapshot.topology.partitions} - set(view.poison)
    return wanted <= view.at_work and not behind_newest(view)


def _void(view: View, moving: Moving) -> str:
    """Why a move is not what is wanted any more; empty while it is."""
    may_move = MayMove(view)
    for partition, node in moving.to.items():
        if moving.rebalances and view.leaving:
            return "a node is to be emptied, and that comes first"
        if not may_move(partition, node):
            return f"{partition} is not to go to {node} any more"
    return ""


def said_of(view: View, to: Mapping[str, str]) -> str:
    sources = sorted({view.survivors.get(p, "?") for p in to})
    count = "1 partition" if len(to) == 1 else f"{len(to)} partitions"
    return f"{count} of {', '.join(sources)} to {', '.join(sorted(set(to.values())))}"
