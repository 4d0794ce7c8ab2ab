"""What partitions are worth: the greatest priority of a query that needs each."""

from __future__ import annotations

from reprise.scheduler.view import View


def worth_of(view: View) -> dict[str, int]:
    """The greatest priority of a query that needs it, of each partition; 0 where none does."""
    worth = dict.fromkeys((p.id for p in view.snapshot.topology.partitions), 0)
    for query in view.snapshot.topology.queries:
        for partition in query.partitions:
            worth[partition] = max(worth[partition], query.priority)
    return worth


def by_worth(view: View) -> list[str]:
    """Partitions, those first that queries of the greatest priority need; the others in topological order."""
    worth = worth_of(view)
    return sorted(worth, key=lambda p: -worth[p])
