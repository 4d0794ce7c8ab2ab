"""Wishes to skip a query that are not carried out yet (`reprise skip`): one answer for page, command line and resource."""

from __future__ import annotations

from collections.abc import Container, Iterable

from reprise.controller.status.model import SkipView
from reprise.controller.zookeeper.observation import Observation
from reprise.scheduler.skips import under_way
from reprise.scheduler.wishes import pending


def skip_views(queries: Container[str], order: Iterable[str], seen: Observation) -> tuple[SkipView, ...]:
    """First those that nobody has taken, of `queries`; then those that a coordinator has taken, with the partitions, in this
    order, that are to begin anew for them."""
    taken = seen.desired.skips if seen.desired else {}
    working = seen.progress.positions if seen.progress else {}
    found = [SkipView(query, False, ()) for query in pending(seen.wishes, taken) if query in queries]
    going_on = under_way(seen.desired, order, working)
    return (*found, *(SkipView(query, True, tuple(waiting)) for query, waiting in sorted(going_on.items())))
