"""The rules: each looks at a situation and answers with a decision, or with None when it does not apply.

What docs/recovery.md describes under "The rules", and what that takes for granted: the start, a driver that starts anew, a
damaged checkpoint, user code that raises.
"""

from __future__ import annotations

from dataclasses import replace

from reprise.algorithms.positions import Positions
from reprise.scheduler.costs import normal_costs
from reprise.scheduler.incident import Event, EventName, Incident, Kind, Phase, incident_id, some
from reprise.scheduler.model import Desired, Poison
from reprise.scheduler.observe import last_look, lost_since_checkpoint, observe
from reprise.scheduler.overcommit import demand
from reprise.scheduler.recovery import recover
from reprise.scheduler.scope import behind_newest
from reprise.scheduler.situation import Situation
from reprise.scheduler.steps import (
    CloseIncident,
    Decision,
    RuleName,
    Step,
    WriteDesired,
    WriteIncident,
    WritePoison,
    act,
    wait,
)

SLOW_S = 60.0
"""After so long a query that has passed the failure is slow, and not on its way back."""
ANSWER_S = 5.0
"""How long to wait, once a burst has settled, for the driver to say what it lost: it sees executors go before their
heartbeats end, and a plan that knows only a part of the burst is spent on nodes that are gone."""


def driver_restarted(s: Situation) -> Decision | None:
    """All is failed but what the new driver has found at work where it was: that goes on, and is to the rest what survivors
    are.  Where nothing lives it gets nothing to do before its nodes are back."""
    view, progress = s.view, s.view.snapshot.progress
    if not view.driver_changed or progress is None:
        return None
    lives = len(view.survivors)
    after = s.desired.next(
        driver=progress.driver,
        assignment=dict(view.survivors),
        retain=s.desired.retain or lives > 0,
        punctuate=False,
        plan=None,
        anew={},
    ).covered_by(view.newest)
    incident = s.incident or observe(view, opened(s, Kind.DRIVER))
    incident = replace(
        incident,
        kind=Kind.DRIVER if incident.kind is Kind.BLOCKING else incident.kind,
        phase=Phase.SETTLING if view.failed else Phase.RECOVERING,
        settle_until=s.now + view.policy.settle_s,
        driver_until=None if lives else s.now + view.policy.driver_grace_s,
        considered=None,
        bad_checkpoints=frozenset(),  # the new driver looks for itself
    )
    said = f"{s.desired.driver} is replaced by {progress.driver}"
    if lives:
        said += f", which goes on with {lives} of {lives + len(view.failed)} partitions where they are"
    incident = incident.log(s.now, EventName.DRIVER_STARTED, said)
    steps: list[Step] = [WriteDesired(after), WriteIncident(incident)]
    if view.snapshot.poison is not None:
        steps.append(WritePoison(Poison(progress.driver)))
    return act(RuleName.DRIVER_RESTARTED, f"driver {progress.driver} has started", *steps)


def checkpoint_damaged(s: Situation) -> Decision | None:
    """The driver cannot restore from what it was told: the bytes are wrong, or later output is shown that a replay could
    change.  Back, or forward, to the newest checkpoint that can be used.
    Never behind input that was given up: then nothing is right but to wait for a person, or for a new driver's look."""
    progress = s.view.snapshot.progress
    if progress is None or not (bad := s.desired.restored_from.distinct & progress.bad_checkpoints):
        return None
    damaged = max(bad)
    whole = s.view.newest_checkpoint
    if whole in progress.bad_checkpoints:
        return wait(
            RuleName.NO_WHOLE_CHECKPOINT,
            f"checkpoint {damaged} cannot be used and no other is whole; the input up to batch {progress.trimmed} was given "
            "up, so the stream cannot begin again",
        )
    after = _back_to(s)
    reason = f"checkpoint {damaged} cannot be used: everything begins again at {whole}"
    if not whole:
        reason += ", the initial state: no complete checkpoint is whole"
    if s.incident is None:
        return act(RuleName.CHECKPOINT_DAMAGED, reason, WriteDesired(after))
    incident = replace(
        s.incident,
        checkpoint=whole,
        generation=after.generation,
        lines=after.lines,
        bad_checkpoints=s.incident.bad_checkpoints | bad,
    ).log(s.now, EventName.CHECKPOINT_DAMAGED, reason)
    return act(RuleName.CHECKPOINT_DAMAGED, reason, WriteDesired(after), WriteIncident(incident))


def buffers_dropped(s: Situation) -> Decision | None:
    """A restored partition needs output that its upstreams dropped for want of room: all go back to the checkpoint."""
    view, progress = s.view, s.view.snapshot.progress
    if (
        progress is None
        or not view.acked
        or not progress.not_kept
        or progress.generation != s.desired.generation
    ):
        return None
    reason = f"buffers were full: no output is left for {', '.join(sorted(progress.not_kept))}"
    if s.incident is None:
        if s.desired.moving is None:
            return None
        return act(RuleName.BUFFERS_DROPPED, reason, WriteDesired(_back_to(s)))
    after = _back_to(s, punctuate=False)
    incident = replace(
        s.open,
        phase=Phase.RECOVERING,
        checkpoint=after.checkpoint,
        generation=after.generation,
        lines=after.lines,
    ).log(s.now, EventName.BUFFERS_DROPPED, reason)
    return act(RuleName.BUFFERS_DROPPED, reason, WriteDesired(after), WriteIncident(incident))


def _back_to(s: Situation, **changes: bool) -> Desired:
    """What survived begins again at the newest checkpoint, where it is."""
    return s.desired.back_to(s.view.newest).next(assignment=dict(s.view.survivors), **changes)


def quarantine(s: Situation) -> Decision | None:
    """Code that raised is put aside: recorded, taken off its node, never retried while this driver lives."""
    view, stored = s.view, s.view.snapshot.poison
    known = stored.partitions if stored and stored.driver == s.desired.driver else {}
    new = {p: why for p, why in view.poison.items() if p not in known}
    if not new:
        return None
    assignment = {p: n for p, n in s.desired.assignment.items() if p not in view.poison}
    after = s.desired.next(assignment=assignment, punctuate=False)
    steps: list[Step] = [WriteDesired(after), WritePoison(Poison(s.desired.driver, dict(view.poison)))]
    reason = some([f"{p}: {why}" for p, why in new.items()])
    if s.incident is not None:
        incident = replace(
            s.incident, considered=None
        )  # what only the poisoned queries needed can go last now
        steps.append(WriteIncident(incident.log(s.now, EventName.POISON, reason)))
    return act(RuleName.QUARANTINE, reason, *steps)


def failure_detected(s: Situation) -> Decision | None:
    """Opens an incident. Nothing is restored before the burst has settled."""
    if not s.view.failed:
        return None
    incident = observe(s.view, opened(s, Kind.BLOCKING))
    after = s.desired.next(punctuate=False, plan=None)
    reason = f"{len(s.view.failed)} partitions failed, {len(incident.lost)} nodes lost"
    steps = WriteDesired(after), WriteIncident(incident)
    return act(RuleName.FAILURE_DETECTED, reason, *steps, until=incident.settle_until)


def pause_changed(s: Situation) -> Decision | None:
    """What the resource says goes to the driver."""
    paused = s.view.snapshot.paused
    if s.desired.paused == paused:
        return None
    return act(
        RuleName.PAUSE if paused else RuleName.RESUME,
        f"paused={paused}",
        WriteDesired(s.desired.next(paused=paused)),
    )


def false_alarm(s: Situation) -> Decision | None:
    """What seemed lost came back as it was, before anything was done about it. A driver that has not taken over
    the desired state yet says nothing about losses: that is unknown, and not a sign that all is well."""
    if s.view.failed or not s.view.acked or s.open.kind is not Kind.BLOCKING or s.open.plans:
        return None
    if s.open.promoted:
        return None
    reason = "nothing is failed any more"
    incident = replace(last_look(s.view, s.open), phase=Phase.CLOSED, closed_at=s.now)
    incident = incident.log(s.now, EventName.FALSE_ALARM, reason)
    after = s.desired.next(punctuate=not s.view.poison, plan=None, anew={}, rebalancing=None)
    return act(RuleName.FALSE_ALARM, reason, WriteDesired(after), CloseIncident(incident))


def settling(s: Situation) -> Decision | None:
    """The rest of the burst is waited for, what the driver says that it lost, and the nodes of a new driver."""
    incident, policy = s.open, s.view.policy
    ready = len(s.view.usable)
    if s.now < incident.settle_until:
        left = incident.settle_until - s.now
        return wait(RuleName.SETTLING, f"{left:.1f} s more for the rest of the burst", incident.settle_until)
    unanswered = incident.driver_until is None and not s.view.acked
    if unanswered and s.now < incident.settle_until + ANSWER_S:
        return wait(RuleName.SETTLING, "the driver has not said yet what it lost")
    if incident.driver_until is not None and ready < incident.nodes_before and s.now < incident.driver_until:
        return wait(
            RuleName.SETTLING, f"{ready} of {incident.nodes_before} nodes are back with the new driver"
        )
    if incident.driver_until is not None and ready == 0:
        later = replace(incident, driver_until=s.now + policy.driver_grace_s)
        return act(RuleName.SETTLING, "no node is back with the new driver", WriteIncident(later))
    return None


def settled(s: Situation) -> Decision:
    """The burst is over: its kind is settled by the number of nodes lost, and the first move is made."""
    incident, policy = s.open, s.view.policy
    ready = len(s.view.usable)
    count = lost_since_checkpoint(s.view, incident)
    if incident.kind is Kind.BLOCKING and count >= policy.correlated_nodes:
        incident = replace(incident, kind=Kind.CORRELATED)
    incident = replace(incident, phase=Phase.WAITING, driver_until=None)
    incident = incident.log(
        s.now, EventName(incident.kind.value), f"{count} nodes lost, X = {policy.correlated_nodes}"
    )
    reason = f"{incident.kind}: {ready} of {incident.nodes_before} nodes are ready"
    return recover(replace(s, incident=incident), True) or act(
        RuleName.SETTLED, reason, WriteIncident(incident)
    )


def upgraded(s: Situation) -> Decision | None:
    """More nodes were lost while a blocking recovery was on its way: now it is a correlated failure."""
    count = lost_since_checkpoint(s.view, s.open)
    x = s.view.policy.correlated_nodes
    if s.open.kind is not Kind.BLOCKING or count < x or not s.view.failed:
        return None
    incident = replace(s.open, kind=Kind.CORRELATED, considered=None).log(
        s.now, EventName.CORRELATED, f"{count} nodes lost, X = {x}"
    )
    return recover(replace(s, incident=incident), True)


def replan(s: Situation) -> Decision | None:
    """A node has arrived, or something more is lost: the next plan.  Where a new driver has gone on with everything it is
    the first."""
    first = s.open.kind is Kind.DRIVER and not s.open.plans and bool(s.view.survivors)
    return recover(s, first) if s.view.failed else None


def restored(s: Situation) -> Decision | None:
    """Nothing is failed and all is at work: global checkpoints may be taken again."""
    view = s.view
    wanted = {p.id for p in view.snapshot.topology.partitions} - set(view.poison)
    if view.failed or not view.acked or not wanted <= view.at_work:
        return None
    incident = replace(s.open, phase=Phase.VERIFYING).log(s.now, EventName.RESTORED, "everything is at work")
    after = s.desired.next(punctuate=not view.poison, anew={})
    return act(RuleName.RESTORED, "everything is at work", WriteDesired(after), WriteIncident(incident))


def checkpoint_complete(s: Situation) -> Decision | None:
    """A global checkpoint after the restoration closes the incident; what fails after it counts anew. Where the
    sources have ended and all of their input is in the checkpoint already, there can be no newer one."""
    view, progress = s.view, s.view.snapshot.progress
    newest = view.newest_checkpoint
    final = progress is not None and view.acked and progress.ended and newest >= progress.horizon
    # one that was announced before the failure may be complete as soon as all are at work, long before they have caught up
    newer = view.newest.beyond(s.open.restored_from) and newest > s.open.horizon
    if view.by_driver and progress is not None and progress.restored:
        # those that went back have stored what came after the failure; when the others store themselves is their affair
        newer = all(progress.covers.of(p) > max(k, s.open.horizon) for p, k in progress.restored.items())
    if not newer and not (final and not view.failed):
        return None
    if not view.acked:  # the last look at the queries is at a report that may be believed
        return None
    if behind_newest(view) or (progress is not None and progress.not_kept):
        return None  # it has still to come to where the others were
    if view.by_driver and progress is not None and progress.restored and not final:
        return _closed(s, f"all {len(progress.restored)} that went back are stored again", view.newest)
    return _closed(s, f"global checkpoint {newest} is complete", view.newest)


def caught_up_beside_poison(s: Situation) -> Decision | None:
    """Beside poison there is no global checkpoint: the incident ends when all that can come back is back.  A query that has
    long been past the failure and is only slow, or whose steady lag is not known, does not keep buffers on for ever."""
    view = s.view
    if not view.poison or view.failed or not view.acked:
        return None
    able = [q.id for q in view.snapshot.topology.queries if q.id in s.open.queries and not view.poisoned(q)]
    if any(s.open.queries[q].caught_up_at is None and not _past_the_failure(s, q) for q in able):
        return None
    return _closed(s, f"all but {len(view.poison)} poisoned partitions are back", s.desired.restored_from)


def _past_the_failure(s: Situation, query: str) -> bool:
    """Whether a query has been at work for `SLOW_S` and has shown all that was released when the incident opened."""
    progress, restored = s.view.snapshot.progress, s.open.queries[query].restored_at
    at = progress.positions.get(query, -1) if progress is not None else -1
    return restored is not None and s.now - restored >= SLOW_S and at >= s.open.horizon


def _closed(s: Situation, reason: str, checkpoint: Positions) -> Decision:
    after = s.desired.next(
        retain=False,
        punctuate=not s.view.poison,
        plan=None,
        paused=s.view.snapshot.paused,
        anew={},
        rebalancing=None,
        demand=demand(s.view, s.costs),
    ).covered_by(checkpoint)
    incident = replace(last_look(s.view, s.open), phase=Phase.CLOSED, closed_at=s.now)
    incident = incident.log(s.now, EventName.CLOSED, reason)
    return act(RuleName.CLOSED, reason, WriteDesired(after), CloseIncident(incident))


def opened(s: Situation, kind: Kind) -> Incident:
    """A new incident.  The id follows from the desired state, which is rewritten with it: no two incidents share one."""
    desired = s.desired
    return Incident(
        id=incident_id(desired.seq + 1),
        kind=kind,
        phase=Phase.SETTLING,
        opened_at=s.now,
        checkpoint=s.view.newest_checkpoint,
        lines=s.view.newest.origins(desired.generation),
        generation=desired.generation,
        nodes_before=len(set(desired.assignment.values())) or s.view.policy.nodes_wanted,
        settle_until=s.now + s.view.policy.settle_s,
        costs=normal_costs(s.view),
        steady=s.view.snapshot.steady,
        horizon=s.view.snapshot.progress.horizon if s.view.snapshot.progress else 0,
        events=(Event(s.now, EventName.OPENED, f"newest checkpoint {s.view.newest_checkpoint}"),),
    )
