"""What goes back to the checkpoint with what failed, so that the failed ones are sent what they need.

A partition that is restored from the newest checkpoint needs what its upstreams made since.  Where they still have it they
send it again, and go on; else they make it again, from the same checkpoint.  Readers of a restored partition skip what
they have applied: they stay where they are, as a deterministic operator makes the same rows again.  One of which a replay
may differ never goes back alone: it goes on where its standby is, or everything goes back.

It is the greatest valid line of `reprise.algorithms.recovery_line` for one snapshot of each partition, all at one
position, survivors that have passed it, and operators that are replayable: a test holds it to that on random graphs.
The general one asks each edge, of which a wide topology has millions; here it is one walk against the stream.
"""

from __future__ import annotations

from collections.abc import Collection

from reprise.scheduler.model import Scope
from reprise.scheduler.view import View


def some_stay(view: View) -> bool:
    """Whether a first plan leaves partitions at work that need not go back; else all do."""
    if not (
        view.survivors  # none after a restart of the driver
        and view.policy.scope is not Scope.GLOBAL
        and view.policy.strategy.whole_queries
        and view.replays_alike
    ):
        return False
    if view.output_waits and not view.output_waits.isdisjoint(going_back(view, list(view.failed))):
        return False  # what it gives may differ from what was kept of it
    if view.by_driver:
        return True  # the driver knows what each still holds, and takes back who has not enough
    return not view.newest.others and not behind_newest(view)  # a line goes back as a whole


def behind_newest(view: View) -> bool:
    """Whether a partition that lives stands before the newest checkpoint of the same report: it was restored from an older
    one, and what is restored from the newest does not make again what it still needs."""
    progress, desired = view.snapshot.progress, view.snapshot.desired
    if progress is None or desired is None:
        return False
    newest = progress.checkpoint
    return any(progress.positions.get(p, desired.origin(p).position) < newest for p in view.survivors)


def going_back(view: View, failed: Collection[str]) -> frozenset[str]:
    """Partitions at work that go back to the newest checkpoint with `failed`: none where all that lives has kept its output
    since, else the operators that the failed ones read, directly or not.  Sources stay: they read their input again.  Of
    snapshots of single partitions the driver finds the line, and reports it (`Progress.restored`)."""
    if view.by_driver:
        return frozenset()
    progress = view.snapshot.progress
    kept = progress.kept_since if progress is not None else None
    if view.policy.scope is Scope.AUTO and kept is not None and kept <= view.newest_checkpoint:
        return frozenset()
    fed = _fed_again(view, failed, frozenset() if progress is None else progress.backed)
    while True:
        back = _ancestors(view, [p for p in failed if p not in fed]) & view.survivors.keys()
        # who goes back asks for more than was kept, and who is sent again what follows the checkpoint needs the rest, too
        restored = (fed & _read_by(view, back)) | _readers(view, fed, back)
        if not restored:
            return back
        fed -= restored


def _fed_again(view: View, failed: Collection[str], backed: Collection[str]) -> frozenset[str]:
    """Failed partitions for which nobody has to go back, as upstreams at work have kept what each would need now
    (`availability: upstream-backup`): those alone on their paths, of which neither an upstream nor a reader failed."""
    gone = frozenset(failed) | view.failed.keys()
    alone = gone.intersection(backed) - _read_by(view, gone)
    return alone - _readers(view, alone, gone) if alone else alone


def _readers(view: View, partitions: Collection[str], read: Collection[str]) -> frozenset[str]:
    """Those of some partitions that read others."""
    parts = (p for p in view.snapshot.topology.partitions if p.id in partitions)
    return frozenset(p.id for p in parts if any(u in read for u in (*p.upstream, *p.feedback)))


def _read_by(view: View, readers: Collection[str]) -> frozenset[str]:
    """What some partitions read."""
    parts = (p for p in view.snapshot.topology.partitions if p.id in readers)
    return frozenset(u for p in parts for u in (*p.upstream, *p.feedback))


def _ancestors(view: View, failed: Collection[str]) -> frozenset[str]:
    """Operators upstream of some partitions."""
    read = {p.id: (p.upstream, p.feedback) for p in view.snapshot.topology.partitions}
    found: set[str] = set()
    seen: set[int] = set()
    waiting = list(failed)
    while waiting:
        for upstreams in read[waiting.pop()]:
            if id(upstreams) in seen:  # partitions of one operator share theirs
                continue
            seen.add(id(upstreams))
            new = [p for p in upstreams if p not in found and any(read[p])]
            found.update(new)
            waiting += new
    return frozenset(found)
