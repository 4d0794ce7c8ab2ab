"""What checkpoints cost and what a loss repeats, from what is measured: the formulas of `reprise explain --checkpoint`.

Every number is a `Figure`, which says whether it was measured by the topology itself, follows from measurements by a formula
that is named, or is not known, and why.  Nothing is assumed in place of what is not known.

Snapshots by own clocks come within their interval, more or less by the jitter: what a partition has done since its
newest one is at most interval * (1 + jitter).  With `log: memory` a sender has to go back at least as far as who reads it
and goes back, too, so along a path these add up.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from reprise.algorithms.communication_induced import size_of


class Source(StrEnum):
    """Where a figure comes from."""

    MEASURED = "measured"
    """By this topology."""
    DERIVED = "derived"
    """By a formula, from what it has measured and what its resource says."""
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Figure:
    """A number, and what it rests on."""

    value: float | None
    """None: not known."""
    source: Source
    basis: str
    """The record, the formula, or why it is not known."""
    bound: str = ""
    """at most | at least | about; empty: it is that number, as far as what it rests on is."""


def measured(value: float, basis: str, bound: str = "") -> Figure:
    """What this topology has measured."""
    return Figure(value, Source.MEASURED, basis, bound)


def derived(value: float, basis: str, bound: str = "") -> Figure:
    """What follows from that."""
    return Figure(value, Source.DERIVED, basis, bound)


def unknown(why: str) -> Figure:
    """What nobody has measured."""
    return Figure(None, Source.UNKNOWN, why)


def stored_a_second(sizes: Mapping[str, int], intervals_s: Mapping[str, float]) -> float:
    """Bytes a second, where each partition stores a state of its size once in its interval."""
    return sum(size / intervals_s[p] for p, size in sizes.items())


def output_held(
    readers: Mapping[str, Iterable[str]], intervals_s: Mapping[str, float], jitter: float
) -> float:
    """How often output is stored at most, where each snapshot of a partition holds what its readers have not stored: the
    slowest reader's longest time between two snapshots, by the partition's own interval.  `readers`: of each partition that
    stores its output."""
    times = (furthest_s(intervals_s[r], jitter) / intervals_s[p] for p, some in readers.items() for r in some)
    return max(times, default=0.0)


def furthest_s(interval_s: float, jitter: float) -> float:
    """The longest time between two snapshots of one partition."""
    return interval_s * (1 + jitter)


def headers_a_second(processes: int, messages: int, batch_s: float) -> float:
    """Bytes a second that communication-induced checkpoints add to `messages` between nodes in each batch."""
    return messages * size_of(processes) / batch_s


def messages_between(readers: Mapping[str, Iterable[Collection[str]]], assignment: Mapping[str, str]) -> int:
    """Messages of one batch between nodes that carry a header: one for each node on which somebody reads a partition, and
    for each operator that does.  `readers`: partition -> the partitions that read it, operator by operator."""
    found = 0
    for partition, operators in readers.items():
        home = assignment.get(partition)
        for targets in operators:
            nodes = {assignment[t] for t in targets if t in assignment}
            found += len(nodes - {home})
    return found


def back_along(
    order: Sequence[str], readers: Mapping[str, Collection[str]], own_s: Mapping[str, float]
) -> dict[str, float]:
    """How far each of `order` goes back at most when all of them are lost together, and a sender goes back at least as far
    as who reads it: the greatest sum of `own_s` on a path that begins there.

    `order`: topological, without what is read again; `readers`: of each, feedback edges left aside."""
    found: dict[str, float] = {}
    for partition in reversed(order):
        behind = [found[r] for r in readers.get(partition, ()) if r in found]
        found[partition] = own_s[partition] + max(behind, default=0.0)
    return found
