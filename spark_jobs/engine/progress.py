"""How an engine stands: one frozen value, made by the thread that changes the engine, between two changes.

Whoever publishes it runs beside that thread.  Were the fields read one by one, a report could name the newest desired state
and still hold a failure from before it, and the coordinator would believe that: a report is trusted about what it
acknowledges.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from reprise.algorithms.failure import Failure
from reprise.algorithms.outside import Outside
from reprise.algorithms.positions import Positions
from reprise.algorithms.spans import Spans
from reprise.spark_jobs.topology import Topology

if TYPE_CHECKING:
    from reprise.spark_jobs.engine.engine import Engine


@dataclass(frozen=True, slots=True)
class Progress:
    """Field meanings in docs/recovery.md."""

    seq: int = 0
    generation: int = -1
    nodes: tuple[str, ...] = ()
    """Nodes that the engine was given last."""
    positions: Mapping[str, int] = field(default_factory=dict)
    failed: Mapping[str, Failure] = field(default_factory=dict)
    horizon: int = 0
    due: int = 0
    """Never less than `horizon`; as of when this was made, while the stream's clock goes on."""
    punctuation: int = 0
    ended: bool = False
    done: bool = False
    covers: Positions = field(default_factory=Positions)
    """Up to which batch each partition is stored in the newest complete checkpoint."""
    bad_checkpoints: tuple[int, ...] = ()
    trimmed: int = 0
    kept_since: int = 0
    """What is restored from this batch or a later one is sent all that it needs by the partitions at work."""
    restored: Mapping[str, int] = field(default_factory=dict)
    not_kept: tuple[str, ...] = ()
    stuck: str = ""
    memory: int = 0
    """Bytes of buffered output on all nodes."""
    disk: int = 0
    jobs: int = 0
    chained: str = ""
    """Why messages travel with the stages of jobs; empty: an exchange carries them, or no job has begun."""
    drained: int | None = None
    counters: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """What operators count, by operator and name, summed over their partitions at work."""
    skipped: Mapping[str, Spans] = field(default_factory=dict)
    """Partition -> batches without its rows, as it began anew: those behind the checkpoint that is restored from."""
    standbys: Mapping[str, int] = field(default_factory=dict)
    """Partition -> the last batch that its standby has applied, or has the state of, of those that could be promoted."""
    backed: frozenset[str] = frozenset()
    """Partitions that could be fed again by their upstreams, without a stored state; those with standbys only once they are
    lost with them."""
    unbacked: frozenset[str] = frozenset()
    """Those that are to be, and would be restored from a checkpoint now."""
    overhead: Mapping[str, float] = field(default_factory=dict)
    """Seconds of each part of a recovery that do not depend on what is restored, as far as they were measured."""
    stored: Mapping[str, float] = field(default_factory=dict)
    """What checkpoints have cost in this driver's life."""
    deterministic: bool = True
    """A replay gives the same again."""
    output_waits: frozenset[str] = frozenset()
    """Partitions whose output waits until their passive standbys have it: all of which it may differ, or none."""
    marked: Mapping[str, Spans] = field(default_factory=dict)
    """Output partition -> batches that may lack rows for that, of the same time."""
    adopted: Mapping[str, str] = field(default_factory=dict)
    """Partition -> node, of those that this driver found at work and goes on with, until somebody has decided for it."""
    waits: Mapping[str, Outside] = field(default_factory=dict)
    """Partition at work -> what of the outside it waits for."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Partition that is restored -> the wish to let it begin anew that is not carried out."""


def progress_of(engine: Engine, nodes: tuple[str, ...]) -> Progress:
    """How an engine stands, which was given `nodes` last."""
    final, held = engine.final, [held for n, held in engine.buffers.items() if n in nodes]
    begun = engine.told
    newest, backed = engine.punctuations.newest, engine.upstream.ready(engine)
    since = (
        engine.desired.restored_from.oldest
    )  # an incident is recovered from there, or from a later checkpoint
    return Progress(
        seq=engine.desired.seq,
        generation=engine.desired.generation,
        nodes=nodes,
        positions=engine.at_work,
        failed=dict(engine.failed),
        horizon=begun,
        due=engine.due,
        punctuation=max(engine.punctuations.open, default=newest),
        ended=final is not None and begun >= final,
        done=engine.done,
        covers=engine.lines.covers if engine.lines.active else Positions(newest),
        restored=dict(engine.lines.restored),
        bad_checkpoints=tuple(sorted(engine.bad_checkpoints)),
        trimmed=engine.ledger.trimmed,
        not_kept=tuple(sorted(engine.not_kept)),
        stuck=engine.stuck,
        kept_since=max((h.since for h in held), default=0),
        memory=sum(h.memory for h in held),
        disk=sum(h.disk for h in held),
        jobs=engine.jobs,
        chained=engine.connection.why_chained,
        drained=engine.drained,
        counters=counted_by_operator(engine.counters, engine.topology),
        skipped=engine.skipping.skipped(since),
        marked=engine.skipping.marked(since),
        standbys=engine.standbys.ready(newest),
        backed=backed,
        unbacked=engine.upstream.wanted - backed,
        overhead=engine.figures.times.overhead(),
        stored=stored_by(engine),
        deterministic=engine.restore_point.deterministic,
        output_waits=engine.standbys.output_waits,
        adopted=_adopted(engine),
        waits=_waits(engine),
        refused=dict(engine.skipping.refused),
    )


def _waits(engine: Engine) -> dict[str, Outside]:
    """What hosts say of partitions at work, and what the driver has met itself, which asks sources what there is to read
    unless the topology is paused."""
    waited, at_work = "" if engine.desired.paused else engine.ledger.waits_for, engine.at_work
    told = {p: engine.usage[p].waits_for for p in at_work if p in engine.usage}
    mine = {p for p in at_work if engine.topology.partitions[p].place.operator == waited}
    return dict.fromkeys(mine, Outside.SOURCE) | {p: kind for p, kind in told.items() if kind is not None}


def _adopted(engine: Engine) -> dict[str, str]:
    desired = engine.desired
    return {p: n for p, n in desired.assignment.items() if p in engine.positions} if desired.adopted else {}


def stored_by(engine: Engine) -> dict[str, float]:
    """What checkpoints, and ways to be available, have cost since the first job of this driver; nothing before that."""
    figures, lines = engine.figures, engine.lines
    if figures.began is None:
        return {}
    return {
        "seconds": round(engine.clock() - figures.began, 1),
        "snapshots": figures.snapshots + lines.taken,
        "bytes": figures.snapshot_bytes + lines.bytes_taken,
        "forced": lines.forced,
        "footprints": lines.footprints,
        "header_bytes": figures.header_bytes,
        "message_bytes": figures.message_bytes,
        "standby_bytes": figures.standby_bytes,
        "acknowledgement_bytes": figures.acknowledgement_bytes,
        "files": figures.files_stored,
        "pause_s": round(figures.pause_s, 3),
        "store_s": round(figures.store_s, 3),
        "skipped": lines.skipped,
        "dropped": lines.dropped,
    }


def counted_by_operator(
    counters: Mapping[str, Mapping[str, int]], topology: Topology
) -> dict[str, dict[str, int]]:
    """What operators count, summed over their partitions; `counters` is what each partition counts."""
    found: dict[str, Counter[str]] = {}
    for partition, counted in counters.items():
        if counted:
            found.setdefault(topology.partitions[partition].place.operator, Counter()).update(counted)
    return {operator: dict(sorted(counted.items())) for operator, counted in sorted(found.items())}


def slowest_able(positions: Mapping[str, int], topology: Topology) -> int:
    """The least position of a partition at work that waits for none that is not: one that is set aside, or waits for room,
    does not hold up queries that need it not.  0 where nobody is at work."""
    absent = topology.partitions.keys() - positions.keys()
    waiting = topology.downstream_of(absent) if absent else frozenset[str]()
    able = [k for p, k in positions.items() if p not in waiting]
    return min(able or positions.values(), default=0)
