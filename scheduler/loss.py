"""What the loss of one node would take back, by the rules that would decide it.

The same questions are asked as after a loss (`reprise.scheduler.scope`, `reprise.scheduler.standbys`), of the snapshot as
it would be without that node.  So what is foretold is what would be decided, as long as there is room for what was lost:
where there is none, plans may take partitions at work from their places (`reprise.scheduler.eviction`).

Where partitions store themselves by their own clocks the driver finds who goes back.  It is not asked here: as long as it
says that all output is kept, nobody at work goes back; else it is not known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from reprise.algorithms.positions import Positions
from reprise.scheduler.model import Policy, Snapshot
from reprise.scheduler.scope import going_back, some_stay
from reprise.scheduler.standbys import promotable
from reprise.scheduler.view import look


@dataclass(frozen=True, slots=True)
class Loss:
    """Partitions are in topological order."""

    node: str
    """`node#incarnation`."""
    lost: tuple[str, ...]
    """Those that would be restored elsewhere."""
    promoted: tuple[str, ...]
    """Those that would go on where their standbys are."""
    back: tuple[str, ...] | None
    """Those at work that would go back with them; None: it is not known."""
    everything: bool
    """Whether all goes back, whatever was lost."""
    newest: Positions
    """What each would go back to; where the driver finds the line, at the furthest."""


def loss_of(snapshot: Snapshot, policy: Policy, node: str) -> Loss:
    """`snapshot`: with a desired state that the driver has taken over, and no open incident."""
    desired, progress = snapshot.desired, snapshot.progress
    assert desired is not None and progress is not None
    gone = {p for p, n in desired.assignment.items() if n == node}
    after = replace(
        snapshot,
        nodes=tuple(n for n in snapshot.nodes if n.id != node),
        progress=replace(
            progress,
            nodes=progress.nodes - {node},
            positions={p: k for p, k in progress.positions.items() if p not in gone},
        ),
    )
    view = look(after, policy)
    to = {p: n for p, n in promotable(view, desired, progress, None).items() if p in gone}
    promoted = to.keys()
    lost = tuple(p.id for p in snapshot.topology.partitions if p.id in gone - promoted)
    if promoted:
        view = look(_after_promotions(after, to), policy)
    everything = bool(lost) and not some_stay(view)
    back: frozenset[str] | None = frozenset()
    if everything:
        back = frozenset(view.survivors)
    elif lost and view.by_driver:
        back = frozenset() if progress.stored.get("dropped") == 0 else None
    elif lost:
        back = going_back(view, lost)
    if back is not None:
        back -= promoted
    order = [p.id for p in snapshot.topology.partitions]
    return Loss(
        node,
        lost,
        tuple(p for p in order if p in promoted),
        None if back is None else tuple(p for p in order if p in back),
        everything,
        view.newest,
    )


def _after_promotions(snapshot: Snapshot, to: Mapping[str, str]) -> Snapshot:
    """What the plan for the rest sees: these are at work where their standbys were, as far as they are."""
    desired, progress = snapshot.desired, snapshot.progress
    assert desired is not None and progress is not None
    at = {p: progress.standbys[p] for p in to}
    return replace(
        snapshot,
        desired=replace(desired, assignment={**desired.assignment, **to}),
        progress=replace(progress, positions={**progress.positions, **at}),
    )
