"""What partitions of an engine are restored from, and what of that is known to be stored: by rounds, or by lines.

With coordinated checkpoints the desired state says where each partition goes back to, and a checkpoint is complete when all
partitions have stored it.  Where partitions store themselves by their own clocks the desired state says who is to be at
work, and where; from which snapshot, and who goes back with it, is found here (`reprise.spark_jobs.engine.local_lines`).
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Set
from typing import TYPE_CHECKING

from reprise.algorithms.positions import Positions
from reprise.spark_jobs.engine.restore_point import LineError
from reprise.spark_jobs.engine.restore_value import valued
from reprise.spark_jobs.engine.settings import resource_in_effect
from reprise.spark_jobs.engine.trouble import passing
from reprise.spark_jobs.state.manifest import Manifest

if TYPE_CHECKING:
    from reprise.spark_jobs.engine.engine import Engine
    from reprise.spark_jobs.engine.engine_spec import EngineSpec

log = logging.getLogger("reprise.engine")


def find_origins(
    engine: Engine, desired: EngineSpec, installs: Set[str], back: Set[str], going_back: bool
) -> Collection[str]:
    """Find what partitions are restored from; who goes back with them beside `back`.  Raises what `Engine.want` raises, and
    has changed nothing then."""
    lines = engine.lines
    if not lines.active:  # a line takes everything back by itself, and says from where
        engine.arrival.require_all(desired, installs)
        try:
            found = engine.restore_point.find(desired.restored_from, bool(back) or going_back)
        except LineError as line:  # another protocol has left it
            lines.begin(line.position)
        else:
            if going_back:
                engine.store.withdraw(desired.checkpoint)
            engine.restore_point.take(desired.restored_from, valued(found, installs, engine.topology))
            return ()
    lines.begin(engine.punctuations.newest)
    stay = engine.positions.keys() & desired.assignment.keys() - installs - back
    more = lines.take(installs, {p: engine.positions[p] for p in stay}, going_back)
    point = engine.restore_point
    point.installs = valued(point.installs, installs | more, engine.topology)
    return more


def begins_at(engine: Engine, partition: str) -> int:
    """The position of the snapshot that a partition goes on from, or of what it goes on behind."""
    if (anew := engine.upstream.install(partition) or engine.skipping.install(partition)) is not None:
        return anew.position
    lines = engine.lines
    return lines.position(partition) if lines.active else engine.desired.origin(partition).position


def reads_from(engine: Engine, partition: str) -> int:
    """A source partition may be asked for what follows this batch."""
    if engine.lines.active:
        return engine.lines.reads_from(partition)
    return min(engine.desired.origin(partition).position, engine.positions[partition])


def covered_now(engine: Engine) -> Positions:
    """What senders and sources may forget."""
    if engine.lines.active:
        return engine.lines.covered(engine.positions)
    return engine.desired.covered(engine.positions, engine.punctuations.newest)


def condemn(engine: Engine, partition: str, position: int, file: str) -> None:
    """What a partition was to be restored from, at `position`, is damaged.  `file`: the one that is, where that is known."""
    if engine.lines.active:
        engine.lines.condemn(partition, file)
    else:
        engine.restore_point.condemn(position)


def complete_checkpoints(engine: Engine) -> None:
    """Put on record what has become complete.  Raises what `CheckpointStore.complete` raises; to be tried again."""
    before, completed = engine.punctuations.newest, list[int]()
    if engine.resource.checkpoint.uncoordinated:
        name = engine.lines.record()
        completed += [] if name is None else [name]
    else:
        for position, snapshots in engine.punctuations.acknowledged(engine.topology.partitions):
            ledger = engine.ledger
            engine.restore_point.complete(
                Manifest(position, snapshots, ledger.offsets(position), ledger.logs(position))
            )
            engine.punctuations.complete(position)
            engine.figures.stores(s.file.size for s in snapshots.values() if s.file is not None)
            engine.lines.replaced()
            log.info("event=checkpoint-complete position=%d files=%d", position, len(snapshots))
            completed.append(position)
    for position in completed:
        engine.figures.completes(position, engine.clock())
        with passing(engine.problems, "old checkpoints stay"):  # they go with the next one
            engine.ledger.stored(position, oldest=_prune(engine, before))


def _prune(engine: Engine, before: int) -> int:
    """Remove old checkpoints, but not the one that partitions are still restored from in an open incident, nor `before`,
    which was the newest until now: a coordinator that has not heard of a newer one names it."""
    if engine.lines.active:
        return engine.lines.prune(engine.installing)
    restored = engine.desired.restored_from
    needed = min(before, restored.oldest) if engine.desired.retain or restored.others else before
    return engine.store.prune(resource_in_effect(engine).checkpoint.keep, needed)
