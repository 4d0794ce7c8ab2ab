"""How many messages of each log go into a batch that has not room for all."""

from __future__ import annotations

from collections.abc import Mapping


def shares(waiting: Mapping[str, int], room: int) -> dict[str, int]:
    """Log -> messages, together at most `room`: everyone gets the same, and what one does not need goes to the others.

    A log that has fallen behind can so not starve those that have not.
    """
    taken: dict[str, int] = {}
    by_need = sorted(waiting, key=lambda log: (waiting[log], log))
    for done, log in enumerate(by_need):
        taken[log] = min(waiting[log], -(-room // (len(by_need) - done)))
        room -= taken[log]
    return taken
