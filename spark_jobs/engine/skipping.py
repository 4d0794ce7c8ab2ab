"""Whether a lost partition is restored, or begins anew behind batches that nobody makes again (`availability: amnesia`).

The driver decides when it installs the partition, on what the hosts of its readers have said since it was lost, and writes
the decision down before any host hears of it; docs/decisions/0035-batches-that-are-skipped.md says why in this order.
Invariant: a partition of which it is not known what each of its readers has applied is restored from the checkpoint.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from reprise.algorithms.failure import Failure, FailureKind
from reprise.spark_jobs.contract import Operator
from reprise.spark_jobs.node.command import Install, Report
from reprise.spark_jobs.state.skips import Skip, SkipRecords
from reprise.spark_jobs.topology import StreamTopology, Topology, make_operator, make_sink
from reprise.spark_jobs.topology.guarantees import last_marked, require_gaps_that_end

if TYPE_CHECKING:
    from reprise.spark_jobs.engine.engine import Engine

log = logging.getLogger("reprise.engine")

FORGOTTEN = frozenset({FailureKind.NODE_LOST, FailureKind.STATE_LOST})
"""Failures by which a partition's state is gone, and nothing else is wrong with it."""


@dataclass(slots=True)
class Skipping:
    """The skips of one driver's life."""

    resource: StreamTopology
    topology: Topology
    records: Callable[[], SkipRecords]
    """Made where it is needed: most topologies skip nothing."""
    problems: list[str]
    """Where trouble is said."""
    able: frozenset[str] = frozenset()
    """Partitions that may begin anew."""
    skips: tuple[Skip, ...] = ()
    """All that are on record."""
    _lost: dict[str, dict[str, int]] = field(default_factory=dict)
    """Partition that is lost -> its readers, with the last of its batches that each has applied."""
    _shown: dict[str, int] = field(default_factory=dict)
    """The same partitions -> the last batch that they were known to have shown."""
    _anew: dict[str, Skip] = field(default_factory=dict)
    """Partitions that are being installed with their initial state."""
    _decided: dict[str, Skip] = field(default_factory=dict)
    """Those that are to be, where that is on record and nothing was installed yet."""
    _chosen: frozenset[str] = frozenset()
    """Those of the last decision that are to begin anew."""
    _operators: Mapping[str, Operator] = field(default_factory=dict)
    """An instance of each operator, to ask what its output depends on."""
    _doubtful: bool = False
    """It is not known what is on record."""

    def __post_init__(self) -> None:
        forgetful = {o.name for o in self.resource.operators if o.forgetful}
        if forgetful and not self._can_tell():
            return
        self.able = frozenset(
            p.id for p in self.topology.partitions.values() if forgetful and p.place.operator in forgetful
        )

    def _can_tell(self) -> bool:
        """Whether it can be told, by the code as it is here, which outputs will lack rows."""
        try:
            self._operators = {o.name: make_operator(o) for o in self.resource.operators}
            sinks = {o.name: make_sink(o) for o in self.resource.operators}
            require_gaps_that_end(self.resource, self._operators, sinks)
        except Exception as error:  # user code raises what it likes
            self.problems.append(f"no batch is skipped, all is restored from checkpoints: {error}")
            return False
        return True

    def begin(self) -> None:
        """Take over what earlier drivers have skipped, also where nothing may be skipped any more, as it is replayed.
        StoreError: it has not begun."""
        records = self.records()
        found = records.read()
        self.skips = found or ()
        if (
            self.able or found is not None
        ):  # else a driver before this one, frozen until now, could write the newest
            records.write(self.skips)

    # -- what is seen --------------------------------------------------------------------------------------------------

    def loses(self, partition: str, failure: Failure, position: int | None) -> None:
        """A partition is not at work any more, which was at `position`."""
        self.leaves(partition)
        if partition in self.able and failure.kind in FORGOTTEN and position is not None:
            self._lost[partition], self._shown[partition] = {}, position

    def leaves(self, partition: str) -> None:
        """A partition is not where it was: what is known of it does not count."""
        self._lost.pop(partition, None)
        self._shown.pop(partition, None)
        self._anew.pop(partition, None)
        for readers in self._lost.values():
            readers.pop(partition, None)

    def heard(self, ordered: Collection[str], report: Report) -> None:
        """What readers on one node have applied of partitions that are sealed."""
        for partition, readers in report.stepped.items():
            if partition in self._lost:
                self._lost[partition].update({t: k for t, k in readers.items() if t in ordered})

    def works(self, partition: str) -> None:
        """A partition was installed."""
        self._anew.pop(partition, None)

    # -- what is told --------------------------------------------------------------------------------------------------

    @property
    def sealed(self) -> tuple[str, ...]:
        """Partitions of which nothing more is taken in."""
        return tuple(sorted(self._lost))

    def told(self, oldest: int) -> tuple[Skip, ...]:
        """Skips that matter for who is behind batch `oldest`."""
        return tuple(skip for skip in self.skips if skip.last > oldest)

    def install(self, partition: str) -> Install | None:
        """How a partition begins anew; None: it is restored."""
        skip = self._anew.get(partition)
        return None if skip is None else Install(skip.until, shown=skip.shown)

    @property
    def skipped(self) -> dict[str, tuple[int, int]]:
        """Partition -> first and last batch that some reader was stepped through without it, the last time."""
        return {s.partition: (min(s.after.values(), default=s.shown) + 1, s.until) for s in self.skips}

    @property
    def marked(self) -> dict[str, tuple[int, int]]:
        """Output partition -> first and last batch that may lack rows, of the last time when one was skipped for it."""
        found: dict[str, tuple[int, int]] = {}
        for skip in self.skips:
            for output, (first, last) in skip.marked.items():
                before = found.get(output, (first, last))
                found[output] = (
                    (min(first, before[0]), max(last, before[1])) if before[1] >= first - 1 else (first, last)
                )
        return found

    # -- what is decided -----------------------------------------------------------------------------------------------

    def decide(self, engine: Engine, installs: Set[str], back: Set[str], stays: Set[str]) -> None:
        """Decide which of those that are to be installed, and do not go `back`, begin anew, and write it down; `stays`: who
        is at work and goes on.  `installs_now` carries it out.  Raises what `SkipRecords.write` raises; nothing is to be
        installed then, and this is called again."""
        if not self.able:
            return
        self._chosen = chosen = self._eligible(engine, installs - back, stays)
        try:
            new = [self._skip(p, engine.horizon, stays) for p in sorted(chosen - self._decided.keys())]
        except Exception as error:  # user code, asked what its output depends on, raises what it likes
            self.problems.append(f"no batch is skipped, all is restored from checkpoints: {error}")
            self._chosen = frozenset()
            return
        if new or self._doubtful:
            self._doubtful = True
            kept = tuple(skip for skip in self.skips if skip.last > engine.ledger.trimmed)
            self.records().write((*kept, *new))
            self._doubtful, self.skips = False, (*kept, *new)
            self._decided |= {skip.partition: skip for skip in new}
        for skip in new:
            log.warning(
                "event=batches-skipped partition=%s until=%d after=%s outputs=%d",
                skip.partition, skip.until, min(skip.after.values(), default=skip.until), len(skip.marked),
            )  # fmt: skip

    def installs_now(self, installs: Set[str]) -> None:
        """Nothing can keep `installs` from being ordered any more: those that were chosen begin anew."""
        for partition in installs & self._anew.keys():
            del self._anew[partition]
        self._anew |= {p: self._decided[p] for p in self._chosen}
        self._chosen = frozenset()

    def installed(self, engine: Engine) -> None:
        """What was decided is being carried out: checkpoints that those who begin anew will not pass are given up."""
        self._decided.clear()
        for partition in self._lost.keys() & engine.positions.keys():
            del self._lost[partition], self._shown[partition]
        if self._anew:
            engine.punctuations.give_up(max(skip.until for skip in self._anew.values()))

    def _eligible(self, engine: Engine, installs: Set[str], stays: Set[str]) -> frozenset[str]:
        """The greatest set of lost partitions each reader of which stays and has reported, or is in the set."""
        final = engine.final
        if engine.drain.asked or (final is not None and engine.horizon >= final):
            return frozenset()
        if engine.horizon <= engine.punctuations.newest:  # a restored partition has nothing to make again
            return frozenset()
        chosen = set(self._lost) & installs
        while True:
            wrong = {
                p
                for p in chosen
                if not all(self._ready(engine, p, t, stays) or t in chosen for t in self._readers(p))
            }
            if not wrong:
                return frozenset(chosen)
            chosen -= wrong

    def _ready(self, engine: Engine, partition: str, reader: str, stays: Set[str]) -> bool:
        """Whether a reader goes on, and has handed on all that it has applied: else upstreams would have to send again."""
        applied = self._lost[partition].get(reader)
        return reader in stays and applied is not None and engine.positions.get(reader, -1) >= applied

    def _readers(self, partition: str) -> tuple[str, ...]:
        return tuple(t for down in self.topology.partitions[partition].downstream for t in down.targets)

    def _skip(self, partition: str, until: int, stays: Set[str]) -> Skip:
        after = {t: k for t, k in self._lost[partition].items() if t in stays}
        last = last_marked(
            self.resource, self._operators, self.topology.partitions[partition].place.operator, until
        )
        marked = {}
        for output, query in self.topology.queries.items():
            if partition not in query.partitions:
                continue
            firsts = [k + 1 for t, k in after.items() if t in query.partitions]
            if output == partition:
                firsts.append(self._shown[partition] + 1)
            first = min(firsts, default=until + 1)
            if (end := last[self.topology.partitions[output].place.operator]) >= first:
                marked[output] = first, end
        return Skip(partition, until, after, self._shown[partition], marked)
