"""What the engine is given: the state that the coordinator desires, and where things are.

`EngineSpec` is to the engine what `spec` is to a Kubernetes controller: what is wanted, while `Progress` says what is.
It has those fields of the record `desired` that the data plane needs; the driver maps the one to the other
(`reprise.controller.driver.report`), as the data plane does not know the scheduler.  Frozen values, so that whoever
reads one reads it whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from reprise.algorithms.positions import Line, Origin, Positions


@dataclass(frozen=True, slots=True)
class EngineSpec(Line):
    """What the coordinator wants: see docs/recovery.md.  `assignment`: partition -> "node#incarnation"."""

    seq: int = 0
    generation: int = -1
    checkpoint: int = 0
    assignment: Mapping[str, str] = field(default_factory=dict)
    retain: bool = False
    punctuate: bool = False
    paused: bool = False
    driver: str = ""
    """The driver's life for which this was decided; another one has none of the states that it speaks of."""
    plan: str = ""
    """Id of the recovery plan that it carries out, for the log."""
    checkpoint_after: int | None = None
    """A checkpoint behind this batch is wanted as soon as it can be taken, and no other before: a move waits for it."""
    standbys: Mapping[str, str] = field(default_factory=dict)
    """Partition -> "node#incarnation" of its standby."""
    anew: Mapping[str, str] = field(default_factory=dict)
    """Partition that somebody asked to let begin anew -> the id of that wish."""
    lines: Mapping[str, Origin] = field(default_factory=dict)
    """Partitions that do not go on from (generation, checkpoint), with what they go on from."""
    adopted: bool = False
    """Nobody has decided this for this driver: it is what it found at work (`reprise.spark_jobs.engine.adoption`)."""

    def covered(self, positions: Mapping[str, int], newest: int) -> Positions:
        """Position of the snapshot of each partition that would be restored if everything were lost now, or of the one that
        it was restored from while it has still to catch up with that.  `positions`: last batch that each has applied;
        `newest`: the newest complete checkpoint.  Never more than a partition at work has applied: one may have been
        restored from an older checkpoint than the newest, by a coordinator that had not heard of that."""
        found = self.restored_from
        if not self.retain:
            behind = {p: k for p, k in found.others.items() if positions.get(p, k) < newest}
            found = Positions(newest, behind)
        low = {p: k for p, k in positions.items() if k < found.of(p)}
        return Positions(found.everybody, {**found.others, **low}) if low else found


@dataclass(frozen=True, slots=True)
class Sites:
    """Where things are: sink output folder, checkpoint location (URL)."""

    sink: str
    checkpoints: str
