"""What a person's wish to skip comes to: what a query misses begins anew, and does without what it has missed.

The wish is taken once, with the desired state that says so: `Desired.skips` has its id, so neither another coordinator nor
one that was killed in the middle takes it again.  From then on the driver seals what is to begin anew, and decides when the
plan comes (`reprise.spark_jobs.engine.skipping`).  Here nothing is known of what operators can do: what must not be skipped
the driver refuses, says so, and restores it.  Invariant: nothing at work is taken from its node, and no source begins anew.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import replace

from reprise.scheduler import scope
from reprise.scheduler.incident import EventName, Incident, Kind, some
from reprise.scheduler.model import Desired, Poison, QueryView
from reprise.scheduler.observe import observe
from reprise.scheduler.rules import opened
from reprise.scheduler.situation import Situation
from reprise.scheduler.steps import (
    Decision,
    RuleName,
    Step,
    WriteDesired,
    WriteIncident,
    WritePoison,
    act,
)
from reprise.scheduler.view import View
from reprise.scheduler.wishes import fresh, query_of, takes


def asked(s: Situation) -> Decision | None:
    """Take the wishes that nobody has taken, once the driver has taken over all that was decided before: only then is what
    it says of failures that of now."""
    new = fresh(s.view.snapshot.wishes, s.desired.skips)
    if not new or not s.view.acked:
        return None
    whole = why_whole(s.view)
    by_query = {query_of(place): wish for place, wish in new.items()}
    queries = [q for q in s.view.snapshot.topology.queries if q.id in by_query]
    missed = {q.id: would_begin_anew(s.view, q) if not whole else () for q in queries}
    begun = _begun(s, by_query)
    targets = {q: tuple(p for p in partitions if p not in begun) for q, partitions in missed.items()}
    anew = {p: by_query[q].id for q, partitions in targets.items() for p in partitions}
    skips = {**s.desired.skips, **{place: wish.id for place, wish in new.items()}}
    told = [_told(q, targets.get(q), whole, bool(missed.get(q))) for q in sorted(by_query)]
    taken = takes(new)
    if not anew:
        steps: tuple[Step, ...] = (WriteDesired(s.desired.next(skips=skips)), *taken)
        if s.incident is not None:
            steps = (*steps, WriteIncident(s.incident.log(s.now, EventName.SKIP_ASKED, "; ".join(told))))
        return act(RuleName.SKIP_ASKED, "; ".join(told), *steps)
    after = s.desired.next(
        assignment={p: n for p, n in s.desired.assignment.items() if p not in anew},
        anew={**{p: w for p, w in s.desired.anew.items() if p not in s.view.at_work}, **anew},
        skips=skips,
        punctuate=False,
        plan=None,
    )
    steps = (WriteDesired(after), *_poison(s, anew), WriteIncident(_incident(s, told)), *taken)
    return act(RuleName.SKIP_ASKED, "; ".join(told), *steps)


def asked_before_a_plan(s: Situation) -> Decision | None:
    """Once a burst is over, so that the first plan is one with what begins anew: it may wait for a person, and whoever asks
    meanwhile must not.  Where everything goes back, that comes first, and the wish is for what does not come back by it."""
    return asked(s) if scope.some_stay(s.view) else None


def _begun(s: Situation, queries: Container[str]) -> frozenset[str]:
    """What begins anew already by a wish for another query: it would only begin later, and more rows would be missing.  Who
    asks for the same query again means just that, as where the driver could not skip it before."""
    by = {wish: query_of(place) for place, wish in s.desired.skips.items()}
    return frozenset(
        p for p, wish in s.desired.anew.items()
        if by.get(wish) not in queries and p not in s.view.at_work and p not in s.view.poison
    )  # fmt: skip


def with_void_wishes(s: Situation, decision: Decision) -> Decision:
    """A decision by which everything goes back says in its incident that what was to begin anew is restored instead; but not
    of what the driver has put on record as skipped behind that checkpoint: a replay does without its rows, too.  The record
    may be of an earlier wish in this incident, and does not say which; so the batch up to which it goes is said."""
    before, after = s.view.snapshot.desired, decision.desired
    if before is None or after is None:
        return decision
    gone = before.anew.keys() - after.anew.keys() - s.view.at_work
    if not gone or (before.generation, before.driver) == (after.generation, after.driver):
        return decision
    progress = s.view.snapshot.progress
    skipped = {} if progress is None else progress.skipped
    kept = {p for p in gone if p in skipped and skipped[p][-1][1] > after.checkpoint}
    parts = []
    if gone - kept:
        void = some(sorted(gone - kept))
        parts.append(f"the wish to skip is void with a rollback or a new driver: {void} restored")
    if kept:
        spans = some([f"{p} up to batch {skipped[p][-1][1]}" for p in sorted(kept)])
        parts.append(
            f"what is on record as skipped stays so, also in the replay: {spans}; a wish for more is void"
        )
    said = "; ".join(parts)
    steps = [
        WriteIncident(step.incident.log(s.now, EventName.SKIP_ASKED, said))
        if isinstance(step, WriteIncident)
        else step
        for step in decision.steps
    ]
    return replace(decision, steps=tuple(steps))


def would_begin_anew(view: View, query: QueryView) -> tuple[str, ...]:
    """What of a query is not at work, sources apart, and what else is not and reads that: it would need rows that nobody
    makes any more.  In topological order."""
    operators = {p.id: p for p in view.snapshot.topology.partitions if p.upstream or p.feedback}
    down = {p: x for p, x in operators.items() if p not in view.at_work}
    found: list[str] = []
    for (
        partition,
        x,
    ) in down.items():  # in topological order; without the feedback edges, on which nothing is skipped
        if partition in query.partitions or not frozenset(x.upstream).isdisjoint(found):
            found.append(partition)
    return tuple(found)


def lacking(view: View, partitions: Iterable[str]) -> tuple[str, ...]:
    """The queries that need any of these: each of them may lack rows."""
    wanted = frozenset(partitions)
    return tuple(q.id for q in view.snapshot.topology.queries if not wanted.isdisjoint(q.partitions))


def under_way(desired: Desired | None, order: Iterable[str], working: Container[str]) -> dict[str, list[str]]:
    """Queries with a wish that was taken and is not carried out yet -> those that are to begin anew for it, of `order`."""
    found: dict[str, list[str]] = {}
    if desired is None or not desired.anew:
        return found
    queries = {wish: query_of(place) for place, wish in sorted(desired.skips.items())}
    for partition in order:
        wish = desired.anew.get(partition, "")
        if wish in queries and partition not in working:
            found.setdefault(queries[wish], []).append(partition)
    return found


def why_whole(view: View) -> str:
    """Why all that is lost is restored, whatever is asked for; empty: it need not be."""
    # what it gave is with others, and what it would begin anew with is not what gave that
    if view.output_waits:
        return "an operator is not deterministic"
    return "" if scope.some_stay(view) else "everything goes back to the checkpoint"


def _told(query: str, partitions: tuple[str, ...] | None, whole: str, misses: bool) -> str:
    if partitions is None:
        return f"{query} is no query of the topology, and nothing is skipped"
    if whole:
        return f"nothing of {query} is skipped: {whole}, so all of it is restored"
    if not partitions and misses:
        return f"{query} is skipped already: what it misses begins anew for another query"
    if not partitions:
        return f"nothing of {query} is skipped: all of it is at work, or is a source"
    return f"{query} is to be skipped: {some(partitions)} begin anew"


def _poison(s: Situation, anew: Iterable[str]) -> tuple[Step, ...]:
    """What raised is tried again: behind the batch at which it did."""
    stored = s.view.snapshot.poison
    if stored is None or stored.partitions.keys().isdisjoint(anew):
        return ()
    left = {p: why for p, why in stored.partitions.items() if p not in set(anew)}
    return (WritePoison(Poison(stored.driver, left)),)


def _incident(s: Situation, told: list[str]) -> Incident:
    incident = s.incident or observe(s.view, opened(s, Kind.BLOCKING))
    return replace(incident, considered=None).log(s.now, EventName.SKIP_ASKED, "; ".join(told))
