"""The driver's part of `batch.order: arrival`: which order holds, and that nobody begins again alone.

Partitions apply what is there while all is well, and aligned while output is kept for an incident
(`reprise.spark_jobs.node.arrival`).  What was applied in the order of arrival cannot be made again as it was.  Invariant: in
a generation in which that order has held nobody who was at work is installed again; all go back together, which is another
generation.  The coordinator decides so, as it does where an operator is not deterministic; here that is only checked.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from reprise.spark_jobs.errors import CheckpointError, DamagedError
from reprise.spark_jobs.state.checkpoints import CheckpointStore
from reprise.spark_jobs.state.revision import RevisionError
from reprise.spark_jobs.state.snapshot import Snapshot
from reprise.spark_jobs.topology import StreamTopology
from reprise.spark_jobs.topology.choices import BatchOrder

if TYPE_CHECKING:
    from reprise.spark_jobs.engine.engine_spec import EngineSpec

log = logging.getLogger("reprise.engine")


@dataclass(slots=True)
class ArrivalOrder:
    """The orders of one driver's life; `active`: whether there is more than one."""

    active: bool
    order: BatchOrder | None = None
    """What hosts were told last."""
    _generation: int = -1
    _apart: bool = False
    """Whether anybody was told to apply in the order of arrival in this generation."""
    _met: set[str] = field(default_factory=set)
    """Partitions that were ordered to be at work in it."""

    def require_all(self, desired: EngineSpec, installs: Set[str]) -> None:
        """CheckpointError where a partition would be made again alone, and differently."""
        if not self._apart or desired.generation != self._generation:
            return
        if again := sorted(installs & self._met):
            raise CheckpointError(
                f"{again[0]} cannot go back alone: in generation {desired.generation} input was applied in the order of its "
                "arrival, so what it would make again could differ; everything has to go back"
            )

    def tells(self, desired: EngineSpec, partitions: Collection[str]) -> None:
        """The next job is for these partitions, and for the order that goes with `desired`."""
        if not self.active:
            return
        if desired.generation != self._generation:
            self._generation, self._apart = desired.generation, False
            self._met.clear()
        order: BatchOrder = "aligned" if desired.retain else "arrival"
        self._apart = self._apart or order == "arrival"
        self._met.update(partitions)
        if order != self.order:
            self.order = order
            log.info("event=order order=%s seq=%d generation=%d", order, desired.seq, desired.generation)


Line = Mapping[str, Snapshot]


def of_one_count(
    resource: StreamTopology, found: Mapping[int, Line], names: Sequence[int], begun: Mapping[int, int]
) -> tuple[dict[int, Line], int]:
    """The lines on record, by name, whose messages are counted as those of the newest one are, and the batch after which
    these numbers begin; in a newest one that is even the counts are left out, as they begin anew.  `names`: of all lines on
    record, rising; those that are not `found` are damaged, and nothing before them is taken.  `begun`: line -> the batch
    after which its numbers begin.  RevisionError: the newest cannot be gone on with."""
    newest = max(found, default=0)
    if not any(map(_is_counted, found.values())):
        return dict(found), newest
    counted = _is_counted(found[newest])
    if counted and _is_even(newest, found[newest]):
        return {newest: {p: _uncounted(s) for p, s in found[newest].items()}}, newest
    _require_same_order(resource, newest, found[newest])
    began = begun[newest] if counted else newest
    kept: dict[int, Line] = {}
    for name in reversed([k for k in names if k <= newest]):
        line = found.get(name)
        if line is None or _is_counted(line) != counted or (counted and begun[name] != began):
            break
        kept[name] = line
    return kept, began


def require_even(resource: StreamTopology, store: CheckpointStore, newest: int) -> None:
    """RevisionError where the newest checkpoint can be gone on with by the order and protocol alone that have left it, and
    these have changed; before anything is written.  One that is damaged is dealt with later.  StoreError: not now."""
    if newest and not _counts(resource):
        try:
            manifest = store.manifest(newest)
        except DamagedError:
            return
        if _is_counted(manifest.snapshots) and not _is_even(newest, manifest.snapshots):
            _require_same_order(resource, newest, manifest.snapshots)


def _counts(resource: StreamTopology) -> bool:
    return resource.arrival and resource.checkpoint.uncoordinated


def _require_same_order(resource: StreamTopology, name: int, line: Line) -> None:
    if _is_counted(line) and not _counts(resource):
        raise RevisionError(
            f"line {name} was left in the order of arrival, and some inputs are further than others: only "
            "`batch.order: arrival` with `checkpoint.protocol: uncoordinated` can go on from there.  Go back to these and "
            "let the stream drain before the change (an operator does that by itself)"
        )


def _is_counted(line: Line) -> bool:
    return any(s.inputs for s in line.values())


def _is_even(name: int, line: Line) -> bool:
    return all(s.position == name and s.even for s in line.values())


def _uncounted(s: Snapshot) -> Snapshot:
    if not s.inputs:
        return s
    return replace(s, sent=s.position, first=s.position + 1, channels={}, inputs={})
