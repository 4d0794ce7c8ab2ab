"""Whether a lost partition begins anew and is fed by what its upstreams keep (`availability: upstream-backup`), so that
nothing of it is read from a store.

Output for a target is kept until it is the *cause* of nothing that is still wanted.  Where all targets of a partition have
applied batch `low`, and its sink shows it, its output from `low + 1` on is wanted, and that depends on no input before
`oldest_needed(low + 1)`.  So what upstreams may forget is one number for each partition and job (Hwang et al.,
"High-Availability Algorithms for Distributed Stream Processing", sections 5.2 and 5.2.1: level-1 acknowledgements and
queue trimming by cause; indicators on tuples are not needed, as `oldest_needed` is a function of the batch).  A lost
partition is installed behind the cause with its initial state, and steps up to `low` without giving anything: what it makes
there may differ from what it gave then.

Invariants: what a partition gives from `low + 1` on is what it gave before, or would have given, and nobody is given
anything else.  One whose upstreams do not have what it needs is restored from the checkpoint.  No batch at which a
checkpoint is being taken is passed before `low`.  docs/decisions/0042-upstream-backup.md.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from reprise.algorithms.failure import Failure, FailureKind
from reprise.algorithms.positions import Positions
from reprise.spark_jobs.contract import Operator
from reprise.spark_jobs.node.command import Install, Report
from reprise.spark_jobs.topology import StreamTopology, Topology, make_operator
from reprise.spark_jobs.topology.guarantees import require_an_oldest_input

if TYPE_CHECKING:
    from reprise.spark_jobs.engine.engine import Engine
    from reprise.spark_jobs.engine.engine_spec import EngineSpec

log = logging.getLogger("reprise.engine")

Position = Callable[[str], int]

_STATE_IS_GONE = (FailureKind.NODE_LOST, FailureKind.STATE_LOST)


@dataclass(slots=True)
class UpstreamBackup:
    """The upstream backups of one driver's life."""

    resource: StreamTopology
    topology: Topology
    problems: list[str]
    """Where trouble is said."""
    wanted: frozenset[str] = frozenset()
    """Partitions of operators with that mode."""
    able: frozenset[str] = frozenset()
    """Those of them whose code here says on what input they depend."""
    causes: Mapping[str, int] = field(default_factory=dict)
    """Each of these that is at work, or has lost nothing but its state -> the last batch of its input on which nothing
    depends that is still wanted of it."""
    _operators: Mapping[str, Operator] = field(default_factory=dict)
    _said: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Operator -> the greatest batch of which it has said on what its output depends, and what it said."""
    _shown: dict[str, int] = field(default_factory=dict)
    """Those with a sink -> the last batch that is known to be shown."""
    _lost: set[str] = field(default_factory=set)
    """Those of which nothing but the state is gone."""
    _begun: dict[str, Install] = field(default_factory=dict)
    """Those that are being installed, fed by their upstreams."""
    _forgotten: dict[str, int] = field(default_factory=dict)
    """Each of `able` -> the last batch of its input that senders were told they may forget."""
    _dropped: dict[str, Mapping[str, int]] = field(default_factory=dict)
    """Node -> partitions to which it cannot send what follows `_forgotten`, with the batch behind which it can."""

    def __post_init__(self) -> None:
        backed = {o.name: o for o in self.resource.operators if o.backed_upstream}
        if not backed:
            return
        self.wanted = frozenset(p.id for p in self.topology.partitions.values() if p.place.operator in backed)
        try:
            operators = {o.name: make_operator(o) for o in self.resource.operators}
            require_an_oldest_input(self.resource, operators)
        except Exception as error:  # user code raises what it likes
            self.problems.append(f"no upstream backup, all is restored from checkpoints: {error}")
            return
        self._operators = {name: operators[name] for name in backed}
        self.able = self.wanted

    # -- what is seen --------------------------------------------------------------------------------------------------

    def loses(self, partition: str, failure: Failure, shown: int | None) -> None:
        """A partition is not at work any more, which had shown everything up to batch `shown`."""
        self._begun.pop(partition, None)
        if partition not in self.able:
            return
        if shown is not None:
            self._shown[partition] = max(shown, self._shown.get(partition, 0))
        if failure.kind in _STATE_IS_GONE:
            self._lost.add(partition)
        else:
            self._lost.discard(partition)

    def leave(self, partitions: Set[str]) -> None:
        """Partitions go back to a checkpoint, or are restored from it; not those that are fed again: what their sinks have
        shown counts if they are lost once more before they are as far."""
        for partition in partitions:
            self._begun.pop(partition, None)
            self._shown.pop(partition, None)
        self._lost -= partitions

    def works(self, partition: str) -> None:
        """A partition was installed."""
        self._begun.pop(partition, None)

    def heard(self, node: str, report: Report) -> None:
        """What a node does not keep any more, or never had."""
        if self.able:
            self._dropped[node] = report.dropped

    # -- what is told --------------------------------------------------------------------------------------------------

    def look(self, engine: Engine, living: Collection[str]) -> None:
        """Before a job: what each partition would need.  One that is set aside, or waits for a place, is restored from the
        checkpoint when it comes back: nothing but what that needs is kept for it."""
        if not self.able:
            return
        for node in self._dropped.keys() - set(living):
            del self._dropped[node]
        start, present = _where(engine, engine.desired, frozenset(), {}), engine.positions.keys() | self._lost
        causes = {p: self._cause(p, low) for p, low in self._lows(engine, start) if p in present}
        self.causes = {p: cause for p, cause in causes.items() if p in self.able}
        # nothing may have been kept of their input up to here
        self._forgotten |= dict.fromkeys(self.able - present, engine.horizon)

    def covered(self, covered: Positions, positions: Mapping[str, int]) -> Positions:
        """What senders may forget, of what a restoration from checkpoints does not need: to be fed again, a partition may
        need more.  What is told is remembered."""
        least = {p: min(cause, positions.get(p, cause), covered.of(p)) for p, cause in self.causes.items()}
        for partition, upto in least.items():
            self._forgotten[partition] = max(upto, self._forgotten.get(partition, 0))
        low = {p: upto for p, upto in least.items() if upto < covered.of(p)}
        return Positions(covered.everybody, {**covered.others, **low}) if low else covered

    def install(self, partition: str) -> Install | None:
        """How a partition begins that is fed by its upstreams; None: it is restored."""
        return self._begun.get(partition)

    def ready(self, engine: Engine) -> frozenset[str]:
        """Partitions that could be fed again if they, and nothing else, were lost now, or that are lost and can be."""
        kept = {p for p, cause in self.causes.items() if p in self.able and self._kept(p) <= cause}
        kept -= engine.failed.keys() - self._lost  # since the last job
        # what waits for a checkpoint would be lost with it: its sink has not shown what it has applied
        waiting = {node for node, batches in engine.staged.items() if batches}
        kept -= {
            p for p in kept & self.topology.queries.keys() if engine.desired.assignment.get(p) in waiting
        }
        if kept and (
            missing := (self.topology.partitions.keys() - engine.positions.keys()) | engine.installing
        ):
            parts = self.topology.partitions
            kept = {p for p in kept if not any(u.partition in missing for u in parts[p].upstream)}
        return frozenset(kept)

    # -- what is decided -----------------------------------------------------------------------------------------------

    def decided(
        self, engine: Engine, desired: EngineSpec, installs: Set[str], back: Set[str]
    ) -> Mapping[str, Install]:
        """How those of `installs` begin that can be fed by their upstreams; `back`: who goes back to a checkpoint, lost ones
        that are restored among them.  Nothing has changed yet."""
        chosen = set(self._lost & installs)
        while chosen:
            found = self._installs(engine, desired, installs | back, chosen)
            hungry = {
                p
                for p in chosen
                if p not in found or not self._fed(p, engine, desired, installs | back, found)
            }
            if not hungry:
                return found
            for partition in hungry:
                chosen -= self._too_early(partition, desired, found) or {partition}
        return {}

    def _too_early(self, partition: str, desired: EngineSpec, found: Mapping[str, Install]) -> set[str]:
        """Readers of a partition that begin before their checkpoint, and so ask more of it than that would."""
        readers = (t for down in self.topology.partitions[partition].downstream for t in down.targets)
        return {t for t in readers if t in found and found[t].position < desired.origin(t).position}

    def begins(self, found: Mapping[str, Install], installs: Set[str]) -> None:
        """Carry out what was decided: `installs` begin, and those of `found` fed by their upstreams."""
        for partition in installs:
            self._begun.pop(partition, None)
        self._lost -= installs
        self._begun |= found
        for partition, install in found.items():
            log.warning(
                "event=upstream-backup partition=%s position=%d low=%d",
                partition, install.position, install.replays_to,
            )  # fmt: skip

    def _installs(
        self, engine: Engine, desired: EngineSpec, anew: Set[str], chosen: Set[str]
    ) -> dict[str, Install]:
        """Where each of `chosen` begins; those that read no other of them come first: what one needs others must give."""
        found: dict[str, Install] = {}
        start = _where(engine, desired, anew, found)
        for partition, low in self._lows(engine, start, chosen):
            if partition in self.able:  # until its code raises
                found[partition] = Install(self._cause(partition, low), replays_to=low)
        return {p: install for p, install in found.items() if p in self.able}

    def _fed(
        self,
        partition: str,
        engine: Engine,
        desired: EngineSpec,
        anew: Set[str],
        found: Mapping[str, Install],
    ) -> bool:
        """Whether all that a partition reads can give what follows the position at which it is to begin."""
        position, kept = found[partition].position, self._kept(partition)
        for upstream in self.topology.partitions[partition].upstream:
            u = upstream.partition
            if u in found:
                since = found[u].replays_to or 0
            elif u in anew or u not in engine.positions:
                since = desired.origin(u).position
            elif u in engine.installing:
                begun = self._begun.get(u)
                since = engine.positions[u] if begun is None else begun.replays_to or 0
            else:
                since = kept
            if since > position:
                return False
        return True

    def _kept(self, partition: str) -> int:
        """What follows this batch can be had of everybody at work that a partition reads."""
        dropped = (there.get(partition, 0) for there in self._dropped.values())
        return max(self._forgotten.get(partition, 0), *dropped, 0)

    # -- what is needed ------------------------------------------------------------------------------------------------

    def _lows(
        self, engine: Engine, start: Position, only: Collection[str] | None = None
    ) -> Iterator[tuple[str, int]]:
        """Each partition, readers before those that they read, with the last batch of its output that is wanted of it no
        more.  `start`: where each goes on; it is asked when a partition's turn comes."""
        open_at = min(engine.punctuations.open, default=None)
        poisoned = {p for p, failure in engine.failed.items() if failure.is_poison}
        least: dict[tuple[str, ...], int | None] = {}
        for partition in reversed(self.topology.order):
            if partition not in self.able or (only is not None and partition not in only):
                continue
            lows = list[int]()
            for down in self.topology.partitions[partition].downstream:
                if down.targets not in least:
                    least[down.targets] = min(
                        (start(t) for t in down.targets if t not in poisoned), default=None
                    )
                if (one := least[down.targets]) is not None:
                    lows.append(one)
            if partition in self.topology.queries:
                lows.append(max(engine.positions.get(partition, 0), self._shown.get(partition, 0)))
            low = min(lows, default=start(partition))
            # it stores itself there, with what all behind it follows from
            yield partition, low if open_at is None else min(low, open_at - 1)

    def _cause(self, partition: str, low: int) -> int:
        """The last batch of its input on which no output behind batch `low` depends."""
        name = self.topology.partitions[partition].place.operator
        try:
            oldest = self._operators[name].oldest_needed(low + 1)
            if oldest is None:
                raise ValueError(f"oldest_needed({low + 1}) is None")
            batch, before = self._said.get(name, (0, 0))
            if low + 1 >= batch:
                if oldest < before:  # what was dropped, or has not been fed again, is needed after all
                    raise ValueError(
                        f"oldest_needed({batch}) is {before}, and of batch {low + 1} it is {oldest}"
                    )
                self._said[name] = low + 1, oldest
            return max(0, min(oldest, low + 1) - 1)
        except Exception as error:  # user code raises what it likes
            self.able = frozenset(p for p in self.able if self.topology.partitions[p].place.operator != name)
            self.problems.append(f"{name}: no upstream backup, it is restored from checkpoints: {error}")
            return 0


def _where(engine: Engine, desired: EngineSpec, anew: Set[str], found: Mapping[str, Install]) -> Position:
    """Where each partition goes on: `anew` are installed, or go back; those in `found` begin where that says."""

    def start(partition: str) -> int:
        if (install := found.get(partition)) is not None:
            return install.position
        if partition in anew or partition not in engine.positions:
            return desired.origin(partition).position
        return engine.positions[partition]

    return start
