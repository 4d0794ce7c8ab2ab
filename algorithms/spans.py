"""Spans of batches: which batches lack rows, where more than one span of them does.

Invariant: the spans of one thing are in order and apart, with at least one batch between two of them.
"""

from __future__ import annotations

from collections.abc import Iterable

Span = tuple[int, int]
"""First and last batch; the last is one less than the first where there is none."""
Spans = tuple[Span, ...]


def joined(spans: Iterable[Span]) -> Spans:
    """The same batches in spans that are in order and apart: those that touch or overlap become one."""
    found: list[Span] = []
    for first, last in sorted(spans):
        if found and first <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(last, found[-1][1])
        else:
            found.append((first, last))
    return tuple(found)


def behind(spans: Iterable[Span], batch: int) -> Spans:
    """Those that end behind a batch."""
    return tuple(span for span in spans if span[1] > batch)


def up_to(spans: Iterable[Span], last: int) -> set[int]:
    """Their batches that are not behind `last`."""
    return {batch for first, end in spans for batch in range(first, min(end, last) + 1)}


def batches(spans: Iterable[Span]) -> int:
    """How many batches spans that are apart have."""
    return sum(last - first + 1 for first, last in spans)


def whole(spans: Spans) -> Span:
    """Take spans in order, at least one, for one from the first batch to the last, with whatever lies between them."""
    return spans[0][0], spans[-1][1]
