"""Forecasts of node arrivals from recorded ones.

A trace of nodes that join and leave says, for each correlated loss in it, after how long the replacements
came. These delays, loss by loss, are the scenarios of anticipatory planning: the past is replayed rather than
fitted, because a few dozen losses give no distribution, and the delays of one loss belong together.

Trace text (milliseconds, "add" or "remove", node), one event a line, as in the traces of the Bamboo project.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from reprise.algorithms.arrivals.arrivals import Arrival
from reprise.algorithms.errors import PlanningError


class TraceError(PlanningError):
    """A line of a trace that is not an event."""


@dataclass(frozen=True, slots=True)
class Event:
    """`change` nodes joined (+) or left (-) at `at` seconds."""

    at: float
    change: int


@dataclass(frozen=True, slots=True)
class Loss:
    """A correlated loss and the delays, in seconds and ascending, after which nodes joined again; at most as
    many as were lost."""

    at: float
    nodes: int
    delays: tuple[float, ...]


def parse_trace(text: str) -> tuple[Event, ...]:
    """Events in time order, those of one timestamp and kind together."""
    changes: dict[tuple[float, int], int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        fields = [field.strip() for field in line.split(",")]
        if len(fields) != 3 or fields[1] not in ("add", "remove") or not fields[0].isdigit():
            raise TraceError(f"line {number}: not 'milliseconds,add|remove,node': {line!r}")
        sign = 1 if fields[1] == "add" else -1
        at = int(fields[0]) / 1000
        changes[at, sign] = changes.get((at, sign), 0) + sign
    return tuple(Event(at, change) for (at, _), change in sorted(changes.items()))


def losses(events: Sequence[Event], at_least: int = 2) -> tuple[Loss, ...]:
    """Removals of `at_least` nodes at one time, each with what joined after it."""
    found = []
    for i, event in enumerate(events):
        if event.change > -at_least:
            continue
        delays: list[float] = []
        for later in events[i + 1 :]:
            delays += [later.at - event.at] * max(0, later.change)
        found.append(Loss(event.at, -event.change, tuple(delays[: -event.change])))
    return tuple(found)


def scenarios(
    past: Sequence[Loss], lost: int, free: int, since: float = 0.0, most: int = 5
) -> tuple[tuple[Arrival, ...], ...]:
    """Up to `most` futures for a loss of `lost` nodes, `since` seconds ago, each node bringing `free`: the
    delays of past losses nearest in size, without those that would have come already. Times count from the
    loss."""
    nearest = sorted(past, key=lambda loss: (abs(loss.nodes - lost), loss.at))[:most]
    return tuple(tuple(Arrival(delay, free) for delay in loss.delays if delay > since) for loss in nearest)
