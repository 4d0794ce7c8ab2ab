"""Batches of a partition that nobody makes again: what its readers, its own state and the outputs behind it do then.

A partition that is lost may begin anew with its initial state (`availability: amnesia`).  Which batches are skipped is on
record before anybody acts on it (`reprise.spark_jobs.state.skips`), so here it is input like any other: a replay steps the
same batches without the same rows, whatever is sent.  docs/decisions/0035-batches-that-are-skipped.md.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from reprise.algorithms.spans import up_to
from reprise.spark_jobs.contract import Inbox, Operator
from reprise.spark_jobs.errors import StepError
from reprise.spark_jobs.state.skips import Skip

if TYPE_CHECKING:
    from reprise.spark_jobs.node.command import Command
    from reprise.spark_jobs.node.runtime import OperatorRuntime, Runtime

Span = tuple[int, int]
"""First and last batch."""


@dataclass(frozen=True, slots=True)
class Skipped:
    """What the skips on record mean for one partition.

    `unheard`: upstream -> batches that it is stepped through without.  `sealed`: upstreams of which nothing is taken in, as
    they are lost and it is not decided yet from where they go on.  `unsaid`: target -> batches of this partition that the
    target does not hear.  `anew`: batches behind which this partition has its initial state.  `marked`: batches of its
    output that may lack rows.  `idle`: batches that it goes through without its code, which may raise there, as nobody hears
    of them.
    """

    unheard: Mapping[str, tuple[Span, ...]] = field(default_factory=dict)
    sealed: frozenset[str] = frozenset()
    unsaid: Mapping[str, tuple[Span, ...]] = field(default_factory=dict)
    anew: frozenset[int] = frozenset()
    marked: tuple[Span, ...] = ()
    idle: tuple[Span, ...] = ()

    def lacks(self, upstream: str, batch: int) -> bool:
        """Whether a batch is stepped without what this upstream gave for it."""
        spans = self.unheard.get(upstream)
        return spans is not None and _within(batch, spans)

    def refuses(self, upstream: str, batch: int) -> bool:
        """Whether a message of this upstream is not taken in."""
        return upstream in self.sealed or self.lacks(upstream, batch)

    def marks(self, batch: int) -> bool:
        """Whether a batch of the output may lack rows."""
        return _within(batch, self.marked)

    def marked_to(self, last: int) -> set[int]:
        """Batches up to `last` of the output that may lack rows."""
        return up_to(self.marked, last)

    def idles(self, batch: int) -> bool:
        """Whether the code of the partition is not called for a batch."""
        return _within(batch, self.idle)

    def applied(self, operator: Operator, state: Any, inbox: Inbox) -> tuple[Any, pa.Table | None]:
        """What the partition's code makes of a batch; nothing, where it is not called.  Raises what that raises."""
        return (state, None) if self.idles(inbox.batch) else operator.step(state, inbox)

    def heard(self, target: str, position: int) -> int:
        """The last batch of this partition that a target at this position needs no more."""
        for first, last in sorted(self.unsaid.get(target, ())):
            if first <= position + 1 <= last:
                position = last
        return position


NOTHING = Skipped()


def skipped(
    partition: str, upstream: Iterable[str], skips: Collection[Skip], sealed: Collection[str]
) -> Skipped:
    """What the skips of a command mean for one partition that reads `upstream`."""
    if not skips and not sealed:
        return NOTHING
    unheard: dict[str, tuple[Span, ...]] = {}
    unsaid: dict[str, tuple[Span, ...]] = {}
    for skip in skips:
        if (after := skip.after.get(partition)) is not None and after < skip.until:
            unheard[skip.partition] = (*unheard.get(skip.partition, ()), (after + 1, skip.until))
        for target, after in skip.after.items() if skip.partition == partition else ():
            unsaid[target] = (*unsaid.get(target, ()), (after + 1, skip.until))
    return Skipped(
        unheard,
        frozenset(sealed).intersection(upstream),
        unsaid,
        frozenset(skip.until for skip in skips if skip.partition == partition),
        tuple(skip.marked[partition] for skip in skips if partition in skip.marked),
        tuple((s.needed + 1, s.until) for s in skips if s.partition == partition and s.needed is not None),
    )


def skip(runtime: Runtime, command: Command) -> None:
    """Let a partition go by the skips of a command: what is in its inbox and is not to be heard goes, and what it has shown
    already is to be marked as well where it may be said to lack rows.  That is so where a reader of a lost partition is
    further back than it once was, and makes batches again without rows that they had."""
    if not command.skips and not command.sealed and runtime.skipped is NOTHING:
        return
    now = skipped(runtime.partition.id, runtime.inbox, command.skips, command.sealed)
    if now != runtime.skipped:
        late = {b for b in shown_too_early(runtime, command.skips) if not runtime.skipped.marks(b)}
        runtime.unmarked = tuple(sorted(late.union(runtime.unmarked)))
        runtime.skipped = now
        for upstream, held in runtime.inbox.items():
            for batch in [b for b in held if now.refuses(upstream, b)]:
                del held[batch]


def shown_too_early(runtime: Runtime, skips: Collection[Skip]) -> set[int]:
    """Batches that a partition has given to its sink and that skips mark, so that nobody has marked them before.  Not those
    behind which it begins anew itself, as they are marked when it is installed; and nothing of skips that it is past."""
    partition, last = runtime.partition.id, runtime.handed
    spans = (
        skip.marked[partition]
        for skip in skips
        if partition in skip.marked and skip.partition != partition and runtime.position <= skip.until
    )
    return up_to(spans, last)


def begin_anew(runtime: OperatorRuntime) -> None:
    """What the partition has come to is lost, as it was when its batches were skipped.  StepError: user code raised."""
    try:
        runtime.state, runtime.watermark = runtime.operator.initial(runtime.partition.place), None
    except Exception as error:
        place = runtime.partition.place
        raise StepError(place.operator, place.partition, runtime.position, error) from error


def stepped(runtimes: Iterable[Runtime], sealed: Collection[str]) -> dict[str, dict[str, int]]:
    """The readers of each sealed partition among these, and the last batch whose input each has applied, though its output
    may still wait to be handed on: it cannot grow while the seal holds."""
    found: dict[str, dict[str, int]] = {partition: {} for partition in sealed}
    for runtime in runtimes if sealed else ():
        last = runtime.position if runtime.unfinished is None else runtime.unfinished.batch
        for partition in found.keys() & runtime.inbox.keys():
            found[partition][runtime.partition.id] = last
    return found


def _within(batch: int, spans: Iterable[Span]) -> bool:
    return any(first <= batch <= last for first, last in spans)
